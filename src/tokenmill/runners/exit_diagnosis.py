"""Why a worker died, as far as it is known, in words for a person.

A dead worker leaves a signal number and some last words on stderr. The kernel's counters and the
memory in use say the rest. Control characters are removed from the words, because a worker may have
printed part of a document.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from tokenmill.runners import machine

# With this share of the memory in use, a SIGKILL was most likely the kernel's.
TIGHT_SHARE = 0.9
MAX_LINES = 8
MAX_LINE_CHARACTERS = 200

_NATIVE = {"SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS"}
_LIMITS = {"SIGXCPU": "the CPU limit (ulimit -t)", "SIGXFSZ": "the file-size limit (ulimit -f)"}


@dataclass(frozen=True, slots=True)
class Exit:
    """What the kernel and the worker's stderr say about its end."""

    pid: int
    code: int | None  # negative: the signal; None: other code reaped it
    peak_bytes: int | None
    stderr: str


@dataclass(frozen=True, slots=True)
class Death:
    pid: int
    cause: str  # "SIGSEGV", "exit code 1", "MemoryError", "no progress for 300 s"
    likely: str  # what it most often means
    last_words: str = ""
    is_stall: bool = False
    is_memory: bool = False
    is_oom_kill: bool = False  # by the kernel, because all processes together used too much

    @property
    def explained(self) -> str:
        """One line on what happened, with the last words below it."""
        line = f"{self.cause}: {self.likely}"
        return f"{line}\n{self.last_words}" if self.last_words else line


def death_of(exit_: Exit, oom_kills: int) -> Death:
    """The death of a worker that we did not end. `oom_kills` were counted since the last death."""
    words = last_words(exit_.stderr)
    if exit_.code is None:
        return Death(exit_.pid, "unknown end", "its exit status was taken by someone else", words)
    if exit_.code >= 0:
        likely = "it ended by itself; its last words say more"
        return Death(exit_.pid, f"exit code {exit_.code}", likely, words)
    name = _signal_name(-exit_.code)
    if name != "SIGKILL":
        return Death(exit_.pid, name, _likely(name), words)
    memory = _memory_words(exit_.peak_bytes)
    if oom_kills > 0:
        likely = f"the kernel killed it for lack of memory (oom_kill count +{oom_kills}){memory}"
    elif _is_tight(exit_.peak_bytes):
        likely = f"probably the kernel, for lack of memory{memory}"
    else:
        likely = f"someone killed it: a person, a job scheduler, a memory watchdog{memory}"
        return Death(exit_.pid, name, likely, words)
    return Death(exit_.pid, name, likely, words, is_memory=True, is_oom_kill=True)


def stall_of(exit_: Exit, seconds: float) -> Death:
    """The death of a worker that was ended after `seconds` without a message."""
    likely = "an endless loop, a dead network disk, or it was stopped; it was killed"
    words = last_words(exit_.stderr)
    return Death(exit_.pid, f"no progress for {seconds:g} s", likely, words, is_stall=True)


def memory_error_of(exit_: Exit) -> Death:
    """The death of a worker that could not allocate memory."""
    likely = f"it asked for more memory than it may have{_memory_words(exit_.peak_bytes)}"
    return Death(exit_.pid, "MemoryError", likely, is_memory=True)


def printable(text: str) -> str:
    """The text without terminal control characters; line ends stay."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def last_words(stderr: str) -> str:
    """The most informative lines: the head of a crash dump if there is one, else the last lines."""
    lines = [line.rstrip()[:MAX_LINE_CHARACTERS] for line in printable(stderr).split("\n")]
    lines = [line for line in lines if line]
    dumps = [i for i, line in enumerate(lines) if line.startswith("Fatal Python error")]
    lines = lines[dumps[-1] :][:MAX_LINES] if dumps else lines[-MAX_LINES:]
    return "\n".join(f"  | {line}" for line in lines)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _likely(name: str) -> str:
    if name in _NATIVE:
        return "a crash in native code"
    if name in _LIMITS:
        return f"{_LIMITS[name]} was hit"
    return "someone ended it: a person, a job scheduler, a shutdown"


def _memory_words(peak_bytes: int | None) -> str:
    if peak_bytes is None:
        return ""
    return f"; it held up to {_gb(peak_bytes)} of {_gb(machine.memory_limit_bytes())}"


def _is_tight(peak_bytes: int | None) -> bool:
    limit = machine.memory_limit_bytes()
    others = limit - machine.memory_available_bytes()
    return (peak_bytes or 0) + others > TIGHT_SHARE * limit


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
