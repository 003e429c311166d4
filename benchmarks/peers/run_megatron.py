"""The Megatron way (tools/preprocess_data.py): a Pool over JSON lines. Written from scratch.

Workers parse a line, encode it and hand a list of ids back; the parent appends each document to one
.bin and writes the .idx in the end. The tokenizer is tiktoken, the fastest that it can be given.

    python benchmarks/peers/run_megatron.py CORPUS OUT NUM_PROC
"""

from __future__ import annotations

import glob
import json
import multiprocessing
import os
import struct
import sys
from collections.abc import Iterator

import numpy as np

UINT16 = 8  # its code for the dtype


def start() -> None:
    global encoder  # noqa: PLW0603
    import tiktoken

    encoder = tiktoken.get_encoding("r50k_base")


def encode(line: str) -> tuple[list[int], int]:
    ids = encoder.encode_ordinary(json.loads(line)["text"])
    ids.append(encoder.eot_token)
    return ids, len(line)


def lines(corpus: str) -> Iterator[str]:
    for path in sorted(glob.glob(os.path.join(corpus, "*.jsonl"))):
        with open(path, encoding="utf-8") as file:
            yield from file


def main(corpus: str, out: str, num_proc: int) -> None:
    os.makedirs(out)
    lengths = []
    with (
        multiprocessing.Pool(num_proc, start) as pool,
        open(os.path.join(out, "text_document.bin"), "wb") as tokens,
    ):
        for ids, _ in pool.imap(encode, lines(corpus), 32):
            tokens.write(np.array(ids, np.uint16).tobytes(order="C"))
            lengths.append(len(ids))
    with open(os.path.join(out, "text_document.idx"), "wb") as index:
        index.write(b"MMIDIDX\x00\x00" + struct.pack("<QB", 1, UINT16))
        index.write(struct.pack("<QQ", len(lengths), len(lengths) + 1))
        index.write(np.array(lengths, np.int32).tobytes())
        index.write((2 * np.cumsum([0, *lengths[:-1]], dtype=np.int64)).tobytes())
        index.write(np.arange(len(lengths) + 1, dtype=np.int64).tobytes())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
