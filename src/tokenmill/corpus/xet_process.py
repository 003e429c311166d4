"""The process in which `hf_xet` runs: asked for a file on stdin, it writes the bytes to stdout.

`xet.py` is the other end. A process of its own because native threads that hang cannot be ended in
any other way, and its buffers and threads are not the driver's. It imports nothing of tokenmill.

On stdin, a line of JSON per file. On stdout, frames: a kind, the length of what follows, and that.

    DATA    the file's next bytes
    ALIVE   bytes have come over the network since the last frame, but no block is whole
    END     that was the file
    FAILED  what went wrong, as text
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import sys
import threading
from typing import Any

DATA, ALIVE, END, FAILED = b"D", b"A", b"E", b"F"
HEADER = struct.Struct("<cI")
FRAME_BYTES = 1 << 20
TICK_SECONDS = 1.0
_BYTES_RECEIVED = slice(128, 136)  # tcpi_bytes_received in linux/tcp.h


class Wire:
    """The frames, which two threads write."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, kind: bytes, data: bytes | memoryview = b"") -> None:
        frame = [memoryview(HEADER.pack(kind, len(data))), memoryview(data)]
        with self._lock:
            while frame:
                written = os.writev(self._fd, frame)
                while frame and written >= len(frame[0]):
                    written -= len(frame.pop(0))
                if frame:
                    frame[0] = frame[0][written:]


class Streamer:
    """`hf_xet`, with the connections of the last file kept for the next one."""

    def __init__(self, wire: Wire) -> None:
        import hf_xet

        self._hf_xet: Any = hf_xet
        self._wire = wire
        self._session = hf_xet.XetSession()
        self._connection: dict[str, Any] | None = None
        self._group: Any = None

    def send(
        self, connection: dict[str, Any], file: tuple[str, int], stretch: tuple[int, int]
    ) -> None:
        if connection != self._connection:
            self._group = self._session.new_download_stream_group(**connection)
            self._connection = connection
        blocks = self._group.download_stream(self._hf_xet.XetFileInfo(*file), *stretch)
        for block in blocks:  # of up to 64 MB
            for at in range(0, len(block), FRAME_BYTES):
                self._wire.send(DATA, memoryview(block)[at : at + FRAME_BYTES])
        self._wire.send(END)


def main(paths: list[str]) -> None:
    sys.path += paths
    wire = Wire(os.dup(1))
    os.dup2(2, 1)  # libraries print to fd 1
    threading.Thread(target=_tick, args=(wire,), daemon=True).start()
    try:
        streamer = Streamer(wire)
        for line in sys.stdin:
            streamer.send(**json.loads(line))
    except BrokenPipeError:
        pass
    except BaseException as error:  # a panic of Rust is no Exception
        wire.send(FAILED, f"{type(error).__name__}: {error}".encode())
    os._exit(0)  # whatever its threads do


def _tick(wire: Wire) -> None:
    """Say that bytes are coming in, and end with the other end, however long a block takes."""
    ends = select.poll()
    ends.register(0, 0)  # POLLHUP alone
    received = 0
    while not ends.poll(TICK_SECONDS * 1000):
        before, received = received, _received_bytes()
        if received != before:
            wire.send(ALIVE)
    os._exit(0)


def _received_bytes() -> int:
    """What the open connections have received. `hf_xet` itself only reports whole blocks."""
    total = 0
    with contextlib.suppress(OSError):  # no /proc
        for fd in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):  # no socket, no TCP, or closed just now
                connection = socket.socket(fileno=fd)
                try:
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                finally:
                    connection.detach()
                total += int.from_bytes(info[_BYTES_RECEIVED], sys.byteorder)
    return total


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
