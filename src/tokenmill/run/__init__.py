"""One run, from options to a dataset. Read `attempt.py` first.

request.py      what was asked for, compared with what is there
context.py      the corpus, the plan, what every step needs
attempt.py      what is done of it already, and what is missing
slice_queue.py  slices to the runner, records back
completion.py   publish the shards, with their manifest
timings.py      `--timings FILE`: how far it is, beside the dataset
partition.py    `--partition I/N`: one command's share, which finish.py assembles
"""

from __future__ import annotations

from tokenmill.run.attempt import run
from tokenmill.run.context import new_plan
from tokenmill.run.watch import RunWatch, SilentWatch

__all__ = ["RunWatch", "SilentWatch", "new_plan", "run"]
