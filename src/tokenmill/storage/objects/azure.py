"""Azure Blob Storage through adlfs: the sha256 of an upload is kept in the blob's metadata, which a
copy keeps and an overwrite drops."""

from __future__ import annotations

from typing import Any

from tokenmill.storage.objects.client import SHA256_NAME, ObjectClient, file_sha256
from tokenmill.storage.retry import Contact, Notice

BLOCK_RETRIES = 5  # per 4 MB block of an upload; only the client can retry one block
PARALLEL_BLOCKS = 4


class AzureClient(ObjectClient):
    def __init__(self, files: Any, place: str, notice: Notice, contact: Contact) -> None:
        super().__init__(files, place, notice, contact)
        retries = files.service_client._config.retry_policy  # default: 3, after 15 to 27 s each
        retries.total_retries, retries.initial_backoff, retries.increment_base = 0, 1, 2

    def _replace(self, url: str, version: str, data: bytes) -> None:
        from azure.core import MatchConditions  # type: ignore[import-not-found, unused-ignore]

        condition = {"etag": f'"{version}"', "match_condition": MatchConditions.IfNotModified}
        self.files.pipe_file(url, data, overwrite=True, **condition)

    def upload(self, url: str, path: str) -> str | None:
        sha256 = file_sha256(path)
        options = {"retry_total": BLOCK_RETRIES, "max_concurrency": PARALLEL_BLOCKS}
        self.ask("write", url, lambda: self.files.put_file(path, url, **options))
        metadata = {"is_directory": "false", SHA256_NAME: sha256}  # adlfs's own, and ours
        try:
            self.ask("write", url, lambda: self.files.setxattrs(url, **metadata))
        except FileNotFoundError:  # another run has cleaned up
            return None
        return sha256
