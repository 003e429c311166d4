"""One bucket, through any client: all requests are retried by one rule, and all errors become
ours."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tokenmill.errors import ConfigError, IntegrityError, NetworkError, TokenmillError
from tokenmill.storage import heartbeat
from tokenmill.storage.retry import (
    Contact,
    Notice,
    Retry,
    is_network_error,
    message_of,
    status_of,
)

# When one request in 20 fails, a notice for each would be noise.
NUM_SILENT = 2
PARALLEL_REMOVALS = 16
MAX_LOOKS = 10  # at a small object that others replace
SHA256_NAME = "tokenmill_sha256"  # in an object's metadata; Azure allows no hyphen there

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store says about an object. `tag` changes whenever the content changes.

    `sha256` is that of the content, if `upload` set it and the store can keep it. Unlike the tag,
    it is known before the upload and is the same in copies and repeated uploads. Listings lack it.
    """

    num_bytes: int
    tag: str
    sha256: str | None = None
    modified_ns: int = 0  # 0: unknown


class ObjectClient:
    """`files` is fsspec's file system, `place` the bucket's URL."""

    def __init__(self, files: Any, place: str, notice: Notice, contact: Contact) -> None:
        self.files = files
        self._place = place
        self._root = files._strip_protocol(place)
        self._retry = Retry(lambda message: notice(f"{place}: {message}"), NUM_SILENT, contact)

    def look(self, url: str) -> ObjectInfo | None:
        try:
            found = self.ask("look at", url, lambda: self.files.info(url))
        except FileNotFoundError:
            return None
        return _info(found) if found["type"] == "file" else None

    def find(self, url: str) -> list[tuple[str, ObjectInfo]]:
        is_glob = any(mark in url for mark in "*?[")
        list_it = self.files.glob if is_glob else self.files.find
        try:
            listed = self.ask("list", url, lambda: list_it(url, detail=True))
        except FileNotFoundError:
            return []
        if isinstance(listed, list):  # adlfs's answer for the URL of an object
            info = self.look(url)
            return [] if info is None else [(url, info)]
        found = [
            (self._place + name.removeprefix(self._root), _info(entry))
            for name, entry in listed.items()
            if entry["type"] == "file"
        ]
        return sorted(found, key=lambda pair: pair[0].encode())

    def read_range(self, url: str, start: int, stop: int) -> bytes:
        def request() -> bytes:
            try:
                data: bytes = self.files.cat_file(url, start=start, end=stop)
            except Exception as error:
                if status_of(error) != 416:
                    raise
                data = b""
            if len(data) == stop - start:
                return data
            info = self.look(url)
            if info is None or info.num_bytes < stop:
                found = "it is gone" if info is None else f"it has {info.num_bytes:,}"
                raise IntegrityError(f"{url} ends before byte {stop:,}: {found}")
            raise ConnectionError(f"asked for {stop - start:,} bytes, got {len(data):,}")

        return self.ask("read", url, request)

    def content(self, url: str) -> bytes | None:
        """A small object's bytes; None if there is no object."""
        for _ in range(MAX_LOOKS):
            info = self.look(url)
            if info is None:
                return None
            with contextlib.suppress(FileNotFoundError, IntegrityError):  # replaced in between
                return self.read_range(url, 0, info.num_bytes)
        raise IntegrityError(f"{url} changes whenever it is read")

    def read_unchecked(self, url: str) -> bytes | None:
        try:
            data: bytes = self.ask("read", url, lambda: self.files.cat_file(url))
        except FileNotFoundError:
            return None
        return data

    def write(self, url: str, data: bytes) -> None:
        self.ask("write", url, lambda: self.files.pipe_file(url, data))

    def create(self, url: str, data: bytes) -> bool:
        return self.ask("create", url, lambda: _was_done(lambda: self._create(url, data)))

    def replace(self, url: str, old: bytes, data: bytes) -> bool:
        """Replace an object whose content is `old`. A store without conditional requests may let
        two processes do that at once; then the last one wins."""
        version = self._version(url)  # before the content: if it changes, the condition fails
        if version is None or self.content(url) != old:
            return False

        try:
            return self.ask(
                "replace", url, lambda: _was_done(lambda: self._replace(url, version, data))
            )
        except FileNotFoundError:  # it was removed
            return False

    def _create(self, url: str, data: bytes) -> None:
        """Raises FileExistsError, or an error of status 412, if there is such an object."""
        self.files.pipe_file(url, data, mode="create")

    def _version(self, url: str) -> str | None:
        """What the store compares before it replaces an object; None: there is no object."""
        info = self.look(url)
        return None if info is None else info.tag

    def _replace(self, url: str, version: str, data: bytes) -> None:
        """Replace the object, if it still has this version and the store can tell."""
        self.files.pipe_file(url, data)

    def upload(self, url: str, path: str) -> str | None:
        self.ask("write", url, lambda: self.files.put_file(path, url))
        return None

    def remove(self, urls: Sequence[str]) -> None:
        def remove(url: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self.ask("remove", url, lambda: self.files.rm_file(url))

        from concurrent.futures import ThreadPoolExecutor  # 10 ms that a local run saves

        with ThreadPoolExecutor(min(PARALLEL_REMOVALS, len(urls) or 1)) as pool:
            list(pool.map(remove, urls))

    def abort_uploads(self, prefix: str) -> int:
        """Only S3 keeps the parts of unfinished uploads."""
        return 0

    def ask(self, doing: str, url: str, request: Callable[[], Result]) -> Result:
        """The request's result, retried as the rule allows; failures are raised as our errors."""
        try:
            result = self._retry.result_of(lambda: _honest(request))
            heartbeat.beat()
            return result
        except TokenmillError:
            raise
        except FileNotFoundError as error:
            raise FileNotFoundError(f"there is no {url}: {message_of(error)}") from None
        except Exception as error:
            status = status_of(error)
            if isinstance(error, PermissionError) or status in (401, 403):
                raise PermissionError(f"{doing} {url}: {message_of(error)}") from None
            if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
                raise ConfigError(
                    f"no credentials for {self._place}: {message_of(error)}",
                    hint="aws configure, AWS_PROFILE or AWS_ACCESS_KEY_ID; for a public bucket "
                    "FSSPEC_S3_ANON=true",
                ) from None
            if not is_network_error(error) or status in (400, 404, 416):
                raise OSError(f"cannot {doing} {url}: {message_of(error)}") from error
            raise NetworkError(
                f"cannot {doing} {url}: {message_of(error)}",
                hint="run the same command again: it resumes",
            ) from None


def _was_done(request: Callable[[], object]) -> bool:
    """Whether a conditional request was carried out; False: its condition does not hold."""
    try:
        request()
    except FileExistsError:  # gcsfs's name for 412, too
        return False
    except Exception as error:
        if status_of(error) == 412:
            return False
        if status_of(error) == 409:  # another process does the same at this moment
            raise ConnectionError(message_of(error)) from None
        raise
    return True


def file_sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _honest(request: Callable[[], Result]) -> Result:
    """The request's result, or its real error. fsspec's HTTP client says "not found" for a host
    that it cannot reach, so the cause is raised instead. gcsfs has no error class for status 403,
    for a truncated answer, nor for an upload of which the store kept another number of bytes."""
    try:
        return request()
    except FileNotFoundError as error:
        cause = error.__cause__
        is_absence = cause is None or status_of(cause) in (404, 410)
        if is_absence or not isinstance(cause, Exception) or not is_network_error(cause):
            raise
        raise cause from None
    except OSError as error:
        if not str(error).startswith("Forbidden: "):
            raise
        raise PermissionError(" ".join(str(error).split())) from None
    except json.JSONDecodeError as error:
        raise ConnectionError(f"the answer is not JSON: {error}") from None
    except AssertionError as error:
        raise ConnectionError(str(error)) from None


def _info(found: dict[str, Any]) -> ObjectInfo:
    names = ("ETag", "etag", "generation", "md5Hash", "mtime", "last_modified", "created")
    tag = next((found[name] for name in names if found.get(name)), "")
    if isinstance(tag, datetime.datetime):  # memory:// has two forms of it
        tag = tag.timestamp()
    sha256 = (found.get("metadata") or {}).get(SHA256_NAME)
    return ObjectInfo(int(found["size"]), str(tag).strip('"'), sha256, modified_ns_of(found))


def modified_ns_of(found: dict[str, Any]) -> int:
    """When an object was last modified, by what its store says about it; 0: unknown."""
    for name in ("LastModified", "last_modified", "updated", "mtime", "created"):
        if isinstance(found.get(name), str):
            with contextlib.suppress(ValueError):
                found = {**found, name: datetime.datetime.fromisoformat(found[name])}
        if isinstance(found.get(name), datetime.datetime):
            return int(found[name].timestamp()) * 10**9
    return 0
