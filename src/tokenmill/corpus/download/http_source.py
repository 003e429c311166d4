"""A file over HTTP, in ranges, from an address that its host hands out and that may expire."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from urllib.parse import urljoin

from tokenmill.corpus.download.http_answers import HttpAnswer, HttpAnswers, HttpStatusError

MAX_STREAMS = 64  # a single file may have all connections
MAX_REFUSALS = 5  # of fresh addresses in a row
_REDIRECTS = (301, 302, 303, 307, 308)


class FileChanged(Exception):
    """The server has another file now: earlier bytes do not belong to it."""


class AddressRefused(Exception):
    """The server has refused several fresh addresses in a row."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a file is for a while, and the headers that a request needs."""

    url: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    may_expire: bool = True  # it leads to another server, by a signature


class HttpSource:
    """A ByteSource. `find_address` asks the file's host; its answer serves until it is refused."""

    def __init__(
        self, name: str, num_bytes: int, find_address: Callable[[], Address], answers: HttpAnswers
    ) -> None:
        self._name = name
        self._num_bytes = num_bytes
        self._find_address = find_address
        self._answers = answers
        self._address: Address | None = None
        self._num_refusals = 0
        self._tag: str | None = None
        self._num_tags = 0
        self._has_ranges = True
        self._lock = threading.Lock()

    @property
    def max_streams(self) -> int:
        # A server that has never sent a range is not asked for many of each file again.
        has_ranges = self._has_ranges and self._answers.has_ranges is not False
        return MAX_STREAMS if has_ranges else 1

    @property
    def fills_line(self) -> bool:
        return False

    @property
    def latency_seconds(self) -> float:
        return self._answers.latency_seconds

    def stream(self, start: int, stop: int) -> Generator[memoryview, None, None]:
        address = self._current_address()
        # A range counts the file's own bytes, so they must not be compressed on the way.
        headers = {
            **address.headers,
            "Range": f"bytes={start}-{stop - 1}",
            "Accept-Encoding": "identity",
        }
        with self._answers.get(address.url, headers) as answer:
            if self._leads_elsewhere(address, answer):
                pass
            elif answer.status_code == 206:
                self._require_range(answer, start)
                self._answers.has_ranges = True
                yield from self._counted(answer, start, start, stop)
                return
            elif answer.status_code == 200:
                self._has_ranges = self._num_bytes == 0
                if self._num_bytes and self._answers.has_ranges is None:
                    self._answers.has_ranges = False
                yield from self._counted(answer, 0, start, stop)
                return
            else:
                raise HttpStatusError(f"{self._name}: the server says {_status(answer)}", answer)
        yield from self.stream(start, stop)

    def _current_address(self) -> Address:
        with self._lock:
            if self._address is None:
                self._address = self._find_address()
            return self._address

    def _leads_elsewhere(self, address: Address, answer: HttpAnswer) -> bool:
        """Whether to ask again at another address, after a redirect or an expired signature. A
        refusal is not about access: the host has granted that with the address."""
        target = answer.headers.get("Location")
        if answer.status_code in _REDIRECTS and target:
            self._replace(
                address, Address(urljoin(address.url, target)), "redirected the address of", answer
            )
            return True
        if address.may_expire and answer.status_code in (401, 403):
            self._replace(address, None, "refused the address of", answer)
            return True
        return False

    def _replace(self, old: Address, new: Address | None, what: str, answer: HttpAnswer) -> None:
        with self._lock:
            if self._address is not old:
                return  # another thread was here first
            self._address = new
            self._num_refusals += 1
            if self._num_refusals > MAX_REFUSALS:
                self._num_refusals = 0
                self._address = None
                raise AddressRefused(
                    f"the CDN {what} {self._name} ({answer.status_code}), "
                    f"{MAX_REFUSALS + 1} times in a row"
                )

    def _require_range(self, answer: HttpAnswer, start: int) -> None:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range") or "")
        if found is None or int(found[1]) != start:
            raise ConnectionError(f"{self._name}: asked for bytes from {start:,} on, got others")
        if found[2] not in ("*", str(self._num_bytes)):
            raise ConnectionError(
                f"{self._name} has {int(found[2]):,} bytes, not {self._num_bytes:,}"
            )

    def _require_same(self, answer: HttpAnswer) -> None:
        """Raise FileChanged for a new tag, but at most three times, because servers may have
        different tags for the same file; after that, the hash at the end decides."""
        tag = answer.headers.get("ETag")
        with self._lock:
            self._num_refusals = 0
            before, self._tag = self._tag, tag
            if before is None or tag is None or before == tag:
                return
            self._tag = None  # the next one counts
            self._num_tags += 1
            if self._num_tags <= 3:
                raise FileChanged(f"{self._name} changed during the download")

    def _counted(self, answer: HttpAnswer, at: int, start: int, stop: int) -> Iterator[memoryview]:
        """The bytes from `start` to `stop` of an answer that begins at `at`."""
        self._require_same(answer)
        for block in answer.blocks:
            first, last = max(0, start - at), min(len(block), stop - at)
            at += len(block)
            if first < last:
                yield block[first:last]
            if at >= stop:
                break
        else:
            if at < stop:
                raise ConnectionError(f"{self._name}: the connection ended after {at:,} bytes")
        if at > stop and answer.status_code == 206:
            raise ConnectionError(f"{self._name}: got more bytes than asked for")


def _status(answer: HttpAnswer) -> str:
    after = answer.headers.get("Retry-After")
    return f"{answer.status_code}" + (f", Retry-After: {after}" if after else "")
