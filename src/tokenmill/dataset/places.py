"""The layout of an output folder.

OUT/tokenmill.json                the manifest of a finished dataset
OUT/tokenmill-packed-2048.rows    a plan of its rows (loader/packing/), for rows of 2,048 tokens
OUT/.tokenmill/plan.json          an unfinished run
OUT/.tokenmill/lock               held while a process works on the run
OUT/.tokenmill/ID/                the run's work so far; ID is the start of its plan's hash
OUT/.tokenmill/publish.json       the run's dataset is complete and is being moved into place
"""

from __future__ import annotations

import os
import re

WORK_NAME = ".tokenmill"


def is_row_plan(name: str) -> bool:
    return re.fullmatch(r"tokenmill-packed-[0-9]+\.rows", name) is not None


def plan_path(out: str) -> str:
    return os.path.join(out, WORK_NAME, "plan.json")


def lock_path(out: str) -> str:
    return os.path.join(out, WORK_NAME, "lock")


def publish_path(out: str) -> str:
    return os.path.join(out, WORK_NAME, "publish.json")


def work_of(out: str, plan_id: str) -> str:
    """The work folder of a run. Each plan has its own, so that a late worker of a discarded run
    cannot touch the files of the next run."""
    return os.path.join(out, WORK_NAME, plan_id[:16])
