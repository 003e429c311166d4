"""Every option that says what goes in, with what must come out: by a filter, a loop and tiktoken.

A scenario is run in every place where a run can be (test_options_everywhere.py) and killed
(faults/test_option_kills.py). `TOGETHER` uses all options in one run, for places where a run takes
seconds.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

import oracle
import tokenmill
from corpora import compressed, made_texts

Row = dict[str, Any]
TEXTS = made_texts(100, seed=8)
for copy, original in ((12, 3), (44, 12), (58, 57), (70, 41), (90, 2)):
    TEXTS[copy] = TEXTS[original]
ROWS: list[Row] = [
    {
        "id": f"<{i}>",
        "score": i % 5,
        "title": f"title {i}",
        "text": text,
        "parts": [f"{text} ({part})" for part in range(i % 3)],
        "meta": {"text": f"within: {text}"},
    }
    for i, text in enumerate(TEXTS)
]
FILES = {
    "a.parquet": ROWS[:40],
    "b.jsonl": ROWS[40:60],
    "c.csv.xz": ROWS[60:80],
    "d.jsonl.bz2": ROWS[80:],
}
A, B, C, D = FILES
SMALL = {"slice_bytes": 3000, "val": "none"}
BOS = {"tokenizer": "cl100k_base", "bos_token": "<|endofprompt|>"}
SAMPLE = {"sample": 0.5, "seed": 11}
TEMPLATE = "{title}: {text}"
DOCUMENTS = {"text_column": "parts", "lists": "documents"}


def file_bytes(name: str) -> bytes:
    rows = FILES[name]
    if name == A:
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=10)
        return sink.getvalue()
    if name == C:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, ["id", "title", "text"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
        return compressed(name, text.getvalue().encode())
    return compressed(name, "".join(json.dumps(row) + "\n" for row in rows).encode())


def write_files(folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    for name in FILES:
        (folder / name).write_bytes(file_bytes(name))
    return str(folder)


@dataclass(frozen=True)
class Scenario:
    name: str
    sources: Callable[[str], object]  # of the folder, or URL, in which the files are
    options: dict[str, Any]
    texts: Callable[[], list[tuple[Row, str]]]  # rows that go in, with their texts
    num_tokens: int | None = None  # the limit

    def prepared(self, base: str, out: str, **more: object) -> tokenmill.Manifest:
        given = {**SMALL, "num_proc": 1, **self.options, **more}
        return tokenmill.prepare(self.sources(base), out, **given)

    def documents(self) -> list[tuple[Row, list[int]]]:
        has_bos = "bos_token" in self.options
        encoding, before = ("cl100k_base", [100276]) if has_bos else ("gpt2", [])
        found, num_tokens = [], 0
        for row, text in self.texts():
            [ids] = oracle.ids([text], name=encoding)
            found.append((row, before + ids))
            num_tokens += len(found[-1][1])
            if self.num_tokens is not None and num_tokens >= self.num_tokens:
                break
        return found

    def check(self, out: str) -> None:
        """The dataset has the oracle's documents, and what is kept of them, in this order."""
        train, documents = tokenmill.open(out)["train"], self.documents()
        assert [ids.tolist() for ids in train] == [ids for _, ids in documents]
        if "keep" in self.options:
            kept = [train.kept(at)["id"] for at in range(len(train))]
            assert kept == [row["id"] for row, _ in documents]
        manifest = tokenmill.Manifest.load(out)
        assert manifest.counts.is_conserved and manifest.num_documents == len(documents)


def those_in(*names: str) -> Callable[[str], list[str]]:
    return lambda base: [f"{base}/{name}" for name in names]


def rows_of(*names: str) -> list[Row]:
    return [row for name in names for row in FILES[name]]


def plain(rows: Iterable[Row]) -> list[tuple[Row, str]]:
    return [(row, row["text"]) for row in rows]


