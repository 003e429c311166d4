"""docs/text-of-a-row.md: every command in it runs as it stands, and makes what a loop makes."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import oracle
import pages
from corpora import made_texts

PAGE = pages.DOCS / "text-of-a-row.md"
ROWS = [
    {
        "title": None if i % 3 == 0 else f"Title {i}",
        "body": None if i % 6 == 0 else text,
        "score": i % 5,
        "meta": {"summary": f"In short: {i}"},
        "paragraphs": text.split(" ")[: i % 4],
    }
    for i, text in enumerate(made_texts(30, seed=8))
]


def written(folder: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "articles.parquet")
    lines = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    (folder / "articles.jsonl").write_bytes(lines)
    (folder / "articles.jsonl.bz2").write_bytes(bz2.compress(lines))
    (folder / "articles.jsonl.gz").write_bytes(gzip.compress(lines))
    with (folder / "articles.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)


def title_and_body(row: dict) -> list[str]:
    both = (row["title"], row["body"])
    return [] if both == (None, None) else [f"{both[0] or ''}\n\n{both[1] or ''}"]


def body(row: dict) -> list[str]:
    return [] if row["body"] is None else [row["body"]]


def paragraphs(row: dict) -> list[str]:
    return [text for text in row["paragraphs"] if text]


EXPECTED = {
    "bodies": body,
    "summaries": lambda row: [row["meta"]["summary"]],
    "articles": title_and_body,
    "joined": lambda row: ["\n\n".join(row["paragraphs"])] if row["paragraphs"] else [],
    "paragraphs": paragraphs,
    "csv": lambda row: body(row) if row["score"] >= 3 else [],
    "bz2": body,
    "piped": body,
}


def test_commands_of_the_page_when_run_then_they_make_what_a_loop_makes(tmp_path):
    written(tmp_path)
    assert {block.language for block in pages.blocks_of(PAGE)} == {"sh", "text"}
    commands = "".join(pages.texts_of(PAGE, "sh"))
    script = commands.replace(" -o data/", " --no-val --num-proc 1 -q -o data/")
    pages.ran(["bash", "-euc", script], tmp_path)
    made = {folder.name for folder in (tmp_path / "data").iterdir()}
    assert made == EXPECTED.keys()
    for name, of_row in EXPECTED.items():
        texts = [text for row in ROWS for text in of_row(row)]
        found = (tmp_path / "data" / name / "train.bin").read_bytes()
        assert found == oracle.stream(oracle.ids(texts)), name
