"""The world changes between two runs: inputs, options, tokenizer, the work folder itself. What
would change the bytes stops the second run with the right code, the difference on stderr and not
one byte touched; what was put back, or does not matter, goes on to the oracle's bytes."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import scenarios
from launch import (
    NPY,
    SLICE_BYTES,
    finished,
    launched,
    looks_complete,
    manifest_bytes,
    small,
    snapshot,
)
from scenarios import TEXTS, differences

from oracle import VOCAB
from tokenmill import settings
from tokenmill.cli import main
from tokenmill.cli.signals import SignalStop
from tokenmill.config import Config
from tokenmill.corpus import plan as plan_module

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
    pytest.mark.timeout(120),
]

NUM_FILES = 3

EOT = "<|endoftext|>=50256"


@dataclass(frozen=True)
class World:
    """A corpus of three files, a tokenizer's file, and a run over them that was killed."""

    root: Path
    saved: Path
    manifest: bytes  # of a run that nobody disturbed

    @property
    def out(self) -> str:
        return str(self.root / "out")

    @property
    def work(self) -> Path:
        """The folder of the run that was killed."""
        [parts] = self.root.glob("out/.tokenmill/*/parts")
        return parts.parent

    @property
    def tokenizer(self) -> Path:
        return self.root / "mine.tiktoken"

    def file(self, number: int) -> Path:
        return self.root / "corpus" / f"{number}.jsonl"

    def command(self, *more: str, sources: list[str] | None = None) -> list[str]:
        tokenizer = ["--tokenizer", str(self.tokenizer), "--pattern", "gpt2", "--eot-token", EOT]
        shards = ["--format", "npy", "--shard-tokens", "2000", "--num-proc", "1"]
        sources = sources or [str(self.root / "corpus")]
        return ["prepare", *sources, "-o", self.out, *tokenizer, *shards, *more]

    def restore(self, name: str = "") -> None:
        """Put everything, or the file or folder of this name, back as it was at the kill."""
        target = self.root / name
        if target.is_dir():
            shutil.rmtree(target)
        if (self.saved / name).is_dir():
            shutil.copytree(self.saved / name, target)
        else:
            shutil.copy2(self.saved / name, target)


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("world")
    world = World(folder / "world", folder / "saved", b"")
    world.file(0).parent.mkdir(parents=True)
    size = len(TEXTS) // NUM_FILES
    for number in range(NUM_FILES):
        texts = TEXTS[number * size : (number + 1) * size]
        lines = [json.dumps({"text": text, "body": "none"}) + "\n" for text in texts]
        world.file(number).write_text("".join(lines))
    shutil.copy(Path(VOCAB, "r50k_base.tiktoken"), world.tokenizer)
    kill = {"point": "record renamed", "nth": 9, "act": "kill"}
    launch = finished(world.command(), folder, faults=[kill])
    assert launch.process.returncode == -9, launch.errors
    assert not (world.work / "parts" / "00000000.train.part").exists()
    assert task_record(world).exists() and staged(world).exists()
    shutil.copytree(world.root, world.saved)
    shutil.rmtree(world.out)
    resumes(world)
    return replace(world, manifest=manifest_bytes(world.out))


@pytest.fixture
def world(killed) -> World:
    killed.restore()
    return killed


def resumes(world: World) -> None:
    """Now that all is as it was: the same command, as a call from Python."""
    with small():
        scenarios.prepared(
            str(world.root / "corpus"),
            world.out,
            format="npy",
            shard_tokens=2000,
            tokenizer=str(world.tokenizer),
            pattern="gpt2",
            eot_token=EOT,
            slice_bytes=SLICE_BYTES,
        )
    check_whole(world)


@pytest.fixture
def tokenmill(monkeypatch, capsys) -> Callable[..., tuple[int, str]]:
    """The command line in this process, which saves 0.6 s each time: exit code and stderr."""
    defaults = {**Config.__init__.__kwdefaults__, "slice_bytes": SLICE_BYTES}
    monkeypatch.setattr(Config.__init__, "__kwdefaults__", defaults)
    monkeypatch.setattr(SignalStop, "install", lambda self: None)

    def called(arguments: list[str]) -> tuple[int, str]:
        with small():
            code = main(arguments)
        return code, capsys.readouterr().err

    return called


def check_whole(world: World) -> None:
    assert not differences(world.out, NPY.expected())
    assert manifest_bytes(world.out) == (world.manifest or manifest_bytes(world.out))
    assert not Path(world.out, ".tokenmill").exists()


@dataclass(frozen=True)
class Change:
    name: str
    says: str  # what the message must say
    code: int = 6
    change: Callable[[World, pytest.MonkeyPatch], object] = lambda world, patch: None
    options: tuple[str, ...] = ()
    restores: str = field(default="corpus")


