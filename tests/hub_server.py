"""A Hugging Face Hub on loopback: one dataset repository, served to the real client, with faults.

`HubServer` answers what `huggingface_hub` asks for when HF_ENDPOINT points at it: repo info, tree
pages, paths-info and resolve. As on the real Hub, large files (LFS) are redirected to a CDN on
another origin (here a second port): the client reads size and hash from the redirect itself, and
must not send its token there. Plain files (README.md, *.json) are answered by the Hub directly.

It can be private or gated, has the branch that the Hub's own converter writes (`converted`), finds
datasets by a part of their name, and its CDN's addresses can expire (`address_seconds`). Its line
can be slow, for a connection and in all, and it can be far away (`Line`). A file may be larger than
memory: any buffer will do, such as a map of a sparse file.

With `xet`, its large files are in Xet storage, too (tests/xet_store.py): the listing has their
hashes, and a redirect names the route to tokens, which say where the storage is.

A fault is a function from the right answer to the wrong one; `HubServer.fail` plans when.

Not here: models, buckets; uploads are in `hub_uploads.py`.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlencode

from xet_store import XetStore

COMMIT = "c0ffee00" * 5
CONVERTED_BRANCH, CONVERTED_COMMIT = "refs/convert/parquet", "c0417e47" * 5
TOKEN = "hf_has_access"
# What a dataset's .gitattributes leaves to git; everything else is LFS.
PLAIN_SUFFIXES = (".md", ".json", ".yaml", ".py", ".gitattributes")
API_PATH = re.compile(
    r"/api/datasets/([^/]+/[^/]+)(?:/(revision|tree|paths-info|xet-read-token)/(.+))?"
)
RESOLVE_PATH = re.compile(r"/(?:datasets/)?([^/]+/[^/]+)/(resolve)/(.+)")
CHUNK_BYTES = 256 << 10
Buffer = bytes | memoryview  # a file's content
BEFORE_ANSWER = -1


@dataclass(frozen=True)
class Request:
    """What the server was asked. `origin` is "hub" or "cdn"; `path` is unquoted."""

    method: str
    path: str
    query: str
    range: str | None
    authorization: str | None
    origin: str
    at_seconds: float
    accept_encoding: str | None = None

    @property
    def has_authorization(self) -> bool:
        return self.authorization is not None

    def __str__(self) -> str:
        return f"{self.method} {self.path}" + (f"?{self.query}" if self.query else "")


@dataclass(frozen=True)
class Response:
    """An answer, and how it goes wrong on the wire. Content-Length is the length of `body`."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: memoryview = field(default=memoryview(b""))
    file: memoryview | None = None  # the whole file, if `body` is a file or a range of one
    stall_at_bytes: int | None = None
    stall_seconds: float = 0.0
    cut_at_bytes: int | None = None
    cut_resets: bool = False


Fault = Callable[[Response], Response]


@dataclass(frozen=True)
class Line:
    """What lies between the server and its clients; None: no limit."""

    bytes_per_second: float | None = None  # in all
    bytes_per_second_each: float | None = None  # for a connection
    latency_seconds: float = 0.0  # before an answer, and as much for a new connection

    @property
    def chunk_bytes(self) -> int:
        """Small enough that a slow line still moves 20 times a second."""
        rates = (self.bytes_per_second, self.bytes_per_second_each)
        slowest = min((rate for rate in rates if rate is not None), default=float("inf"))
        return int(max(1, min(CHUNK_BYTES, slowest / 20)))


class Queue:
    """Bytes that go through one after the other."""

    def __init__(self, bytes_per_second: float | None) -> None:
        self.bytes_per_second = bytes_per_second
        self._free_at = 0.0

    def seconds_for(self, num_bytes: int) -> float:
        """Book some bytes; how long until they are through. Who is late may catch up a bit."""
        if self.bytes_per_second is None:
            return 0.0
        now = time.monotonic()
        self._free_at = max(now - 0.05, self._free_at) + num_bytes / self.bytes_per_second
        return self._free_at - now


