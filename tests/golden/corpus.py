"""The corpora and vocabularies of the golden cases, made by arithmetic alone.

No library's random numbers and no trained vocabulary: the same bytes for ever. What pyarrow or a
compressor writes may differ between their versions in bytes, not in content; a case whose output
depends on the size of an input file (`--sample`) or on where it is cut (`--shuffle`) reads text.
"""

from __future__ import annotations

import base64
import bz2
import csv
import gzip
import io
import itertools
import json
import lzma
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

WORDS = [
    *("the", "mill", "grinds", "wheat", "and", "rye", "into", "fine", "flour", "near", "every"),
    *("river", "because", "people", "eat", "bread", "don't", "we'll", "I'VE", "12345", "3.14"),
    *("Ünïcödé", "naïve", "東京", "大学", "мельница", "안녕", "๓๐", "🙂", "👩\u200d🌾", "e\u0301"),
    *("<|endoftext|>", "\U000323b0", "http://example.com/a?b=c", "()[]{}", "x=1;", "\\n"),
]
GLUE = (" ", " ", " ", " ", " ", "  ", "\n", "\n\n", "\t", ", ")
SEPARATOR = "<sep>"
BIG_TEXT = " ".join(WORDS[:14]) * 40
Row = dict[str, Any]


def numbers(seed: int) -> Iterator[int]:
    """A linear congruential generator (Knuth's MMIX), upper bits."""
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield state >> 33


def text(seed: int, num_words: int) -> str:
    draw = numbers(seed)
    words = (
        (WORDS[next(draw) % len(WORDS)], GLUE[next(draw) % len(GLUE)]) for _ in range(num_words)
    )
    return "".join(itertools.chain.from_iterable(words)).strip()


