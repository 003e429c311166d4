"""Files from the Hub's Xet storage, streamed by `hf_xet`, with HTTP as the fallback.

`hf_xet` downloads blocks of up to 64 MB in parallel and yields them in order, from any byte on. It
has been seen to hang without an error, so it runs in its own process (`xet_process.py`), which is
killed after 30 seconds without a byte from the network. After any failure Xet is off for the rest
of the run: a stream just ends, and the caller continues over HTTP from that byte. The bytes are
checked like all others, by their sha256.

Xet is used for a file if the listing has its Xet hash and the Hub itself hands out tokens for it.
A mirror that only repeats huggingface.co's answers names huggingface.co's route for tokens: there
the storage may be out of reach, so files come from the mirror, over HTTP.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from typing import Any
from urllib.parse import urljoin, urlsplit

from tokenmill.corpus import xet_process
from tokenmill.corpus.download.byte_source import ByteSource, HandedOver
from tokenmill.corpus.hub_names import HubFile
from tokenmill.corpus.xet_process import DATA, END, FAILED, FRAME_BYTES, HEADER, LENGTH
from tokenmill.storage.retry import Notice, message_of

MAX_TIMEOUTS = 3  # of HF_HUB_DOWNLOAD_TIMEOUT, 10 s by default: hf_xet itself tries again first
REAP_SECONDS = 1.0
EXPIRY_SECONDS = 60  # a token that ends sooner is not used for another file
# The user's own settings override these. By default, hf_xet buffers 2 GB, keeps logs below HF_HOME
# and reports each transfer to the storage.
ENVIRONMENT = {
    "HF_XET_RECONSTRUCTION_MIN_RECONSTRUCTION_FETCH_SIZE": "16mb",
    "HF_XET_RECONSTRUCTION_MAX_RECONSTRUCTION_FETCH_SIZE": "16mb",
    "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_SIZE": "256mb",
    "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_PERFILE_SIZE": "64mb",
    "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_LIMIT": "320mb",
    "HF_XET_RECONSTRUCTION_MIN_PREFETCH_BUFFER": "256mb",
    "HF_XET_LOG_DEST": os.devnull,
    "HF_XET_TELEMETRY_ENABLED": "false",
}


class XetFailure(Exception):
    """Why a stream ended early."""


class XetSource:
    """A file that may be in Xet storage, as a byte source. `http` has the same bytes."""

    def __init__(self, xet: Xet, file: HubFile, http: ByteSource) -> None:
        self._xet = xet
        self._file = file
        self._http = http
        self._sent_up_to = 0

    @property
    def max_streams(self) -> int:
        return 1 if self.fills_line else self._http.max_streams

    @property
    def fills_line(self) -> bool:
        return self._xet.may_have(self._file)

    @property
    def latency_seconds(self) -> float:
        return 0.0 if self.fills_line else self._http.latency_seconds

    def stream(self, start: int, stop: int) -> Generator[memoryview, None, None]:
        if not self._xet.may_have(self._file):
            yield from self._http.stream(start, stop)
            return
        if start < self._sent_up_to:
            self._xet.give_up("sent wrong bytes", self._file, start)
            raise HandedOver
        with contextlib.closing(self._xet.stream(self._file, start, stop)) as stream:
            for data in stream:
                yield data
                self._sent_up_to = max(self._sent_up_to, start := start + len(data))
        if start != stop:
            raise HandedOver


class Xet:
    """The Xet storage behind a Hub, for one run. `stream` may be called by several threads."""

    def __init__(self, client: Any, notice: Notice) -> None:
        self._client = client
        self._notice = notice
        self._is_on = not client.constants.HF_HUB_DISABLE_XET and find_spec("hf_xet") is not None
        self._is_closed = False
        self._stall_seconds = MAX_TIMEOUTS * client.constants.HF_HUB_DOWNLOAD_TIMEOUT
        self._lock = threading.Lock()
        self._routes: dict[tuple[str, str], str | None] = {}  # to tokens, by repo and commit
        self._connections: dict[str, dict[str, Any]] = {}  # by route
        self._process: XetProcess | None = None

    def may_have(self, file: HubFile) -> bool:
        """Whether to ask Xet storage for this file. Makes no request."""
        is_offered = self._routes.get((file.repo, file.commit), "not asked yet") is not None
        return self._is_on and file.xet_hash is not None and is_offered

    def stream(self, file: HubFile, start: int, stop: int) -> Generator[memoryview, None, None]:
        """The bytes from `start` to `stop`. Ends early if Xet storage does not have the file, or
        if something goes wrong: then Xet is off, and the user has been told."""
        at = start
        try:
            with contextlib.closing(self._data(file, start, stop)) as stream:
                for data in stream:
                    yield data
                    at += len(data)
            if at != stop and self.may_have(file):
                raise XetFailure(f"sent {at - start:,} bytes of {stop - start:,}")
        except XetFailure as failure:
            self.give_up(str(failure), file, at)

    def give_up(self, why: str, file: HubFile, at: int) -> None:
        """Do not use Xet storage any more in this run."""
        with self._lock:
            was_on, self._is_on = self._is_on, False
        if was_on and not self._is_closed:
            self._notice(
                f"Xet storage {why}; continuing over HTTP from byte {at:,} of {file.url} "
                "(HF_HUB_DISABLE_XET=1 skips Xet)"
            )

    def close(self) -> None:
        """End the process; all streams end."""
        with self._lock:
            self._is_closed, self._is_on = True, False
            process, self._process = self._process, None
        if process is not None:
            process.kill()

    def _data(self, file: HubFile, start: int, stop: int) -> Generator[memoryview, None, None]:
        route = self._route(file)
        if route is None:
            return
        connection = self._connection(route)
        with self._lock:
            if self._is_closed:
                return
            try:
                self._process = self._process or XetProcess(self._stall_seconds)
                stretch = self._process.stretch(connection, file, start, stop)
            except OSError as error:
                raise XetFailure(f"cannot be asked ({message_of(error)})") from error
        with stretch as stream:
            yield from stream.data()

    def _route(self, file: HubFile) -> str | None:
        """Where the Hub hands out tokens for this file's storage; None if it does not."""
        key = (file.repo, file.commit)
        if key not in self._routes:
            self._routes[key] = self._offered_route(file)
        return self._routes[key]

    def _offered_route(self, file: HubFile) -> str | None:
        client, names = self._client, self._client.constants
        url: str = client.hf_hub_url(
            file.repo, file.path, repo_type="dataset", revision=file.commit
        )
        with contextlib.suppress(Exception):  # HTTP will fail the same way, and explain it
            response = client.utils.get_session().head(
                url,
                headers=self._headers,
                follow_redirects=False,  # to the CDN, which knows nothing of Xet
                timeout=names.HF_HUB_DOWNLOAD_TIMEOUT,
            )
            link = response.links.get(names.HUGGINGFACE_HEADER_LINK_XET_AUTH_KEY, {}).get("url")
            route = link or response.headers.get(names.HUGGINGFACE_HEADER_X_XET_REFRESH_ROUTE)
            address = urljoin(url, str(route))
            if route and _origin(address) == _origin(url):
                return address
        return None

    def _connection(self, route: str) -> dict[str, Any]:
        """What `hf_xet` needs to connect, including a token that several files share."""
        known = self._connections.get(route)
        if known is None or known["token_expiry_unix_secs"] < time.time() + EXPIRY_SECONDS:
            known = self._connections[route] = self._new_connection(route)
        return known

    def _new_connection(self, route: str) -> dict[str, Any]:
        client, names = self._client, self._client.constants
        try:
            response = client.utils.get_session().get(
                route, headers=self._headers, timeout=names.HF_HUB_DOWNLOAD_TIMEOUT
            )
            client.utils.hf_raise_for_status(response)
            endpoint = response.headers[names.HUGGINGFACE_HEADER_X_XET_ENDPOINT]
            token = response.headers[names.HUGGINGFACE_HEADER_X_XET_ACCESS_TOKEN]
            expiry = int(response.headers[names.HUGGINGFACE_HEADER_X_XET_EXPIRATION])
        except Exception as error:
            raise XetFailure(f"gives no token ({message_of(error)})") from error
        if urlsplit(route).scheme == "https" != urlsplit(endpoint).scheme:
            raise XetFailure("is not reached by https")
        return {
            "endpoint": endpoint,
            "token": token,
            "token_expiry_unix_secs": expiry,
            "token_refresh_url": route,
            "token_refresh_headers": self._headers,
            # Not the Hub's token: the storage has its own.
            "custom_headers": {k: v for k, v in self._headers.items() if k.lower() == "user-agent"},
        }

    @property
    def _headers(self) -> dict[str, str]:
        return dict(self._client.utils.build_hf_headers())


