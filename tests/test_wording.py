"""Numbers in messages: what there is one of is singular, and no speed is shown as nothing."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path

import pytest

import tokenmill
import warm
from tokenmill.cli.progress import Progress
from tokenmill.cli.screen import shown_rate, shown_seconds
from tokenmill.cli.signals import SignalStop
from tokenmill.cli.summary import note_lines, shown_speed, summary
from tokenmill.wording.plural import counted, noun_for

# A count of one before a plural, and rates and times that say nothing.
_NOUNS = (
    "documents|tokens|rows|files|slices|shards|workers|bytes|ids|places|pieces|processes|problems"
    "|notes|sources|samples|nodes|children"
)
WRONG = re.compile(
    rf"(?<![\d.,])1 (?:(?:EOT|input|more) )?(?:{_NOUNS})\b|\b0 (?:MB|kB|B)/s|\b0\.0+ s\b"
)


def said_by(folder: Path, *words: str) -> str:
    done = warm.tokenmill(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One file of one row of one token, prepared."""
    path = tmp_path_factory.mktemp("one")
    (path / "one.jsonl").write_text('{"text": "hi"}\n')
    (path / "said").write_text(
        said_by(path, "prepare", "one.jsonl", "-o", "one", "--eot", "none", "--no-val")
    )
    return path


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("prepare one.jsonl -o one --eot none --no-val", "1 document, 2 B of text -> 1 token"),
        ("prepare one.jsonl -o other --dry-run --num-proc 1", "1 input file, 15 B"),
        ("prepare one.jsonl -o parts --partition 1/1 --num-proc 1", "1 of 1 slice, 1 document, "),
        ("verify one --full", "1 row = 1 written"),
        ("inspect one", "nanogpt"),
        ("report one -q -o -", "1 row = 1 written"),
        ("report one --markdown", "1 token, 1 document"),
        ("inspect one --grep-ids 5303", "1 place in 1 token"),
        ("estimate one.jsonl --num-proc 1", "1 file, 15 B: 1 document"),
        ("convert one npy --format npy --overwrite", "1 token in 1 shard"),
        ("doctor -- true", ": 1 process"),
    ],
)
def test_what_there_is_one_of_is_singular(folder, command, expected):
    said = said_by(folder, *command.split())
    assert expected in said
    assert not WRONG.findall(said), said


def test_summary_of_one_token_names_no_speed(folder):
    said = (folder / "said").read_text()
    assert "1 document, 2 B of text -> 1 token in " in said and "/s" not in said
    assert not WRONG.findall(said), said


def test_wrong_is_found_by_what_these_tests_look_for():
    for text in ("1 documents", "(1 EOT ids", "took 0.0 s", ", 0 MB/s of"):
        assert WRONG.search(text), text
    for text in ("21 documents", "1.1 documents", "0.04 s", "10 MB/s", "1,001 rows"):
        assert not WRONG.search(text), text


def test_counts_have_their_nouns():
    assert [counted(n, "document") for n in (0, 1, 2, 1001)] == [
        "0 documents",
        "1 document",
        "2 documents",
        "1,001 documents",
    ]
    assert counted(2, "process", "processes") == "2 processes"
    assert (noun_for(1, "is", "are"), noun_for(3, "is", "are")) == ("is", "are")


def test_speeds_and_times_have_as_many_digits_as_mean_something():
    assert [shown_rate(rate) for rate in (250e6, 9.94e6, 4e5, 12)] == [
        "250 MB/s",
        "9.9 MB/s",
        "400.0 kB/s",
        "12 B/s",
    ]
    assert [shown_seconds(s) for s in (0, 0.04, 0.4, 61)] == ["0.01 s", "0.04 s", "0.4 s", "1:01"]
    assert shown_speed(2.0, 3_000_000) == " in 2.0 s, 1.5 MB/s of text"
    assert (shown_speed(2.0, 3000), shown_speed(None, 0)) == (" in 2.0 s", "")


def test_summary_when_the_run_was_resumed_then_the_time_is_that_of_what_was_left(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    out = str(tmp_path / "out")
    made = tokenmill.prepare(tmp_path / "a.jsonl", out, num_proc=1, val="none")
    said = "2 documents, 6 B of text -> 4 tokens"
    assert summary(made, out, 2.0, 6)[0] == f"{said} in 2.0 s"
    assert summary(made, out, 2.0, 3)[0] == f"{said}; 3 B of it in 2.0 s"
    assert summary(made, out, 2.0, 0)[0] == f"{said} in 2.0 s"  # all that was left was to finish


def test_progress_before_anything_is_done_promises_nothing():
    progress = Progress(SignalStop(), lambda _: "1 worker", quiet=False, stream=io.StringIO())
    assert progress._fields(time.monotonic() + 0.5) == ["  0%", "0 documents", "0 tokens"]


def test_command_of_a_note_stands_on_its_own_line():
    assert note_lines(["so:\nsed x", "and"]) == ["  note: so:", "    sed x", "  note: and"]


def test_notes_stand_in_inspects_json(folder):
    said_by(folder, "prepare", "one.jsonl", "-o", "wide", "--tokenizer", "o200k_base", "--no-val")
    found = json.loads(said_by(folder, "inspect", "wide", "--json"))
    assert [note.split("\n")[1][:4] for note in found["notes"]] == ["sed "]
