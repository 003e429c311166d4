"""The timings of a run: a file of JSON lines outside of the dataset, which `prepare --timings`
appends to and `report --timings` draws.

    {"tokenmill_timings": 1, "run": "5d1f...", "time": 1731750000.1, "slices": 160, "resumed": 9}
    {"seconds": 1.0, "slices": 3, "documents": 940, "tokens": 8123456, ...}
    {"seconds": 2.0, "slices": 5, "documents": 1602, ..., "end": "complete"}

The first line begins an attempt; `resumed` slices were encoded by earlier ones. The others say what
the attempt has done since, and the last one how it ended; an attempt without one was killed. `run`
is a hash of what determines the bytes of the dataset, so that a report takes no other run's file.

The file may come from anyone: every line and the number of lines are bounded, and a line that is
not one of these is skipped and counted.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn, Protocol

from tokenmill.errors import InputError
from tokenmill.storage import files

VERSION = 1
COMPLETE, STOPPED, FAILED = ENDS = ("complete", "stopped", "failed")
MAX_LINE_BYTES = 1 << 10
MAX_FILE_BYTES = 64 << 20  # a week of lines takes 2 MB
MAX_ATTEMPTS = 10_000
_MAX_TIME = 253_402_300_799  # the last second of the year 9999
_MAX_COUNT = 1 << 63


class RunInput(Protocol):
    """A file of the corpus, in a plan or in a manifest."""

    @property
    def label(self) -> str: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def digest(self) -> str: ...


def run_hash(identity: dict[str, Any], inputs: Iterable[RunInput]) -> str:
    """The same for a run's plan and for the manifest of what it made."""
    found = [(source.label, source.num_bytes, source.digest) for source in inputs]
    plain = {"identity": identity, "inputs": found}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Moment:
    """What an attempt has done after so many seconds."""

    seconds: float
    slices: int
    documents: int
    tokens: int
    text_bytes: int
    downloaded: int  # bytes


@dataclass(slots=True)
class TimedAttempt:
    run: str
    time: float  # when it began: seconds since 1970
    num_slices: int  # of the run
    num_resumed: int
    moments: list[Moment] = field(default_factory=list)
    end: str | None = None  # of ENDS; None: it was killed, or goes on

    @property
    def last(self) -> Moment:
        return self.moments[-1] if self.moments else Moment(0.0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Timings:
    """What a file holds."""

    attempts: tuple[TimedAttempt, ...]
    num_unreadable: int  # lines


def beginning(attempt: TimedAttempt) -> bytes:
    """The line that begins an attempt."""
    return _line(
        {
            "tokenmill_timings": VERSION,
            "run": attempt.run,
            "time": round(attempt.time, 3),
            "slices": attempt.num_slices,
            "resumed": attempt.num_resumed,
        }
    )


def moment_line(moment: Moment, end: str | None = None) -> bytes:
    plain = {**asdict(moment), "seconds": round(moment.seconds, 3)}
    return _line(plain if end is None else {**plain, "end": end})


def _line(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain).encode() + b"\n"


def read_timings(path: str) -> Timings:
    """Raises InputError for a file that no run wrote; FileNotFoundError if there is none."""
    if files.is_irregular(path):
        raise _no_timings(path, "it is not a regular file")
    attempts: list[TimedAttempt] = []
    num_unreadable = 0
    for line in _lines(path):
        try:
            found = _parsed(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            if not attempts:
                raise _no_timings(path, "its first line is not one of them") from None
            num_unreadable += 1
            continue
        if isinstance(found, TimedAttempt):
            attempts.append(found)
        elif not attempts:
            raise _no_timings(path, "its first line is not one of them")
        elif attempts[-1].end is not None or found[0].seconds < attempts[-1].last.seconds:
            num_unreadable += 1
        else:
            attempts[-1].moments.append(found[0])
            attempts[-1].end = found[1]
        if len(attempts) > MAX_ATTEMPTS:
            raise _no_timings(path, f"it has more than {MAX_ATTEMPTS:,} attempts")
    if not attempts:
        raise _no_timings(path, "it is empty")
    return Timings(tuple(attempts), num_unreadable)


def _lines(path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise _no_timings(path, f"it has more than {MAX_FILE_BYTES:,} bytes")
    yield from io.BytesIO(data)


def _parsed(line: bytes) -> TimedAttempt | tuple[Moment, str | None]:
    """Raises an error of some kind for anything else."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError("too long")
    plain = json.loads(line, parse_constant=_refused)
    if not isinstance(plain, dict):
        raise TypeError("not an object")
    if "tokenmill_timings" in plain:
        if plain["tokenmill_timings"] != VERSION:
            raise ValueError("version")
        run = plain["run"]
        if not isinstance(run, str) or len(run) != 64 or set(run) - set("0123456789abcdef"):
            raise ValueError("run")
        counts = _count(plain["slices"]), _count(plain["resumed"])
        return TimedAttempt(run, _number(plain["time"]), *counts)
    end = plain.get("end")
    if end is not None and end not in ENDS:
        raise ValueError("end")
    seconds = _number(plain["seconds"])
    names = ("slices", "documents", "tokens", "text_bytes", "downloaded")
    return Moment(seconds, *(_count(plain[name]) for name in names)), end


def _refused(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and Infinity


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MAX_COUNT:
        raise ValueError("not a count")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= _MAX_TIME:
        raise ValueError("not a time")
    return float(value)


def _no_timings(path: str, why: str) -> InputError:
    return InputError(
        f"{path} holds no timings of a run: {why}",
        hint="tokenmill prepare ... --timings FILE writes them",
    )
