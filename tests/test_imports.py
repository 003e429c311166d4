"""What a run imports: what an option needs is for a run that uses it, in every process of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = [{"text": f"text {i}", "n": i, "x": i / 2, "b": i > 2, "l": [i]} for i in range(6)]
TESTS = ["n >= 2", "x > 0.5", 'text != "text 4"', "b", "n is not null", "len(l) == 1"]

# The command as a user runs it, inline: what it imports, a worker imports.
PROGRAM = """
import json, sys
from tokenmill.cli import main

runs = json.loads(sys.argv[1])
for number, arguments in enumerate(runs):
    sys.argv[1:] = ["prepare", *arguments, "-o", f"out{number}", "--num-proc=1", "--no-val", "-q"]
    assert main() == 0, arguments
print(json.dumps(list(sys.modules)))
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "bad.jsonl").write_text(lines + "{\n")
    (tmp_path / "a.txt").write_text("a text")
    (tmp_path / "a.csv").write_text("title,text\n,one\ntwo,three\n")
    return tmp_path


def imported(folder: Path, *runs: list[str]) -> set[str]:
    command = [sys.executable, "-c", PROGRAM, json.dumps(runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_run_without_options_imports_nothing_of_theirs(folder):
    found = imported(folder, ["a.parquet", "a.jsonl", "a.txt"])
    ours = {name.removeprefix("tokenmill.") for name in found if name.startswith("tokenmill.")}
    assert "corpus.readers.parquet" in ours
    unused = [
        "where.parser",
        "where.evaluation",
        "corpus.readers.parquet_statistics",
        "config.file",
        "storage.hub",
    ]
    unused += ["corpus.readers.delimited", "corpus.readers.arrow"]
    assert not ours.intersection(unused)
    assert not found & {"pandas", "awkward", "fsspec", "http.client", "huggingface_hub"}


def test_options_import_no_pandas_which_every_worker_would_pay(folder):
    bad = ["--max-bad-fraction", "1"]
    found = imported(
        folder,
        ["bad.jsonl", "--where", " and ".join(TESTS), "--keep", "n,x,b,l,text", *bad],
        ["a.parquet", "--where", " and ".join(TESTS[:5]), "--keep", "n,x,b,text"],
        ["a.csv", "--template", "{title} {text}", "--dedup", "exact", "--limit-tokens", "4"],
        ["a.jsonl", "--sample", "0.9", "--template", "{n} {text}"],
    )
    assert "tokenmill.where.evaluation" in found and "tokenmill.corpus.readers.delimited" in found
    assert "pandas" not in found
