"""Who may ask: every request passes one check, also for what does not exist."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from tests.look.view.served import answered, served
from tokenmill.look.view.guard import MAX_TARGET
from tokenmill.look.view.server import _ANSWERS, MAX_CONNECTIONS, ViewServer, page_files


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[ViewServer]:
    folder = tmp_path_factory.mktemp("guard")
    np.array([464, 3290, 50256], "<u2").tofile(folder / "train.bin")
    with served(str(folder), tokenizer="gpt2", dtype="uint16") as server:
        yield server


OWN = ("Host", "127.0.0.1:{port}")
REFUSED = {
    "no host": [],
    "two hosts": [OWN, OWN],
    "rebound name": [("Host", "evil.test:{port}")],
    "name that begins like ours": [("Host", "localhost:{port}.evil.test")],
    "no port": [("Host", "127.0.0.1")],
    "another port": [("Host", "127.0.0.1:1")],
    "other address of this machine": [("Host", "[::1]:{port}")],
    "foreign origin": [OWN, ("Origin", "http://evil.test")],
    "origin of another port": [OWN, ("Origin", "http://127.0.0.1:1")],
    "origin null": [OWN, ("Origin", "null")],
    "https origin": [OWN, ("Origin", "https://127.0.0.1:{port}")],
    "cross-site": [OWN, ("Sec-Fetch-Site", "cross-site")],
    "same-site": [OWN, ("Sec-Fetch-Site", "same-site")],
}
ADMITTED = {
    "typed": [OWN, ("Sec-Fetch-Site", "none")],
    "by name": [("Host", "localhost:{port}")],
    "own page": [OWN, ("Origin", "http://127.0.0.1:{port}"), ("Sec-Fetch-Site", "same-origin")],
}


def with_port(headers: list[tuple[str, str]], server: ViewServer) -> list[tuple[str, str]]:
    return [(name, value.format(port=server.guard.port)) for name, value in headers]


@pytest.mark.parametrize("case", REFUSED)
def test_request_of_another_site_is_refused_before_routing(server, case):
    for route in ("", "view.js", "api/dataset", "nowhere"):
        target = f"/{server.guard.secret}/{route}"
        status, _, body = answered(server, target, headers=with_port(REFUSED[case], server))
        assert (status, body) == (403, b"403 Forbidden\n"), route


@pytest.mark.parametrize("case", ADMITTED)
def test_request_of_the_user_is_answered(server, case):
    target = f"/{server.guard.secret}/api/dataset"
    assert answered(server, target, headers=with_port(ADMITTED[case], server))[0] == 200


CLICKED = [
    OWN,
    ("Sec-Fetch-Site", "cross-site"),
    ("Sec-Fetch-Mode", "navigate"),
    ("Sec-Fetch-Dest", "document"),
]


def test_link_that_is_clicked_elsewhere_opens_the_page_and_nothing_else(server):
    secret, clicked = server.guard.secret, with_port(CLICKED, server)
    assert answered(server, f"/{secret}/", headers=clicked)[0] == 200
    for route in ("view.js", "api/dataset", "?", "nowhere"):
        assert answered(server, f"/{secret}/{route}", headers=clicked)[0] == 403
    assert answered(server, "/", headers=clicked)[0] == 403
    for name, value in (("Sec-Fetch-Dest", "iframe"), ("Sec-Fetch-Mode", "no-cors")):
        otherwise = [(n, value if n == name else v) for n, v in clicked]
        assert answered(server, f"/{secret}/", headers=otherwise)[0] == 403
    assert answered(server, f"/{secret}/", headers=[*clicked, ("Origin", "null")])[0] == 403


def test_connections_that_send_nothing_do_not_keep_the_owner_out(server):
    address = ("127.0.0.1", server.guard.port)
    with contextlib.ExitStack() as others:
        for _ in range(3 * MAX_CONNECTIONS):
            others.enter_context(socket.create_connection(address, timeout=10)).sendall(b"GET /")
        for _ in range(3):
            assert answered(server, f"/{server.guard.secret}/api/dataset")[0] == 200


def test_without_the_secret_nothing_is_answered(server):
    secret = server.guard.secret
    wrong = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    for begin in (
        "",
        wrong,
        secret[:-1],
        secret + "A",
        "%2e",
        f"../{secret}",
        f"http://x/{secret}",
    ):
        for route in ("", *page_files(), *_ANSWERS):
            assert answered(server, f"/{begin}/{route}")[0] == 403, begin
    assert answered(server, f"/{secret}")[0] == 403
    assert len(secret) >= 22 and secret not in repr(server.guard)  # 128 bits


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_only_get_and_head_are_answered(server, method):
    status, headers, _ = answered(server, f"/{server.guard.secret}/api/dataset", method)
    assert (status, headers["Allow"], headers["Connection"]) == (405, "GET, HEAD", "close")


def test_every_answer_binds_the_browser(server):
    secret = server.guard.secret
    for method, target in [
        *(("GET", f"/{secret}/{route}") for route in ("", "view.js", "view.css", "api/dataset")),
        *(("GET", f"/{secret}/{route}") for route in ("api/place", "nowhere")),
        *(("HEAD", f"/{secret}/"), ("GET", "/"), ("POST", "/"), ("BREW", f"/{secret}/")),
    ]:
        _, headers, body = answered(server, target, method)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy and "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store" and "Set-Cookie" not in headers
        assert "Access-Control-Allow-Origin" not in headers
        assert body if method == "GET" else True
    assert answered(server, f"/{secret}/", "HEAD")[2] == b""


def test_long_and_broken_requests_are_refused(server):
    target = f"/{server.guard.secret}/api/dataset?{'x' * MAX_TARGET}"
    assert answered(server, target)[0] == 414
    for line in (b"GET\r\n\r\n", b"\x16\x03\x01\r\n\r\n", b"GET / HTTP/9\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.guard.port), timeout=5) as client:
            client.sendall(line)
            assert b"ids" not in client.recv(4096)
    assert server.server_address[0] == "127.0.0.1"
