"""Which requests are answered. Any web site and any user of the machine can send requests to
127.0.0.1, so all requests pass this one check before they are routed.

A web site that rebinds its name to 127.0.0.1 sends its own name as `Host`; cross-origin requests
are recognised by `Origin` or `Sec-Fetch-Site`; other users do not know the secret, which is the
first part of every path. So no cookie is needed, and none can be sent by another site. A link that
the user clicks elsewhere, in a chat for example, opens the page in a tab of its own: nothing else,
and no frame.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

MAX_TARGET = 8192
_METHODS = ("GET", "HEAD")
_SITES = ("none", "same-origin")

# The values of a header, by its name.
Headers = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Guard:
    port: int
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)

    def refusal(self, method: str, target: str, headers: Headers) -> HTTPStatus | None:
        """Why a request is refused; None if it may be answered."""
        if method not in _METHODS:
            return HTTPStatus.METHOD_NOT_ALLOWED
        if not (self._knows_secret(target) and self._is_ours(target, headers)):
            return HTTPStatus.FORBIDDEN
        return HTTPStatus.REQUEST_URI_TOO_LONG if len(target) > MAX_TARGET else None

    def route(self, target: str) -> str:
        """What an admitted request asks for: its path after the secret, with the query."""
        return target.removeprefix(f"/{self.secret}/")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.secret}/"

    def _is_ours(self, target: str, headers: Headers) -> bool:
        hosts = [f"127.0.0.1:{self.port}", f"localhost:{self.port}"]
        asked = headers("Host")
        if len(asked) != 1 or asked[0] not in hosts:
            return False
        if any(origin != f"http://{asked[0]}" for origin in headers("Origin")):
            return False
        if all(site in _SITES for site in headers("Sec-Fetch-Site")):
            return True
        is_navigation = headers("Sec-Fetch-Mode") == ["navigate"]
        is_page = not self.route(target) and headers("Sec-Fetch-Dest") == ["document"]
        return is_navigation and is_page

    def _knows_secret(self, target: str) -> bool:
        prefix = f"/{self.secret}/".encode()
        given = target.encode(errors="surrogateescape")[: len(prefix)]
        return secrets.compare_digest(given, prefix)
