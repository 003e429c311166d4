"""What every runner does, in scenarios: `python -m tests.runners.scenarios RUNNER FOLDER`.

That is a process of its own, because Ray leaves threads and open files in the one it was used in.
One runner goes through all scenarios, so each also shows that the one before left it fit for work.
What went wrong in each, or null, is printed as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest

from tests.runners.test_processes import NUM_SLICES, Onlooker, Work, children, made_work
from tokenmill.assemble.books import Assembly, Output
from tokenmill.assemble.fitting import FittingOptions
from tokenmill.assemble.writing import carry_out
from tokenmill.config import Config
from tokenmill.corpus.input_spans import cut_here
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.spans import Slice
from tokenmill.encode.mill import encode_slice
from tokenmill.encode.record import PartRecord
from tokenmill.errors import ConflictError, InputError, TokenmillError
from tokenmill.formats import Layout
from tokenmill.runners import Runner
from tokenmill.runners.start import started_runner

OPTIONS = {"inline": {}, "ray": {"num_proc": 2, "ray_address": "local"}}


@dataclass(frozen=True)
class Stage:
    runner: Runner
    folder: Path

    def work(self, name: str) -> Work:
        (self.folder / name).mkdir()
        return made_work(self.folder / name)


def endless(work: Work) -> Iterator[Slice]:
    """A runner that draws all of it before it begins, or after a stop, never ends."""
    return (replace(work.slices[index % NUM_SLICES], index=index) for index in count())


def inputs_are_cut_in_order(stage: Stage) -> None:
    inputs = [slice_.spans[0].input for slice_ in stage.work("cut").slices]
    for max_rows in (None, 10):
        cuts = stage.runner.cut(inputs, ReadOptions(), max_rows, Onlooker())
        assert list(cuts) == list(cut_here(inputs, ReadOptions(), max_rows))


def input_that_cannot_be_cut_is_named(stage: Stage) -> None:
    inputs = [slice_.spans[0].input for slice_ in stage.work("broken").slices]
    inputs[4] = replace(inputs[4], kind="parquet")
    with pytest.raises(InputError, match=r"broken/4\.jsonl"):
        list(stage.runner.cut(inputs, ReadOptions(), None, Onlooker()))


def slices_give_the_records_and_bytes_of_one_process(stage: Stage) -> None:
    work, watch = stage.work("encoded"), Onlooker()
    records = list(stage.runner.run(work.job("out"), iter(work.slices), watch))
    assert sorted(record.slice_index for record in records) == list(range(NUM_SLICES))
    job = work.job("expected")
    expected = [encode_slice(job, slice_) for slice_ in work.slices]
    assert sorted(records, key=lambda record: record.slice_index) == expected
    assert parts_in(work, "out") == parts_in(work, "expected")
    assert {index for index, _ in watch.steps} <= set(range(NUM_SLICES))
    assert watch.notices == []


def parts_in(work: Work, name: str) -> dict[str, bytes]:
    """Without what a runner leaves there for itself."""
    found = work.files(name)
    return {path: found[path] for path in found if path.startswith(("parts/", "records/"))}


def no_slices_give_no_records(stage: Stage) -> None:
    assert list(stage.runner.run(stage.work("none").job("out"), iter([]), Onlooker())) == []


def work_that_is_not_there_yet_is_waited_for(stage: Stage) -> None:
    work = stage.work("late")
    late = (item for slice_ in work.slices for item in (None, slice_, None))
    records = stage.runner.run(work.job("out"), late, Onlooker())
    assert sorted(record.slice_index for record in records) == list(range(NUM_SLICES))


def layouts() -> Iterator[Layout]:
    for name, has_boundaries in (("npy", False), ("megatron", True)):
        yield Layout(name, "made", "uint16", 3000, 0, False, 50256, "gpt2", has_boundaries)


def assembly(work: Work, name: str, layout: Layout) -> Assembly:
    """A folder of parts that are all encoded, and shards to be made of them."""
    job = work.job(name)
    made = Assembly(job.work, job.plan_id, layout, FittingOptions(), NUM_SLICES, 0)
    for slice_ in work.slices:
        made.add(encode_slice(job, slice_))
    return made


def shards_of(made: Assembly) -> tuple[Output, dict[str, bytes]]:
    folder = Path(made.folder)
    found = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return made.finished(), found


def shard_tasks_give_the_shards_of_one_process(stage: Stage) -> None:
    work = stage.work("shards")
    for layout in layouts():
        expected = assembly(work, f"{layout.format} expected", layout)
        for task in expected.tasks():
            assert task is not None
            expected.done(carry_out(task))
        made = assembly(work, layout.format, layout)
        job = work.job(layout.format)
        for record in stage.runner.run(job, made.tasks(), Onlooker()):
            assert not isinstance(record, PartRecord)
            made.done(record)
        assert made.is_done
        assert shards_of(made) == shards_of(expected)
        assert len(shards_of(made)[1]) > 4


def input_that_changed_is_named(stage: Stage) -> None:
    work = stage.work("changed")
    with open(work.slices[3].spans[0].input.path, "a") as file:
        file.write("{}\n")
    with pytest.raises(ConflictError, match=r"changed/3\.jsonl changed"):
        list(stage.runner.run(work.job("out"), iter(work.slices), Onlooker()))


def error_in_a_slice_says_where(stage: Stage) -> None:
    work = stage.work("bad")
    path = Path(work.slices[2].spans[0].input.path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[5] = b"[]".ljust(len(lines[5]) - 1) + b"\n"
    path.write_bytes(b"".join(lines))
    stat = path.stat()
    [span] = work.slices[2].spans
    source = replace(span.input, num_bytes=stat.st_size, mtime_ns=stat.st_mtime_ns)
    work.slices[2] = Slice(2, (replace(span, input=source),))
    with pytest.raises(TokenmillError, match=r"bad/2\.jsonl, line 6") as caught:
        list(stage.runner.run(work.job("out", "error"), iter(work.slices), Onlooker()))
    assert type(caught.value) is InputError


def error_where_slices_come_from_is_raised(stage: Stage) -> None:
    work = stage.work("raising")

    def slices() -> Iterator[Slice]:
        yield work.slices[0]
        raise InputError("no more")

    with pytest.raises(InputError, match="no more"):
        list(stage.runner.run(work.job("out"), slices(), Onlooker()))


def stop_ends_it_without_error(stage: Stage) -> None:
    work, watch = stage.work("stopped"), Onlooker()
    records = stage.runner.run(work.job("out"), endless(work), watch)
    next(records)
    watch.stop = True
    assert len(list(records)) < 100


def stop_is_heard_while_there_is_nothing_to_do(stage: Stage) -> None:
    work, watch = stage.work("idle"), Onlooker()
    timer = threading.Timer(1, lambda: setattr(watch, "stop", True))
    timer.start()
    assert list(stage.runner.run(work.job("out"), iter(lambda: None, 0), watch)) == []
    timer.join()


def generator_closed_early_leaves_the_runner_fit_for_work(stage: Stage) -> None:
    work = stage.work("closed")
    records = stage.runner.run(work.job("out"), endless(work), Onlooker())
    next(records)
    records.close()
    again = stage.runner.run(work.job("again"), iter(work.slices), Onlooker())
    assert len(list(again)) == NUM_SLICES
    last = stage.runner.run(work.job("last"), endless(work), Onlooker())
    next(last)  # and is left there: what is under way must not outlive the runner
    last.close()


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        inputs_are_cut_in_order,
        input_that_cannot_be_cut_is_named,
        slices_give_the_records_and_bytes_of_one_process,
        no_slices_give_no_records,
        work_that_is_not_there_yet_is_waited_for,
        shard_tasks_give_the_shards_of_one_process,
        input_that_changed_is_named,
        error_in_a_slice_says_where,
        error_where_slices_come_from_is_raised,
        stop_ends_it_without_error,
        stop_is_heard_while_there_is_nothing_to_do,
        generator_closed_early_leaves_the_runner_fit_for_work,
    )
}
NO_CHILD = "no_process_is_left"  # once the runner is closed


def outcome(scenario: object, stage: Stage) -> str | None:
    try:
        scenario(stage)
    except Exception:
        return traceback.format_exc()
    return None


def processes_left() -> str | None:
    deadline = time.monotonic() + 5
    while children() and time.monotonic() < deadline:
        time.sleep(0.05)
    return f"processes {children()}" if children() else None


def main(name: str, folder: str) -> None:
    options = OPTIONS.get(name, {"num_proc": 2})
    config = Config(sources=(folder,), out=folder, runner=name, **options)
    with started_runner(config) as runner:
        stage = Stage(runner, Path(folder))
        outcomes = {name: outcome(scenario, stage) for name, scenario in SCENARIOS.items()}
    print(json.dumps({**outcomes, NO_CHILD: processes_left()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
