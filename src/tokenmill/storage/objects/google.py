"""Google Cloud Storage through gcsfs: the sha256 of an upload is kept in the object's metadata,
which is set together with the content."""

from __future__ import annotations

import functools
import logging
from typing import Any
from urllib.parse import quote

from tokenmill.storage.objects.client import SHA256_NAME, ObjectClient, file_sha256
from tokenmill.storage.retry import Contact, Notice


def file_system(**options: Any) -> Any:
    """gcsfs without its support for zonal buckets: that support asks another service, over gRPC,
    for the kind of bucket. Where only the store itself can be reached, every request would wait a
    minute.

    gcsfs sends small objects between fixed multipart boundaries. Content that contains such a
    boundary would be truncated there, so the sizes are compared.
    """
    from gcsfs.core import GCSFileSystem

    logging.getLogger("gcsfs").addHandler(logging.NullHandler())  # silences its tracebacks
    return GCSFileSystem(consistency="size", **options)


class GoogleClient(ObjectClient):
    def __init__(self, files: Any, place: str, notice: Notice, contact: Contact) -> None:
        super().__init__(files, place, notice, contact)
        # gcsfs retries a request for half a minute. That stays on for pieces of an upload, which
        # only gcsfs can retry one by one; everything else follows our rule.
        self._uploading = type(files)(**files.storage_options, skip_instance_cache=True)
        request = type(files)._request
        files._request = functools.partial(getattr(request, "__wrapped__", request), files)

    def _version(self, url: str) -> str | None:
        try:
            found = self.ask("look at", url, lambda: self.files.info(url))
        except FileNotFoundError:
            return None
        return str(found["generation"])

    def _replace(self, url: str, version: str, data: bytes) -> None:
        bucket, key, _ = self.files.split_path(url)
        self.files.call(
            "POST",
            f"{self.files._location}/upload/storage/v1/b/{quote(bucket)}/o",
            uploadType="media",
            name=key,
            ifGenerationMatch=version,
            data=data,
        )

    def upload(self, url: str, path: str) -> str | None:
        sha256 = file_sha256(path)
        metadata = {SHA256_NAME: sha256}
        self.ask("write", url, lambda: self._uploading.put_file(path, url, metadata=metadata))
        return sha256
