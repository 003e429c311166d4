"""Plans are made in workers, which may die of a file: the plan is the same, the file is named.

Faults get into workers from outside: PYTHONPATH leads to a sitecustomize.py that wraps
`tokenmill.corpus.input_spans.cut`, so the product knows nothing of them.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warm
from corpora import made_texts, write_corpus
from spoilt import sitecustomize
from tokenmill.config import Config
from tokenmill.corpus.inputs import in_order
from tokenmill.corpus.planning import make_plan
from tokenmill.corpus.source_files import inputs_of
from tokenmill.encodings import get_encoding
from tokenmill.errors import InputError
from tokenmill.run import SilentWatch
from tokenmill.runners import Runner, Stopped
from tokenmill.runners.processes import ProcessesRunner

CRASHER = Path(__file__).parent / "crashers" / "histogram.parquet"
TEXTS = made_texts(60, seed=2)

FAULTY = """
def fault(path):
    {fault}

def spoil(module):
    cut = module.cut
    def faulty(source, *arguments):
        fault(source.path)
        return cut(source, *arguments)
    module.cut = faulty

is_worker = any(argument.endswith("worker.py") for argument in sys.orig_argv)
SPOILT = {"tokenmill.corpus.input_spans": spoil} if is_worker else {}
"""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Have workers do something whenever they cut an input."""

    def put(fault: str) -> Path:
        folder = tmp_path / "faulty"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(sitecustomize(FAULTY.replace("{fault}", fault)))
        monkeypatch.setenv("PYTHONPATH", str(folder))
        return folder

    return put


class Onlooker(SilentWatch):
    def __init__(self) -> None:
        self.notices: list[str] = []
        self.stop = False

    def notice(self, message: str) -> None:
        self.notices.append(message)

    def should_stop(self) -> bool:
        return self.stop


def plan_by(runner: Runner, config: Config, watch: Onlooker | None = None) -> bytes:
    """The plan, as it is written."""
    inputs = in_order(inputs_of(config.sources, None))
    cutter = functools.partial(runner.cut, watch=watch or Onlooker())
    return make_plan({}, inputs, config, cutter=cutter).to_json()


def plan_here(config: Config) -> bytes:
    return make_plan({}, in_order(inputs_of(config.sources, None)), config).to_json()


def many_parquet_files(folder: Path, count: int) -> Config:
    folder.mkdir()
    for number in range(count):
        table = pa.table({"text": TEXTS[number % 50 : number % 50 + 10]})
        pq.write_table(table, folder / f"{number:04d}.parquet", row_group_size=3)
    return Config(sources=(str(folder),), slice_bytes=5000)


@pytest.mark.parametrize(
    "kind", ["parquet", "arrow", "feather", "jsonl", "jsonl.gz", "txt", "txt.zst"]
)
@pytest.mark.parametrize("limit", [None, 37])
def test_plan_of_workers_is_the_plan(kind, limit, scratch):
    sources = tuple(write_corpus(kind, scratch / name, TEXTS) for name in "abc")
    config = Config(sources=sources, slice_bytes=2000, separator="\x01", limit_docs=limit)
    with ProcessesRunner(2, None) as runner:
        assert plan_by(runner, config) == plan_here(config)


def test_plan_of_many_files_is_in_their_order(scratch):
    config = many_parquet_files(scratch / "in", 700)
    with ProcessesRunner(2, get_encoding("gpt2").identity) as runner:
        assert plan_by(runner, config) == plan_here(config)


def test_the_first_of_several_broken_files_is_named(scratch):
    config = many_parquet_files(scratch / "in", 300)
    for number in (299, 140, 77):
        (scratch / "in" / f"{number:04d}.parquet").write_bytes(b"PAR1 broken")
    with ProcessesRunner(2, None) as runner, pytest.raises(InputError, match=r"0077\.parquet"):
        plan_by(runner, config)


