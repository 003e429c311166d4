"""Google Cloud Storage through gcsfs: the sha256 of an upload is kept in the object's metadata,
which is set together with the content."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import secrets
from typing import Any
from urllib.parse import quote

from tokenmill.storage.hashing import file_digest
from tokenmill.storage.objects.store import ObjectStore

# From here on gcsfs sends pieces, which it can retry one by one. Below that, it would put an object
# between fixed marks: what holds such a mark, or ends in a carriage return, is truncated there.
PIECES_FROM_BYTES = 5 << 20


class GoogleStore(ObjectStore):
    def _connected(self, client: Any) -> Any:
        # Without its support for zonal buckets, which asks another service, over gRPC, for the kind
        # of bucket. Where only the store itself can be reached, every request would wait a minute.
        from gcsfs.core import GCSFileSystem

        logging.getLogger("gcsfs").addHandler(logging.NullHandler())  # silences its tracebacks
        files = GCSFileSystem(use_listings_cache=False, consistency="size")
        request = GCSFileSystem._request  # retries for half a minute, unless it is unwrapped
        files._request = functools.partial(getattr(request, "__wrapped__", request), files)
        return files

    def _version(self, url: str) -> str | None:
        try:
            found = self.ask("look at", url, lambda: self.files.info(url))
        except FileNotFoundError:
            return None
        return str(found["generation"])

    def _create(self, url: str, data: bytes) -> None:
        self._put(url, data, ifGenerationMatch="0")

    def _replace(self, url: str, version: str, data: bytes) -> None:
        self._put(url, data, ifGenerationMatch=version)

    def _upload(self, url: str, path: str) -> str | None:
        sha256 = file_digest(path, hashlib.sha256())
        metadata = {self.sha256_name: sha256}
        if os.path.getsize(path) < PIECES_FROM_BYTES:
            with open(path, "rb") as file:
                data = file.read()
            self.ask("write", url, lambda: self._put(url, data, metadata))
        else:
            put_file = functools.partial(self._retrying.put_file, path, url, metadata=metadata)
            self.ask("write", url, put_file)
        return sha256

    @functools.cached_property
    def _retrying(self) -> Any:
        """A client with gcsfs's own retries: of the pieces of an upload."""
        return type(self.files)(**self.files.storage_options, skip_instance_cache=True)

    def _put(
        self, url: str, data: bytes, metadata: dict[str, str] | None = None, **condition: str
    ) -> None:
        """Content and metadata in one request, between marks that are not in the content."""
        bucket, key, _ = self.files.split_path(url)
        resource = json.dumps({"name": key} | ({"metadata": metadata} if metadata else {}))
        mark = secrets.token_hex(16)
        head = (
            f"--{mark}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{resource}\r\n"
            f"--{mark}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        answer = self.files.call(
            "POST",
            f"{self.files._location}/upload/storage/v1/b/{quote(bucket)}/o",
            uploadType="multipart",
            headers={"Content-Type": f'multipart/related; boundary="{mark}"'},
            data=head.encode() + data + f"\r\n--{mark}--\r\n".encode(),
            json_out=True,
            **condition,
        )
        if int(answer["size"]) != len(data):
            raise ConnectionError(f"sent {len(data):,} bytes, the store kept {answer['size']}")
