"""Made-up documents, and the input files that hold them."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
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


PLAIN_WORDS = [
    "the",
    "a",
    "miller",
    "grinds",
    "wheat",
    "and",
    "rye",
    "into",
    "fine",
    "flour",
    "near",
    "every",
    "river",
    "because",
    "people",
    "eat",
]


def plain_texts(count: int, seed: int = 0) -> list[str]:
    """Documents that look well on a page of docs/."""
    rng = random.Random(seed)
    return [
        " ".join(rng.choices(PLAIN_WORDS, k=rng.randint(10, 160))).capitalize() + "."
        for _ in range(count)
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


def write_mixed(folder: Path, texts: list[str]) -> list[str]:
    """The texts, in shares, as files of many kinds, in the order of their names; `meta.text` is the
    text, `n` its number and `meta.title` a title."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [
        *("a.parquet", "b.arrow", "c.json", "d.jsonl.bz2", "e.jsonl.xz", "f.csv", "g.csv.lz4"),
        *("h.tsv", "i.json.gz"),
    ]
    for number, name in enumerate(names):
        share = range(number, len(texts), len(names))
        rows = [{"n": i, "meta": {"text": texts[i], "title": f"title {i}"}} for i in share]
        table, path = pa.Table.from_pylist(rows), folder / name
        if name == "a.parquet":
            pq.write_table(table, path, row_group_size=5)
        elif name == "b.arrow":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=5)
        elif ".json" in name and ".jsonl" not in name:
            _write(path, json.dumps(rows, indent=2).encode())
        elif ".jsonl" in name:
            _write(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
        else:
            sink = io.StringIO(newline="")
            writer = csv.writer(sink, delimiter="\t" if name == "h.tsv" else ",")
            writer.writerow(["n", "meta.text", "meta.title"])
            writer.writerows((row["n"], row["meta"]["text"], row["meta"]["title"]) for row in rows)
            _write(path, sink.getvalue().encode())
    return [str(folder / name) for name in names]


def mixed_order(texts: list[str]) -> list[str]:
    """The texts in the order in which `write_mixed` has them."""
    return [text for share in range(9) for text in texts[share::9]]


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(compressed(path.name, data))


def compressed(name: str, data: bytes) -> bytes:
    """The data as a file of that name has it."""
    if name.endswith(".gz"):
        return gzip.compress(data)
    if name.endswith(".bz2"):
        return bz2.compress(data)
    if name.endswith(".xz"):
        return lzma.compress(data)
    if name.endswith(".lz4"):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "lz4") as stream:
            stream.write(data)
        return sink.getvalue().to_pybytes()
    if name.endswith(".zst"):
        return pa.compress(data, codec="zstd", asbytes=True)
    return data


def write_three_kinds(folder: Path, rows: list[dict], cuts: tuple[int, int]) -> list[str]:
    """Rows in three files of different kinds, cut at these rows; a table's pieces hold 25 rows."""
    paths = [str(folder / name) for name in ("a.parquet", "b.arrow", "c.jsonl")]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table.slice(0, cuts[0]), paths[0], row_group_size=25)
    with pa.OSFile(paths[1], "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.slice(cuts[0], cuts[1] - cuts[0]), max_chunksize=25)
    Path(paths[2]).write_text("".join(json.dumps(row) + "\n" for row in rows[cuts[1] :]))
    return paths
