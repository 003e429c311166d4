"""One run, from options to a dataset. `../prepare.py` is its outline: read that first.

request.py      compares what is asked for with what the folder holds
context.py      what every step needs: options, runner, watch, paths
slice_queue.py  slices to the runner, records back
completion.py   publishes the shards with their manifest
partition.py    `--partition I/N`: encodes one share of a run; finish.py assembles all of them
"""

from __future__ import annotations

from tokenmill.run.context import new_plan
from tokenmill.run.watch import LimitWatch, RunWatch, SilentWatch

__all__ = ["LimitWatch", "RunWatch", "SilentWatch", "new_plan"]
