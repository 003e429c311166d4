"""Object storage (s3://, gs://, az:// and whatever else fsspec knows): whole objects, by name.

There is no rename and no folder; listings are used only for sources and for cleaning up. Two
guarantees are relied on: an object appears whole or not at all, and of many concurrent `create`
calls exactly one succeeds.

fsspec provides the clients, which find their own credentials; a URL with credentials is refused and
never shown. The clients' own retries are turned off where possible: ../retry.py retries all
requests with one budget, and raises NetworkError after that. Lengths are compared, because s3fs
pads a short answer with zeros and other clients return it short.

FileNotFoundError and PermissionError pass through: only the caller knows what they mean.
"""

from __future__ import annotations

import collections
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from tokenmill.errors import ConfigError
from tokenmill.storage.objects.client import ObjectClient
from tokenmill.storage.objects.client import ObjectInfo as ObjectInfo
from tokenmill.storage.retry import Contact, Notice, message_of

MAX_PARALLEL = 32  # requests at a time, of one process
RANGE_BYTES = 8 << 20  # a larger range is fetched in pieces

# Only one run writes below these (dataset/places.py).
_OURS = re.compile(r"/\.tokenmill/.|/[0-9a-f]{16}/$", re.ASCII)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.ASCII)
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"}
_EXTRAS |= dict.fromkeys(("az", "abfs", "abfss"), "az")

Item = TypeVar("Item")
Result = TypeVar("Result")


def is_url(path: str) -> bool:
    """Whether this is an object store's URL; `hf://` is not (storage/hub.py)."""
    match = _SCHEME.match(path)
    return match is not None and match[1] != "hf"


def place_of(url: str) -> str:
    """A name that is the same for all URLs of one place; for a local path, the path."""
    scheme, _, rest = url.partition("://")
    if scheme in ("file", "local"):
        return os.path.realpath(rest)
    return f"{_EXTRAS.get(scheme, scheme)}://{posixpath.normpath(rest.lstrip('/'))}"


def key_of(url: str) -> str:
    """Bucket and key without the scheme, because clients differ in the slashes after it."""
    return url.partition("://")[2].lstrip("/")


def local_path(path: str) -> str | None:
    """The path of a file:// URL; None for anything else."""
    scheme, found, rest = path.partition("://")
    return rest if found and scheme in ("file", "local") else None


def read(url: str) -> bytes:
    """The whole object. FileNotFoundError if it does not exist."""
    info = look(url)
    if info is None:
        raise FileNotFoundError(f"there is no {url}")
    return read_range(url, 0, info.num_bytes)


def read_range(url: str, start: int, stop: int) -> bytes:
    return read_ranges(url, [(start, stop)])[0]


