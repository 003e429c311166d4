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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tokenmill.errors import OutputError, TokenmillError
from tokenmill.storage.objects.client import ObjectClient, ObjectInfo, file_sha256, modified_ns_of
from tokenmill.storage.retry import Contact, Notice

MULTIPART_BYTES = 64 << 20  # objects of at least this size are uploaded in parts
UPLOAD_PART_BYTES = 32 << 20
MAX_UPLOAD_PARTS = 10_000  # S3's limit
PARALLEL_UPLOADS = 4  # parts in memory at a time
MAX_ATTEMPTS = 3  # when another run aborts our upload
SHA256_NAME = "tokenmill-sha256"  # in an object's metadata


@dataclass(frozen=True, slots=True)
class _Upload:
    """An object made of parts. `send` uploads one part, from byte to byte."""

    url: str
    num_bytes: int
    part_bytes: int
    num_parallel: int
    metadata: dict[str, str]
    send: Callable[[dict[str, Any], int, int], str]  # its ETag

    @property
    def starts(self) -> range:
        return range(
            0, self.num_bytes, max(self.part_bytes, -(-self.num_bytes // MAX_UPLOAD_PARTS))
        )


class S3Client(ObjectClient):
    def __init__(self, files: Any, place: str, notice: Notice, contact: Contact) -> None:
        super().__init__(files, place, notice, contact)
        files.retries = 1  # no retry

    def look(self, url: str) -> ObjectInfo | None:
        found = self._head(url)
        return None if found is None else _info(found)

    def read_unchecked(self, url: str) -> bytes | None:
        try:
            # Without a bound on parallelism, s3fs would ask for the size first.
            get = self.files.cat_file
            data: bytes = self.ask("read", url, lambda: get(url, max_concurrency=1))
        except FileNotFoundError:
            return None
        return data

    def upload(self, url: str, path: str) -> str | None:
        if os.path.getsize(path) < MULTIPART_BYTES:
            with open(path, "rb") as file:
                data = file.read()
            sha256 = hashlib.sha256(data).hexdigest()
            metadata = {SHA256_NAME: sha256}
            self._call("write", url, "put_object", **self._key(url), Body=data, Metadata=metadata)
        else:
            sha256 = file_sha256(path)
            self._again_if_aborted(lambda: self._upload_in_parts(url, path, sha256))
        return sha256

    def write(self, url: str, data: bytes) -> None:
        self._call("write", url, "put_object", **self._key(url), Body=data)

    def _replace(self, url: str, version: str, data: bytes) -> None:
        self.files.call_s3("put_object", **self._key(url), Body=data, IfMatch=f'"{version}"')

    def remove(self, urls: Sequence[str]) -> None:
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

    def abort_uploads(self, prefix: str) -> int:
        key = self._key(prefix)
        marker: dict[str, str] = {}
        aborted = 0
        while True:
            page = self._call(
                "list the uploads below",
                prefix,
                "list_multipart_uploads",
                Bucket=key["Bucket"],
                Prefix=key["Key"],
                **marker,
            )
            for upload in page.get("Uploads", ()):
                self._abort(prefix, key["Bucket"], upload["Key"], upload["UploadId"])
                aborted += 1
            if not page.get("IsTruncated"):
                return aborted
            marker = {
                "KeyMarker": page["NextKeyMarker"],
                "UploadIdMarker": page["NextUploadIdMarker"],
            }

    def _upload_in_parts(self, url: str, path: str, sha256: str) -> None:
        def send(part: dict[str, Any], start: int, stop: int) -> str:
            with open(path, "rb") as file:
                file.seek(start)
                data = file.read(stop - start)
            return str(self._call("write", url, "upload_part", **part, Body=data)["ETag"])

        metadata = {SHA256_NAME: sha256}
        num_bytes = os.path.getsize(path)
        self._assemble(_Upload(url, num_bytes, UPLOAD_PART_BYTES, PARALLEL_UPLOADS, metadata, send))

    def _again_if_aborted(self, attempt: Callable[[], None]) -> None:
        """Retry after "not found": another attempt that cleans up may abort our upload."""
        for _ in range(MAX_ATTEMPTS - 1):
            with contextlib.suppress(FileNotFoundError):
                return attempt()
        return attempt()

    def _assemble(self, upload: _Upload) -> None:
        key = self._key(upload.url)
        begun = self._call(
            "write", upload.url, "create_multipart_upload", **key, Metadata=upload.metadata
        )
        place = {**key, "UploadId": begun["UploadId"]}
        starts = upload.starts

        def send(number: int) -> dict[str, Any]:
            part = {**place, "PartNumber": number + 1}
            stop = min(starts[number] + starts.step, upload.num_bytes)
            return {
                "ETag": upload.send(part, starts[number], stop),
                "PartNumber": number + 1,
            }

        try:
            with ThreadPoolExecutor(upload.num_parallel) as pool:
                sending = [pool.submit(send, number) for number in range(len(starts))]
                try:
                    parts = [one.result() for one in sending]
                finally:
                    for one in sending:
                        one.cancel()
            self._complete(upload, place, parts)
        except BaseException:
            with contextlib.suppress(TokenmillError, OSError):  # the first error is raised below
                self._abort(upload.url, key["Bucket"], key["Key"], place["UploadId"])
            raise

    def _complete(
        self, upload: _Upload, place: dict[str, str], parts: list[dict[str, Any]]
    ) -> None:
        url, all_parts = upload.url, {"Parts": parts}
        try:
            self._call(
                "write", url, "complete_multipart_upload", **place, MultipartUpload=all_parts
            )
        except FileNotFoundError:
            # The first try may have succeeded and its answer been lost.
            found = self.look(url)
            sha256 = upload.metadata.get(SHA256_NAME)
            if found is None or (found.num_bytes, found.sha256) != (upload.num_bytes, sha256):
                raise

    def _abort(self, url: str, bucket: str, key: str, upload_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._call(
                "abort the upload of",
                url,
                "abort_multipart_upload",
                Bucket=bucket,
                Key=key,
                UploadId=upload_id,
            )

    def _head(self, url: str) -> dict[str, Any] | None:
        """What S3 says about an object; None if it does not exist."""
        key = self._key(url)
        if not key["Key"] or key["Key"].endswith("/"):
            return None  # a folder, with or without a placeholder object
        try:
            found: dict[str, Any] = self._call("look at", url, "head_object", **key)
        except FileNotFoundError:
            return None
        return found

    def _call(self, doing: str, url: str, method: str, **parameters: Any) -> Any:
        return self.ask(doing, url, lambda: self.files.call_s3(method, **parameters))

    def _key(self, url: str) -> dict[str, str]:
        bucket, key, _ = self.files.split_path(url)
        return {"Bucket": bucket, "Key": key}


def _info(found: dict[str, Any]) -> ObjectInfo:
    tag = str(found.get("ETag", "")).strip('"')
    sha256 = found.get("Metadata", {}).get(SHA256_NAME)
    return ObjectInfo(int(found["ContentLength"]), tag, sha256, modified_ns_of(found))
