"""A bucket as a store, through any client of fsspec; S3, Google and Azure differ in a few methods.

There is no folder to make or sync, no rename and no lock. All requests are retried by one rule
(../retry.py); the clients' own retries are turned off where possible. Lengths are compared, because
s3fs pads a short answer with zeros and other clients return it short.

`look`, `find` and `fetch` read objects that a user named: FileNotFoundError, PermissionError and
OSError pass through, because only the caller knows what they mean. The methods of Store
(../store.py) are about our own objects: a missing one is FileNotFoundError, any other refusal
OutputError.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from tokenmill.errors import ConfigError, IntegrityError, NetworkError, TokenmillError
from tokenmill.storage import disk, heartbeat
from tokenmill.storage.address import has_buckets, key_of, kind_of, scheme_of
from tokenmill.storage.checked_json import is_intact
from tokenmill.storage.local import Range, RangeRead, Stat
from tokenmill.storage.output_errors import as_output_error
from tokenmill.storage.retry import (
    Contact,
    Notice,
    Retry,
    is_network_error,
    message_of,
    status_of,
)

MAX_PARALLEL = 32  # requests at a time, of one process
RANGE_BYTES = 8 << 20  # a larger range is fetched in pieces
NUM_SILENT = 2  # when one request in 20 fails, a notice for each would be noise
MAX_LOOKS = 10  # at a small object that others replace

# Only one run writes below these (dataset/places.py).
_OURS = re.compile(r"/\.tokenmill/.|/[0-9a-f]{16}/$", re.ASCII)

Item = TypeVar("Item")
Result = TypeVar("Result")


class ObjectStore:
    """See Store for what the public methods promise. `place` is the bucket's URL."""

    is_local = False
    sha256_name = "tokenmill_sha256"  # in an object's metadata; Azure allows no hyphen there

    def __init__(self, place: str, notice: Notice, contact: Contact) -> None:
        self.place = place
        self._retry = Retry(lambda message: notice(f"{place}: {message}"), NUM_SILENT, contact)

    # Objects that a user named

    def look(self, url: str) -> Stat | None:
        """What the store says about an object; None if there is none. `sha256` is that of the
        content, if `put` set it and the store can keep it. Unlike the tag, it is known before the
        upload and is the same in repeated uploads. Listings lack it."""
        try:
            found = self.ask("look at", url, lambda: self._described(url))
        except FileNotFoundError:
            return None
        return None if found is None else self._stat(found)

    def find(self, url: str) -> list[tuple[str, Stat]]:
        """Objects below a prefix, the object of that name, or the matches of a glob, sorted by
        name.

        Never used to find our own output: a listing may be out of date.
        """
        is_glob = any(mark in url for mark in "*?[")
        list_it = self.files.glob if is_glob else self.files.find
        try:
            listed = self.ask("list", url, lambda: list_it(url, detail=True))
        except FileNotFoundError:
            return []
        if isinstance(listed, list):  # adlfs's answer for the URL of an object
            found = self.look(url)
            return [] if found is None else [(url, found)]
        root = self.files._strip_protocol(self.place)
        entries = [
            (self.place + name.removeprefix(root), self._stat(entry))
            for name, entry in listed.items()
            if entry["type"] == "file"
        ]
        return sorted(entries, key=lambda pair: pair[0].encode())

    def below(self, url: str) -> dict[str, Stat]:
        """The objects below a URL by name, without hidden ones, one level of subfolders deep."""
        prefix, found = key_of(url.rstrip("/") + "/"), {}
        for one, stat in self.find(url.rstrip("/") + "/"):
            # Clients normalise the scheme: a listing of s3a:// returns s3://.
            above, is_below, name = key_of(one).partition(prefix)
            parts = name.split("/")
            is_plain = not any(part in ("", "..") or part.startswith(".") for part in parts)
            if is_below and not above and is_plain and len(parts) <= 2 and "\0" not in name:
                found[name] = stat
        return found

    def fetch(self, url: str, ranges: Sequence[Range]) -> list[bytes]:
        """Bytes `start` to `stop` of each range, in parallel. IntegrityError if the object is
        shorter."""
        pieces = [
            (i, at, min(at + RANGE_BYTES, stop))
            for i, (start, stop) in enumerate(ranges)
            for at in range(start, stop, RANGE_BYTES)
        ]
        found: list[list[bytes]] = [[] for _ in ranges]
        mapped = in_parallel if len(pieces) > 1 else map  # one range takes no thread
        arrived = mapped(lambda piece: self._range(url, piece[1], piece[2]), pieces)
        for (i, _, _), data in zip(pieces, arrived, strict=True):
            found[i].append(data)
        return [data[0] if len(data) == 1 else b"".join(data) for data in found]

    # Reading what is ours

    def read(self, path: str, has_checksum: bool = False) -> bytes:
        with self._reading(path):
            if has_checksum and is_intact(data := self.ask("read", path, lambda: self._get(path))):
                return data
            # An answer may be short, or it has no checksum after all.
            found = self.look(path)
            if found is None:
                raise FileNotFoundError(f"there is no {path}")
            return self.fetch(path, [(0, found.num_bytes)])[0]

    @contextlib.contextmanager
    def range_reader(self, path: str) -> Iterator[RangeRead]:
        with self._reading(path):
            yield functools.partial(self.fetch, path)

    def stat(self, path: str) -> Stat | None:
        with self._asking("look at", path):
            return self.look(path)

    def size(self, path: str) -> int | None:
        found = self.stat(path)
        return None if found is None else found.num_bytes

    def names(self, folder: str) -> list[str]:
        with self._asking("list", folder):
            return list(self.below(folder))

    # Writing

    def put(self, source: str, path: str, is_durable: bool = True) -> str | None:
        """A failed upload leaves nothing behind."""
        with self._asking("write", path):
            sha256 = self._upload(path, source)
        disk.remove(source)
        return sha256

    def write(self, path: str, data: bytes, is_durable: bool = True) -> None:
        with self._asking("write", path):
            self.ask("write", path, lambda: self._put(path, data))

    def create(self, path: str, data: bytes) -> bool:
        """False may also mean that an earlier try of this call created it."""
        with self._asking("create", path):
            return self.ask("create", path, lambda: _was_done(lambda: self._create(path, data)))

    def swap(self, path: str, old: bytes | None, data: bytes) -> bool:
        """A store without conditional requests may let two processes do that at once; then the last
        one wins."""
        with self._asking("replace", path):
            is_done = self.create(path, data) if old is None else self._swap(path, old, data)
            return is_done or self._content(path) == data  # an answer may have been lost

    # Folders, and removal

    def make_folder(self, path: str) -> None:
        """There are no folders."""

    def sweep(self, folder: str, names: Iterable[str]) -> None:
        """S3 does not say who started an upload, so uploads elsewhere may belong to others. A
        running upload of the same plan notices the abort and starts over."""
        prefix = folder.rstrip("/") + "/"
        if not _is_ours(prefix):
            raise ValueError(
                f"{prefix} is not one run's prefix: uploads there may belong to others"
            )
        with self._asking("clean up", folder):
            self._abort_uploads(prefix)

    def remove(self, *paths: str) -> None:
        if paths:
            with self._asking("remove", paths[0]):
                self._remove(paths)

    def remove_folder(self, path: str) -> None:
        prefix = path.rstrip("/") + "/"
        with self._asking("remove", path):
            self._remove([found for found, _ in self.find(prefix)])
            if _is_ours(prefix):
                self._abort_uploads(prefix)

    def lock(self, path: str, is_shared: bool = False) -> contextlib.AbstractContextManager[None]:
        """Nobody can be locked out."""
        return contextlib.nullcontext()

    # Requests that any client of fsspec can make; those that differ are replaced by subclasses

    @functools.cached_property
    def files(self) -> Any:
        """The client: fsspec's file system."""
        scheme = scheme_of(self.place)
        try:
            import fsspec

            return self._connected(fsspec.get_filesystem_class(scheme))
        except ImportError as error:
            package = "aiohttp" if scheme in ("http", "https") else "fsspec"
            if has_buckets(self.place):
                package = f"'tokenmill[{kind_of(scheme)}]'"
            raise ConfigError(
                f"{scheme}:// needs a package that is not installed: {message_of(error)}",
                hint=f"pip install {package}",
            ) from None
        except ValueError as error:
            if isinstance(error, TokenmillError):
                raise
            raise ConfigError(
                f"{scheme}:// is not known to fsspec", hint="s3://, gs://, az:// or a local path"
            ) from None

    def _connected(self, client: Any) -> Any:
        return client(use_listings_cache=False)

    def _described(self, url: str) -> dict[str, Any] | None:
        found: dict[str, Any] = self.files.info(url)
        return found if found["type"] == "file" else None

    def _get(self, url: str) -> bytes:
        """The whole object by one request, whose length is not checked."""
        data: bytes = self.files.cat_file(url)
        return data

    def _put(self, url: str, data: bytes) -> None:
        self.files.pipe_file(url, data)

    def _upload(self, url: str, path: str) -> str | None:
        """Create or replace an object from a local file. Returns the sha256 that `look` will
        report, if the store keeps one. An object that replaces it has another, or none."""
        self.ask("write", url, lambda: self.files.put_file(path, url))
        return None

    def _create(self, url: str, data: bytes) -> None:
        """Raises FileExistsError, or an error of status 412, if there is such an object."""
        self.files.pipe_file(url, data, mode="create")

    def _version(self, url: str) -> str | None:
        """What the store compares before it replaces an object; None: there is no object."""
        found = self.look(url)
        return None if found is None else found.tag

    def _replace(self, url: str, version: str, data: bytes) -> None:
        """Replace the object, if it still has this version and the store can tell."""
        self._put(url, data)

    def _remove(self, urls: Sequence[str]) -> None:
        def remove(url: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self.ask("remove", url, lambda: self.files.rm_file(url))

        for _ in in_parallel(remove, urls):
            pass

    def _abort_uploads(self, prefix: str) -> None:
        """Only S3 keeps the parts of unfinished uploads."""

    # The same for every client

    def _range(self, url: str, start: int, stop: int) -> bytes:
        def request() -> bytes:
            try:
                data: bytes = self.files.cat_file(url, start=start, end=stop)
            except Exception as error:
                if status_of(error) != 416:
                    raise
                data = b""
            if len(data) == stop - start:
                return data
            found = self.look(url)
            if found is None or found.num_bytes < stop:
                what = "it is gone" if found is None else f"it has {found.num_bytes:,}"
                raise IntegrityError(f"{url} ends before byte {stop:,}: {what}")
            raise ConnectionError(f"asked for {stop - start:,} bytes, got {len(data):,}")

        return self.ask("read", url, request)

    def _content(self, url: str) -> bytes | None:
        """A small object's bytes; None if there is no object."""
        for _ in range(MAX_LOOKS):
            found = self.look(url)
            if found is None:
                return None
            with contextlib.suppress(FileNotFoundError, IntegrityError):  # replaced in between
                return self.fetch(url, [(0, found.num_bytes)])[0]  # of no bytes: no request
        raise IntegrityError(f"{url} changes whenever it is read")

    def _swap(self, url: str, old: bytes, data: bytes) -> bool:
        version = self._version(url)  # before the content: if it changes, the condition fails
        if version is None or self._content(url) != old:
            return False
        try:
            return self.ask(
                "replace", url, lambda: _was_done(lambda: self._replace(url, version, data))
            )
        except FileNotFoundError:  # it was removed
            return False

    def _stat(self, found: dict[str, Any]) -> Stat:
        names = ("ETag", "etag", "generation", "md5Hash", "mtime", "last_modified", "created")
        tag = next((found[name] for name in names if found.get(name)), "")
        if isinstance(tag, datetime.datetime):  # memory:// has two forms of it
            tag = tag.timestamp()
        metadata = found.get("Metadata") or found.get("metadata") or {}
        num_bytes = int(found["ContentLength"] if "ContentLength" in found else found["size"])
        sha256 = metadata.get(self.sha256_name)
        return Stat(num_bytes, str(tag).strip('"'), sha256, _modified_ns(found))

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
                    f"no credentials for {self.place}: {message_of(error)}",
                    hint="aws configure, AWS_PROFILE or AWS_ACCESS_KEY_ID; for a public bucket "
                    "FSSPEC_S3_ANON=true",
                ) from None
            if not is_network_error(error) or status in (400, 404, 416):
                raise OSError(f"cannot {doing} {url}: {message_of(error)}") from error
            raise NetworkError(
                f"cannot {doing} {url}: {message_of(error)}",
                hint="run the same command again: it resumes",
            ) from None

    def _asking(self, doing: str, url: str) -> contextlib.AbstractContextManager[None]:
        hint = "check that the bucket exists, and that you may read, write, list and delete"
        return as_output_error(doing, url, hint if has_buckets(url) else None)

    @contextlib.contextmanager
    def _reading(self, url: str) -> Iterator[None]:
        with self._asking("read", url):
            try:
                yield
            except FileNotFoundError as error:
                missing = error
            else:
                return
        raise missing


def in_parallel(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results of `work` for each item, in order, with a bounded number of calls at a time."""
    from concurrent.futures import Future, ThreadPoolExecutor  # 10 ms that a local run saves

    pool = ThreadPoolExecutor(MAX_PARALLEL, "tokenmill-store")
    waiting: collections.deque[Future[Result]] = collections.deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= 2 * MAX_PARALLEL:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _is_ours(prefix: str) -> bool:
    return _OURS.search(prefix) is not None


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


def _modified_ns(found: dict[str, Any]) -> int:
    """When an object was last modified, by what its store says about it; 0: unknown."""
    for name in ("LastModified", "last_modified", "updated", "mtime", "created"):
        value = found.get(name)
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                value = datetime.datetime.fromisoformat(value)
        if isinstance(value, datetime.datetime):
            return int(value.timestamp()) * 10**9
    return 0