class XetProcess:
    """Our end of the process that runs `hf_xet`, which ends when this process does."""

    def __init__(self, stall_seconds: float) -> None:
        self.stall_seconds = stall_seconds
        paths = json.dumps([path for path in sys.path if os.path.isabs(path)])
        self._requests, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", xet_process.__file__, paths],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**ENVIRONMENT, **os.environ},
                start_new_session=True,  # Ctrl-C is handled here
            )

    def stretch(
        self, connection: dict[str, Any], file: HubFile, start: int, stop: int
    ) -> XetStretch:
        request = {
            "connection": connection,
            "file": [file.xet_hash, file.num_bytes],
            "stretch": [start, stop],
        }
        text = json.dumps(request).encode()
        ours, theirs = os.pipe()
        try:
            socket.send_fds(self._requests, [LENGTH.pack(len(text))], [theirs])
            self._requests.sendall(text)
        except OSError:
            pass  # the process is dead, as the pipe will show
        finally:
            os.close(theirs)
        return XetStretch(self, ours)

    def kill(self) -> None:
        """End all streams. May be called from any thread."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel
            self._process.wait(REAP_SECONDS)
        self._requests.close()


class XetStretch:
    """Our end of the pipe over which a stretch of a file comes."""

    def __init__(self, process: XetProcess, fd: int) -> None:
        self._process = process
        self._fd = fd
        self._buffer = memoryview(bytearray(FRAME_BYTES))
        self._is_readable = select.poll()
        self._is_readable.register(fd, select.POLLIN)
        with contextlib.suppress(AttributeError, OSError):  # only on Linux, and within a limit
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, FRAME_BYTES)

    def __enter__(self) -> XetStretch:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def data(self) -> Iterator[memoryview]:
        """The bytes, in views that are valid until the next one is requested."""
        while True:
            kind, num_bytes = HEADER.unpack(self._bytes(HEADER.size))
            if kind == DATA:
                yield from self._read(num_bytes)
            elif kind == FAILED:
                said = self._bytes(num_bytes).decode(errors="replace")
                raise XetFailure(f"failed ({message_of(Exception(said))})")
            elif kind == END:
                return

    def _bytes(self, num_bytes: int) -> bytes:
        return b"".join(map(bytes, self._read(num_bytes)))

    def _read(self, num_bytes: int) -> Iterator[memoryview]:
        while num_bytes:
            if not self._is_readable.poll(1000 * self._process.stall_seconds):
                self._process.kill()
                raise XetFailure(f"sent nothing for {self._process.stall_seconds:.0f} s")
            num_read = os.readv(self._fd, [self._buffer[:num_bytes]])
            if not num_read:
                raise XetFailure("failed (the process of hf_xet has ended)")
            num_bytes -= num_read
            yield self._buffer[:num_read]


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc
