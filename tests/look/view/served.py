"""A dataset served as `tokenmill view` does, in this process; requests as a browser sends them."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

from tokenmill.dataset.inspect import look_into
from tokenmill.encodings import Encoding
from tokenmill.look.report.places import Commands
from tokenmill.look.view.dataset_view import DatasetView
from tokenmill.look.view.server import ViewServer
from tokenmill.look.view.steps import LoaderSteps


@contextlib.contextmanager
def served(
    folder: str,
    other: Encoding | None = None,
    run: LoaderSteps | None = None,
    sources: Sequence[str] = (),
    **opening: Any,
) -> Iterator[ViewServer]:
    looked = look_into(folder, **opening)
    with ViewServer(DatasetView(looked, Commands(looked), other, run, sources)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def answered(
    server: ViewServer,
    target: str,
    method: str = "GET",
    headers: list[tuple[str, str]] | None = None,
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """The answer to a request with just these headers; by default those of our own page."""
    connection = http.client.HTTPConnection("127.0.0.1", server.guard.port, timeout=10)
    connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    given = [("Host", f"127.0.0.1:{server.guard.port}")] if headers is None else headers
    for name, value in given:
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, response.headers, body


def asked(server: ViewServer, what: str, **parameters: Any) -> Any:
    target = f"/{server.guard.secret}/api/{what}?{urlencode(parameters)}"
    return json.loads(answered(server, target)[2])
