"""The process in which `hf_xet` runs. `xet.py` is the other end.

It is a separate process because native threads that hang cannot be ended in any other way, and to
keep its buffers and threads out of the driver. All streams of a run share it, and with it
connections, buffers and what `hf_xet` has learned about the line. It imports nothing of tokenmill.

On stdin, which is a socket, comes a request (JSON) for each stream, with a pipe for it. On that
pipe go frames: a kind, the length of the data, the data.

    DATA    the next bytes
    ALIVE   bytes have come over the network, but no block is complete
    END     the end of the stream
    FAILED  what went wrong, as text
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import threading
import time
from typing import Any

DATA, ALIVE, END, FAILED = b"D", b"A", b"E", b"F"
HEADER = struct.Struct("<cI")
LENGTH = struct.Struct("<I")  # of a request
FRAME_BYTES = 1 << 20
TICK_SECONDS = 1.0
# With two streams and the buffers of xet.py, this much may arrive before a stream's next block.
MAX_BYTES_WITHOUT_BLOCK = 1 << 30
_BYTES_RECEIVED = slice(128, 136)  # tcpi_bytes_received in linux/tcp.h


class FrameWriter:
    """The frames of a stream, which two threads write."""

    def __init__(self, fd: int) -> None:
        self.received_bytes = 0  # over the network, when the last block came
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, kind: bytes, data: bytes | memoryview = b"") -> None:
        with self._lock:
            self._write(kind, data)

    def send_alive(self) -> None:
        """Send ALIVE, unless data is being sent, which says the same and may block."""
        if self._lock.acquire(blocking=False):
            try:
                self._write(ALIVE, b"")
            finally:
                self._lock.release()

    def _write(self, kind: bytes, data: bytes | memoryview) -> None:
        frame = [memoryview(HEADER.pack(kind, len(data))), memoryview(data)]
        while frame:
            written = os.writev(self._fd, frame)
            while frame and written >= len(frame[0]):
                written -= len(frame.pop(0))
            if frame:
                frame[0] = frame[0][written:]

    def close(self) -> None:
        with self._lock:
            os.close(self._fd)
            self._fd = -1


class ReceivedBytes:
    """The bytes that all connections have received; `hf_xet` reports only whole blocks."""

    def __init__(self) -> None:
        self.total = 0
        self._last: dict[int, int] = {}

    def update(self) -> bool:
        """Count again; returns whether anything has arrived."""
        now = dict(_received_by_connection())
        new = {fd: count - self._last.get(fd, 0) for fd, count in now.items()}
        # Fewer than before: a new connection has the same descriptor.
        arrived = sum(count if count >= 0 else now[fd] for fd, count in new.items())
        self.total += arrived
        self._last = now
        return arrived > 0


def _received_by_connection() -> list[tuple[int, int]]:
    found = []
    with contextlib.suppress(OSError, AttributeError):  # only on Linux
        for fd in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):  # not a socket, not TCP, or just closed
                connection = socket.socket(fileno=fd)
                try:
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                finally:
                    connection.detach()
                found.append((fd, int.from_bytes(info[_BYTES_RECEIVED], sys.byteorder)))
    return found


class Streams:
    """The streams, one thread each."""

    def __init__(self) -> None:
        self._received = ReceivedBytes()
        self._active: set[FrameWriter] = set()
        self._lock = threading.Lock()
        self._session: Any = None
        self._groups: dict[str, Any] = {}

    def run(self, frames: FrameWriter, request: dict[str, Any]) -> None:
        self._active.add(frames)
        with contextlib.suppress(BrokenPipeError):  # the reader does not want the rest
            try:
                self._send(frames, **request)
                frames.send(END)
            except BrokenPipeError:
                raise
            except BaseException as error:  # a Rust panic is not an Exception
                frames.send(FAILED, f"{type(error).__name__}: {error}".encode())
        self._active.discard(frames)
        frames.close()

    def _send(
        self,
        frames: FrameWriter,
        connection: dict[str, Any],
        file: tuple[str, int],
        stretch: tuple[int, int],
    ) -> None:
        import hf_xet

        frames.received_bytes = self._received.total
        group = self._group(connection)
        for block in group.download_stream(hf_xet.XetFileInfo(*file), *stretch):  # up to 64 MB
            frames.received_bytes = self._received.total
            for at in range(0, len(block), FRAME_BYTES):
                frames.send(DATA, memoryview(block)[at : at + FRAME_BYTES])

    def _group(self, connection: dict[str, Any]) -> Any:
        import hf_xet

        key = json.dumps(connection)
        with self._lock:
            if self._session is None:
                self._session = hf_xet.XetSession()
            if key not in self._groups:
                self._groups[key] = self._session.new_download_stream_group(**connection)
            return self._groups[key]

    def send_heartbeats(self) -> None:
        """Tell streams that wait for a block that bytes are arriving. Never returns."""
        while True:
            time.sleep(TICK_SECONDS)
            if not self._received.update():
                continue
            for frames in list(self._active):
                if self._received.total - frames.received_bytes < MAX_BYTES_WITHOUT_BLOCK:
                    with contextlib.suppress(OSError):  # closed
                        frames.send_alive()


def main(paths: list[str]) -> None:
    sys.path += paths
    orders = socket.socket(fileno=os.dup(0))
    streams = Streams()
    threading.Thread(target=streams.send_heartbeats, daemon=True).start()
    while True:
        head, fds, _, _ = socket.recv_fds(orders, LENGTH.size, 1)
        if len(head) < LENGTH.size or not fds:
            os._exit(0)  # the other end is gone: exit at once, whatever the threads do
        text = orders.recv(LENGTH.unpack(head)[0], socket.MSG_WAITALL)
        arguments = (FrameWriter(fds[0]), json.loads(text))
        threading.Thread(target=streams.run, args=arguments, daemon=True).start()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