def read_ranges(url: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Bytes `start` to `stop` of each range, in parallel. IntegrityError if the object is
    shorter."""
    client = _client(url)
    pieces = [
        (i, at, min(at + RANGE_BYTES, stop))
        for i, (start, stop) in enumerate(ranges)
        for at in range(start, stop, RANGE_BYTES)
    ]
    found: list[list[bytes]] = [[] for _ in ranges]
    mapped = in_parallel if len(pieces) > 1 else map  # one range takes no thread
    arrived = mapped(lambda piece: client.read_range(url, piece[1], piece[2]), pieces)
    for (i, _, _), data in zip(pieces, arrived, strict=True):
        found[i].append(data)
    return [data[0] if len(data) == 1 else b"".join(data) for data in found]


def read_checksummed(urls: Iterable[str]) -> Iterator[bytes | None]:
    """Small objects, fetched in parallel, returned in order, one request each; None for a missing
    one.

    Only for files that carry their own checksum (../checked_json.py): the length is not checked.
    """
    return in_parallel(lambda url: _client(url).read_unchecked(url), urls)


def look(url: str) -> ObjectInfo | None:
    return _client(url).look(url)


def find(url: str) -> list[tuple[str, ObjectInfo]]:
    """Objects below a prefix, the object of that name, or the matches of a glob, sorted by name.

    Never used to find our own output: a listing may be out of date.
    """
    return _client(url).find(url)


def write(url: str, data: bytes) -> None:
    """Create or replace an object."""
    _client(url).write(url, data)


def create(url: str, data: bytes) -> bool:
    """Create an object unless it exists. False: it exists, perhaps from an earlier try of this
    call."""
    return _client(url).create(url, data)


def swap(url: str, old: bytes | None, data: bytes) -> bool:
    """Replace an object whose content is `old`, or create it if that is None. Whether its content
    is `data` now: the answer to a try that succeeded may have been lost."""
    client = _client(url)
    is_done = client.create(url, data) if old is None else client.replace(url, old, data)
    return is_done or client.content(url) == data


def upload(url: str, path: str) -> str | None:
    """Create or replace an object from a local file. A failed upload leaves nothing behind.

    Returns the sha256 that `look` will report for the object; None if this store
    keeps none. An object that replaces it has a different sha256, or none.
    """
    return _client(url).upload(url, path)


def remove(url: str) -> None:
    """Remove an object, if it exists."""
    _client(url).remove([url])


def remove_all(urls: Sequence[str]) -> None:
    """Remove objects of one bucket; missing ones are ignored."""
    if urls:
        _client(urls[0]).remove(urls)


def remove_below(url: str) -> None:
    """Remove all objects below a prefix; if the prefix is ours, also its unfinished uploads."""
    client, prefix = _client(url), url.rstrip("/") + "/"
    client.remove([found for found, _ in client.find(prefix)])
    if _is_ours(prefix):
        client.abort_uploads(prefix)


def abort_uploads_below(url: str) -> int:
    """Abort the unfinished uploads below one run's prefix, OUT/.tokenmill/ID or OUT/ID; returns
    their number.

    Used nowhere else: S3 does not say who started an upload, so uploads elsewhere may belong to
    others. A running upload of the same plan notices the abort and starts over.
    """
    prefix = url.rstrip("/") + "/"
    if not _is_ours(prefix):
        raise ValueError(f"{prefix} is not one run's prefix: uploads there may belong to others")
    return _client(url).abort_uploads(prefix)


def _is_ours(prefix: str) -> bool:
    return _OURS.search(prefix) is not None


def in_parallel(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results of `work` for each item, in order, with a bounded number of calls at a time."""
    from concurrent.futures import Future, ThreadPoolExecutor

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


def report_retries_to(notice: Notice) -> None:
    """Have `notice` called with messages about retries, in this process."""
    global _notice  # noqa: PLW0603
    _notice = notice


def expect_answers() -> None:
    """Give a silent store the full retry time in this process: the store has answered the parent
    process, so there is a network."""
    global _are_expected  # noqa: PLW0603
    _are_expected = True
    for contact in _contacts.values():
        contact.has_answered = True


def require_plain(url: str) -> None:
    """Raise ConfigError for a URL that carries credentials."""
    _refuse_secrets(url, url.partition("://")[0])


def require_output(url: str) -> None:
    """Raise ConfigError for a URL that no dataset can be written to."""
    scheme, _, rest = url.partition("://")
    if scheme in ("file", "local"):
        raise ConfigError(f"{url} is a local folder: give its path", hint=rest)
    if scheme in ("http", "https"):
        raise ConfigError(
            f"{url}: {scheme}:// can be read, but not written", hint="a folder, or s3://bucket/..."
        )


def require_lasting(url: str) -> None:
    """Raise ConfigError for an output that other processes cannot see and that ends with this
    process."""
    if url.startswith("memory://"):
        raise ConfigError(
            f"{url}: memory:// is the memory of one process and is lost when that process ends",
            hint="a folder, or s3://bucket/...; in Python, also runner='inline'",
        )


def has_buckets(url: str) -> bool:
    """Whether this kind of URL names a bucket, which may be the wrong one."""
    return url.partition("://")[0] in _EXTRAS


def without_secrets(url: str) -> str:
    """The URL in a form that is safe to show."""
    return re.sub(r"[?&][\w.-]+=.*", "?...", re.sub(r"(?<=://)[^/@]*@", "...@", url))


_notice: Notice = lambda message: None  # noqa: E731
_clients: dict[str, ObjectClient] = {}
_contacts: dict[str, Contact] = {}  # by kind of store: all its buckets share one route
_are_expected = False


def _client(url: str) -> ObjectClient:
    """The bucket of a URL; one instance for each scheme and bucket."""
    match = _SCHEME.match(url)
    if match is None:
        raise ConfigError(f"not a URL: {url}", hint="s3://bucket/folder")
    _refuse_secrets(url, match[1])
    place = match[0] + url[match.end() :].partition("/")[0]
    if place not in _clients:
        _clients[place] = _opened(match[1], place)
    return _clients[place]


def _opened(scheme: str, place: str) -> ObjectClient:
    def notice(message: str) -> None:
        _notice(message)

    store = _EXTRAS.get(scheme, scheme)
    contact = _contacts.setdefault(store, Contact(_are_expected))
    return _kind(store)(_file_system(scheme, place), place, notice, contact)


def _kind(store: str) -> type[ObjectClient]:
    if store == "s3":
        from tokenmill.storage.objects.s3 import S3Client

        return S3Client
    if store == "gs":
        from tokenmill.storage.objects.google import GoogleClient

        return GoogleClient
    if store == "az":
        from tokenmill.storage.objects.azure import AzureClient

        return AzureClient
    return ObjectClient


def _refuse_secrets(url: str, scheme: str) -> None:
    user, at, _ = url.partition("://")[2].partition("/")[0].rpartition("@")
    # Azure URLs look like abfs://container@account...
    is_secret = at and (":" in user or _EXTRAS.get(scheme) != "az")
    if is_secret or re.search(r"[?&][\w.-]+=", url):
        raise ConfigError(
            f"{without_secrets(url)}: credentials do not belong in a URL, which is written into "
            "plans and manifests",
            hint="leave them to the client: AWS_PROFILE, AWS_ACCESS_KEY_ID, "
            "GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_CONNECTION_STRING ...",
        )


def _file_system(scheme: str, place: str) -> Any:
    options: dict[str, Any] = {"use_listings_cache": False}
    if _EXTRAS.get(scheme) == "s3":
        no_retries = {"total_max_attempts": 1, "mode": "standard"}
        config = {"max_pool_connections": MAX_PARALLEL, "retries": no_retries}
        options |= {"config_kwargs": {**config, "connect_timeout": 20, "read_timeout": 60}}
    try:
        import fsspec

        client = fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        package = "aiohttp" if scheme in ("http", "https") else "fsspec"
        raise ConfigError(
            f"{scheme}:// needs a package that is not installed: {message_of(error)}",
            hint=f"pip install 'tokenmill[{extra}]'" if extra else f"pip install {package}",
        ) from None
    except ValueError:
        raise ConfigError(
            f"{scheme}:// is not known to fsspec", hint="s3://, gs://, az:// or a local path"
        ) from None
    if _EXTRAS.get(scheme) == "gs":
        from tokenmill.storage.objects.google import file_system

        client = file_system
    elif _EXTRAS.get(scheme) == "az":
        options |= client._get_kwargs_from_urls(place)  # abfs://container@account...
    try:
        return client(**options)
    except ValueError as error:  # adlfs, when no account is named
        raise ConfigError(
            f"no credentials for {place}: {message_of(error)}",
            hint="AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and `az login`",
        ) from None
