"""Where a file is: a path on a disk, or the URL of an object; and which URLs are refused."""

from __future__ import annotations

import os
import posixpath
import re

from tokenmill.errors import ConfigError

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.ASCII)
_KINDS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"}
_KINDS |= dict.fromkeys(("az", "abfs", "abfss"), "az")


def is_url(path: str) -> bool:
    """Whether this is an object store's URL; `hf://` is not (hub.py)."""
    match = _SCHEME.match(path)
    return match is not None and match[1] != "hf"


def scheme_of(url: str) -> str:
    return url.partition("://")[0]


def kind_of(scheme: str) -> str:
    """The kind of store, which several schemes may name; it is also the name of our extra."""
    return _KINDS.get(scheme, scheme)


def has_buckets(url: str) -> bool:
    """Whether this kind of URL names a bucket, which may be the wrong one."""
    return scheme_of(url) in _KINDS


def bucket_of(url: str) -> str:
    """The URL of an object's bucket. ConfigError for a URL that carries credentials."""
    match = _SCHEME.match(url)
    if match is None:
        raise ConfigError(f"not a URL: {url}", hint="s3://bucket/folder")
    require_plain(url)
    return match[0] + url[match.end() :].partition("/")[0]


def place_of(path: str) -> str:
    """A name that is the same for all paths or URLs of one place."""
    if not is_url(path):
        return os.path.realpath(path)
    if (local := local_path(path)) is not None:
        return os.path.realpath(local)
    return f"{kind_of(scheme_of(path))}://{posixpath.normpath(key_of(path))}"


def file_id(path: str) -> object:
    """A value that is the same for all names of one file; None if there is no such file."""
    place = place_of(path)
    if "://" in place:
        return place
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def absolute(path: str) -> str:
    """The path, independent of the working directory."""
    return path if is_url(path) else os.path.abspath(path)


def key_of(url: str) -> str:
    """Bucket and key without the scheme, because clients differ in the slashes after it."""
    return url.partition("://")[2].lstrip("/")


def local_path(path: str) -> str | None:
    """The path of a file:// URL; None for anything else."""
    scheme, found, rest = path.partition("://")
    return rest if found and scheme in ("file", "local") else None


def require_plain(url: str) -> None:
    """Raise ConfigError for a URL that carries credentials."""
    user, at, _ = url.partition("://")[2].partition("/")[0].rpartition("@")
    # Azure URLs look like abfs://container@account...
    is_secret = at and (":" in user or kind_of(scheme_of(url)) != "az")
    if is_secret or re.search(r"[?&][\w.-]+=", url):
        raise ConfigError(
            f"{without_secrets(url)}: credentials do not belong in a URL, which is written into "
            "plans and manifests",
            hint="leave them to the client: AWS_PROFILE, AWS_ACCESS_KEY_ID, "
            "GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_CONNECTION_STRING ...",
        )


def require_output(url: str) -> None:
    """Raise ConfigError for a URL that no dataset can be written to."""
    scheme, is_url_, rest = url.partition("://")
    if not is_url_:
        return
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


def without_secrets(url: str) -> str:
    """The URL in a form that is safe to show."""
    return re.sub(r"[?&][\w.-]+=.*", "?...", re.sub(r"(?<=://)[^/@]*@", "...@", url))