def rewritten(path: Path, change: Callable[[bytes], bytes], keep_time: bool = False) -> None:
    before = path.stat()
    path.write_bytes(change(path.read_bytes()))
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def edited(path: Path, change: Callable[[dict], object]) -> None:
    """As by hand, in an editor: still JSON of the right shape."""
    plain = json.loads(path.read_text())
    change(plain)
    path.write_text(json.dumps(plain))


def other_letters(data: bytes) -> bytes:
    return data.replace(b"grain", b"train")


def swapped_ranks(data: bytes) -> bytes:
    """Two tokens change places: the same size, another tokenizer."""
    lines = data.splitlines(keepends=True)
    one, other = lines[300].split(), lines[301].split()
    assert base64.b64decode(one[0]) != base64.b64decode(other[0])
    lines[300:302] = [b" ".join((other[0], one[1])) + b"\n", b" ".join((one[0], other[1])) + b"\n"]
    return b"".join(lines)


INPUTS = [
    Change(
        "appended",
        r"input changed: .*1\.jsonl: was [\d,]+ bytes, now [\d,]+",
        change=lambda w, _: rewritten(w.file(1), lambda data: data + b'{"text": "more"}\n'),
    ),
    Change(
        "truncated",
        r"input changed: .*2\.jsonl: was [\d,]+ bytes, now [\d,]+",
        change=lambda w, _: rewritten(w.file(2), lambda data: data[: data.rindex(b"{")]),
    ),
    Change(
        "emptied",
        r"input changed: .*2\.jsonl: was [\d,]+ bytes, now 0",
        change=lambda w, _: rewritten(w.file(2), lambda data: b""),
    ),
    Change(
        "replaced, same size",
        r"input changed: .*0\.jsonl: same size, different content",
        change=lambda w, _: rewritten(w.file(0), other_letters),
    ),
    Change(
        "replaced, same size and time",
        r"input changed: .*2\.jsonl: same size, different content",
        change=lambda w, _: rewritten(w.file(2), other_letters, keep_time=True),
    ),
    Change(
        "touched only",
        r"input changed: .*1\.jsonl: modified since \(same size; its modification time changed\)",
        change=lambda w, _: os.utime(w.file(1)),
    ),
    Change(
        "renamed",
        r"input removed: .*1\.jsonl\n.*input added: .*9\.jsonl",
        change=lambda w, _: w.file(1).rename(w.file(9)),
    ),
    Change(
        "added", r"input added: .*7\.jsonl", change=lambda w, _: shutil.copy2(w.file(0), w.file(7))
    ),
    Change("removed", r"input removed: .*2\.jsonl", change=lambda w, _: w.file(2).unlink()),
    Change(
        "contents swapped",
        r"input changed: .*0\.jsonl(.|\n)*input changed: .*1\.jsonl",
        change=lambda w, _: (
            w.file(0).rename(w.file(8)),
            w.file(1).rename(w.file(0)),
            w.file(8).rename(w.file(1)),
        ),
    ),
]
OPTIONS = [
    Change(
        "tokenizer's bytes",
        r"encoding\.file_sha256: was '\w+', now '\w+'",
        change=lambda w, _: rewritten(w.tokenizer, swapped_ranks, keep_time=True),
        restores="mine.tiktoken",
    ),
    Change("tokenizer", r"encoding\.name: was 'mine', now 'gpt2'", options=("--tokenizer", "gpt2")),
    Change("EOT token", r"encoding\.eot: was", options=("--eot-token", "<|end|>=50300")),
    Change("EOT policy", r"options\.eot: was 'prepend', now 'append'", options=("--eot", "append")),
    Change("dtype", r"options\.dtype: was 'uint16', now 'uint32'", options=("--dtype", "uint32")),
    Change(
        "column", r"options\.text_column: was 'text', now 'body'", options=("--text-column", "body")
    ),
    Change(
        "shard size",
        r"options\.shard_tokens: was 2000, now 3000",
        options=("--shard-tokens", "3000"),
    ),
    Change("seed", r"options\.seed: was 0, now 7", options=("--seed", "7")),
    Change("format", r"options\.format: was 'npy', now 'llmc'", options=("--format", "llmc")),
    Change("shuffle", r"options\.shuffle: was False, now True", options=("--shuffle",)),
    Change("held out", r"options\.val: was 'first-shard', now 'none'", options=("--no-val",)),
    Change("limit", r"options\.limit_docs: was None, now 9", options=("--limit-docs", "9")),
    Change("name", r"options\.name: was 'edufineweb', now 'x'", options=("--name", "x")),
    Change("empty documents", r"options\.empty: was", options=("--empty", "drop")),
    Change(
        "bad documents", r"options\.on_bad_document: was", options=("--on-bad-document", "error")
    ),
]


