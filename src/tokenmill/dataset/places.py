"""Where things are in an output folder.

OUT/tokenmill.json                the manifest of a finished dataset
OUT/.tokenmill/plan.json          a run is under way
OUT/.tokenmill/lock               held while a process is at work on it
OUT/.tokenmill/ID/                what it has done so far; ID begins its plan's hash
OUT/.tokenmill/publish.json       its dataset is complete, and is being moved to its place
"""

from __future__ import annotations

import os

WORK_NAME = ".tokenmill"


def plan_path(out: str) -> str:
    return os.path.join(out, WORK_NAME, "plan.json")


def lock_path(out: str) -> str:
    return os.path.join(out, WORK_NAME, "lock")


def publish_path(out: str) -> str:
    return os.path.join(out, WORK_NAME, "publish.json")


def work_of(out: str, plan_id: str) -> str:
    """Where a run keeps what it does. Each plan has a place of its own, so that a late worker of a
    run that was given up cannot touch what the next one does."""
    return os.path.join(out, WORK_NAME, plan_id[:16])