def test_file_that_kills_is_named_and_others_are_still_planned(scratch, tally):
    """The runner lives on: the next plan is made by fresh workers."""
    config = many_parquet_files(scratch / "in", 130)
    killer = scratch / "in" / "0100.parquet"
    sound = killer.read_bytes()
    killer.write_bytes(CRASHER.read_bytes())
    watch = Onlooker()
    with ProcessesRunner(2, None) as runner:
        with pytest.raises(InputError) as caught:
            plan_by(runner, config, watch)
        killer.write_bytes(sound)
        assert plan_by(runner, config) == plan_here(config)
    assert f"{killer}: reading its footer killed the process, twice (SIGABRT" in str(caught.value)
    assert [notice.split("\n")[0].count(str(killer)) for notice in watch.notices] == [1, 1]
    tally.add("deaths while planning", "file named")


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGSEGV", "SIGTERM"])
def test_worker_killed_once_while_it_plans_changes_nothing(signal_name, scratch, faulty, tally):
    config = many_parquet_files(scratch / "in", 100)
    faulty(f"'0070' in path and times('x') == 1 and os.kill(os.getpid(), signal.{signal_name})")
    watch = Onlooker()
    with ProcessesRunner(2, None) as runner:
        assert plan_by(runner, config, watch) == plan_here(config)
    [notice] = watch.notices
    assert signal_name in notice and "0070.parquet" in notice and "tried again" in notice
    tally.add("deaths while planning", "identical")


def test_file_that_hangs_its_reader_is_named(scratch, faulty, tally):
    config = many_parquet_files(scratch / "in", 5)
    faulty("'0003' in path and time.sleep(1000)")
    with (
        ProcessesRunner(2, None, stall_timeout=1.0) as runner,
        pytest.raises(InputError, match=r"0003\.parquet.*no progress for 1 s"),
    ):
        waited_until_ready(runner)
        plan_by(runner, config)
    tally.add("deaths while planning", "file named")


def waited_until_ready(runner: ProcessesRunner) -> None:
    """Until workers are ready they are given two minutes, whatever the stall timeout is."""
    supervisor = runner._supervisor
    assert supervisor is not None
    deadline = time.monotonic() + 60
    while not (supervisor._children and all(child.is_ready for child in supervisor._children)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lack_of_memory_while_planning_names_the_file(scratch, faulty, tally):
    config = many_parquet_files(scratch / "in", 5)
    faulty("if '0002' in path: raise MemoryError")
    with (
        ProcessesRunner(2, None) as runner,
        pytest.raises(InputError, match=r"0002\.parquet.*killed the process, twice \(MemoryError"),
    ):
        plan_by(runner, config)
    tally.add("deaths while planning", "file named")


def test_stop_while_planning_is_heeded(scratch, faulty):
    config = many_parquet_files(scratch / "in", 5)
    faulty("time.sleep(1000)")
    watch = Onlooker()
    watch.stop = True
    with ProcessesRunner(2, None) as runner, pytest.raises(Stopped):
        plan_by(runner, config, watch)


@pytest.mark.parametrize("options", [["--dry-run"], ["-q"], ["--limit-docs", "5"]])
def test_command_survives_a_file_that_kills(options, scratch, tally):
    config = many_parquet_files(scratch / "in", 3)
    (scratch / "in" / "0001x.parquet").write_bytes(CRASHER.read_bytes())
    arguments = ["prepare", *config.sources, "-o", str(scratch / "out"), "--num-proc", "2"]
    done = warm.tokenmill(*arguments, *options)
    if "--limit-docs" in options:  # which ends before that file
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 3, done.stderr
    assert "0001x.parquet: reading its footer killed the process" in done.stderr
    assert not os.path.exists(scratch / "out" / "tokenmill.json")
    tally.add("deaths while planning", "file named")


def test_finished_dataset_stays_when_overwriting_it_cannot_be_planned(scratch):
    config = many_parquet_files(scratch / "in", 3)
    command = ["prepare", *config.sources, "-q", "-o", str(scratch / "out"), "--num-proc", "2"]
    assert warm.tokenmill(*command).returncode == 0
    before = json.loads((scratch / "out" / "tokenmill.json").read_bytes())
    (scratch / "in" / "0003.parquet").write_bytes(CRASHER.read_bytes())
    done = warm.tokenmill(*command, "--overwrite")
    assert done.returncode == 3 and "0003.parquet" in done.stderr
    assert json.loads((scratch / "out" / "tokenmill.json").read_bytes()) == before
