"""All stretches of a split, counted by all cores, each in a process of its own.

`bincount` holds Python's lock, so threads would count one after the other. A process gets
neighbouring stretches on stdin, as JSON, and answers on stdout, stretch by stretch: a line of JSON,
then the arrays it announces.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import IO, Any

import numpy as np

from tokenmill.dataset.inspect import TokenBytes, look_into
from tokenmill.dataset.split import Split
from tokenmill.errors import WorkerError
from tokenmill.report.tally import (
    Numbers,
    ReadStretch,
    SplitTally,
    StretchTally,
    largest_row,
    tallied,
)
from tokenmill.runners.threads import in_threads

# Below this, starting processes takes longer than counting.
MIN_TOKENS_APART = 1 << 27
OnProgress = Callable[[str, int, int], None]
_DTYPES = {"counts": np.int64, "ends": np.int64, "keys": np.uint64}


def tallied_apart(
    split: Split,
    stretches: list[ReadStretch],
    table: TokenBytes | None,
    opening: dict[str, str],
    num_proc: int,
    progress: OnProgress,
) -> SplitTally:
    """What all stretches hold; each process has neighbouring ones."""
    share = _Shared(split, table, opening, progress)
    num_proc = min(num_proc, len(stretches))
    bounds = [len(stretches) * i // num_proc for i in range(num_proc + 1)]
    groups = [stretches[a:b] for a, b in itertools.pairwise(bounds)]
    return SplitTally.joined(list(in_threads(share.counted, groups, num_proc)))


class _Shared:
    """What the processes of a split have in common."""

    def __init__(
        self,
        split: Split,
        table: TokenBytes | None,
        opening: dict[str, str],
        progress: OnProgress,
    ) -> None:
        self._order = {
            "split": split.name,
            "last": largest_row(table, split),
            "with_documents": split.stream.knows_documents,
            "opening": opening,
        }
        self._per_id = None if table is None else table.lengths
        self._num_tokens = split.num_tokens
        self._progress = progress
        self._lock = threading.Lock()
        self._num_read = 0

    def counted(self, stretches: list[ReadStretch]) -> SplitTally:
        """What these hold, as a process of its own says."""
        order = {**self._order, "stretches": [asdict(one) for one in stretches]}
        with _process(json.dumps(order).encode()) as process:
            assert process.stdout is not None
            found = SplitTally.of(self._received(process.stdout, stretches), self._per_id)
        if len(found.num_bytes) < len(stretches):
            raise WorkerError(
                f"a process that counted tokens ended early, with code {process.returncode}",
                hint="is memory short? fewer at a time: --num-proc 1; or leave --exact out",
            )
        return found

    def _received(self, stdout: IO[bytes], stretches: list[ReadStretch]) -> Iterator[StretchTally]:
        for stretch in stretches:
            tally = _received(stdout)
            if tally is None:
                return
            yield tally
            self._advance(stretch.num_read)

    def _advance(self, num_tokens: int) -> None:
        with self._lock:
            self._num_read += num_tokens
            self._progress("reading", self._num_read, self._num_tokens)


@contextlib.contextmanager
def _process(order: bytes) -> Iterator[subprocess.Popen[bytes]]:
    paths = [path for path in sys.path if os.path.isabs(path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tokenmill.report"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Not from the current folder: a user's random.py would be imported there.
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(order)
        yield process
    finally:
        process.stdout.close()
        process.terminate()
        process.wait()


def serve(order: dict[str, Any], stdout: IO[bytes]) -> None:
    """Count what the order says: the other end of the pipes."""
    looked = look_into(**order["opening"])
    split = Split(looked, order["split"], lambda: None, None)
    stretches = [ReadStretch(**one) for one in order["stretches"]]
    for stretch in stretches:
        _send(tallied(split, stretch, order["last"], order["with_documents"]), stdout)


def _send(tally: StretchTally, stdout: IO[bytes]) -> None:
    arrays = {name: getattr(tally, name) for name in _DTYPES}
    sizes = {name: None if one is None else len(one) for name, one in arrays.items()}
    stdout.write(json.dumps(sizes).encode() + b"\n")
    for one in arrays.values():
        if one is not None:
            stdout.write(one.tobytes())
    stdout.flush()


def _received(stdout: IO[bytes]) -> StretchTally | None:
    """None at the end."""
    line = stdout.readline()
    if not line.endswith(b"\n"):
        return None
    arrays: dict[str, Numbers | None] = {}
    for name, size in json.loads(line).items():
        kind = np.dtype(_DTYPES[name])
        data = b"" if size is None else stdout.read(size * kind.itemsize)
        if size is not None and len(data) < size * kind.itemsize:
            return None
        arrays[name] = None if size is None else np.frombuffer(data, kind)
    return StretchTally(**arrays)  # type: ignore[arg-type]
