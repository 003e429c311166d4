"""What the bytes must be, said slowly and plainly: tiktoken, a list, a file.

Shares no code with tokenmill. The shard writers follow the loops of build-nanogpt's and llm.c's own
scripts as field notes describe them: fill a buffer of shard_size tokens, cut the document that
does not fit, go on with its rest.
"""

from __future__ import annotations

import base64
import functools
import io
import os
import struct

import numpy as np
import tiktoken

VOCAB = os.path.join(os.path.dirname(__file__), "..", "src", "tokenmill", "encodings", "vocab")
GPT2_PATTERN = (
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
)
CL100K_PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)
EOT = {"gpt2": 50256, "cl100k_base": 100257}


@functools.cache
def reference(name: str = "gpt2") -> tiktoken.Encoding:
    file = {"gpt2": "r50k_base", "cl100k_base": "cl100k_base"}[name]
    with open(os.path.join(VOCAB, f"{file}.tiktoken"), "rb") as lines:
        ranks = {base64.b64decode(k): int(v) for k, v in (line.split() for line in lines)}
    pattern = {"gpt2": GPT2_PATTERN, "cl100k_base": CL100K_PATTERN}[name]
    return tiktoken.Encoding(
        f"oracle-{name}",
        pat_str=pattern,
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": EOT[name]},
    )


def ids(texts: list[str], eot: str = "append", name: str = "gpt2") -> list[list[int]]:
    """Each document's ids, with EOT where it belongs."""
    mark = [EOT[name]]
    encode = reference(name).encode_ordinary
    before = mark if eot in ("prepend", "both") else []
    after = mark if eot in ("append", "both") else []
    return [before + encode(text) + after for text in texts]


def stream(documents: list[list[int]], dtype: str = "<u2") -> bytes:
    return np.array([i for document in documents for i in document], dtype).tobytes()


def shards(documents: list[list[int]], shard_size: int) -> list[list[int]]:
    """The scripts' loop, with the one change that a document may be longer than a shard."""
    full: list[list[int]] = []
    current: list[int] = []
    for tokens in documents:
        while len(current) + len(tokens) >= shard_size:
            room = shard_size - len(current)
            full.append(current + tokens[:room])
            current, tokens = [], tokens[room:]
        current = current + tokens
    return [*full, current] if current else full


def npy_files(documents: list[list[int]], shard_size: int, name: str) -> dict[str, bytes]:
    files = {}
    for index, tokens in enumerate(shards(documents, shard_size)):
        split = "val" if index == 0 else "train"
        memory = io.BytesIO()
        np.save(memory, np.array(tokens, dtype=np.uint16))
        files[f"{name}_{split}_{index:06d}.npy"] = memory.getvalue()
    return files


def llmc_files(
    documents: list[list[int]], shard_size: int, name: str, wide: bool
) -> dict[str, bytes]:
    files = {}
    magic, version, dtype = (20240801, 7, "<u4") if wide else (20240520, 1, "<u2")
    for index, tokens in enumerate(shards(documents, shard_size)):
        split = "val" if index == 0 else "train"
        header = struct.pack("<256i", magic, version, len(tokens), *[0] * 253)
        files[f"{name}_{split}_{index:06d}.bin"] = header + np.array(tokens, dtype).tobytes()
    return files
