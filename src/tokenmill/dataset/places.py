"""The layout of an output folder.

On a disk:

    OUT/tokenmill.json                the manifest of a finished dataset
    OUT/tokenmill-packed-2048.rows    a plan of its rows (loader/packing/), of 2,048 tokens each
    OUT/.tokenmill/plan.json          an unfinished run
    OUT/.tokenmill/lock               held while a process works on the run
    OUT/.tokenmill/ID/                the run's work so far; ID is the start of its plan's hash
    OUT/.tokenmill/publish.json       the run's dataset is complete and is being moved into place

In a bucket, where a request may arrive long after it was sent, no two runs share a name. Every run
has another ID, and two small objects say whose turn it is (bucket_runs.py):

    OUT/tokenmill.json                a pointer to the finished dataset
    OUT/ID/                           its shards, manifest and plans of rows: what a trainer reads
    OUT/.tokenmill/run.json           the ID of the latest run
    OUT/.tokenmill/ID/                its plan and its work so far
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass

from tokenmill.storage.store import store_of

WORK_NAME = ".tokenmill"
POINTER_NAME = "tokenmill.json"  # the name of a manifest, too: it is what one looks for
MAX_POINTER_BYTES = 256
_NO_RUN = "none"  # nothing has this name
_ID = re.compile("[0-9a-f]{16}", re.ASCII)


def is_row_plan(name: str) -> bool:
    return re.fullmatch(r"tokenmill-packed-[0-9]+\.rows", name) is not None


def plan_path(out: str) -> str:
    """Where the plan of an unfinished run is, if there is one."""
    return plan_of(out, "" if store_of(out).is_local else latest_run(out).run or _NO_RUN)


def plan_of(out: str, run: str) -> str:
    """The path of a run's plan; on a disk, of any run's (`run` is "")."""
    return os.path.join(out, WORK_NAME, run, "plan.json")


def lock_path(out: str) -> str:
    return os.path.join(out, WORK_NAME, "lock")


def publish_path(out: str) -> str:
    return os.path.join(out, WORK_NAME, "publish.json")


def run_path(out: str) -> str:
    return os.path.join(out, WORK_NAME, "run.json")


def run_of(plan_id: str) -> str:
    """The ID of a run."""
    return plan_id[:16]


def work_of(out: str, plan_id: str) -> str:
    """The work folder of a run. Each plan has its own, so that a late worker of a discarded run
    cannot touch the files of the next run."""
    return os.path.join(out, WORK_NAME, run_of(plan_id))


@dataclass(frozen=True, slots=True)
class LatestRun:
    """The content of `run.json`."""

    run: str = ""  # "": none
    replaced: tuple[str, ...] = ()  # earlier runs, whose folders go once this one has published
    data: bytes | None = None  # as it was read; None: there is no such object

    def to_json(self) -> bytes:
        return json.dumps({"run": self.run, "replaced": self.replaced}).encode()


def latest_run(out: str) -> LatestRun:
    """The run that began last in a bucket. Whatever is not the name of a run is left out: the
    object may have been edited."""
    try:
        data = store_of(out).read(run_path(out))
    except FileNotFoundError:
        return LatestRun()
    try:
        plain = json.loads(data)
        run = plain["run"] if _is_id(plain["run"]) else ""
        return LatestRun(run, tuple(filter(_is_id, plain["replaced"])), data)
    except (ValueError, KeyError, TypeError):
        return LatestRun(data=data)


def pointer_to(run: str) -> bytes:
    return json.dumps({"tokenmill_dataset": 1, "folder": run}).encode() + b"\n"


def pointed_run(data: bytes) -> str | None:
    """The run that a pointer names; None: these bytes are no pointer, but perhaps a manifest."""
    if len(data) > MAX_POINTER_BYTES:
        return None
    try:
        plain = json.loads(data)
        run = plain["folder"] if plain["tokenmill_dataset"] == 1 else None
    except (ValueError, KeyError, TypeError):
        return None
    return run if _is_id(run) else None


def dataset_folder(out: str) -> str:
    """The folder of the finished dataset's files: `out`, or the one that a pointer in it names."""
    path = os.path.join(out, POINTER_NAME)
    try:
        # Opening a pipe would wait for its other end.
        found = store_of(path).stat(path)
        if found is None or not found.is_file or found.num_bytes > MAX_POINTER_BYTES:
            return out
        run = pointed_run(store_of(path).read(path))
    except OSError:
        return out
    return out if run is None else os.path.join(out, run)


def _is_id(run: object) -> bool:
    return isinstance(run, str) and _ID.fullmatch(run) is not None
