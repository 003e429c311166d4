"""`prepare --timings FILE` and `report --timings FILE`: how fast a run was, beside the dataset."""

from __future__ import annotations

import errno
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import tokenmill
import warm
from corpora import made_texts, write_corpus
from hub_corpus import FILES, FINEWEB, Here
from tests.look.report.test_page import Page
from tokenmill.cli import main
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.timings import MAX_FILE_BYTES, read_timings, run_hash
from tokenmill.errors import ConfigError, ConflictError, InputError
from tokenmill.look.report.figures import ThroughputFigures
from tokenmill.look.report.throughput import throughput_of
from tokenmill.run import SilentWatch
from tokenmill.storage import appended_file, disk

TEXTS = made_texts(300, seed=3)
OPTIONS = {"slice_bytes": 30_000, "num_proc": 1, "val": "none"}

# Is killed by itself after so many slices.
KILLED = """
import os, signal, sys
import tokenmill, tokenmill.run.timings
from tokenmill.run import SilentWatch

tokenmill.run.timings.LINE_SECONDS = 0

class Watch(SilentWatch):
    num_left = 3
    def recorded(self, record):
        self.num_left -= 1
        if not self.num_left:
            os.kill(os.getpid(), signal.SIGKILL)

source, out, timings = sys.argv[1:]
tokenmill.prepare(source, out, timings=timings, watch=Watch(), **OPTIONS)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    return write_corpus("parquet", tmp_path_factory.mktemp("source"), list(TEXTS))


def everything(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def drawn(out: Path, *timings: object) -> ThroughputFigures:
    return throughput_of(map(str, timings), Manifest.load(str(out)), str(out))


def report(out: Path, *options: object) -> bytes:
    path = out.parent / "report.html"
    assert main(["report", str(out), *map(str, options), "-q", "-o", str(path)]) == 0
    Page(path.read_bytes())
    return path.read_bytes()


def killed(source: str, out: Path, timings: Path) -> None:
    code = KILLED.replace("OPTIONS", repr(OPTIONS))
    command = [sys.executable, "-c", code, source, str(out), str(timings)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL


def test_dataset_has_the_same_bytes_with_and_without_timings(source, tmp_path):
    tokenmill.prepare(source, tmp_path / "without", **OPTIONS)
    tokenmill.prepare(source, tmp_path / "with", timings=tmp_path / "t.jsonl", **OPTIONS)
    assert everything(tmp_path / "with") == everything(tmp_path / "without")
    (attempt,) = read_timings(str(tmp_path / "t.jsonl")).attempts
    manifest = Manifest.load(str(tmp_path / "with"))
    assert attempt.run == run_hash(manifest.identity, manifest.inputs)
    assert (attempt.num_resumed, attempt.end) == (0, "complete")
    assert attempt.last.slices == attempt.num_slices > 5
    assert attempt.last.documents == len(TEXTS)
    assert attempt.last.tokens == manifest.num_tokens
    assert attempt.last.text_bytes == manifest.counts.text_bytes


def test_killed_attempt_and_the_one_that_resumes_it_follow_one_another(source, tmp_path):
    out, timings = tmp_path / "out", tmp_path / "t.jsonl"
    killed(source, out, timings)
    with timings.open("ab") as file:
        file.write(b'{"seconds": 1.5, "slic')  # what a kill may leave of a line
    tokenmill.prepare(source, out, timings=timings, **OPTIONS)
    found = read_timings(str(timings))
    first, second = found.attempts
    assert (first.end, second.end, found.num_unreadable) == (None, "complete", 1)
    assert 0 < second.num_resumed < second.num_slices
    assert second.num_resumed + second.last.slices == second.num_slices
    page = report(out, "--timings", timings)
    assert b"Throughput over the run" in page and b"in 2 attempts" in page and b"killed" in page
    assert page == report(out, "--timings", timings)
    assert b"Throughput over the run" not in report(out)


def test_finished_dataset_leaves_no_line_and_no_file(source, tmp_path):
    out, timings = tmp_path / "out", tmp_path / "t.jsonl"
    tokenmill.prepare(source, out, timings=timings, **OPTIONS)
    before = timings.read_bytes()
    tokenmill.prepare(source, out, timings=timings, **OPTIONS)
    assert timings.read_bytes() == before
    tokenmill.prepare(source, out, timings=tmp_path / "other.jsonl", **OPTIONS)
    assert not (tmp_path / "other.jsonl").exists()


def test_run_that_is_made_again_is_reported_alone(source, tmp_path):
    out, timings = tmp_path / "out", tmp_path / "t.jsonl"
    for overwrite in (False, True):
        tokenmill.prepare(source, out, timings=timings, overwrite=overwrite, **OPTIONS)
    found = drawn(out, timings)
    assert (found.num_attempts, found.num_earlier) == (1, 1)


def test_another_runs_file_is_refused_before_anything_is_written(source, tmp_path):
    timings = tmp_path / "t.jsonl"
    tokenmill.prepare(source, tmp_path / "one", timings=timings, **OPTIONS)
    before = timings.read_bytes()
    with pytest.raises(ConflictError, match="has the timings of another run") as caught:
        tokenmill.prepare(source, tmp_path / "two", timings=timings, eot="none", **OPTIONS)
    assert "choose another file with --timings" in str(caught.value.hint)
    assert timings.read_bytes() == before and not (tmp_path / "two").exists()
    tokenmill.prepare(source, tmp_path / "two", eot="none", **OPTIONS)
    with pytest.raises(ConflictError, match="does not have the timings of"):
        drawn(tmp_path / "two", timings)


def test_timings_of_the_dataset_that_was_converted_say_what_to_do(source, tmp_path):
    timings = tmp_path / "t.jsonl"
    tokenmill.prepare(source, tmp_path / "one", timings=timings, **OPTIONS)
    tokenmill.convert(tmp_path / "one", tmp_path / "two", format="npy")
    with pytest.raises(ConflictError) as caught:
        drawn(tmp_path / "two", timings)
    assert "the dataset that `prepare` made" in str(caught.value.hint)


def test_file_that_is_not_of_timings_keeps_its_bytes(source, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("mine\n")
    with pytest.raises(ConflictError, match="holds no timings"):
        tokenmill.prepare(source, tmp_path / "out", timings=notes, **OPTIONS)
    assert notes.read_text() == "mine\n"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("out/t.jsonl", "is inside of"),
        ("link/t.jsonl", "is inside of"),
        ("s3://bucket/t.jsonl", "is not a local file"),
        ("", "is not a local file"),
        ("folder", "is a folder"),
        ("/dev/null", "is not a regular file"),
    ],
)
def test_place_that_timings_cannot_have_is_refused(source, tmp_path, monkeypatch, path, said):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("out").mkdir()
    Path("link").symlink_to("out")
    with pytest.raises((ConfigError, ConflictError), match=said):
        tokenmill.prepare(source, "out", timings=path, **OPTIONS)


@pytest.mark.parametrize("sources", ["corpus", "corpus/*"])
def test_file_among_the_sources_is_refused_and_not_left_there(tmp_path, monkeypatch, sources):
    monkeypatch.chdir(tmp_path)
    write_corpus("jsonl", tmp_path / "corpus", ["a text"])
    before = everything(tmp_path)
    with pytest.raises(ConfigError, match="is among the files that the sources name"):
        tokenmill.prepare(sources, "out", timings="corpus/t.jsonl")
    assert everything(tmp_path) == before


def test_two_runs_at_once_need_a_file_each(source, tmp_path):
    timings = str(tmp_path / "t.jsonl")
    file = appended_file.AppendedFile(timings, "")
    with pytest.raises(ConflictError, match="another run is writing its timings"):
        tokenmill.prepare(source, tmp_path / "out", timings=timings, **OPTIONS)
    file.close()


def test_full_disk_ends_the_timings_and_not_the_run(source, tmp_path, monkeypatch):
    lines = []

    def write_all(fd: int, view: memoryview) -> None:
        lines.append(bytes(view))
        if len(lines) > 1:
            raise OSError(errno.ENOSPC, "full")
        disk.write_all(fd, view)

    class Watch(SilentWatch):
        said = ""

        def notice(self, message: str) -> None:
            self.said += message

    watch, timings = Watch(), tmp_path / "t.jsonl"
    monkeypatch.setattr(appended_file, "disk", SimpleNamespace(write_all=write_all))
    tokenmill.prepare(source, tmp_path / "out", timings=timings, watch=watch, **OPTIONS)
    assert f"the timings end here: cannot write {timings}" in watch.said
    assert drawn(tmp_path / "out", timings).seconds == 0
    assert b"Throughput over the run" in report(tmp_path / "out", "--timings", timings)


@pytest.mark.parametrize("has_limited", [False, True])
def test_watch_is_told_of_a_limit_only_if_it_asks(source, tmp_path, has_limited):
    """Watches of other people are older than that event."""
    told = []

    class Watch:
        def planned(self, plan, done): ...

        def downloading(self, progress): ...

        def recorded(self, record): ...

        def step(self, slice_, step): ...

        def notice(self, message): ...

        def should_stop(self):
            return False

        if has_limited:

            def limited(self, num_tokens, max_tokens):
                told.append((num_tokens, max_tokens))

    for timings in (None, tmp_path / "t.jsonl"):
        out, limit = tmp_path / f"out-{timings is None}", 5000
        options = {**OPTIONS, "timings": timings, "limit_tokens": limit}
        made = tokenmill.prepare(source, out, watch=Watch(), **options)
        assert limit <= made.num_tokens < limit + 4000
        assert bool(told) == has_limited
        if told:
            assert told[0] == (0, limit) and told[-1][0] >= limit
        told.clear()


def test_failed_run_says_so(tmp_path):
    source = write_corpus("jsonl", tmp_path / "corpus", [""])
    with pytest.raises(InputError):
        tokenmill.prepare(source, tmp_path / "out", timings=tmp_path / "t.jsonl", **OPTIONS)
    assert read_timings(str(tmp_path / "t.jsonl")).attempts[0].end == "failed"


def test_tasks_of_a_partition_have_a_file_each_and_are_added_up(tmp_path):
    source = write_corpus("parquet", tmp_path / "corpus", list(TEXTS))
    out = tmp_path / "out"
    for task in ("1/2", "2/2"):
        options = ("--partition", task, "--timings", tmp_path / f"t-{task[0]}.jsonl")
        done = warm.tokenmill("prepare", source, "-o", out, "--no-val", *options)
        assert done.returncode == 0, done.stderr
    inside = warm.tokenmill("finish", out, "--timings", out / "t.jsonl")
    assert inside.returncode == 2 and "t.jsonl is inside of" in inside.stderr
    (tmp_path / "t-other.jsonl").write_bytes(lines_of("0" * 64, (0, 0, [(1, 1)], "complete")))
    other = warm.tokenmill("finish", out, "--timings", tmp_path / "t-other.jsonl")
    assert other.returncode == 6 and "has the timings of another run" in other.stderr
    (tmp_path / "t-other.jsonl").unlink()
    done = warm.tokenmill("finish", out, "--timings", tmp_path / "t-finish.jsonl")
    assert done.returncode == 0, done.stderr
    found = drawn(out, tmp_path / "t-*.jsonl")
    assert found.num_attempts == 3
    assert found.num_tokens == Manifest.load(str(out)).num_tokens
    [last] = read_timings(str(tmp_path / "t-finish.jsonl")).attempts
    assert last.num_resumed == last.num_slices > 0 and last.end == "complete"
    assert found.writing_seconds == round(last.last.seconds, 3) > 0


def test_fineweb_takes_timings(tmp_path):
    for name, data in FILES.items():
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    out, timings = tmp_path / "out", tmp_path / "t.jsonl"
    here = Here(None, tmp_path / "home")
    options = ("--local-dir", tmp_path / "files", "--timings", timings)
    done = here.tokenmill(*FINEWEB, out, *options)
    assert done.returncode == 0, done.stderr
    assert drawn(out, timings).num_tokens == Manifest.load(str(out)).num_tokens


# What a report makes of them


def lines_of(run: str, *attempts: tuple[float, int, list[tuple[float, int]], str | None]) -> bytes:
    """Attempts: when it began, slices done before, (second, tokens) of each line, its end."""
    lines = []
    for time, resumed, moments, end in attempts:
        head = {"tokenmill_timings": 1, "run": run, "time": time, "slices": 9, "resumed": resumed}
        lines.append(head)
        for seconds, tokens in moments:
            counts = {"documents": 1, "tokens": tokens, "text_bytes": 4 * tokens, "downloaded": 0}
            lines.append({"seconds": seconds, "slices": 3, **counts})
        if end is not None:
            lines[-1]["end"] = end
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


@pytest.fixture(scope="module")
def made(source, tmp_path_factory) -> tuple[Path, str]:
    """A dataset, and the hash of its run."""
    out = tmp_path_factory.mktemp("made") / "out"
    manifest = tokenmill.prepare(source, out, **OPTIONS)
    return out, run_hash(manifest.identity, manifest.inputs)


def test_pause_takes_no_time_and_rates_are_those_of_the_lines(made, tmp_path):
    out, run = made
    day = 86_400
    first = (1e9, 0, [(n, n * 1000) for n in range(1, 11)], None)
    second = (1e9 + 3 * day, 3, [(n, n * 3000) for n in range(1, 11)], "complete")
    (tmp_path / "t.jsonl").write_bytes(lines_of(run, first, second))
    found = drawn(out, tmp_path / "t.jsonl")
    assert (found.seconds, found.num_tokens, found.num_attempts) == (20, 40_000, 2)
    assert [(pause.at, pause.seconds) for pause in found.pauses] == [(10, 3 * day - 10)]
    assert [one.tokens_per_second for one in found.bins] == [1000] * 10 + [3000] * 10
    assert [one.text_bytes_per_second for one in found.bins] == [4000] * 10 + [12_000] * 10
    page = report(out, "--timings", tmp_path / "t.jsonl").decode()
    assert "+3 d" in page and "2001-09-09 01:46:40" in page and "began, UTC" in page
    assert "20.0 s from the plan on, in 2 attempts, 8.0 kB/s of text" in page


def test_attempts_at_the_same_time_are_added_up(made, tmp_path):
    out, run = made
    for number in range(2):
        lines = lines_of(run, (1e9, 0, [(n, n * 500) for n in range(1, 9)], "complete"))
        (tmp_path / f"t{number}.jsonl").write_bytes(lines)
    found = drawn(out, tmp_path / "t0.jsonl", tmp_path / "t1.jsonl")
    assert found.seconds == 8
    assert [one.tokens_per_second for one in found.bins] == [1000] * 8
    # The same file twice is one file.
    assert drawn(out, tmp_path / "t0.jsonl", tmp_path / "t0.jsonl").num_tokens == 4000


HOSTILE = [
    b'{"seconds": NaN, "slices": 1, "documents": 1, "tokens": 1, "text_bytes": 1, "downloaded": 0}',
    b'{"seconds": 1e999, "slices": 1, "documents":1, "tokens":1, "text_bytes":1, "downloaded": 0}',
    b'{"seconds": 1, "slices": -1, "documents": 1, "tokens": 1, "text_bytes": 1, "downloaded": 0}',
    b'{"seconds": "<script>alert(1)</script>", "slices": 1}',
    b'{"seconds": 3, "slices": 1, "documents": 1, "tokens": ' + b"9" * 900 + b"}",
    b'{"end": "<img src=x onerror=alert(1)>"}',
    b"[" * 1000,
    b"[]",
    b"null",
    b"\xff\xfe\0",
    b'{"seconds": 1, "padding": "' + b"x" * 2_000_000 + b'"}',
]


def test_hostile_lines_are_skipped_and_counted(made, tmp_path):
    out, run = made
    good = lines_of(run, (1e9, 0, [(1, 1000), (2, 2000), (3, 3000)], None))
    (tmp_path / "t.jsonl").write_bytes(good + b"\n".join(HOSTILE) + b"\n")
    found = drawn(out, tmp_path / "t.jsonl")
    assert (found.num_unreadable, found.num_tokens) == (len(HOSTILE), 3000)
    page = report(out, "--timings", tmp_path / "t.jsonl").decode()
    assert f"{len(HOSTILE)} lines of the timings could not be read" in page
    assert "<script" not in page and "onerror" not in page


def test_largest_numbers_and_most_attempts_are_drawn_in_bounds(made, tmp_path):
    out, run = made
    huge = (1 << 63) - 1
    line = {"documents": huge, "tokens": huge, "text_bytes": huge, "downloaded": huge}
    end = json.dumps({"seconds": 253_402_300_799, "slices": huge, **line}).encode() + b"\n"
    head = lines_of(run, (253_402_300_799, 0, [], None))
    many = b"".join(lines_of(run, (n * 1e7, 0, [(1e6, n)], None)) for n in range(2000))
    (tmp_path / "t.jsonl").write_bytes(head + end + many)
    page = report(out, "--timings", tmp_path / "t.jsonl")
    section = page[page.index(b'<section id="throughput">') :].partition(b"</section>")[0]
    assert not re.search(rb"\b(nan|inf)\b", section) and len(page) < 300_000
    (tmp_path / "t.jsonl").write_bytes(head * 10_001)
    with pytest.raises(InputError, match="more than 10,000 attempts"):
        drawn(out, tmp_path / "t.jsonl")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"<html>", "its first line is not one of them"),
        (b'{"tokenmill_timings": 2}\n', "its first line is not one of them"),
        (b'{"seconds": 1, "slices": 0}\n', "its first line is not one of them"),
        (None, "more than 67,108,864 bytes"),
    ],
)
def test_file_that_no_run_wrote_is_refused_by_a_report(made, tmp_path, content, said):
    path = tmp_path / "t.jsonl"
    path.write_bytes(content or b"")
    if content is None:
        with path.open("r+b") as file:
            file.truncate(MAX_FILE_BYTES + 1)  # one line, of a gigabyte or not
    with pytest.raises(InputError, match=said):
        drawn(made[0], path)


def test_report_refuses_what_has_no_run(made, tmp_path, capsys):
    out, run = made
    (tmp_path / "t.jsonl").write_bytes(lines_of(run, (1e9, 0, [(1, 1)], "complete")))
    timings = ["--timings", str(tmp_path / "t.jsonl")]
    assert main(["report", str(out), str(out), *timings, "-o", "-"]) == 2
    assert "--timings is of one run" in capsys.readouterr().err
    assert main(["report", str(out), "--timings", str(tmp_path / "no.jsonl"), "-o", "-"]) == 3
    assert "there is no" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"has no tokenmill\.json"):
        throughput_of([str(tmp_path / "t.jsonl")], None, "strangers")


def test_json_and_card_have_the_throughput(made, tmp_path, capsys):
    out, run = made
    (tmp_path / "t.jsonl").write_bytes(lines_of(run, (1e9, 0, [(1, 9), (4, 36)], "complete")))
    timings = ["--timings", str(tmp_path / "t.jsonl")]
    assert main(["report", str(out), "--json", *timings]) == 0
    assert json.loads(capsys.readouterr().out)["throughput"]["num_tokens"] == 36
    assert main(["report", str(out), "--markdown", *timings]) == 0
    assert "| the run | 4.0 s from the plan on, in 1 attempt" in capsys.readouterr().out
