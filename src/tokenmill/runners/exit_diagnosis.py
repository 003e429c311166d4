"""Why a worker died, as far as it is known, for the user.

The sources are its exit status, the end of its stderr, the kernel's counters and the memory in use.
Control characters are removed from stderr, because a worker may have printed part of a document.
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
    stderr_excerpt: str = ""
    is_stall: bool = False
    is_memory: bool = False
    is_oom_kill: bool = False  # by the kernel, because all processes together used too much

    @property
    def explained(self) -> str:
        """One line on what happened, with the excerpt of stderr below it."""
        line = f"{self.cause}: {self.likely}"
        return f"{line}\n{self.stderr_excerpt}" if self.stderr_excerpt else line


def death_of(exit_: Exit, oom_kills: int) -> Death:
    """The death of a worker that we did not kill. `oom_kills` were counted since the last death."""
    words = stderr_excerpt(exit_.stderr)
    if exit_.code is None:
        return Death(
            exit_.pid, "unknown end", "other code in this process collected its exit status", words
        )
    if exit_.code >= 0:
        likely = "it exited on its own; its stderr says more"
        return Death(exit_.pid, f"exit code {exit_.code}", likely, words)
    name = signal_name(-exit_.code)
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
    """The death of a worker that was killed after `seconds` without a message."""
    likely = "an endless loop, a dead network disk, or a stopped process; it was killed"
    words = stderr_excerpt(exit_.stderr)
    return Death(exit_.pid, f"no progress for {seconds:g} s", likely, words, is_stall=True)


def memory_error_of(exit_: Exit) -> Death:
    """The death of a worker that could not allocate memory."""
    likely = f"it asked for more memory than it may have{_memory_words(exit_.peak_bytes)}"
    return Death(exit_.pid, "MemoryError", likely, is_memory=True)


def printable(text: str) -> str:
    """The text without terminal control characters; line ends stay."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def stderr_excerpt(stderr: str) -> str:
    """The most informative lines: the head of a crash dump if there is one, else the last lines."""
    lines = [line.rstrip()[:MAX_LINE_CHARACTERS] for line in printable(stderr).split("\n")]
    lines = [line for line in lines if line]
    dumps = [i for i, line in enumerate(lines) if line.startswith("Fatal Python error")]
    lines = lines[dumps[-1] :][:MAX_LINES] if dumps else lines[-MAX_LINES:]
    return "\n".join(f"  | {line}" for line in lines)


def signal_name(number: int) -> str:
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
