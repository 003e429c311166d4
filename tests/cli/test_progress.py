"""The progress line of a run that downloads: what it says at each moment, by a clock of our own."""

from __future__ import annotations

import dataclasses
import io
import json
from types import SimpleNamespace

import pytest

import tokenmill
import tokenmill.cli.progress
from tokenmill.cli.moving_line import MovingLine
from tokenmill.cli.progress import Progress
from tokenmill.cli.signals import SignalStop
from tokenmill.corpus.downloads import DownloadProgress
from tokenmill.corpus.slices import SliceTable
from tokenmill.corpus.spans import Input, Slice, Span
from tokenmill.encode.job import Step

SOURCE = Input("a", "jsonl", None, 1, 0, "")
SLICES = [Slice(i, (Span(SOURCE, i, i + 1, 100_000_000),)) for i in range(10)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Run:
    """A run of ten slices of 100 MB, and a download of 14 files, 1.4 GB."""

    def __init__(self, monkeypatch, stream: io.StringIO, is_downloading: bool = True) -> None:
        self.now = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(tokenmill.cli.progress, "time", clock)
        self.download = DownloadProgress(0, 1_400_000_000, 0, 14, 0.0)
        self.stream = stream
        self.progress = Progress(SignalStop(), lambda _: "8 workers", False, stream)
        self.now += 3.0  # of planning
        plan = SimpleNamespace(
            slices=SliceTable.of((SOURCE,), iter(SLICES)), text_bytes=1_000_000_000
        )
        self.progress.planned(plan, ())
        if is_downloading:
            self.progress.downloading(lambda: self.download)

    def line_after(self, seconds: float, download: tuple[float, int, float], *slices: int) -> str:
        """What is shown half a second after that: the download has come so far (share, files,
        MB/s), and these slices have made another tenth."""
        share, num_files, rate = download
        num_bytes = int(share * 1_400_000_000)
        self.now += seconds
        self.download = DownloadProgress(num_bytes, 1_400_000_000, num_files, 14, rate * 1e6)
        for index in slices:
            self.progress.step(SLICES[index], Step(0, 0, 100, 100, 2_500_000, 10_000_000))
        self.now += 0.5
        self.progress.should_stop()
        return self.stream.getvalue().rpartition("\r")[2].removesuffix("\x1b[K")


@pytest.fixture
def run(monkeypatch) -> Run:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    return Run(monkeypatch, Terminal())


def test_seconds_of_a_command_begin_before_its_plan(run):
    assert run.progress.seconds == 3.0


def test_download_and_encoding_stand_side_by_side_with_the_time_of_the_slower(run):
    line = run.line_after(0.5, (0, 0, 0))
    assert line == "down   0% waiting 0/14 files  encode   0%  8 workers"
    line = run.line_after(8.5, (0.1, 1, 14))  # at 10 s
    assert line == "down  10% 14 MB/s 1/14 files  encode   0%  8 workers  1:30 left"
    run.line_after(0, (0.1, 1, 14), 0)
    line = run.line_after(0, (0.2, 2, 14), 0, 1, 2)  # at 11 s, of which encoding had one
    assert line == "down  20% 14 MB/s 2/14 files  encode   4% 40 MB/s  10M tokens  44.0 s left"
    line = run.line_after(0, (0.9, 12, 1130))  # from here on, encoding is the slower one
    assert line == "down  90% 1,130 MB/s 12/14 files  encode   4% 27 MB/s  10M tokens  36.0 s left"


def test_slice_that_begins_again_is_not_counted_twice(run):
    step = Step(0, 100, 100, 100, 2_500_000, 10_000_000)
    run.progress.step(SLICES[0], step)
    run.progress.step(SLICES[0], dataclasses.replace(step, row=200))
    assert "encode   2%" in run.line_after(0.5, (0.5, 7, 70))
    run.progress.step(SLICES[0], Step(0, 0, 100))  # its worker died, or its bytes were wrong
    line = run.line_after(0.5, (0.6, 7, 70))
    assert "encode   0%" in line and "tokens" not in line


def test_finished_download_leaves_the_line_to_the_encoding(run):
    run.line_after(10, (0.5, 7, 70), 0)
    run.line_after(0, (1, 14, 70), 0)
    line = run.line_after(0, (1, 14, 0), 0)
    assert line.startswith("  3%  300 documents  7.5M tokens  ") and "down" not in line


def test_waiting_for_files_is_not_counted_as_slow_encoding(run):
    run.line_after(0, (0.5, 7, 70), 0)
    before = run.line_after(0, (0.5, 7, 70), 0)
    assert "encode   2% 20 MB/s  5M tokens" in before
    lines = [run.line_after(5, (0.5, 7, 0)) for _ in range(5)]
    # The last word of a slice was half a second after the first, and all since then was waiting.
    assert {line.partition("  5M")[0] for line in lines} == {
        "down  50% waiting 7/14 files  encode   2% 40 MB/s"
    }


def test_log_has_whole_lines_also_while_nothing_is_encoded(monkeypatch):
    run = Run(monkeypatch, io.StringIO())
    for share in (0.1, 0.2):
        run.line_after(4, (share, 1, 14))
        run.line_after(2, (share, 1, 14))
    lines = run.stream.getvalue().splitlines()
    assert [line.partition(" 14 MB/s")[0] for line in lines] == ["down  10%", "down  20%"]


@pytest.mark.parametrize("options", [{}, {"dedup": "exact"}], ids=["", "dedup"])
def test_limit_when_it_comes_before_the_end_of_the_corpus_then_the_share_is_of_the_limit(
    tmp_path, monkeypatch, capsys, options
):
    texts = [f"{n % 700} words of a document, some of them twice" for n in range(4000)]
    lines = (
        json.dumps({"text": text if options else f"{text} {n}"}) for n, text in enumerate(texts)
    )
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(MovingLine, "is_due", lambda line, now: True)
    monkeypatch.setattr(MovingLine, "write", lambda line, now, fields: print(*fields, sep="; "))
    given = {"slice_bytes": 8000, "num_proc": 1, "val": "none", "limit_tokens": 5000, **options}
    made = tokenmill.prepare(tmp_path / "a.jsonl", tmp_path / "out", progress=True, **given)
    shown = [line.split("; ") for line in capsys.readouterr().out.splitlines()]
    shares = [int(fields[0].strip().removesuffix("%")) for fields in shown]
    assert shares == sorted(shares) and shares[-1] == 100
    writing = [fields[-1] == "writing shards" for fields in shown]
    assert writing == [share == 100 for share in shares]
    # What is encoded again, up to the limit, is not counted again.
    num_shown = int(shown[-1][1].removesuffix(" documents").replace(",", ""))
    assert made.counts.num_rows <= num_shown < made.counts.num_rows + 400


def test_limit_when_the_corpus_ends_before_it_then_the_time_left_is_of_the_corpus(monkeypatch):
    run = Run(monkeypatch, Terminal(), is_downloading=False)
    run.progress.planned(run.progress.plan, range(5))  # half of it was encoded before
    run.progress.limited(125_000_000, 10_000_000_000)
    for seconds in (10, 0.5):
        run.now += seconds
        run.progress.step(SLICES[5], Step(0, 0, 100, 100, 2_500_000, 10_000_000))
    line = run.stream.getvalue().rpartition("\r")[2].removesuffix("\x1b[K")
    assert line == " 52%  200 documents  5M tokens  1.9 MB/s  8 workers  4:12 left"


def test_limit_when_a_run_is_resumed_then_the_time_left_is_of_what_is_left(monkeypatch):
    run = Run(monkeypatch, Terminal(), is_downloading=False)
    run.progress.limited(50_000_000, 100_000_000)

    def line_after(seconds: float, *slices: int) -> str:
        run.now += seconds
        for index in slices:
            run.progress.step(SLICES[index], Step(0, 0, 100, 100, 2_500_000, 10_000_000))
        return run.stream.getvalue().rpartition("\r")[2].removesuffix("\x1b[K")

    line = line_after(10, 0, 1)  # shown after 2.5M of the 50M tokens that were left
    assert line == " 52%  100 documents  2.5M tokens  1.0 MB/s  8 workers  3:10 left"
    line = line_after(0.5, 0, 1)
    assert line.startswith(" 57%  300 documents  7.5M tokens")
    run.progress.limited(101_000_000, 100_000_000)
    assert line_after(0.5, 1).endswith("8 workers  writing shards")