def rows(count: int = 160, seed: int = 0) -> list[Row]:
    """Documents of 1 to 300 words; some are empty, some null, some copies of earlier ones."""
    found: list[Row] = []
    for number, drawn in enumerate(itertools.islice(numbers(seed), count)):
        body: str | None = text(seed * 1000 + number, (1, 5, 20, 60, 300)[drawn % 5])
        if number % 29 == 7:
            body = ""
        elif number % 31 == 9:
            body = None
        elif number % 17 == 13:
            body = found[number // 2]["text"]
        found.append(
            {
                "id": f"<{number}>",
                "score": drawn // 5 % 5,
                "lang": ("en", "de", None)[drawn // 25 % 3],
                "title": f'title "{number}", part',
                "text": body,
                "parts": [f"{word} {number}" for word in (body or "").split()[: number % 4]],
                "meta": {"text": f"within: {body}", "length": len(body or "")},
            }
        )
    return found


ROWS = rows()
MORE = rows(60, seed=1)
FLAT = ("id", "score", "lang", "title", "text")
GIANT = text(99, 60_000) + "a" * 100_000 + " " * 100_000 + "." * 5_000 + "大" * 20_000


def json_lines(some: list[Row]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in some).encode()


def separated(some: list[Row], delimiter: str) -> bytes:
    sink = io.StringIO(newline="")
    writer = csv.DictWriter(sink, FLAT, delimiter=delimiter, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(some)
    return sink.getvalue().encode()


def _with_bad_lines(lines: bytes) -> bytes:
    found = lines.splitlines(keepends=True)[:40]
    found[3:3] = [
        b"{broken\n",
        b'{"text": "caf\xe9"}\n',
        b'{"text": 7}\n',
        b'{"other": "x"}\n',
        b"\n",
    ]
    return b"".join(found)


def write_inputs(folder: Path) -> None:
    """Every input file of the cases."""
    folder.mkdir(parents=True)
    lines, table = json_lines(ROWS), pa.Table.from_pylist(ROWS)
    texts = [row["text"] or "" for row in ROWS]
    files = {
        "plain.txt": texts[2].encode(),
        "sep.txt": SEPARATOR.join(texts).encode(),
        "crlf.txt": "one\r\ntwo\r\n\r\nthree\r\n".encode("utf-8-sig"),
        "bad.txt": SEPARATOR.join(texts[:30]).encode().replace(b"mill", b"m\xffll", 3),
        "giant.txt": GIANT.encode(),
        "docs.jsonl": lines,
        "more.jsonl": json_lines(MORE),
        "bad.jsonl": _with_bad_lines(lines),
        "array.json": json.dumps(ROWS, indent=1).encode(),
        "docs.csv": separated(ROWS, ","),
        "docs.tsv": separated(ROWS, "\t"),
        "docs.log": lines,
        "docs.jsonl.gz": gzip.compress(lines, mtime=0),
        "docs.jsonl.bz2": bz2.compress(lines),
        "docs.csv.xz": lzma.compress(separated(ROWS, ",")),
        "docs.jsonl.zst": pa.compress(lines, codec="zstd", asbytes=True),
        "big.jsonl": json_lines(
            [{"text": f"{n} " + " ".join(WORDS[:14]) * 40} for n in range(6000)]
        ),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    pq.write_table(table, folder / "docs.parquet", row_group_size=25)
    with pa.ipc.new_stream(folder / "docs.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=25)
    pyarrow.feather.write_feather(table, str(folder / "docs.feather"), chunksize=50)
    (folder / "folder").mkdir()
    (folder / "folder" / "b.jsonl").write_bytes(json_lines(MORE))
    (folder / "folder" / "a.csv").write_bytes(separated(ROWS[:40], ","))


# {IN} is where the inputs are. Small slices make several of a small corpus.
CONFIGS = {
    "small": "slice_bytes = 6000\n",
    "named": """slice_bytes = 6000
[source.web]
paths = "{IN}/docs.jsonl"
where = "score >= 2"
[source.lists]
paths = "{IN}/docs.jsonl"
text_column = "parts"
lists = "documents"
[source.twice]
paths = "{IN}/more.jsonl"
template = "{title}: {text}"
repeat = 2
[source.lines]
paths = "{IN}/sep.txt"
separator = "<sep>"
""",
    "big": '[source.big]\npaths = "{IN}/big.jsonl"\nrepeat = 4\n',
}


def write_configs(folder: Path, inputs: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in CONFIGS.items():
        (folder / f"{name}.toml").write_text(content.replace("{IN}", inputs))


# Vocabularies, one of each kind. 256 bytes and a few merges.

MERGES = ["t h", "th e", "Ġ th e", "m i", "l l", "mi ll", "Ġ mill", "i n", "Ġ a", "n d", "Ġa nd"]
EOT = "<|endoftext|>"


def _byte_letters() -> list[str]:
    """GPT-2's printable letter for each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in shown]
    letters = {byte: chr(byte) for byte in shown}
    letters |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


def _merges() -> list[tuple[str, str]]:
    pairs = [merge.split(" ", 1) for merge in MERGES if merge.count(" ") == 1]
    return [(left, right) for left, right in pairs]


def _pair() -> tuple[dict[str, int], list[str]]:
    tokens = [*_byte_letters(), *dict.fromkeys("".join(pair) for pair in _merges())]
    return {token: place for place, token in enumerate([*tokens, EOT])}, [
        " ".join(pair) for pair in _merges()
    ]


def _tokenizer_json() -> dict[str, Any]:
    vocab, merges = _pair()
    special = {"id": vocab[EOT], "content": EOT, "special": True, "single_word": False}
    special |= {"lstrip": False, "rstrip": False, "normalized": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [special],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {**level, "use_regex": True},
        "post_processor": None,
        "decoder": {**level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


RANKS = [*(bytes([byte]) for byte in range(256)), b"th", b"the", b" the", b"mi", b"ll", b"mill"]


def _tekken() -> dict[str, Any]:
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(RANKS)
    ]
    config = {
        "pattern": r"\p{L}+|\p{N}|[^\p{L}\p{N}]+",
        "default_vocab_size": 30 + len(RANKS),
        "default_num_special_tokens": 30,
        "version": "v3",
    }
    return {"config": config, "vocab": vocab}


def _field(number: int, value: bytes | int | float) -> bytes:
    """Of a protocol buffer."""
    if isinstance(value, bytes):
        return bytes([number << 3 | 2]) + _varint(len(value)) + value
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    return _varint(number << 3) + _varint(value)


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _sentencepiece(kind: int) -> bytes:
    """A model of BPE (2) or unigram (1)."""
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    pieces += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
    words = ["▁t", "he", "▁the", "▁m", "il", "▁mil", "▁mill", "an", "▁an", "▁and"]
    pieces += [(word, -float(rank), 1) for rank, word in enumerate(words)]
    pieces += [(letter, -50.0 - rank, 1) for rank, letter in enumerate("themilandrgsowfu▁")]
    listed = [
        _field(1, name.encode()) + _field(2, score) + _field(3, k) for name, score, k in pieces
    ]
    trainer, normalizer = _field(3, kind) + _field(35, 1), _field(3, 1) + _field(4, 0)
    return b"".join(_field(1, one) for one in listed) + _field(2, trainer) + _field(3, normalizer)


def write_vocabularies(folder: Path) -> None:
    (folder / "pair").mkdir(parents=True)
    lines = (f"{base64.b64encode(token).decode()} {n}\n" for n, token in enumerate(RANKS))
    vocab, merges = _pair()
    files = {
        "tiny.tiktoken": "".join(lines).encode(),
        "tokenizer.json": json.dumps(_tokenizer_json()).encode(),
        "pair/vocab.json": json.dumps(vocab).encode(),
        "pair/merges.txt": "\n".join(["#version: 0.2", *merges, ""]).encode(),
        "tekken.json": json.dumps(_tekken()).encode(),
        "bpe.model": _sentencepiece(2),
        "unigram.model": _sentencepiece(1),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
