"""Object storage (s3://, gs://, az:// and whatever else fsspec knows): whole objects, by name.

There is no rename and no folder here, and a listing is for sources and for cleaning only. What is
relied on: an object appears whole or not at all, and `create` succeeds for one of many at once.

fsspec brings the clients, which find their credentials themselves; a URL that carries some is
refused, and never shown. Their own repetitions are turned off where that can be done: requests are
repeated here, by ../retry.py, one budget for all, after which it is NetworkError. Lengths are
compared, because s3fs fills what a short answer lacks with zeros, and others return it short.

Raised as they are, for the caller knows what they mean there: FileNotFoundError, PermissionError.
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
RANGE_BYTES = 8 << 20  # a larger range is asked for in pieces

_OURS = "/.tokenmill/"  # below it, nobody but tokenmill writes (output.WORK_NAME)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.ASCII)
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"}
_EXTRAS |= dict.fromkeys(("az", "abfs", "abfss"), "az")

Item = TypeVar("Item")
Result = TypeVar("Result")


def is_url(path: str) -> bool:
    """Whether this is an object store's; `hf://` is not (corpus/hub.py)."""
    match = _SCHEME.match(path)
    return match is not None and match[1] != "hf"


def place_of(url: str) -> str:
    """The same for any two URLs of one place; of a local one, its path."""
    scheme, _, rest = url.partition("://")
    if scheme in ("file", "local"):
        return os.path.realpath(rest)
    return f"{_EXTRAS.get(scheme, scheme)}://{posixpath.normpath(rest.lstrip('/'))}"


def key_of(url: str) -> str:
    """Bucket and key, without the scheme, after which clients put as many slashes as they like."""
    return url.partition("://")[2].lstrip("/")


def local_path(path: str) -> str | None:
    """The path that a file:// URL stands for; None for any other URL, and for what is none."""
    scheme, found, rest = path.partition("://")
    return rest if found and scheme in ("file", "local") else None


def read(url: str) -> bytes:
    """The whole object. FileNotFoundError if there is none."""
    info = look(url)
    if info is None:
        raise FileNotFoundError(f"there is no {url}")
    return read_range(url, 0, info.num_bytes)


def read_range(url: str, start: int, stop: int) -> bytes:
    return read_ranges(url, [(start, stop)])[0]


def read_ranges(url: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Bytes `start` to `stop` of each range, in parallel. IntegrityError if there are fewer."""
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
    """Small objects, in parallel and in order, with one request each; None where there is none.

    Only for what tells by itself whether it is whole (../checked_json.py): its length is unchecked.
    """
    return in_parallel(lambda url: _client(url).read_unchecked(url), urls)


def look(url: str) -> ObjectInfo | None:
    return _client(url).look(url)


def find(url: str) -> list[tuple[str, ObjectInfo]]:
    """Objects below a prefix (or the one of that name), or matching a glob, sorted by name.

    Never for finding what we wrote ourselves: a listing may be late.
    """
    return _client(url).find(url)


def write(url: str, data: bytes) -> None:
    """Create or replace an object."""
    _client(url).write(url, data)


def create(url: str, data: bytes) -> bool:
    """Create an object unless there is one; False: there is one, perhaps of an earlier try."""
    return _client(url).create(url, data)


def upload(url: str, path: str) -> str | None:
    """Create or replace an object from a local file. Nothing of it is left if it fails.

    Returns the sha256 that `look` will find there, and at copies of it; None, if this store keeps
    none. An object that somebody else puts in its place has another one, or none.
    """
    return _client(url).upload(url, path)


def copy(source: str, target: str) -> None:
    """Create or replace an object from another one of the same store, which copies it by itself.

    The target is there whole or not at all. FileNotFoundError if the source is gone.
    """
    if source.partition("://")[0] != target.partition("://")[0]:
        raise ValueError(f"{source} and {target} are not in the same store")
    _client(target).copy(source, target)


def remove(url: str) -> None:
    """Remove an object, if there is one."""
    _client(url).remove([url])


def remove_all(urls: Sequence[str]) -> None:
    """Remove objects of one bucket, if they are there."""
    if urls:
        _client(urls[0]).remove(urls)


def remove_below(url: str) -> None:
    """Remove all objects below a prefix; and what unfinished uploads left there, if it is ours."""
    client, prefix = _client(url), url.rstrip("/") + "/"
    client.remove([found for found, _ in client.find(prefix)])
    if _OURS in prefix:
        client.abort_uploads(prefix)


def abort_uploads_below(url: str) -> int:
    """Abort what crashed uploads left below one plan's prefix, OUT/.tokenmill/ID; how many.

    Nowhere else: S3 does not say whose an upload is, so all that is uploaded elsewhere may be
    somebody else's. An upload of the same plan that is under way there begins again.
    """
    prefix = url.rstrip("/") + "/"
    if not prefix.partition(_OURS)[2]:
        raise ValueError(f"{prefix} is not the prefix of one plan: uploads there may be others'")
    return _client(url).abort_uploads(prefix)


def in_parallel(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`work` of each item, in order, a bounded number at a time."""
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
    """Have this process told of requests that are repeated for a while."""
    global _notice  # noqa: PLW0603
    _notice = notice


def expect_answers() -> None:
    """Have this process wait for a store that does not answer as long as for one that has answered
    before: the process that sent this one was answered, so there is a network."""
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
        raise ConfigError(f"{url} is a folder of this machine: give its path", hint=rest)
    if scheme in ("http", "https"):
        raise ConfigError(
            f"{url}: {scheme}:// can be read, but not written", hint="a folder, or s3://bucket/..."
        )


def require_lasting(url: str) -> None:
    """Raise ConfigError for an output that other processes do not see, and that ends with ours."""
    if url.startswith("memory://"):
        raise ConfigError(
            f"{url}: memory:// is the memory of one process, and is gone when that ends",
            hint="a folder, or s3://bucket/...; in Python, also runner='inline'",
        )


def has_buckets(url: str) -> bool:
    """Whether what is wrong with this URL may be its bucket."""
    return url.partition("://")[0] in _EXTRAS


def without_secrets(url: str) -> str:
    """The URL as it may be shown."""
    return re.sub(r"[?&][\w.-]+=.*", "?...", re.sub(r"(?<=://)[^/@]*@", "...@", url))


_notice: Notice = lambda message: None  # noqa: E731
_clients: dict[str, ObjectClient] = {}
_contacts: dict[str, Contact] = {}  # by kind of store: its buckets are reached by the same way
_are_expected = False


def _client(url: str) -> ObjectClient:
    """The store that the URL is of; one for each scheme and bucket."""
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
    # abfs://container@account... is how Azure's are written.
    is_secret = at and (":" in user or _EXTRAS.get(scheme) != "az")
    if is_secret or re.search(r"[?&][\w.-]+=", url):
        raise ConfigError(
            f"{without_secrets(url)}: credentials do not belong into a URL, which is written into "
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
        raise ConfigError(
            f"{scheme}:// needs a package that is not installed: {message_of(error)}",
            hint=f"pip install 'tokenmill[{extra}]'" if extra else "pip install fsspec",
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
    except ValueError as error:  # adlfs, where no account is named
        raise ConfigError(
            f"no credentials for {place}: {message_of(error)}",
            hint="AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and `az login`",
        ) from None
