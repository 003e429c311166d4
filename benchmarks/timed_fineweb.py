"""`tokenmill` with the times at which things happen, in seconds after the command was started.

    STARTED_AT=$(date +%s.%N) python -P benchmarks/timed_fineweb.py TIMES fineweb --version 10B ...

writes into the file TIMES, when it ends, a JSON object: when the download began, when each file was
complete (hash compared) and each slice encoded, in the order in which that happened, when each
piece of a shard was written, and when the output was being proved. `overlap.py` keeps it with a
point.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

from tokenmill.assemble.books import Assembly
from tokenmill.cli import main
from tokenmill.corpus.download.downloads import Downloads

STARTED_AT = float(os.environ["STARTED_AT"])
TIMES: dict[str, list[float]] = {
    name: [] for name in ("download", "files", "slices", "shards", "proof")
}


def note(name: str) -> None:
    TIMES[name].append(round(time.time() - STARTED_AT, 2))


def noting(name: str, owner: Any, method: str) -> None:
    """Have a call of the method noted."""
    right = getattr(owner, method)

    def noted(*arguments: Any, **named: Any) -> Any:
        note(name)
        return right(*arguments, **named)

    setattr(owner, method, noted)


if __name__ == "__main__":
    noting("download", Downloads, "__init__")
    noting("files", Downloads, "_note_here")
    noting("slices", Assembly, "add")
    noting("shards", Assembly, "done")
    noting("proof", importlib.import_module("tokenmill.prepare"), "completed")
    code = main(sys.argv[2:])
    with open(sys.argv[1], "w") as file:
        json.dump(TIMES, file)
    sys.exit(code)
