"""The parent's end of one worker process; worker.py is the other end.

All pipes are non-blocking on this side, because one stopped worker must not delay the others. Why
not a library: a killed worker breaks a whole ProcessPoolExecutor and hangs multiprocessing.Pool,
and both import the caller's `__main__` again. Here every worker has its own pipes and its own
session, no process with threads is forked, and nothing is pickled (spawn.py starts it).
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import time
from collections import deque
from typing import Any

from tokenmill.encodings import EncodingId
from tokenmill.encodings.verdict import verdict_of
from tokenmill.runners.assignment import Assignment
from tokenmill.runners.exit_diagnosis import Exit
from tokenmill.runners.machine import peak_rss_bytes
from tokenmill.runners.shard_writing import ShardWriting
from tokenmill.runners.spawn import Process
from tokenmill.runners.worker import MAX_WAITING_DRAFTS

TAIL_BYTES = 8192
REAP_SECONDS = 1.0


class Child:
    """One worker process. `assignments[0]` is running and the rest are queued in its pipe;
    `committing[0]` is a drafted shard that waits for the disk, and the rest wait for their turn."""

    def __init__(
        self, process: Process, selector: selectors.BaseSelector, encoding: EncodingId | None
    ) -> None:
        self.is_ready = False
        self.at_end = False  # nothing more will be received
        self.assignments: deque[Assignment] = deque()
        self.committing: list[ShardWriting] = []
        self.last_message_at = time.monotonic()
        self._is_reaped = False
        self._selector = selector
        self._incoming = b""
        self._outgoing = b""
        self._tail = b""
        self._parents_peak = peak_rss_bytes()
        self.pid, self._stdin, self._stdout, self._stderr = process
        for fd in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(fd, False)
        selector.register(self._stdout, selectors.EVENT_READ, (self, self._read_stdout))
        selector.register(self._stderr, selectors.EVENT_READ, (self, self._read_stderr))
        self._messages: list[list[Any]] = []
        verdict = encoding and verdict_of(encoding)
        self._send({"encoding": encoding and encoding.to_plain(), "verdict": verdict})

    def assign(self, assignment: Assignment) -> None:
        if not self.assignments:
            self.last_message_at = time.monotonic()
        self.assignments.append(assignment)
        self._send(assignment.order())

    @property
    def is_busy(self) -> bool:
        return bool(self.assignments or self.committing)

    @property
    def is_alone(self) -> bool:
        """Whether it has an assignment that must be the only one."""
        return any(one.is_alone for one in (*self.assignments, *self.committing))

    @property
    def suspects(self) -> list[Assignment]:
        """What its threads are doing, one assignment each: what it dies of is one of these."""
        running = [] if self._is_blocked else list(self.assignments)[:1]
        return [*running, *self.committing[:1]]

    @property
    def untouched(self) -> list[Assignment]:
        """The assignments that none of its threads is working on."""
        queued = list(self.assignments)[0 if self._is_blocked else 1 :]
        return [*self.committing[1:], *queued]

    @property
    def _is_blocked(self) -> bool:
        """Whether `assignments[0]` has to wait, because no more drafts may."""
        return len(self.committing) > 1 + MAX_WAITING_DRAFTS

    def messages(self) -> list[list[Any]]:
        """The worker's messages since the last call."""
        messages, self._messages = self._messages, []
        return messages

    def kill(self, signum: int = signal.SIGKILL) -> None:
        if not self._is_reaped:
            # macOS raises EPERM for a group of which only the zombie is left.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signum)

    def end(self) -> Exit:
        """Reap the process, killing it if it does not end on its own, and close the pipes."""
        code, peak = self._reaped()
        while self._read_stderr():
            pass
        for fd in (self._stdin, self._stdout, self._stderr):
            with contextlib.suppress(KeyError):
                self._selector.unregister(fd)
            os.close(fd)
        return Exit(self.pid, code, peak, self._tail.decode(errors="replace"))

    def _reaped(self) -> tuple[int | None, int | None]:
        """(exit code, peak memory). Not `Popen.wait`, which does not report the peak."""
        begun = time.monotonic()
        code: int | None = None
        peak: int | None = None
        while True:
            try:
                pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            except ChildProcessError:  # SIGCHLD is ignored, or other code waits for all children
                break
            if pid:
                code = os.waitstatus_to_exitcode(status)
                peak = peak_rss_bytes(usage)
                break
            waited = time.monotonic() - begun
            if waited > REAP_SECONDS:
                self.kill()
            if waited > 5 * REAP_SECONDS:
                break  # stuck in the kernel, for example on a dead NFS server
            time.sleep(0.001)
        self._is_reaped = True
        return code, peak if peak and peak > self._parents_peak else None

    def _send(self, message: dict[str, Any]) -> None:
        was_empty = not self._outgoing
        self._outgoing += json.dumps(message).encode() + b"\n"
        if was_empty and self._write_stdin():
            self._selector.register(
                self._stdin, selectors.EVENT_WRITE, (self, self._finish_writing)
            )

    def _finish_writing(self) -> None:
        if not self._write_stdin():
            self._selector.unregister(self._stdin)

    def _write_stdin(self) -> bool:
        """Write as much as the pipe takes; True if bytes are left."""
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[os.write(self._stdin, self._outgoing) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            self._outgoing = b""  # it is dead; the end of its stdout will be noticed
        return False

    def _read_stdout(self) -> None:
        try:
            data = os.read(self._stdout, 1 << 18)
        except BlockingIOError:
            return
        if not data:
            self.at_end = True
            return
        self.last_message_at = time.monotonic()
        self._incoming += data
        if b"\n" in data:
            *lines, self._incoming = self._incoming.split(b"\n")
            self._messages += [json.loads(line) for line in lines]

    def _read_stderr(self) -> bool:
        """Keep the end of the worker's stderr; False if there is nothing new."""
        try:
            data = os.read(self._stderr, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            with contextlib.suppress(KeyError):
                self._selector.unregister(self._stderr)
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        return bool(data)
