"""Checks the disk space at the start of a run, before hours of work end in a full disk.

Nearly always one token per byte of text would still fit, and nothing more is checked. Otherwise the
corpus is sampled, as in `tokenmill estimate`, in a separate process, because reading a hostile file
may kill it. If that fails, the usual number of bytes per token is assumed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

from tokenmill.config import Config
from tokenmill.corpus.plan import Plan
from tokenmill.encode.buckets import TEXT_BYTES_PER_TOKEN
from tokenmill.encode.documents import specials_per_document
from tokenmill.estimate.already_here import held_bytes, local_and_remote, needed_for_downloads
from tokenmill.estimate.footprint import Amount, Footprint, expected_footprint
from tokenmill.formats import DTYPE_BYTES
from tokenmill.runners.start import num_proc_of
from tokenmill.storage import disk_space
from tokenmill.storage.store import store_of

CAUTIOUS_BYTES_PER_TOKEN = 1.0
SAMPLE_SECONDS = 60.0
DOCUMENT_BYTES = 200  # if files do not state their documents; low, to count too many


def space_warning(config: Config, plan: Plan) -> str | None:
    """The warning for a run whose output will not fit on its disk; None if it will. `config` is
    resolved."""
    free = disk_space.free_bytes(config.out)
    _, elsewhere = local_and_remote(plan.inputs)
    there = held_bytes(config.out) - needed_for_downloads(elsewhere, config)
    cautious = _assumed_footprint(config, plan, CAUTIOUS_BYTES_PER_TOKEN)
    if cautious.disk_bytes - there <= free:
        return None
    found = _estimated_in_subprocess(config)
    if found is not None:
        output, needed = found["output_bytes"][config.format], found["needed_bytes"]
    else:
        assumed = _assumed_footprint(config, plan, TEXT_BYTES_PER_TOKEN)
        output, needed = assumed.output_bytes, max(0, assumed.disk_bytes - there)
    if needed <= free:
        return None
    folder = store_of(config.out).disk_folder(config.out)
    return (
        f"the disk may be too small: {folder} has {_shown(free)} free, and the run needs about "
        f"{_shown(needed)} there while it runs (the finished output: {_shown(output)})\n"
        "hint: make room, or choose another disk with -o; if it fills up, nothing is lost: the "
        "same command resumes"
    )


def _assumed_footprint(config: Config, plan: Plan, text_bytes_per_token: float) -> Footprint:
    """From the plan alone, without reading text."""
    num_documents = plan.slices.num_rows or plan.text_bytes / DOCUMENT_BYTES
    num_eots = specials_per_document(config.eot, config.bos) * num_documents
    amount = Amount(
        num_tokens=plan.text_bytes / text_bytes_per_token + num_eots,
        num_documents=num_documents,
        num_slices=len(plan.slices),
        num_inputs=len(plan.inputs),
        name_bytes=sum(len(source.name) for source in plan.inputs),
        planned_bytes=plan.text_bytes,
    )
    num_proc = num_proc_of(config, len(plan.slices))
    return expected_footprint(config, amount, num_proc, DTYPE_BYTES[config.dtype])


def _estimated_in_subprocess(config: Config) -> dict[str, Any] | None:
    """The estimate from a separate process; None if that dies or takes too long."""
    paths = [path for path in sys.path if os.path.isabs(path)]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tokenmill.estimate"],
            input=json.dumps(dataclasses.asdict(config)).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SAMPLE_SECONDS,
            # Not from the current folder, where a user's random.py would be imported.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"},
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _shown(num_bytes: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}" if unit == "bytes" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} TB"
