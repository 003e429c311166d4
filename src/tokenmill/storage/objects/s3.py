"""S3 and what speaks its language: large objects are uploaded and copied in parts, each part
repeated alone.

With s3fs's own multipart upload, one failed part fails the whole; one request in twenty failing, a
shard of 200 parts would never arrive. Parts of an upload that nobody completes are kept, and paid
for, until somebody aborts it: we do, when an upload fails, and when an attempt begins.

The sha256 of what is uploaded is kept in the object's metadata. Neither of S3's own sums would do:
ETags are random where objects are encrypted with KMS, and its checksums of large objects depend on
how these were cut into parts. Metadata is set together with the content, and is copied with it.
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
from tokenmill.storage.objects.client import ObjectClient, ObjectInfo
from tokenmill.storage.retry import Contact, Notice, status_of

MULTIPART_BYTES = 64 << 20  # objects from this size on are uploaded in parts
UPLOAD_PART_BYTES = 32 << 20
MAX_UPLOAD_PARTS = 10_000  # S3's limit
PARALLEL_UPLOADS = 4  # parts in memory at a time
# S3 copies up to 5 GiB with one request, at some 100 MB/s; in parts it is as fast as it has parts.
MULTIPART_COPY_BYTES = 1 << 30
COPY_PART_BYTES = 256 << 20
PARALLEL_COPIES = 16  # parts at a time; they do not pass through here
MAX_ATTEMPTS = 3  # when somebody else aborts an upload of ours
SHA256_NAME = "tokenmill-sha256"  # in an object's metadata


@dataclass(frozen=True, slots=True)
class _Upload:
    """An object that is to be made of parts. `send` makes one of them, from byte to byte."""

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
        files.retries = 1  # that is: no second try

    def look(self, url: str) -> ObjectInfo | None:
        found = self._head(url)
        return None if found is None else _info(found)

    def read_unchecked(self, url: str) -> bytes | None:
        try:
            # Without a bound on parallelism it would ask for the size first.
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
            with open(path, "rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            self._again_if_aborted(lambda: self._upload_in_parts(url, path, sha256))
        return sha256

    def copy(self, source: str, target: str) -> None:
        self._again_if_aborted(lambda: self._copy(source, target))

    def write(self, url: str, data: bytes) -> None:
        self._call("write", url, "put_object", **self._key(url), Body=data)

    def remove(self, urls: Sequence[str]) -> None:
        for at in range(0, len(urls), 1000):
            keys = [{"Key": self._key(url)["Key"]} for url in urls[at : at + 1000]]
            deleted = {"Objects": keys, "Quiet": True}
            bucket = self._key(urls[at])["Bucket"]
            answer = self._call("remove", urls[at], "delete_objects", Bucket=bucket, Delete=deleted)
            for error in answer.get("Errors", ()):
                raise OutputError(
                    f"cannot remove {error.get('Key')} from {bucket}: {error.get('Message')}",
                    hint="may you delete there? Then run the same command again",
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

    def _copy(self, source: str, target: str) -> None:
        found = self._head(source)
        if found is None:
            raise FileNotFoundError(f"there is no {source}")
        # The parts must be of one object, which somebody may be replacing.
        copied = {"CopySource": self._key(source), "CopySourceIfMatch": found["ETag"]}
        num_bytes = int(found["ContentLength"])
        if num_bytes < MULTIPART_COPY_BYTES:
            self._copy_call(source, "copy_object", **self._key(target), **copied)
            return

        def send(part: dict[str, Any], start: int, stop: int) -> str:
            span = f"bytes={start}-{stop - 1}"
            sent = self._copy_call(
                source, "upload_part_copy", **part, **copied, CopySourceRange=span
            )
            return str(sent["CopyPartResult"]["ETag"])

        metadata = found.get("Metadata", {})
        self._assemble(_Upload(target, num_bytes, COPY_PART_BYTES, PARALLEL_COPIES, metadata, send))

    def _copy_call(self, source: str, method: str, **parameters: Any) -> Any:
        def request() -> Any:
            try:
                return self.files.call_s3(method, **parameters)
            except Exception as error:
                if status_of(error) == 412:
                    raise FileNotFoundError(f"{source} was replaced while it was copied") from None
                raise

        return self.ask("copy", source, request)

    def _again_if_aborted(self, attempt: Callable[[], None]) -> None:
        """Another run may abort an upload of ours, when it cleans up, or replace what we copy by
        the same: something is not found then."""
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
            with contextlib.suppress(TokenmillError, OSError):  # what went wrong is said below
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
            # The answer to a first try that succeeded may have been lost.
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
        """What S3 says of an object; None if there is none."""
        key = self._key(url)
        if not key["Key"] or key["Key"].endswith("/"):
            return None  # a folder, whether or not some tool left an object to stand for it
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
    return ObjectInfo(int(found["ContentLength"]), tag, found.get("Metadata", {}).get(SHA256_NAME))