def drawn(name: str, seed: int, share: float) -> list[Row]:
    """As corpus/rows.py says: splitmix64 of the file's hash and the row's number."""
    size = len(file_bytes(name))
    key = xxhash.xxh3_64_intdigest(f"0 {size} {name}".encode(), seed)
    found = []
    for number, row in enumerate(FILES[name], 1):
        state = (key + number * 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
        if (state ^ state >> 31) < share * 2**64:
            found.append(row)
    return found


def parts_of(rows: Iterable[Row]) -> list[tuple[Row, str]]:
    """A list without strings is an empty document, which is left out."""
    return [(row, part) for row in rows for part in row["parts"]]


def without_copies(texts: Iterable[tuple[Row, str]]) -> list[tuple[Row, str]]:
    first: dict[str, tuple[Row, str]] = {}
    for row, text in texts:
        first.setdefault(text, (row, text))
    return list(first.values())


def _named(base: str) -> object:
    some = {"paths": f"{base}/{A}", "where": "score < 2"}
    return {"some": some, "twice": {"paths": f"{base}/{B}", "repeat": 2}}


def _all_sources(base: str) -> object:
    return {
        "web": {"paths": [f"{base}/{A}"], "where": "score >= 1", "sample": SAMPLE["sample"]},
        "table": {"paths": f"{base}/{C}", "template": TEMPLATE},
        "lists": {"paths": f"{base}/{D}", **DOCUMENTS},
        "lines": {"paths": f"{base}/{B}", "where": "score != 3"},
        "nested": {"paths": f"{base}/{B}", "text_column": "meta.text"},
    }


def _all_texts() -> list[tuple[Row, str]]:
    web = [row for row in drawn(A, SAMPLE["seed"], SAMPLE["sample"]) if row["score"] >= 1]
    table = [(row, f"{row['title']}: {row['text']}") for row in FILES[C]]
    lines = plain(row for row in FILES[B] if row["score"] != 3)
    nested = [(row, row["meta"]["text"]) for row in FILES[B]]
    return without_copies([*plain(web), *table, *parts_of(FILES[D]), *lines, *nested])


TOGETHER = Scenario(
    "together",
    _all_sources,
    {**BOS, "seed": SAMPLE["seed"], "keep": "id", "dedup": "exact", "limit_tokens": 22_000},
    _all_texts,
    22_000,
)
SCENARIOS = [
    Scenario(
        "where",
        those_in(A, B),
        {"where": 'score >= 3 or title == "title 41"'},
        lambda: plain(
            row for row in rows_of(A, B) if row["score"] >= 3 or row["title"] == "title 41"
        ),
    ),
    Scenario("sample", those_in(A), SAMPLE, lambda: plain(drawn(A, 11, 0.5))),
    Scenario(
        "limit-tokens",
        those_in(A, B),
        {"limit_tokens": 4000},
        lambda: plain(rows_of(A, B)),
        4000,
    ),
    Scenario(
        "named, repeated",
        _named,
        {},
        lambda: plain(
            [*(row for row in FILES[A] if row["score"] < 2), *FILES[B], *FILES[B]],
        ),
    ),
    Scenario("keep", those_in(A, B), {"keep": "id"}, lambda: plain(rows_of(A, B))),
    Scenario("bos", those_in(A), BOS, lambda: plain(FILES[A])),
    Scenario(
        "dedup",
        those_in(A, B),
        {"dedup": "exact"},
        lambda: without_copies(plain(rows_of(A, B))),
    ),
    Scenario(
        "template, csv.xz",
        those_in(A, C),
        {"template": TEMPLATE},
        lambda: [(row, f"{row['title']}: {row['text']}") for row in rows_of(A, C)],
    ),
    Scenario("lists, bz2", those_in(A, D), DOCUMENTS, lambda: parts_of(rows_of(A, D))),
    Scenario(
        "nested",
        those_in(A, B),
        {"text_column": "meta.text"},
        lambda: [(row, row["meta"]["text"]) for row in rows_of(A, B)],
    ),
    TOGETHER,
]
