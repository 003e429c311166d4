"""S3 and compatible stores: large objects are uploaded in parts, and each part is retried on its
own.

In s3fs's own multipart upload, one failed part fails the whole upload: with one request in twenty
failing, a shard of 200 parts would never arrive. S3 keeps the parts of an unfinished upload, and
bills them, until somebody aborts it. We abort when an upload fails and when an attempt begins.

The sha256 of an upload is kept in the object's metadata. Neither of S3's own checksums would do:
ETags are random where objects are encrypted with KMS, and the checksums of large objects depend on
how they were cut into parts. Metadata is set together with the content.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tokenmill.errors import OutputError, TokenmillError
from tokenmill.storage.hashing import file_digest
from tokenmill.storage.objects.store import MAX_PARALLEL, ObjectStore

MULTIPART_BYTES = 64 << 20  # objects of at least this size are uploaded in parts
UPLOAD_PART_BYTES = 32 << 20
MAX_UPLOAD_PARTS = 10_000  # S3's limit
PARALLEL_UPLOADS = 4  # parts in memory at a time
MAX_ATTEMPTS = 3  # when another run aborts our upload


class S3Store(ObjectStore):
    sha256_name = "tokenmill-sha256"

    def _connected(self, client: Any) -> Any:
        no_retries = {"total_max_attempts": 1, "mode": "standard"}
        config = {"max_pool_connections": MAX_PARALLEL, "retries": no_retries}
        config |= {"connect_timeout": 20, "read_timeout": 60}
        files = client(use_listings_cache=False, config_kwargs=config)
        files.retries = 1  # no retry
        return files

    def _described(self, url: str) -> dict[str, Any] | None:
        key = self._key(url)
        if not key["Key"] or key["Key"].endswith("/"):
            return None  # a folder, with or without a placeholder object
        found: dict[str, Any] = self.files.call_s3("head_object", **key)
        return found

    def _get(self, url: str) -> bytes:
        # Without a bound on parallelism, s3fs would ask for the size first.
        data: bytes = self.files.cat_file(url, max_concurrency=1)
        return data

    def _put(self, url: str, data: bytes, **options: Any) -> None:
        self.files.call_s3("put_object", **self._key(url), Body=data, **options)

    def _replace(self, url: str, version: str, data: bytes) -> None:
        self._put(url, data, IfMatch=f'"{version}"')

    def _upload(self, url: str, path: str) -> str | None:
        if os.path.getsize(path) < MULTIPART_BYTES:
            with open(path, "rb") as file:
                data = file.read()
            sha256 = hashlib.sha256(data).hexdigest()
            metadata = {self.sha256_name: sha256}
            self.ask("write", url, lambda: self._put(url, data, Metadata=metadata))
            return sha256
        sha256 = file_digest(path, hashlib.sha256())
        for _ in range(MAX_ATTEMPTS - 1):
            # Another attempt that cleans up may abort our upload, which is then not found.
            with contextlib.suppress(FileNotFoundError):
                return self._upload_in_parts(url, path, sha256)
        return self._upload_in_parts(url, path, sha256)

    def _upload_in_parts(self, url: str, path: str, sha256: str) -> str:
        num_bytes, metadata = os.path.getsize(path), {self.sha256_name: sha256}
        starts = range(0, num_bytes, max(UPLOAD_PART_BYTES, -(-num_bytes // MAX_UPLOAD_PARTS)))
        key = self._key(url)
        begun = self._call("write", url, "create_multipart_upload", **key, Metadata=metadata)
        upload = {**key, "UploadId": begun["UploadId"]}

        def send(number: int) -> dict[str, Any]:
            with open(path, "rb") as file:
                file.seek(starts[number])
                data = file.read(starts.step)
            part = {"PartNumber": number + 1}
            sent = self._call("write", url, "upload_part", **upload, **part, Body=data)
            return {"ETag": str(sent["ETag"]), **part}

        try:
            with ThreadPoolExecutor(PARALLEL_UPLOADS) as pool:
                sending = [pool.submit(send, number) for number in range(len(starts))]
                try:
                    parts = {"Parts": [one.result() for one in sending]}
                finally:
                    for one in sending:
                        one.cancel()
            try:
                name = "complete_multipart_upload"
                self._call("write", url, name, **upload, MultipartUpload=parts)
            except FileNotFoundError:
                # The first try may have succeeded and its answer been lost.
                found = self.look(url)
                if found is None or (found.num_bytes, found.sha256) != (num_bytes, sha256):
                    raise
        except BaseException:
            with contextlib.suppress(TokenmillError, OSError):  # the first error is raised below
                self._abort(url, **upload)
            raise
        return sha256

    def _remove(self, urls: Sequence[str]) -> None:
        for at in range(0, len(urls), 1000):
            keys = [{"Key": self._key(url)["Key"]} for url in urls[at : at + 1000]]
            deleted = {"Objects": keys, "Quiet": True}
            bucket = self._key(urls[at])["Bucket"]
            answer = self._call("remove", urls[at], "delete_objects", Bucket=bucket, Delete=deleted)
            for error in answer.get("Errors", ()):
                raise OutputError(
                    f"cannot remove {error.get('Key')} from {bucket}: {error.get('Message')}",
                    hint="check that you may delete there, then run the same command again",
                )

    def _abort_uploads(self, prefix: str) -> None:
        key, marker = self._key(prefix), dict[str, str]()
        place = {"Bucket": key["Bucket"], "Prefix": key["Key"]}
        while True:
            doing = "list the uploads below"
            page = self._call(doing, prefix, "list_multipart_uploads", **place, **marker)
            for one in page.get("Uploads", ()):
                upload = {"Key": one["Key"], "UploadId": one["UploadId"]}
                self._abort(prefix, Bucket=key["Bucket"], **upload)
            if not page.get("IsTruncated"):
                return
            marker = {
                "KeyMarker": page["NextKeyMarker"],
                "UploadIdMarker": page["NextUploadIdMarker"],
            }

    def _abort(self, url: str, **upload: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._call("abort the upload of", url, "abort_multipart_upload", **upload)

    def _call(self, doing: str, url: str, method: str, **parameters: Any) -> Any:
        return self.ask(doing, url, lambda: self.files.call_s3(method, **parameters))

    def _key(self, url: str) -> dict[str, str]:
        bucket, key, _ = self.files.split_path(url)
        return {"Bucket": bucket, "Key": key}
