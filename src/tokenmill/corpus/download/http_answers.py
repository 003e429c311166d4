"""HTTP answers, read into our own buffer over connections that are kept.

`http.client` needs 0.7 s of CPU per GB, huggingface_hub's client (httpx) 1.6 s, and encoding needs
the cores. That client still handles what this one cannot: proxies, and programs that configure it
(`set_client_factory`).
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

BLOCK_BYTES = 512 << 10
LEAST_BLOCK_BYTES = 64 << 10
BLOCK_SECONDS = 0.05
NUM_LATENCIES = 8  # of late, of which the shortest counts: others waited for a full line, too


class HttpAnswer:
    """Status, headers (case-insensitive), and the body in blocks."""

    def __init__(self, status_code: int, headers: Any, blocks: Iterator[memoryview]) -> None:
        self.status_code = status_code
        self.headers = headers
        self.blocks = blocks


class HttpStatusError(Exception):
    """An answer with an unexpected status; `storage/retry.py` decides what it means."""

    def __init__(self, message: str, response: HttpAnswer) -> None:
        super().__init__(message)
        self.response = response


class HttpAnswers:
    """Answers to GET requests, which several threads may make at the same time."""

    def __init__(self, session: Any, is_plain_session: bool, timeout_seconds: float) -> None:
        self.has_ranges: bool | None = None  # whether there was ever one; None: none asked for
        self._session = session
        self._is_plain_session = is_plain_session
        self._timeout_seconds = timeout_seconds
        self._idle: dict[tuple[str, str], list[http.client.HTTPConnection]] = {}
        self._busy: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self._direct: dict[tuple[str, str], bool] = {}  # by origin: asking costs 0.3 ms of CPU
        self._ssl: Any = None
        self._latencies: deque[float] = deque(maxlen=NUM_LATENCIES)

    @property
    def latency_seconds(self) -> float:
        """From a request to the beginning of its answer; 0: there was none yet."""
        with self._lock:
            return min(self._latencies, default=0.0)

    def _note_latency(self, asked_at: float) -> None:
        with self._lock:
            self._latencies.append(time.monotonic() - asked_at)

    @contextlib.contextmanager
    def get(self, url: str, headers: Mapping[str, str]) -> Iterator[HttpAnswer]:
        """The answer, without following redirects."""
        answer = (
            self._lean(url, headers) if self._is_direct(url) else self._by_session(url, headers)
        )
        with answer as found:
            yield found

    def close(self) -> None:
        """Close all connections, also those that a thread is waiting for."""
        with self._lock:
            self._is_closed = True
            idle = [connection for kept in self._idle.values() for connection in kept]
            self._idle.clear()
            busy = list(self._busy)
        for connection in idle:
            connection.close()
        for connection in busy:  # its thread closes it
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _is_direct(self, url: str) -> bool:
        parts = urlsplit(url)
        origin = parts.scheme, parts.netloc
        if origin not in self._direct:
            proxies = urllib.request.getproxies()
            has_proxy = parts.scheme in proxies or "all" in proxies
            is_bypassed = bool(urllib.request.proxy_bypass(parts.netloc))
            self._direct[origin] = self._is_plain_session and (not has_proxy or is_bypassed)
        return self._direct[origin]

    @contextlib.contextmanager
    def _by_session(self, url: str, headers: Mapping[str, str]) -> Iterator[HttpAnswer]:
        asked_at = time.monotonic()
        with self._session.stream(
            "GET", url, headers=headers, follow_redirects=False, timeout=self._timeout_seconds
        ) as response:
            self._note_latency(asked_at)
            blocks = (memoryview(block) for block in response.iter_raw(BLOCK_BYTES))
            yield HttpAnswer(response.status_code, response.headers, blocks)

    @contextlib.contextmanager
    def _lean(self, url: str, headers: Mapping[str, str]) -> Iterator[HttpAnswer]:
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection, response = self._answered((parts.scheme, parts.netloc), path, headers)
        try:
            yield HttpAnswer(response.status, response.headers, _blocks(response))
        finally:
            is_reusable = response.isclosed() and not response.will_close
            self._put_back((parts.scheme, parts.netloc), connection, is_reusable)

    def _answered(
        self, origin: tuple[str, str], path: str, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        while True:
            connection, is_fresh = self._connection(origin)
            try:
                connection.request("GET", path, headers=dict(headers))
                asked_at = time.monotonic()
                response = connection.getresponse()
                self._note_latency(asked_at)
                return connection, response
            except (OSError, http.client.HTTPException) as error:
                self._put_back(origin, connection, is_reusable=False)
                # The server may have closed a kept connection in the meantime.
                if is_fresh:
                    raise ConnectionError(f"{origin[1]}: {_said(error)}") from error
            except BaseException:
                self._put_back(origin, connection, is_reusable=False)
                raise

    def _connection(self, origin: tuple[str, str]) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            if self._is_closed:
                raise ConnectionAbortedError("the download is being closed")
            idle = self._idle.setdefault(origin, [])
            connection, is_fresh = (idle.pop(), False) if idle else (self._new(origin), True)
            self._busy.add(connection)
        return connection, is_fresh

    def _new(self, origin: tuple[str, str]) -> http.client.HTTPConnection:
        scheme, host = origin
        if scheme == "http":
            return http.client.HTTPConnection(host, timeout=self._timeout_seconds)
        if self._ssl is None:  # the certificates that the session trusts
            self._ssl = _library_of(self._session).create_ssl_context()
        return http.client.HTTPSConnection(host, timeout=self._timeout_seconds, context=self._ssl)

    def _put_back(
        self, origin: tuple[str, str], connection: http.client.HTTPConnection, is_reusable: bool
    ) -> None:
        with self._lock:
            self._busy.discard(connection)
            if is_reusable and not self._is_closed:
                self._idle.setdefault(origin, []).append(connection)
                return
        connection.close()


def _library_of(session: Any) -> Any:
    """The library whose client the session is: httpx, or its successor."""
    import importlib

    return importlib.import_module(type(session).__module__.partition(".")[0])


def _blocks(response: http.client.HTTPResponse) -> Iterator[memoryview]:
    """Blocks that arrive within a moment, even on a slow line: a kill loses the current one."""
    buffer, size, began = memoryview(bytearray(BLOCK_BYTES)), LEAST_BLOCK_BYTES, time.monotonic()
    while num_bytes := _received(response, buffer[:size]):
        seconds = time.monotonic() - began
        yield buffer[:num_bytes]
        if seconds < BLOCK_SECONDS:
            size = min(BLOCK_BYTES, 2 * size)
        elif seconds > 4 * BLOCK_SECONDS:
            size = max(LEAST_BLOCK_BYTES, size // 2)
        began = time.monotonic()


def _received(response: http.client.HTTPResponse, buffer: memoryview) -> int:
    try:
        return response.readinto(buffer)
    except (OSError, http.client.HTTPException) as error:  # of the socket, or of TLS
        raise ConnectionError(f"the connection broke: {_said(error)}") from error


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
