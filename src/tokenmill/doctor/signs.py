"""Searches a command's stderr, line by line, for the messages of known causes.

The whole stream is searched and only the first line of each kind is kept, so that a panic in the
first minute is still known after an hour of progress bars.
"""

from __future__ import annotations

import re
from collections import deque

MAX_LINE_BYTES = 2000
NUM_LAST_LINES = 6

_SIGNS = {
    # The messages of libraries that noticed the loss of a worker.
    "worker gone": rb"One of the subprocesses has abruptly died|BrokenProcessPool"
    rb"|DataLoader worker \(pid.*(?:killed by signal|exited unexpectedly)",
    "panic": rb"thread '.*' (?:\(\d+\) )?panicked at|PanicException",
    "no main guard": rb"before the\s+current process has finished its bootstrapping phase"
    rb"|process has finished its bootstrapping phase",
    "pickle": rb"[Cc]an(?:no|')t pickle|PicklingError|[Cc]an't get local object",
    "vocabulary": rb"openaipublic\.blob\.core\.windows\.net|data-gym-cache"
    rb"|Hash mismatch for data downloaded from",
    "hub": rb"OfflineModeIsEnabled|LocalEntryNotFoundError|Couldn't reach .* on the Hub"
    rb"|(?:ConnectError|ConnectionError|MaxRetryError).*huggingface\.co",
    "fork with threads": rb"multi-threaded, use of fork\(\) may lead to deadlocks"
    rb"|process just got forked, after parallelism has already been used",
    "shared memory": rb"insufficient shared memory|/dev/shm|shm_open|torch_shm_manager"
    rb"|unable to (?:open|write to|mmap) (?:shared memory|file </torch)",
    "disk": rb"No space left on device|Errno 28|Disk quota exceeded|Not enough disk space",
    "open files": rb"Too many open files",
    "processes": rb"Resource temporarily unavailable|can't start new thread",
    "memory": rb"\bMemoryError\b|bad_alloc|memory allocation of \d+ bytes failed"
    rb"|Cannot allocate memory|can't allocate memory|ArrowMemoryError|malloc of size \d+ failed",
    "segfault": rb"Fatal Python error: (?:Segmentation fault|Bus error|Aborted|Illegal)",
}
_ANY = re.compile(b"|".join(b"(?:%b)" % pattern for pattern in _SIGNS.values()))
_EACH = {name: re.compile(pattern) for name, pattern in _SIGNS.items()}


class Signs:
    """The first line of each kind that was seen, and the last lines of all."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}
        self._last: deque[bytes] = deque(maxlen=NUM_LAST_LINES)
        self._rest = b""

    @property
    def last_lines(self) -> list[str]:
        lines = [*self._last, self._rest] if self._rest.strip() else list(self._last)
        return [line.decode("utf-8", "replace") for line in lines[-NUM_LAST_LINES:]]

    def feed(self, data: bytes) -> None:
        # A progress bar ends its lines with a carriage return.
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._see(line)
        if len(self._rest) > MAX_LINE_BYTES:
            self._see(self._rest)
            self._rest = b""

    def close(self) -> None:
        self._see(self._rest)
        self._rest = b""

    def _see(self, line: bytes) -> None:
        line = line[:MAX_LINE_BYTES].strip()
        if not line:
            return
        self._last.append(line)
        if _ANY.search(line):
            for name, pattern in _EACH.items():
                if name not in self.lines and pattern.search(line):
                    self.lines[name] = line.decode("utf-8", "replace")
