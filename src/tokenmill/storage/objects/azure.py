"""Azure Blob Storage through adlfs: the sha256 of an upload is kept in the blob's metadata, which is
lost when another content takes its place, and is copied with it."""

from __future__ import annotations

from typing import Any

from tokenmill.storage.objects.bucket import SHA256_NAME, Bucket, sha256_of
from tokenmill.storage.retry import Contact, Notice


class AzureBucket(Bucket):
    def __init__(self, files: Any, place: str, notice: Notice, contact: Contact) -> None:
        super().__init__(files, place, notice, contact)
        files.service_client._config.retry_policy.total_retries = 0  # three tries, over a minute

    def upload(self, url: str, path: str) -> str | None:
        super().upload(url, path)
        sha256 = sha256_of(path)
        metadata = {"is_directory": "false", SHA256_NAME: sha256}  # adlfs's own, and ours
        try:
            self.ask("write", url, lambda: self.files.setxattrs(url, **metadata))
        except FileNotFoundError:  # another run has cleaned up
            return None
        return sha256
