"""Azure Blob Storage through adlfs: the sha256 of an upload is kept in the blob's metadata, which a
copy keeps and an overwrite drops."""

from __future__ import annotations

import hashlib
from typing import Any

from tokenmill.errors import ConfigError
from tokenmill.storage.hashing import file_digest
from tokenmill.storage.objects.store import ObjectStore
from tokenmill.storage.retry import message_of

BLOCK_RETRIES = 5  # per 4 MB block of an upload; only the client can retry one block
PARALLEL_BLOCKS = 4


class AzureStore(ObjectStore):
    def _connected(self, client: Any) -> Any:
        options = client._get_kwargs_from_urls(self.place)  # abfs://container@account...
        try:
            files = client(use_listings_cache=False, **options)
        except ValueError as error:  # no account is named
            raise ConfigError(
                f"no credentials for {self.place}: {message_of(error)}",
                hint="AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and "
                "`az login`",
            ) from None
        retries = files.service_client._config.retry_policy  # default: 3, after 15 to 27 s each
        retries.total_retries, retries.initial_backoff, retries.increment_base = 0, 1, 2
        return files

    def _replace(self, url: str, version: str, data: bytes) -> None:
        from azure.core import MatchConditions  # type: ignore[import-not-found, unused-ignore]

        condition = {"etag": f'"{version}"', "match_condition": MatchConditions.IfNotModified}
        self.files.pipe_file(url, data, overwrite=True, **condition)

    def _upload(self, url: str, path: str) -> str | None:
        sha256 = file_digest(path, hashlib.sha256())
        options = {"retry_total": BLOCK_RETRIES, "max_concurrency": PARALLEL_BLOCKS}
        self.ask("write", url, lambda: self.files.put_file(path, url, **options))
        metadata = {"is_directory": "false", self.sha256_name: sha256}  # adlfs's own, and ours
        try:
            self.ask("write", url, lambda: self.files.setxattrs(url, **metadata))
        except FileNotFoundError:  # another run has cleaned up
            return None
        return sha256
