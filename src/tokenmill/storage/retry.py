"""Retries of transient failures (429, 5xx, cut or refused connections).

Pauses grow from half a second to a minute, with jitter, unless the server says how long to wait
(Retry-After, in seconds or as a date): until then, no request at all is sent to it. Retries end
after fifteen minutes without a success; after ten seconds if no server has answered since the
command began, because then there is probably no network.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TypeVar

RETRY_SECONDS = 900.0
UNREACHABLE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 60.0

Result = TypeVar("Result")
Notice = Callable[[str], None]

_notice: Notice = lambda message: None  # noqa: E731


def report_to(notice: Notice) -> None:
    """Have `notice` called about requests that are made before there is a run to watch them."""
    global _notice  # noqa: PLW0603
    _notice = notice


def say(message: str) -> None:
    _notice(message)


class Contact:
    """Whether a server has ever answered, and until when it wants no requests; shared by all
    requests to that server."""

    def __init__(self, has_answered: bool = False) -> None:
        self.has_answered = has_answered
        self.silent_until = 0.0


class Retry:
    """How long to retry, for all requests to one server."""

    def __init__(self, notice: Notice, num_silent: int = 0, contact: Contact | None = None) -> None:
        self._notice = notice
        self._num_silent = num_silent  # retries per request without a notice
        self._contact = contact or Contact()

    def result_of(self, request: Callable[[], Result]) -> Result:
        """The request's result, after retries; its last error once the retries are used up."""
        began: float | None = None  # to fail
        attempt = 0
        while True:
            time.sleep(max(0.0, self._contact.silent_until - time.monotonic()))
            try:
                result = request()
            except Exception as error:
                began = time.monotonic() if began is None else began
                pause = self._pause_after(error, attempt, began)
                if pause is None:
                    raise
                time.sleep(pause)
                attempt += 1
            else:
                self._contact.has_answered = True
                return result

    def _pause_after(self, error: Exception, attempt: int, began: float) -> float | None:
        """How long to wait before the next attempt; None: this error is final. `began`: when
        attempts began to fail."""
        self._contact.has_answered |= status_of(error) is not None
        asked = retry_after_seconds(error) or 0.0
        self._contact.silent_until = max(self._contact.silent_until, time.monotonic() + asked)
        pause = _pause_seconds(error, attempt, self._deadline(began) - time.monotonic())
        if pause is not None and attempt >= self._num_silent:
            self._notice(f"{message_of(error)}; trying again in {pause:.0f} s")
        return pause

    def _deadline(self, began: float) -> float:
        return began + (RETRY_SECONDS if self._contact.has_answered else UNREACHABLE_SECONDS)


def status_of(error: BaseException) -> int | None:
    """The HTTP status of an error or of its cause; None if no server answered."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if response.get("Error", {}).get("Code") in _REPEATABLE_CODES:
            status = 408
    else:
        status = getattr(response, "status_code", None)
    for name in ("status", "status_code"):  # aiohttp, azure
        if status is None:
            status = getattr(error, name, None)
    if status is None and type(error).__module__.startswith("gcsfs"):
        status = getattr(error, "code", None)
    if isinstance(status, int) and 100 <= status < 600:
        return status
    return status_of(error.__cause__) if error.__cause__ is not None else None


def is_network_error(error: BaseException) -> bool:
    """Whether an error, of any library, was caused by the network or the server."""
    if status_of(error) is not None:
        return True
    kinds = {kind.__name__ for kind in type(error).__mro__}
    modules = {kind.__module__.split(".")[0] for kind in type(error).__mro__}
    return bool(kinds & _NETWORK_KINDS or modules & _NETWORK_MODULES)


# S3 answers these with status 400, although the same request may succeed later.
_REPEATABLE_CODES = ("RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch")
_NETWORK_MODULES = {"httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3", "aiohttp"}
_NETWORK_KINDS = {
    # By name: asyncio and botocore have their own classes with the names of built-in ones.
    *("ConnectionError", "TimeoutError"),
    # huggingface_hub's error for "no answer, and not in the cache either"
    *("LocalEntryNotFoundError", "OfflineModeIsEnabled", "FileMetadataError"),
    # botocore's: a time-out, a truncated body, an answer that is not XML, a wrong checksum
    *("HTTPClientError", "IncompleteReadError", "ResponseStreamingError", "ResponseParserError"),
    "FlexibleChecksumError",
    # azure's and google's
    *("ServiceRequestError", "ServiceResponseError", "TransportError"),
}


def message_of(error: BaseException) -> str:
    """The error in one line, without the query part of URLs: a signature there is a secret."""
    line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return re.sub(r"\?[^\s'\")]+", "", line)[:300]


def _pause_seconds(error: Exception, attempt: int, left: float) -> float | None:
    """How long to wait before the next try, within the seconds left; None: give up. The last try is
    made at the very end."""
    status = status_of(error)
    if status is not None and status < 500 and status not in (408, 425, 429):
        return None
    if type(error).__name__ == "OfflineModeIsEnabled":
        return None
    # A download of the wrong size is a plain OSError that says "Consistency check failed".
    if not is_network_error(error) and "onsistency check" not in str(error):
        return None
    asked = retry_after_seconds(error)
    if asked is not None:
        return asked if asked <= left else None
    import random  # 3 ms that every command would pay

    longest: float = min(LONGEST_PAUSE_SECONDS, 2.0**attempt)
    return min(random.uniform(longest / 2, longest), left) if left > 0 else None


def retry_after_seconds(error: Exception) -> float | None:
    """The server's Retry-After, in seconds or as a date."""
    value = getattr(getattr(error, "response", None), "headers", {}).get("Retry-After")
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    from email.utils import parsedate_to_datetime  # costs every worker 10 ms

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
