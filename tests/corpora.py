"""Made-up documents, and the input files that hold them."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

WORDS = [
    "the",
    "of",
    "and",
    "to",
    "mill",
    "grain",
    "stone",
    "water",
    "wheel",
    "flour",
    "Ünïcödé",
    "naïve",
    "東京",
    "大学",
    "мельница",
    "зерно",
    "🙂",
    "👩\u200d👩\u200d👧",
    "don't",
    "we'll",
    "I'VE",
    "12345",
    "3.14",
    "<|endoftext|>",
    "http://example.com/a?b=c",
    "\t",
    "\n\n",
    "()[]{}",
]


def made_texts(count: int, seed: int = 0) -> list[str]:
    """Documents that cannot be empty and hold no separator of ours (U+0001)."""
    rng = random.Random(seed)
    return [
        " ".join(rng.choices(WORDS, k=rng.choice([1, 3, 20, 60, 300]))) + f" #{number}"
        for number in range(count)
    ]


SEPARATOR = "\x01"


def write_corpus(kind: str, folder: Path, texts: list[str | None]) -> str:
    """The texts as one input file of a kind; the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"corpus.{kind}"
    table = pa.table({"id": range(len(texts)), "text": pa.array(texts, pa.string())})
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=50)
    elif kind == "arrow":
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=50)
    elif kind == "feather":
        pyarrow.feather.write_feather(table, str(path), chunksize=50)
    elif kind.startswith("jsonl"):
        lines = "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts))
        _write(path, lines.encode())
    elif kind.startswith("txt"):
        _write(path, SEPARATOR.join(t or "" for t in texts).encode())
    else:
        raise ValueError(kind)
    return str(path)


def _write(path: Path, data: bytes) -> None:
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = pa.compress(data, codec="zstd", asbytes=True)
    path.write_bytes(data)
