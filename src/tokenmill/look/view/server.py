"""The server of the page: GET on 127.0.0.1, checked by guard.py before anything else.

Python's http.server is enough for one user on the loopback interface, without files by name.
Connections, idle time and lengths are bounded.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from tokenmill.errors import ConfigError, TokenmillError, unknown_name
from tokenmill.look.view.dataset_view import DatasetView
from tokenmill.look.view.guard import Guard
from tokenmill.look.web import STYLE
from tokenmill.wording.escapes import printable

MAX_NAME = 100  # characters, of a source
MAX_CONNECTIONS = 32
IDLE_SECONDS = 30
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "ico": "image/x-icon"}
_MODULES = (
    "view",
    "dom",
    "places",
    "tokens",
    "strip",
    "search",
    "copying",
    "comparing",
    "source",
    "steps",
)


def page_files() -> dict[str, bytes]:
    """The files of the page, by the name under which the browser asks for them."""
    folder = importlib.resources.files("tokenmill.look.view") / "page"
    names = {"": "view.html", **{f"{name}.js": f"{name}.js" for name in _MODULES}}
    found = {name: (folder / file).read_bytes() for name, file in names.items()}
    found["view.css"] = STYLE.encode() + (folder / "view.css").read_bytes()
    return found


class ViewServer(ThreadingHTTPServer):
    """Listens from the moment it is made; `serve_forever` answers. Port 0 is any free one."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, view: DatasetView, port: int = 0) -> None:
        self.view = view
        self.files = page_files()
        self._lock = threading.Lock()
        self._waiting: dict[Any, None] = {}  # connections without a request, the oldest first
        self._busy: set[Any] = set()
        super().__init__(("127.0.0.1", port), _Handler)
        self.guard = Guard(self.server_address[1])

    def server_bind(self) -> None:
        """Bind without looking up this machine's name, which may use the network."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """If there are too many connections, the oldest one that waits for a request is closed:
        other users of the machine may open any number, and send nothing."""
        with self._lock:
            if len(self._waiting) + len(self._busy) >= MAX_CONNECTIONS:
                if not self._waiting:
                    self.shutdown_request(request)
                    return
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and closes it
            self._waiting[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._waiting.pop(request, None)
                self._busy.discard(request)

    @contextlib.contextmanager
    def answering(self, request: Any) -> Iterator[None]:
        """While a request that was admitted is answered, its connection stays."""
        with self._lock:
            if request in self._waiting:
                del self._waiting[request]
                self._busy.add(request)
        try:
            yield
        finally:
            with self._lock:
                if request in self._busy:
                    self._busy.discard(request)
                    self._waiting[request] = None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a closed connection is not an error, and real errors were answered with 500."""


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "tokenmill", ""
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True  # headers and body are two writes: it would wait 40 ms between

    def _answer(self) -> None:
        guard = self.server.guard
        refusal = guard.refusal(
            self.command, self.path, lambda name: self.headers.get_all(name) or []
        )
        if refusal is not None:
            self.send_error(refusal)
            return
        with self.server.answering(self.connection):
            self._answer_admitted(urlsplit(guard.route(self.path)))

    def _answer_admitted(self, target: SplitResult) -> None:
        if target.path in self.server.files:
            name = target.path or "view.html"
            self._send(self.server.files[target.path], _TYPES[name.rpartition(".")[2]])
        elif target.path in _ANSWERS:
            self._ask(_ANSWERS[target.path], target.query)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer  # noqa: N815

    def _ask(self, answer: Callable[[DatasetView, Query], Any], query: str) -> None:
        try:
            found = answer(self.server.view, Query(query))
        except TokenmillError as error:
            self._send_json({"error": printable(error.message)}, HTTPStatus.BAD_REQUEST)
        except Exception as error:
            self._send_json({"error": f"a bug: {error!r}"}, HTTPStatus.INTERNAL_SERVER_ERROR)
            raise
        else:
            if isinstance(found, Iterator):
                self._stream(found)
            else:
                self._send_json(found)

    def _send_json(self, plain: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(plain).encode(), "application/json", status)

    def _send(self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._begin(kind, status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _stream(self, found: Iterator[Any]) -> None:
        """JSON lines as they come, to the end of the connection. A browser that cancels closes it,
        which ends the work at the next line."""
        self.close_connection = True
        self._begin("application/x-ndjson", HTTPStatus.OK)
        self.send_header("Connection", "close")
        self.end_headers()
        with contextlib.closing(found) as lines:  # type: ignore[type-var]
            for plain in lines if self.command != "HEAD" else ():
                self.wfile.write(json.dumps(plain).encode() + b"\n")

    def _begin(self, kind: str, status: HTTPStatus) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        charset = "" if kind.startswith("image/") else "; charset=utf-8"
        self.send_header("Content-Type", f"{kind}{charset}")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Brief and in plain text: a refusal reveals nothing about the dataset."""
        self.close_connection = True  # an unread body may follow
        status = HTTPStatus(code)
        self._begin("text/plain", status)
        self.send_header("Connection", "close")
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        body = f"{status.value} {status.phrase}\n".encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: a request contains the secret."""


class Query:
    """The parameters of a request: each at most once."""

    def __init__(self, query: str) -> None:
        self._values = {
            name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()
        }

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def required(self, name: str) -> str:
        if name not in self._values:
            raise ConfigError(f"{name} is missing")
        return self._values[name]

    def number(self, name: str) -> int:
        text = self.required(name)
        if not re.fullmatch(r"[0-9]{1,18}", text):
            raise ConfigError(f"{name} must be a number from 0, got {text[:40]!r}")
        return int(text)

    def numbers(self, name: str) -> list[int]:
        words = self.required(name).replace(",", " ").strip("[] ").split()
        if not all(re.fullmatch(r"[0-9]{1,10}", word) for word in words):
            raise ConfigError(f"ids are numbers such as 464 3290, got {' '.join(words)[:40]!r}")
        return [int(word) for word in words]


def _place(view: DatasetView, query: Query) -> Any:
    split = query.required("split")
    if query.text("token") is not None:
        return view.token(split, query.number("token"))
    return view.document(split, query.number("document"))


def _page(view: DatasetView, query: Query) -> Any:
    start = query.number("start")
    return view.page(query.required("split"), start, query.number("stop"))


def _compared(view: DatasetView, query: Query) -> Any:
    start = query.number("start")
    return view.compared(query.required("split"), start, query.number("stop"))


def _step(view: DatasetView, query: Query) -> Any:
    reader = query.required("reader")
    if reader not in _STEP_OPTIONS:
        raise unknown_name("reader", reader, tuple(_STEP_OPTIONS))
    options: dict[str, Any] = {
        name: query.number(asked)
        for name, asked in _STEP_OPTIONS[reader].items()
        if query.text(asked) is not None
    }
    if reader == "loader":
        shuffle = query.text("shuffle") or "full"
        options["shuffle"] = None if shuffle == "none" else shuffle
        options["name"] = (query.text("name") or "data")[:MAX_NAME]
    if reader != "run" and not {"seq_len", "batch_size"} <= options.keys():
        raise ConfigError("a step needs batch and seq_len")
    steps = view.steps(query.required("split"), reader, options)
    first = query.number("first") if query.text("first") is not None else 0
    return view.step(steps, query.number("step"), first)


_LOADER = {"batch_size": "batch", "seq_len": "seq_len", "world_size": "world"}
_STEP_OPTIONS = {
    "loader": {**_LOADER, "seed": "seed"},
    "shards": {**_LOADER, "micro_steps": "micro_steps"},
    "run": {},
}


def _search(view: DatasetView, query: Query) -> Any:
    text = query.text("text")
    ids = query.numbers("ids") if text is None else []
    return view.search(query.required("split"), text, ids)


_ANSWERS: dict[str, Callable[[DatasetView, Query], Any]] = {
    "api/dataset": lambda view, query: view.dataset,
    "api/place": _place,
    "api/random": lambda view, query: view.random(query.required("split")),
    "api/page": _page,
    "api/compared": _compared,
    "api/source": lambda view, query: view.source(
        query.required("split"), query.number("document")
    ),
    "api/strip": lambda view, query: view.strip(query.required("split")),
    "api/step": _step,
    "api/search": _search,
}