def plan(world: World) -> Path:
    return Path(world.out, ".tokenmill", "plan.json")


def task_record(world: World) -> Path:
    """Of a shard task whose parts are gone."""
    return world.work / "tasks" / "train-00000000-000000.json"


def staged(world: World) -> Path:
    """The shard that this task wrote the beginning of."""
    return world.work / "shards" / "edufineweb_val_000000.npy"


def bumped(plain: dict, *keys: object) -> None:
    """One more, at this place."""
    for key in keys[:-1]:
        plain = plain[key]
    plain[keys[-1]] += 1


_PART_IS_GONE = r"\.part is gone, but a shard that needs it is not written yet"

# What is edited in the work folder without leaving a trace in inputs or options.
WORK = [
    Change(
        "plan of another bytes version",
        r"versions\.bytes: was 2, now 3",
        change=lambda _, patch: patch.setattr(settings, "BYTES_VERSION", 3),
    ),
    Change(
        "plan of another version",
        r"plan\.json is not a plan that this version can read: .*plan version 3",
        5,
        lambda _, patch: patch.setattr(plan_module, "PLAN_VERSION", 4),
    ),
    Change(
        "plan cut short",
        r"plan\.json is not a plan that this version can read",
        5,
        lambda w, _: rewritten(plan(w), lambda data: data[: len(data) // 2]),
    ),
    Change(
        "plan with a slice less",
        r"plan\.json is not a plan that this version can read: .*changed since",
        5,
        lambda w, _: edited(plan(w), lambda p: p["slices"]["end"].pop()),
    ),
    Change(
        "plan with another cut",
        r"plan\.json is not a plan that this version can read: .*changed since",
        5,
        lambda w, _: edited(plan(w), lambda p: bumped(p, "slices", "start", -1)),
    ),
    Change(
        "plan with other options",
        r"plan\.json is not a plan that this version can read: .*changed since",
        5,
        lambda w, _: edited(plan(w), lambda p: bumped(p, "identity", "options", "seed")),
    ),
    Change(
        "task record cut short",
        _PART_IS_GONE,
        5,
        lambda w, _: rewritten(task_record(w), lambda data: data[:-9]),
    ),
    Change(
        "task record with another end",
        _PART_IS_GONE,
        5,
        lambda w, _: edited(task_record(w), lambda r: bumped(r, "end", "num_tokens")),
    ),
    Change(
        "task record with more tokens",
        _PART_IS_GONE,
        5,
        lambda w, _: edited(task_record(w), lambda r: bumped(r, "num_tokens")),
    ),
    Change(
        "task record with another hash",
        _PART_IS_GONE,
        5,
        lambda w, _: edited(task_record(w), lambda r: r.update(sha256=["0" * 64])),
    ),
    Change("task record removed", _PART_IS_GONE, 5, lambda w, _: task_record(w).unlink()),
    Change(
        "task record of another piece",
        _PART_IS_GONE,
        5,
        lambda w, _: shutil.copy(
            task_record(w).with_name("train-00000000-000001.json"), task_record(w)
        ),
    ),
    Change(
        "staged shard with other bytes",
        r"\.npy changed since it was written, and .* is gone",
        5,
        lambda w, _: rewritten(staged(w), lambda data: data[:200] + b"\0\0" + data[202:]),
    ),
    Change(
        "staged shard cut short",
        r"\.npy changed since it was written, and .* is gone",
        5,
        lambda w, _: rewritten(staged(w), lambda data: data[:200]),
    ),
    Change(
        "staged shard moved by a byte",
        r"\.npy changed since it was written, and .* is gone",
        5,
        lambda w, _: rewritten(staged(w), lambda data: data[1:]),
    ),
    Change(
        "staged shard removed",
        r"\.npy changed since it was written, and .* is gone",
        5,
        lambda w, _: staged(w).unlink(),
    ),
]


@pytest.mark.parametrize("change", [*INPUTS, *OPTIONS, *WORK], ids=lambda change: change.name)
def test_what_changes_the_bytes_stops_the_run_before_anything_is_touched(
    change, world, tokenmill, monkeypatch, tally
):
    with monkeypatch.context() as patch:
        change.change(world, patch)
        before = snapshot(world.out)
        code, errors = tokenmill(world.command(*change.options))
        if change.name.startswith("staged shard"):  # its header comes before the missing part
            before[str(staged(world))] = staged(world).read_bytes()
    assert code == change.code, errors
    assert re.search(change.says, errors), errors
    assert "hint: " in errors and "Traceback" not in errors
    assert snapshot(world.out) == before
    assert not looks_complete(world.out)
    if change in WORK:
        world.restore()
    elif not change.options:
        world.restore(change.restores)
    resumes(world)
    tally.add("changed worlds", "refused, then identical")


def part(world: World) -> Path:
    """One that is still needed."""
    return max((world.work / "parts").glob("*.part"))


def record(world: World, number: int = -1) -> Path:
    return sorted((world.work / "records").glob("*.json"))[number]


# What is done again, or does not matter.
MENDED = [
    Change(
        "part with other bytes",
        "8 of 16 slices are done",
        change=lambda w, _: rewritten(part(w), lambda data: data[:9] + b"\0\0" + data[11:]),
    ),
    Change(
        "part cut short",
        "8 of 16 slices are done",
        change=lambda w, _: rewritten(part(w), lambda data: data[:-1]),
    ),
    Change("part removed", "8 of 16 slices are done", change=lambda w, _: part(w).unlink()),
    Change(
        "record with other counts",
        "8 of 16 slices are done",
        change=lambda w, _: edited(record(w), lambda r: bumped(r, "counts", "text_bytes")),
    ),
    Change(
        "record with other counts of a slice that is in the shards",
        "8 of 16 slices are done",
        change=lambda w, _: edited(record(w, 0), lambda r: bumped(r, "counts", "text_bytes")),
    ),
    Change(
        "record with another hash",
        "8 of 16 slices are done",
        change=lambda w, _: edited(record(w), lambda r: r.update(checksum="0" * 32)),
    ),
    Change(
        "record cut short",
        "8 of 16 slices are done",
        change=lambda w, _: rewritten(record(w), lambda data: data[:40]),
    ),
    Change(
        "record of another slice",
        "8 of 16 slices are done",
        change=lambda w, _: shutil.copy(record(w, 0), record(w)),
    ),
    Change("record removed", "8 of 16 slices are done", change=lambda w, _: record(w).unlink()),
    Change(
        "list of used parts removed",
        r"resuming: \d of 16 slices are done",
        change=lambda w, _: (w.work / "used.json").unlink(),
    ),
    Change(
        "list of used parts cut short",
        r"resuming: \d of 16 slices are done",
        change=lambda w, _: rewritten(w.work / "used.json", lambda data: data[:-9]),
    ),
    Change(
        "list of used parts of the future",
        r"resuming: \d of 16 slices are done",
        change=lambda w, _: edited(w.work / "used.json", lambda u: u.update(used=[[[0, 9]], []])),
    ),
    Change(
        "half a file of somebody's",
        "9 of 16 slices are done",
        change=lambda w, _: (w.work / "parts" / "00000003.train.part.0123.tmp").write_bytes(b"x"),
    ),
    Change("more workers", "9 of 16 slices are done", options=("--num-proc", "3")),
    Change("stall timeout", "9 of 16 slices are done", options=("--stall-timeout", "77")),
    Change("quiet", "", options=("-q",)),
    Change("bad fraction", "9 of 16 slices are done", options=("--max-bad-fraction", "0.5")),
    Change("overwrite", "9 of 16 slices are done", options=("--overwrite",)),
]


@pytest.mark.parametrize("change", MENDED, ids=lambda change: change.name)
def test_what_does_not_change_the_bytes_or_can_be_done_again_goes_on(
    change, world, tokenmill, monkeypatch, tally
):
    change.change(world, monkeypatch)
    code, errors = tokenmill(world.command(*change.options))
    assert code == 0, errors
    assert re.search(change.says, errors), errors
    check_whole(world)
    tally.add("changed worlds", "identical")


def test_order_of_arguments_and_files_named_twice_do_not_matter(world, tokenmill, tally):
    names = [str(world.file(number)) for number in (2, 0, 1, 0)]
    code, errors = tokenmill(world.command(sources=names))
    assert code == 0, errors
    assert "9 of 16 slices are done" in errors
    check_whole(world)
    tally.add("changed worlds", "identical")


def test_input_that_changes_while_it_is_read_stops_the_run(world, tally):
    """Between the plan and the slice: the worker sees another file."""
    pause = {"point": "part opened", "act": "pause", "role": "worker"}
    command = world.command("--num-proc", "2")
    with launched(command, world.saved.parent, faults=[pause]) as launch:
        launch.paused("part opened")
        rewritten(world.file(2), lambda data: data + b'{"text": "more"}\n')
        launch.go_on()
        assert launch.wait() == 6, launch.errors
    assert re.search(r"2\.jsonl changed during the run", launch.errors)
    assert not looks_complete(world.out)
    world.restore("corpus")
    resumes(world)
    tally.add("changed worlds", "refused, then identical")
