"""One corpus in files of many kinds, through every command; and standard input."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

import oracle
import tokenmill
import warm
from corpora import made_texts, mixed_order, write_mixed
from tokenmill.config import Config, Partition
from tokenmill.errors import ConfigError, ConflictError, InputError
from tokenmill.run import SilentWatch
from tokenmill.run.finish import finish
from tokenmill.run.partition import encode_partition
from tokenmill.runners import Stopped
from tokenmill.runners.inline import InlineRunner

TEXTS = made_texts(180, seed=21)
OPTIONS = {"val": "none", "slice_bytes": 4000}
NESTED = {**OPTIONS, "text_column": "meta.text", "where": "n >= 18"}
CHOSEN = mixed_order(TEXTS[18:])  # the first 18 are the first two rows of each file


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> list[str]:
    return write_mixed(tmp_path_factory.mktemp("mixed"), TEXTS)


def tokens_of(texts: list[str]) -> bytes:
    return oracle.stream(oracle.ids(texts))


def require_verified(out: Path, **options: object) -> None:
    """Every document is encoded again from the sources."""
    report = tokenmill.verify(out, full=True, num_proc=1, **options)
    assert report.is_whole and "all the same" in str(report), report


@pytest.mark.parametrize("num_proc", [1, 2, 4])
def test_files_of_many_kinds_when_prepared_by_any_workers_then_tokens_are_those_of_a_loop(
    paths, tmp_path, num_proc
):
    manifest = tokenmill.prepare(paths, tmp_path / "out", num_proc=num_proc, **NESTED)
    assert (tmp_path / "out" / "train.bin").read_bytes() == tokens_of(CHOSEN)
    assert (manifest.counts.num_rows, manifest.counts.num_filtered) == (180, 18)
    if num_proc == 1:
        require_verified(tmp_path / "out")
        shown = warm.tokenmill("inspect", tmp_path / "out", "--doc", 161)
        assert shown.returncode == 0 and CHOSEN[-1].split()[-1] in shown.stdout


def test_template_when_prepared_in_tasks_then_tokens_are_those_of_a_loop(paths, tmp_path):
    made = {**OPTIONS, "template": "{meta.title}\n{meta.text}"}
    config = Config(sources=tuple(paths), out=str(tmp_path / "out"), num_proc=1, **made)
    for number in (2, 1):
        encode_partition(config, Partition(number, 2), InlineRunner(), SilentWatch())
    finish(str(tmp_path / "out"))
    texts = mixed_order([f"title {i}\n{text}" for i, text in enumerate(TEXTS)])
    assert (tmp_path / "out" / "train.bin").read_bytes() == tokens_of(texts)
    assert "--template '{meta.title}\\n{meta.text}'" in _recipe(tmp_path / "out")


def _recipe(out: Path) -> str:
    from tokenmill.dataset.manifest import Manifest
    from tokenmill.dataset.recipe import prepare_command

    manifest = json.loads((out / "tokenmill.json").read_text())
    return prepare_command(Manifest.from_plain(manifest))


@pytest.mark.parametrize("number", range(9))
def test_estimate_when_files_are_of_any_kind_then_it_is_near(paths, number):
    found = tokenmill.estimate(paths[number], text_column="meta.text", num_proc=1)
    expected = len(tokens_of(TEXTS[number::9])) // 2
    assert abs(found.num_tokens - expected) <= 0.02 * expected


# Standard input.

LINES = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()


@pytest.fixture
def piped(monkeypatch):
    def pipe(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return pipe


class StopAfterOne(SilentWatch):
    def __init__(self) -> None:
        self.said: list[str] = []
        self._is_over = False

    def recorded(self, record: object) -> None:
        self._is_over = True

    def should_stop(self) -> bool:
        return self._is_over

    def notice(self, message: str) -> None:
        self.said.append(message)


def test_standard_input_when_interrupted_then_the_same_bytes_continue_and_others_are_refused(
    piped, tmp_path
):
    options = {**OPTIONS, "input_format": "jsonl", "num_proc": 1}
    watch = StopAfterOne()
    piped(LINES)
    with pytest.raises(Stopped):
        tokenmill.prepare("-", tmp_path / "out", watch=watch, **options)
    assert "it cannot be read twice" in watch.said[0]
    piped(LINES + LINES)
    with pytest.raises(ConflictError, match="input changed: -: was"):
        tokenmill.prepare("-", tmp_path / "out", **options)
    piped(LINES)
    manifest = tokenmill.prepare("-", tmp_path / "out", **options)
    assert (tmp_path / "out" / "train.bin").read_bytes() == tokens_of(TEXTS)
    assert [one.path for one in manifest.inputs] == ["-"]
    (tmp_path / "kept.jsonl").write_bytes(LINES)
    require_verified(tmp_path / "out", sources=tmp_path / "kept.jsonl")


@pytest.mark.parametrize(
    ("data", "options", "error", "said"),
    [
        (LINES, {}, ConfigError, "--input-format jsonl"),
        (LINES, {"input_format": "jsonl", "runner": "ray"}, ConfigError, "not on a cluster"),
        (b"\x1f\x8b\x08", {"input_format": "text"}, InputError, "decompress it"),
        (b"PAR1\x15\x04", {"input_format": "jsonl"}, InputError, "--input-format parquet"),
        (b"", {"input_format": "jsonl"}, InputError, "standard input is empty"),
        (b"\n\n", {"input_format": "jsonl"}, InputError, "of 0 rows"),
    ],
)
def test_standard_input_when_it_cannot_be_read_then_says_why(
    piped, tmp_path, data, options, error, said
):
    piped(data)
    with pytest.raises(error) as caught:
        tokenmill.prepare("-", tmp_path / "out", **options)
    assert said in str(caught.value)


def test_standard_input_when_it_would_be_read_twice_then_is_refused(tmp_path):
    done = warm.tokenmill(
        "prepare", "-", "--input-format", "text", "-o", tmp_path / "o", "--dry-run"
    )
    assert done.returncode == 2 and "can be read only once" in done.stderr
    with pytest.raises(ConfigError, match="can be read only once"):
        tokenmill.estimate("-", input_format="text")
