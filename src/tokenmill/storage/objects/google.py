"""Google Cloud Storage through gcsfs: the sha256 of an upload is kept in the object's metadata,
which is set together with the content, and is copied with it."""

from __future__ import annotations

import functools
import logging
from typing import Any

from tokenmill.storage.objects.client import SHA256_NAME, ObjectClient, file_sha256
from tokenmill.storage.retry import Contact, Notice


def file_system(**options: Any) -> Any:
    """gcsfs without its support for zonal buckets: that asks another service, over gRPC, what kind
    of bucket it is, and where only the store itself is reached, waits a minute at every request.

    It sends small objects between fixed marks. Content that holds such a mark would end there: so
    it compares the sizes.
    """
    from gcsfs.core import GCSFileSystem

    logging.getLogger("gcsfs").addHandler(logging.NullHandler())  # its tracebacks
    return GCSFileSystem(consistency="size", **options)


class GoogleClient(ObjectClient):
    def __init__(self, files: Any, place: str, notice: Notice, contact: Contact) -> None:
        super().__init__(files, place, notice, contact)
        # gcsfs repeats a request for half a minute. Pieces of an upload, which only it can repeat
        # one by one, go by that; everything else by our rule.
        self._uploading = type(files)(**files.storage_options, skip_instance_cache=True)
        request = type(files)._request
        files._request = functools.partial(getattr(request, "__wrapped__", request), files)

    def upload(self, url: str, path: str) -> str | None:
        sha256 = file_sha256(path)
        metadata = {SHA256_NAME: sha256}
        self.ask("write", url, lambda: self._uploading.put_file(path, url, metadata=metadata))
        return sha256
