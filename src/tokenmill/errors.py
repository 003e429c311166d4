"""Every error that tokenmill raises on purpose, and the exit code of each.

    TokenmillError              1  our bug: nothing more precise was raised
    ├── ConfigError             2  an option or a name is wrong: type it differently
    │   └── ArgumentError       2  a Python argument has a wrong name or type
    ├── InputError              3  the corpus is wrong: fix or leave out a file
    ├── OutputError             4  the output folder's storage failed: make room, get permission
    ├── IntegrityError          5  bytes are wrong: do not train on them
    │   └── DamagedWorkError    5  bytes of an unfinished run are wrong: start again
    ├── ConflictError           6  another run, or inputs/config changed: choose which one wins
    ├── WorkerError             7  workers died too often: memory, or a document that kills them
    │   └── OutOfMemoryError    7  this process got no more memory: fewer workers, or more memory
    ├── NetworkError            8  a remote end failed for too long: run the same command again
    └── UncheckedError          9  nothing is known to be wrong, but a requested check could not be
                                   made: say where the sources or the tokenizer are

There is one leaf for each thing the user can do next. A message says what, where, got and expected;
the hint is something to type. A worker sends an error through its pipe as plain data (`to_plain`),
so an error is its kind, message and hint and nothing else.
"""

from __future__ import annotations

import errno
from typing import Any

MORE_MEMORY = (
    "fewer workers need less: --num-proc 1; or raise the limit (ulimit -v, the job's memory); then "
    "run the same command again: it resumes"
)


class TokenmillError(Exception):
    """Base of all errors raised on purpose. `hint` is one line with something to type."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def to_plain(self) -> dict[str, str | None]:
        return {"kind": type(self).__name__, "message": self.message, "hint": self.hint}


class ConfigError(TokenmillError, ValueError):
    """An option or a name is wrong: type it differently."""

    exit_code = 2


class ArgumentError(ConfigError, TypeError):
    """An argument of a Python function has a wrong name or type. Also a TypeError."""


class InputError(TokenmillError, ValueError):
    """The corpus is wrong: fix or leave out a file."""

    exit_code = 3


class OutputError(TokenmillError, OSError):
    """The storage of the output folder failed: make room, or get permission."""

    exit_code = 4

    # OSError's own __str__ and __new__ read (errno, strerror) from the arguments.
    def __str__(self) -> str:
        return TokenmillError.__str__(self)


class IntegrityError(TokenmillError, ValueError):
    """Bytes are wrong: do not train on them."""

    exit_code = 5


class DamagedWorkError(IntegrityError):
    """The work of an unfinished run is damaged: --overwrite starts it again."""


class ConflictError(TokenmillError, RuntimeError):
    """Another run is active, or inputs or options have changed: choose which one wins."""

    exit_code = 6


class WorkerError(TokenmillError, RuntimeError):
    """Workers died too often: too little memory, or a document that kills them."""

    exit_code = 7


class OutOfMemoryError(WorkerError):
    """A process got no more memory: fewer workers, or a higher limit."""


class NetworkError(TokenmillError, ConnectionError):
    """A remote end failed for too long: run the same command again, and it resumes."""

    exit_code = 8

    def __str__(self) -> str:
        return TokenmillError.__str__(self)


class UncheckedError(TokenmillError, RuntimeError):
    """A requested check could not be made: say where the sources or the tokenizer are."""

    exit_code = 9


_KINDS: dict[str, type[TokenmillError]] = {
    kind.__name__: kind
    for kind in (
        TokenmillError,
        ConfigError,
        ArgumentError,
        InputError,
        OutputError,
        IntegrityError,
        DamagedWorkError,
        ConflictError,
        WorkerError,
        OutOfMemoryError,
        NetworkError,
        UncheckedError,
    )
}


def error_from_plain(plain: dict[str, Any]) -> TokenmillError:
    """Rebuild an error that `to_plain` flattened; an unknown kind becomes the base class."""
    kind = _KINDS.get(str(plain.get("kind")), TokenmillError)
    return kind(str(plain.get("message")), plain.get("hint"))


def shortage(error: BaseException) -> WorkerError | None:
    """The error that says that memory, processes or threads ran out, if that is behind this one,
    whatever a library or a reader made of it. Not behind an IntegrityError: damaged data, too, may
    ask for more memory than there is."""
    if isinstance(error, (IntegrityError, WorkerError)):
        return None
    one: BaseException | None = error
    while one is not None:
        # By its words, too: Arrow's OSError may have no errno, and a loader's error never has.
        is_refused = isinstance(one, OSError) and (
            one.errno == errno.ENOMEM or "Cannot allocate memory" in str(one)
        )
        is_unmapped = isinstance(one, ImportError) and "failed to map segment" in str(one)
        if isinstance(one, MemoryError) or is_refused or is_unmapped:
            return OutOfMemoryError(f"out of memory: {_first_line(error)}", hint=MORE_MEMORY)
        if isinstance(one, BlockingIOError) or "can't start new thread" in str(one):
            return WorkerError(
                f"no more processes or threads may be started: {_first_line(one)}",
                hint="raise the limit (ulimit -u, the cgroup's pids.max), or use fewer: "
                "--num-proc 1; then run the same command again: it resumes",
            )
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return None


def _first_line(error: BaseException) -> str:
    said = error.message if isinstance(error, TokenmillError) else str(error)
    return next(iter(said.splitlines()), "") or type(error).__name__


def unknown_name(what: str, name: str, known: list[str] | tuple[str, ...]) -> ConfigError:
    """The error for a name that is not in `known`: lists them and suggests the nearest."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return ConfigError(
        f"unknown {what} {name!r}; known: {', '.join(known)}",
        hint=f"did you mean {near[0]!r}?" if near else None,
    )
