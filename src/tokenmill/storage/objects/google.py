"""Google Cloud Storage through gcsfs: the sha256 of an upload is kept in the object's metadata,
which is set together with the content, and is copied with it."""

from __future__ import annotations

import functools
from typing import Any

from tokenmill.storage.objects.bucket import SHA256_NAME, Bucket, sha256_of
from tokenmill.storage.retry import Contact, Notice


def file_system(**options: Any) -> Any:
    """gcsfs without its support for zonal buckets: that asks another service, over gRPC, what kind
    of bucket it is, and where only the store itself is reached, waits a minute at every request."""
    from gcsfs.core import GCSFileSystem

    return GCSFileSystem(**options)


class GoogleBucket(Bucket):
    def __init__(self, files: Any, place: str, notice: Notice, contact: Contact) -> None:
        super().__init__(files, place, notice, contact)
        request = type(files)._request  # six tries, half a minute, and a traceback on stderr
        files._request = functools.partial(getattr(request, "__wrapped__", request), files)

    def upload(self, url: str, path: str) -> str | None:
        sha256 = sha256_of(path)
        metadata = {SHA256_NAME: sha256}
        self.ask("write", url, lambda: self.files.put_file(path, url, metadata=metadata))
        return sha256
