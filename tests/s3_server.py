"""S3 on loopback: moto's server, and a proxy of ours before it that can make requests fail.

    with S3Server() as server:
        bucket = server.new_bucket()
        server.faults = Faults(seed=1, fraction=0.05)     # from now on, one request in 20 fails
        server.requests                                   # what was asked for: "PUT /bucket/key"
        server.hold = lambda request: ...                 # called before a request is forwarded

What goes wrong, by turns: 503 SlowDown, an answer that is late, a connection that is cut before the
request was done, after it was done, or within the answer, and a body that is shorter than it should
be, with a Content-Length that fits. Only if asked for: "flip", one bit of an answer. `environment`
is what the clients of all processes need.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import random
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

KINDS = ("slow down", "slow", "cut before", "cut after", "cut within", "wrong length")
ACCESS_KEY = "AKIACANARYCANARYCANA"
SECRET_KEY = "canary-secret-canary-secret-canary-secret"
SLOW_DOWN = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"""
NO_SUCH_UPLOAD = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>NoSuchUpload</Code><Message>The upload may have been aborted.</Message></Error>"""
NOT_FORWARDED = {
    "server",
    "connection",
    "transfer-encoding",
    "content-length",
    "keep-alive",
    "expect",
}


@dataclass
class Faults:
    """Which requests fail, and how: a `fraction` of those that `only` accepts ("PUT /b/key")."""

    seed: int = 0
    fraction: float = 1.0
    kinds: tuple[str, ...] = KINDS
    only: Callable[[str], bool] = lambda request: True
    slow_seconds: float = 0.3
    num_injected: int = 0
    _random: random.Random = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def next(self, request: str) -> str | None:
        with self._lock:
            if not self.only(request) or self._random.random() >= self.fraction:
                return None
            self.num_injected += 1
            return self._random.choice(self.kinds)


NO_FAULTS = Faults(fraction=0.0)


def require_no_secret(*texts: bytes) -> None:
    """None of these may hold the credentials of `S3Server.environment`."""
    for text in texts:
        assert SECRET_KEY.encode() not in text and ACCESS_KEY.encode() not in text


class S3Server:
    """moto behind a proxy, each on a free port."""

    def __init__(self) -> None:
        self.faults = NO_FAULTS
        self.hold: Callable[[str], None] = lambda request: None
        self.requests: list[str] = []
        self.served: list[tuple[str, int]] = []  # request, bytes of the answer

    def __enter__(self) -> Self:
        self._backend_address = self._start_backend()
        self._proxy = _Proxy(("127.0.0.1", 0), _Handler)
        self._proxy.server = self
        threading.Thread(target=self._proxy.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()
        self._stop_backend()

    def _start_backend(self) -> tuple[str, int]:
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._moto.start()
        return self._moto.get_host_and_port()

    def _stop_backend(self) -> None:
        self._moto.stop()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._proxy.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "NO_PROXY": "127.0.0.1",
        }

    @contextlib.contextmanager
    def failing(self, faults: Faults) -> Iterator[Faults]:
        self.faults = faults
        try:
            yield faults
        finally:
            self.faults = NO_FAULTS

    def new_bucket(self) -> str:
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        status, _, body = self.forward("PUT", f"/{name}", {}, b"")
        assert status == 200, body
        return name

    def keys(self, bucket: str) -> list[str]:
        """All objects, past the product and its clients."""
        return [key["Key"] for key in self._listed(bucket, "list_objects_v2", "Contents")]

    def uploads(self, bucket: str) -> list[str]:
        """The objects of which parts lie there, uploaded and not completed."""
        return [key["Key"] for key in self._listed(bucket, "list_multipart_uploads", "Uploads")]

    def read(self, bucket: str, key: str) -> bytes:
        data: bytes = self.client().get_object(Bucket=bucket, Key=key)["Body"].read()
        return data

    def client(self):  # type: ignore[no-untyped-def]
        """boto3's client, past the proxy."""
        import boto3

        host, port = self._backend_address
        return boto3.client(
            "s3",
            endpoint_url=f"http://{host}:{port}",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="us-east-1",
        )

    def _listed(self, bucket: str, method: str, what: str):  # type: ignore[no-untyped-def]
        pages = self.client().get_paginator(method).paginate(Bucket=bucket)
        return [entry for page in pages for entry in page.get(what, ())]

    def forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(*self._backend_address, timeout=60)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()


def dataset_in(s3: S3Server, bucket: str, prefix: str = "out/") -> dict[str, bytes]:
    """The files of the finished dataset by their names in its folder; nothing else is there."""
    found = {
        key.removeprefix(prefix): s3.read(bucket, key)
        for key in s3.keys(bucket)
        if key.startswith(prefix)
    }
    run = json.loads(found.pop("tokenmill.json"))["folder"]
    found.pop(".tokenmill/run.json")
    assert all(name.startswith(f"{run}/") for name in found), sorted(found)
    return {name.removeprefix(f"{run}/"): data for name, data in found.items()}


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    server: S3Server

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        num_bytes = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(num_bytes)
        if len(body) < num_bytes:  # the client was killed: S3 keeps nothing, moto would
            self._cut()
            return
        request = f"{self.command} {self.path}"
        server = self.server.server
        server.requests.append(request)
        server.hold(request)
        fault = server.faults.next(request)
        if fault == "slow down":
            self._send(503, [("Content-Type", "application/xml")], SLOW_DOWN)
            return
        if fault == "cut before":
            self._cut()
            return
        headers = {k: v for k, v in self.headers.items() if k.lower() not in NOT_FORWARDED}
        status, answered, found = server.forward(self.command, self.path, headers, body)
        if status == 500 and "uploadId=" in self.path:  # moto 5.2 fails where S3 says this
            status, found = 404, NO_SUCH_UPLOAD
        if fault == "slow":
            time.sleep(server.faults.slow_seconds)
        if fault == "cut after" or (fault == "cut within" and not found):
            self._cut()
            return
        if fault == "flip" and found:  # one bit on its way
            at = len(found) // 2
            found = found[:at] + bytes([found[at] ^ 4]) + found[at + 1 :]
        if fault == "wrong length" and self.command == "GET" and status in (200, 206):
            found = found[: len(found) // 2]
        self._send(status, answered, found, len(found) // 2 if fault == "cut within" else None)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815

    def _send(
        self,
        status: int,
        headers: list[tuple[str, str]],
        body: bytes,
        cut_at: int | None = None,
    ) -> None:
        self.send_response_only(status)
        is_head = self.command == "HEAD"
        for name, value in headers:
            if name.lower() not in NOT_FORWARDED or (is_head and name.lower() == "content-length"):
                self.send_header(name, value)
        if not is_head and status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        request = f"{self.command} {self.path}"
        self.server.server.served.append((request, 0 if is_head else len(body)))
        if not is_head:
            self.wfile.write(body[:cut_at])
        if cut_at is not None:
            self.wfile.flush()
            self._cut()

    def _cut(self) -> None:
        """Reset the connection."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