def status(code: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Fault:
    return lambda _: Response(code, headers or {}, memoryview(body))


def rate_limited(seconds: int) -> Fault:
    return status(429, {"Retry-After": str(seconds)})


def rate_limited_until_date(seconds: float) -> Fault:
    """429 whose Retry-After is an HTTP date, `seconds` after the answer."""
    return lambda _: Response(
        429, {"Retry-After": formatdate(time.time() + seconds, usegmt=True)}, memoryview(b"")
    )


def gated(code: int = 403) -> Fault:
    return lambda _: _error(code, "GatedRepo", "Access to this dataset is restricted.")


def refused_address() -> Fault:
    """What a CDN says of an address whose signature has expired."""
    return lambda _: _expired()


def changed_file() -> Fault:
    """Other bytes, with another tag: the file was replaced since the last answer."""

    def changed(right: Response) -> Response:
        return replace(right, headers={**right.headers, "ETag": '"other"'}, body=_inverted(right))

    return changed


def _inverted(right: Response) -> memoryview:
    return memoryview(bytes(right.body).translate(bytes(range(255, -1, -1))))


def not_found() -> Fault:
    return lambda _: _error(404, "EntryNotFound", "Entry not found")


def redirect_loop() -> Fault:
    return lambda _: Response(302, {"Location": "/loop"})


def cut(after_bytes: int = BEFORE_ANSWER, *, resets: bool = False) -> Fault:
    """Close the connection after some bytes of the body: in order (FIN), or with a reset (RST)."""
    return lambda right: replace(right, cut_at_bytes=after_bytes, cut_resets=resets)


def stall(seconds: float, after_bytes: int = BEFORE_ANSWER) -> Fault:
    """Some bytes, silence, then the rest."""
    return lambda right: replace(right, stall_at_bytes=after_bytes, stall_seconds=seconds)


def wrong_bytes() -> Fault:
    """The right length with one bit flipped in the middle."""

    def flipped(right: Response) -> Response:
        body = bytearray(right.body)
        body[len(body) // 2] ^= 1
        return replace(right, body=memoryview(body))

    return flipped


def short_body(num_bytes: int) -> Fault:
    """A complete answer that holds only the first bytes, with a Content-Length that agrees."""
    return lambda right: replace(right, body=right.body[:num_bytes])


def ignored_range() -> Fault:
    """200 and the whole file, whatever range was asked for."""

    def whole(right: Response) -> Response:
        headers = {k: v for k, v in right.headers.items() if k != "Content-Range"}
        body = right.body if right.file is None else right.file
        return replace(right, status=200, headers=headers, body=body)

    return whole


@dataclass(frozen=True)
class HubFile:
    path: str
    content: memoryview
    sha256: str
    is_lfs: bool
    xet_hash: str | None = None

    @classmethod
    def of(cls, path: str, content: Buffer) -> HubFile:
        view = memoryview(content)
        # Nobody waits for the hash of 50 GB of zeros.
        hashed = view if len(view) < 1 << 32 else path.encode()
        sha256 = hashlib.sha256(hashed).hexdigest()
        return cls(path, memoryview(content), sha256, not path.endswith(PLAIN_SUFFIXES))

    @property
    def pointer(self) -> bytes:
        size = len(self.content)
        spec = "https://git-lfs.github.com/spec/v1"
        return f"version {spec}\noid sha256:{self.sha256}\nsize {size}\n".encode()

    @property
    def git_oid(self) -> str:
        blob = self.pointer if self.is_lfs else bytes(self.content)
        return hashlib.sha1(b"blob %d\0" % len(blob) + blob).hexdigest()

    @property
    def entry(self) -> dict[str, object]:
        """The file as the tree and paths-info endpoints list it."""
        size = len(self.content)
        entry = {"type": "file", "oid": self.git_oid, "size": size, "path": self.path}
        if not self.is_lfs:
            return entry
        lfs = {"oid": self.sha256, "size": size, "pointerSize": len(self.pointer)}
        return {**entry, "lfs": lfs, **({"xetHash": self.xet_hash} if self.xet_hash else {})}


class HubServer:
    """A context manager; `url` is the HF_ENDPOINT. Leaving it fails if a handler had a bug."""

    def __init__(
        self,
        files: Mapping[str, Buffer],
        repo: str = "OWNER/NAME",
        commit: str = COMMIT,
        branch: str = "main",
        page_size: int = 1000,
        bytes_per_second: float | None = None,
        converted: Mapping[str, Buffer] | None = None,
        is_private: bool = False,
        is_gated: bool = False,
        address_seconds: float | None = None,
        other_repos: Sequence[str] = (),
        line: Line | None = None,
        xet: XetStore | None = None,
    ) -> None:
        self.repo = repo
        self.xet = xet
        self.is_private = is_private
        self.is_gated = is_gated
        self.address_seconds = address_seconds
        self.other_repos = other_repos
        self.branch = branch
        self.page_size = page_size
        self.line = line or Line(bytes_per_second)
        self.requests: list[Request] = []
        self.num_file_bytes_sent = 0
        self.errors: list[BaseException] = []
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self._commits: dict[str, dict[str, HubFile]] = {}
        self._plans: list[tuple[Callable[[Request], bool], deque[Fault]]] = []
        self._queue = Queue(self.line.bytes_per_second)
        if converted is not None:
            self.push(converted, CONVERTED_COMMIT)
        self.push(files, commit)
        self._listeners = {origin: _Listener(origin, self) for origin in ("hub", "cdn")}
        self.url, self.cdn_url = (listener.url for listener in self._listeners.values())

    def push(self, files: Mapping[str, Buffer], commit: str) -> None:
        """The branch now points at a commit that holds exactly these files."""
        found = {path: HubFile.of(path, files[path]) for path in sorted(files)}
        if self.xet is not None:
            large = [file for file in found.values() if file.is_lfs]
            hashes = self.xet.hashes([bytes(file.content) for file in large])
            found |= {f.path: replace(f, xet_hash=h) for f, h in zip(large, hashes, strict=True)}
        self._commits[commit] = found
        self.commit = commit

    def fail(
        self, match: str, *faults: Fault, only: Callable[[Request], bool] = lambda request: True
    ) -> None:
        """The next requests whose "METHOD path?query" the regex finds get one fault each."""
        found = re.compile(match)
        with self.lock:
            self._plans.append(
                (lambda request: bool(found.search(str(request))) and only(request), deque(faults))
            )

    def asked(self, match: str) -> list[Request]:
        with self.lock:
            return [request for request in self.requests if re.search(match, str(request))]

    def __enter__(self) -> HubServer:
        for listener in self._listeners.values():
            threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self.closing.set()
        for listener in self._listeners.values():
            listener.shutdown()
            listener.server_close()
            listener.close_connections()
        if self.errors and error is None:
            raise self.errors[0]

    def respond(self, request: Request, form: Mapping[str, list[str]]) -> Response:
        with self.lock:
            self.requests.append(request)
            plans = (faults for matches, faults in self._plans if matches(request))
            fault = next((faults.popleft() for faults in plans if faults), None)
        right = self._right_response(request, form)
        return right if fault is None else fault(right)

    def wait_for_line(self, num_bytes: int, own: Queue) -> None:
        """Wait until some bytes of a file would be through everything that limits them."""
        with self.lock:
            self.num_file_bytes_sent += num_bytes
            wait_seconds = max(queue.seconds_for(num_bytes) for queue in (self._queue, own))
        if wait_seconds > 0:
            self.closing.wait(wait_seconds)

    def _right_response(self, request: Request, form: Mapping[str, list[str]]) -> Response:
        if request.path == "/loop":
            return Response(302, {"Location": "/loop"})
        if request.origin == "cdn":
            return self._blob(request)
        if request.path == "/api/datasets":
            return self._search(parse_qs(request.query))
        asked = API_PATH.fullmatch(request.path) or RESOLVE_PATH.fullmatch(request.path)
        has_access = request.authorization == f"Bearer {TOKEN}"
        if asked is None or asked[1] != self.repo or (self.is_private and not has_access):
            code = 404 if request.has_authorization else 401
            return _error(code, "RepoNotFound", "Repository not found")
        _, action, rest = asked.groups()
        commit, path = self._commit_and_path(rest or self.branch)
        if commit is None:
            return _error(404, "RevisionNotFound", f"Invalid rev id: {rest}")
        if action in ("resolve", "xet-read-token") and self.is_gated and not has_access:
            return gated(403 if request.has_authorization else 401)(Response(200))
        if action == "resolve":
            return self._resolve(commit, path, request)
        if action == "xet-read-token":
            return self._xet_token()
        if action == "tree":
            return self._tree(commit, path, request)
        if action == "paths-info":
            entries = self._entries(commit)
            return _json([entries[name] for name in form.get("paths", []) if name in entries])
        return self._info(commit)

    def _commit_and_path(self, rest: str) -> tuple[str | None, str]:
        branches = {self.branch: self.commit, CONVERTED_BRANCH: CONVERTED_COMMIT}
        known = [(name, commit) for name, commit in branches.items() if commit in self._commits]
        for name, commit in [*known, *((c, c) for c in self._commits)]:
            if rest == name or rest.startswith(f"{name}/"):
                return commit, rest[len(name) + 1 :]
        return None, ""

    def _search(self, query: Mapping[str, list[str]]) -> Response:
        parts = [part.lower() for part in query.get("search", [])]
        authors = query.get("author")
        public = [*([] if self.is_private else [self.repo]), *self.other_repos]
        return _json(
            [
                {"id": name}
                for name in public
                if all(part in name.lower() for part in parts)
                and (authors is None or name.split("/")[0] in authors)
            ]
        )

    def _info(self, commit: str) -> Response:
        siblings = [{"rfilename": path} for path in self._commits[commit]]
        info = {"id": self.repo, "sha": commit, "private": False, "gated": False}
        return _json({**info, "disabled": False, "tags": [], "siblings": siblings})

    def _entries(self, commit: str) -> dict[str, dict[str, object]]:
        entries: dict[str, dict[str, object]] = {}
        for path, file in self._commits[commit].items():
            parts = path.split("/")
            for folder in ("/".join(parts[:depth]) for depth in range(1, len(parts))):
                oid = hashlib.sha1(folder.encode()).hexdigest()
                entries[folder] = {"type": "directory", "oid": oid, "size": 0, "path": folder}
            entries[path] = file.entry
        return entries

    def _tree(self, commit: str, folder: str, request: Request) -> Response:
        query = parse_qs(request.query)
        entries = self._entries(commit)
        if folder and entries.get(folder, {}).get("type") != "directory":
            return _error(404, "EntryNotFound", f"{folder} does not exist on {commit}", commit)
        prefix = f"{folder}/" if folder else ""
        recursive = query.get("recursive") == ["true"]
        below = [name for name in entries if name.startswith(prefix)]
        names = [name for name in below if recursive or "/" not in name[len(prefix) :]]
        start = int(query.get("cursor", ["0"])[0])
        end = start + self.page_size
        headers = {}
        if end < len(names):
            params = {key: values[0] for key, values in query.items()} | {"cursor": str(end)}
            headers["Link"] = f'<{self.url}{quote(request.path)}?{urlencode(params)}>; rel="next"'
        return _json([entries[name] for name in names[start:end]], headers)

    def _resolve(self, commit: str, path: str, request: Request) -> Response:
        file = self._commits[commit].get(path)
        if file is None:
            return _error(404, "EntryNotFound", "Entry not found", commit)
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes", "ETag": f'"{file.git_oid}"'}
        if not file.is_lfs:
            return _file_response(file.content, headers, request.range)
        headers["X-Linked-Etag"] = f'"{file.sha256}"'
        headers["X-Linked-Size"] = str(len(file.content))
        if file.xet_hash is not None:
            route = f"{self.url}/api/datasets/{self.repo}/xet-read-token/{commit}"
            headers["X-Xet-Hash"] = file.xet_hash
            headers["Link"] = f'<{route}>; rel="xet-auth"'
        address = f"{self.cdn_url}/cdn/{file.sha256}/{quote(path)}?Signature=made-up"
        if self.address_seconds is not None:
            address += f"&Expires={time.monotonic() + self.address_seconds}"
        headers["Location"] = address
        return Response(302, headers, memoryview(b"Found. Redirecting"))

    def _xet_token(self) -> Response:
        if self.xet is None:
            return _error(404, "EntryNotFound", "no Xet storage")
        expiry = int(time.time()) + 3600
        headers = {
            "X-Xet-Cas-Url": self.xet.endpoint,
            "X-Xet-Access-Token": "xet_made-up",
            "X-Xet-Token-Expiration": str(expiry),
        }
        body = {"casUrl": self.xet.endpoint, "accessToken": "xet_made-up", "exp": expiry}
        return _json(body, headers)

    def _blob(self, request: Request) -> Response:
        sha256 = request.path.split("/")[2]
        [expires] = parse_qs(request.query).get("Expires", ["inf"])
        if time.monotonic() > float(expires):
            return _expired()
        for files in self._commits.values():
            for file in files.values():
                if file.is_lfs and file.sha256 == sha256:
                    headers = {"Accept-Ranges": "bytes", "ETag": f'"{sha256[:32]}"'}
                    return _file_response(file.content, headers, request.range)
        return _expired()


def _expired() -> Response:
    return Response(403, {"Content-Type": "application/xml"}, memoryview(b"<Error/>"))


def _file_response(file: memoryview, headers: dict[str, str], range_: str | None) -> Response:
    headers["Content-Type"] = "application/octet-stream"
    asked = re.fullmatch(r"bytes=(\d*)-(\d*)", range_ or "")
    if asked is None or asked.groups() == ("", ""):
        return Response(200, headers, file, file)
    first, last = asked.groups()
    start = int(first) if first else max(0, len(file) - int(last))
    end = min(int(last) + 1, len(file)) if first and last else len(file)
    if start >= len(file) or start >= end:
        return Response(416, {**headers, "Content-Range": f"bytes */{len(file)}"})
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(file)}"
    return Response(206, headers, file[start:end], file)


def _json(value: object, headers: Mapping[str, str] | None = None) -> Response:
    body = memoryview(json.dumps(value).encode())
    return Response(200, {"Content-Type": "application/json", **(headers or {})}, body)


def _error(code: int, error_code: str, message: str, commit: str | None = None) -> Response:
    headers = {"X-Error-Code": error_code, "X-Error-Message": message}
    if commit is not None:
        headers["X-Repo-Commit"] = commit
    return replace(_json({"error": message}, headers), status=code)


class _Listener(ThreadingHTTPServer):
    # Of connections that wait to be accepted: with the standard 5, a client that makes many at once
    # waits a second before it asks again.
    request_queue_size = 128

    def __init__(self, origin: str, hub: HubServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.origin = origin
        self.hub = hub
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._connections: set[socket.socket] = set()

    def process_request(self, request: socket.socket, client_address: object) -> None:
        with self.hub.lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:
        with self.hub.lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """End the kept-alive connections, so that their threads end too."""
        with self.hub.lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # the client was first

    def handle_error(self, request: object, client_address: object) -> None:
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, ConnectionError):
            self.hub.errors.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def setup(self) -> None:
        super().setup()
        line = self.server.hub.line
        self._queue = Queue(line.bytes_per_second_each)
        self.server.hub.closing.wait(line.latency_seconds)

    def log_message(self, *_: object) -> None:
        pass

    def _request(self) -> Request:
        path, _, query = self.path.partition("?")
        return Request(
            self.command,
            unquote(path),
            query,
            self.headers.get("Range"),
            self.headers.get("Authorization"),
            self.server.origin,
            time.monotonic(),
            self.headers.get("Accept-Encoding"),
        )

    def _answer(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
        request = self._request()
        self.server.hub.closing.wait(self.server.hub.line.latency_seconds)
        self._send(self.server.hub.respond(request, form))

    do_GET = do_HEAD = do_POST = _answer  # noqa: N815

    def _send(self, response: Response) -> None:
        if response.stall_at_bytes == BEFORE_ANSWER:
            self.server.hub.closing.wait(response.stall_seconds)
        if response.cut_at_bytes == BEFORE_ANSWER:
            return self._cut(response.cut_resets)
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if self.command == "HEAD":
            return None
        body, is_file = response.body[: response.cut_at_bytes], response.file is not None
        if response.stall_at_bytes is not None and response.stall_at_bytes != BEFORE_ANSWER:
            self._write(body[: response.stall_at_bytes], is_file)
            self.server.hub.closing.wait(response.stall_seconds)
            body = body[response.stall_at_bytes :]
        self._write(body, is_file)
        return None if response.cut_at_bytes is None else self._cut(response.cut_resets)

    def _write(self, body: memoryview, is_file: bool) -> None:
        step = self.server.hub.line.chunk_bytes
        for start in range(0, len(body), step):
            chunk = body[start : start + step]
            if is_file:
                self.server.hub.wait_for_line(len(chunk), self._queue)
            self.wfile.write(chunk)

    def _cut(self, resets: bool) -> None:
        self.close_connection = True
        if not resets:
            return
        time.sleep(0.1)  # a reset drops what the client has not received yet
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.close(self.connection.detach())
