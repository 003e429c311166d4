"""The same inputs and options give the same bytes, manifest included: whatever the number of
workers, the order in which slices arrive, the size of batches, the order of a folder, the hash
seed, the locale, the time zone. One set of sha256 per format, and the oracle's bytes in it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scenarios
from launch import (
    MDS,
    MEGATRON,
    NANOGPT,
    NPY,
    Launch,
    RealRun,
    finished,
    prepare_arguments,
    prepare_call,
)
from scenarios import TEXTS, differences

import oracle
from tokenmill.assemble import sources
from tokenmill.corpus.readers import ReadOptions
from tokenmill.encode import mill
from tokenmill.storage import disk

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
    pytest.mark.timeout(120),
]

# In the order of their bytes; a locale would sort them differently.
NAMES = ["10.jsonl", "9.jsonl", "B.jsonl", "I.jsonl", "a.jsonl", "i.jsonl", "ä.jsonl", "ı.jsonl"]
FORMATS = [NANOGPT, NPY, MEGATRON, MDS]
HELD_OUT = RealRun(
    "nanogpt held out",
    prepare_arguments("--val-fraction", "0.3"),
    lambda: {"train.bin": b"", "val.bin": b""},  # the oracle does not know which
    prepare_call(val_fraction=0.3),
)


@pytest.fixture(autouse=True)
def pieces(monkeypatch):
    """A manifest has a hash for each piece: the same ones here as in processes that are started."""
    scenarios.small_pieces(monkeypatch)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """The corpus lies at one place for all trials, because the manifest names its files."""
    return tmp_path_factory.mktemp("determinism")


def corpus(root: Path, order: int) -> str:
    """The corpus as a folder whose files were created in another order each time."""
    folder = root / "corpus"
    folder.mkdir(exist_ok=True)
    for path in list(folder.iterdir()):
        path.unlink()
    size = -(-len(TEXTS) // len(NAMES))
    files = {
        name: [json.dumps({"text": text}) for text in TEXTS[i * size : (i + 1) * size]]
        for i, name in enumerate(NAMES)
    }
    files["a.jsonl"].insert(1, '{"text": broken')
    names = list(NAMES)
    random.Random(order).shuffle(names)
    for name in names:
        (folder / name).write_text("\n".join(files[name]) + "\n")
    return str(folder)


def hashes(out: str) -> dict[str, str]:
    """Of every file of a dataset, the manifest too."""
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(out).rglob("*"))
        if path.is_file()
    }


# What every trial of a format must come to, once the first has.
KNOWN: dict[str, dict[str, str]] = {}


def check_same(name: str, out: str) -> None:
    found = hashes(out)
    assert "tokenmill.json" in found
    assert found == KNOWN.setdefault(name, found)


def other_locale() -> str:
    """A locale with rules of its own, if one is installed; else one that is asked for in vain."""
    listed = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout
    names = [name for name in listed.split() if not name.lower().startswith(("c", "posix"))]
    turkish = [name for name in names if name.startswith(("tr_", "az_"))]
    return next(iter(turkish + names), "tr_TR.UTF-8")


# Workers, hash seed, locale, time zone, order of creation, jitter of arrival (None: none).
MACHINES = [
    (1, "0", "C", "UTC", 0, None),
    (1, "random", "C.UTF-8", "Pacific/Kiritimati", 1, None),
    (2, "0", "other", "America/St_Johns", 2, 0),
    (2, "1", "C", "UTC", 3, 1),
    (3, "random", "POSIX", "Asia/Kathmandu", 4, 2),
    (4, "1", "other", "UTC-14", 5, 3),
]


def shown(value: object) -> str:
    return value.name if isinstance(value, RealRun) else "-".join(map(str, value))


TRIALS = [
    *[(NANOGPT, machine) for machine in MACHINES],
    *[(HELD_OUT, machine) for machine in MACHINES[0::2]],
    *[(NPY, machine) for machine in MACHINES[2:5]],
    *[(MEGATRON, machine) for machine in MACHINES[0::2]],
    *[(MDS, machine) for machine in MACHINES[1::2]],
]


@pytest.mark.parametrize(("run", "machine"), TRIALS, ids=shown)
def test_processes_on_any_machine_give_the_same_bytes(run, machine, root, scratch, tally):
    out = str(scratch / "out")
    launch = launched_on(run.command(corpus(root, machine[4]), out, machine[0]), machine, scratch)
    assert launch.process.returncode == 0, launch.errors
    if run is HELD_OUT:
        assert documents(out, "train") and documents(out, "val")
        found = documents(out, "train") + documents(out, "val")
        assert sorted(found) == sorted(oracle.ids(TEXTS))
    else:
        assert not differences(out, run.expected())
    check_same(run.name, out)
    tally.add("determinism", "identical")


def documents(out: str, split: str) -> list[list[int]]:
    tokens = np.fromfile(Path(out, f"{split}.bin"), "<u2")
    ends = np.flatnonzero(tokens == oracle.EOT["gpt2"]) + 1
    return [document.tolist() for document in np.split(tokens, ends)[:-1]]


def launched_on(command: list[str], machine: tuple, scratch: Path) -> Launch:
    _, seed, locale, zone, _, jitter = machine
    locale = other_locale() if locale == "other" else locale
    environment = {"PYTHONHASHSEED": seed, "LC_ALL": locale, "LANG": locale, "TZ": zone}
    asked = {} if jitter is None else {"jitter": jitter}
    return finished(command, scratch, popen={"env": environment}, **asked)


@pytest.mark.parametrize("machine", MACHINES[0::2], ids=shown)
@pytest.mark.parametrize("run", [NPY, MDS], ids=shown)
def test_shuffled_processes_on_any_machine_give_the_same_bytes(run, machine, root, scratch, tally):
    out = str(scratch / "out")
    command = run.command(corpus(root, machine[4]), out, machine[0])
    launch = launched_on([*command, "--shuffle", "--seed", "5"], machine, scratch)
    assert launch.process.returncode == 0, launch.errors
    assert differences(out, run.expected())  # it is another order
    check_same(f"{run.name} shuffled", out)
    tally.add("determinism", "identical")


BATCHES = [(1, 1, 1), (100, 1 << 20, 256), (700, 2000, 3), (4 << 20, 5000, 2)]


@pytest.mark.parametrize("batch", BATCHES, ids=shown)
@pytest.mark.parametrize(
    ("run", "shuffle"), [*((run, False) for run in (*FORMATS, HELD_OUT)), (NPY, True), (MDS, True)]
)
def test_batches_of_any_size_give_the_same_bytes(
    run, batch, shuffle, root, scratch, monkeypatch, tally
):
    """Inline, in this process: what a reader hands over at once, what the engine is given at once,
    how much is read from a part and written to a shard at once."""
    batch_bytes, hold_bytes, hold_batches = batch
    fields = dataclasses.fields(ReadOptions)
    defaults = {one.name: one.default for one in fields} | {"batch_bytes": batch_bytes}
    monkeypatch.setattr(ReadOptions.__init__, "__defaults__", tuple(defaults.values()))
    assert ReadOptions().batch_bytes == batch_bytes
    monkeypatch.setattr(mill, "HOLD_BYTES", hold_bytes)
    monkeypatch.setattr(mill, "HOLD_BATCHES", hold_batches)
    monkeypatch.setattr(sources, "COPY_BYTES", 2 * hold_batches)
    monkeypatch.setattr(disk, "_WRITE_BYTES", batch_bytes)
    out = str(scratch / "out")
    options = {"shuffle": True, "seed": 5} if shuffle else {}
    run.call(corpus(root, batch_bytes), out, **options)
    check_same(f"{run.name} shuffled" if shuffle else run.name, out)
    tally.add("determinism", "identical")


def test_another_seed_is_another_shuffle(root, scratch):
    """So that the tests above do not pass for want of a shuffle."""
    seen = set()
    for seed in (5, 6):
        out = str(scratch / f"out {seed}")
        scenarios.prepared(corpus(root, 0), out, val="none", shuffle=True, seed=seed)
        seen.add(Path(out, "train.bin").read_bytes())
    assert len(seen) == 2
