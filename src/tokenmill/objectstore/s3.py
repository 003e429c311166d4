"""S3 and what speaks its language: large objects are uploaded in parts, each part repeated alone.

With s3fs's own multipart upload, one failed part fails the whole; one request in twenty failing, a
shard of 200 parts would never arrive. Parts of an upload that nobody completes are kept, and paid
for, until somebody aborts it: we do, when an upload fails, and when an attempt begins.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tokenmill.errors import OutputError, TokenmillError
from tokenmill.objectstore.bucket import Bucket
from tokenmill.patience import Notice

MULTIPART_BYTES = 64 << 20  # objects from this size on are uploaded in parts
UPLOAD_PART_BYTES = 32 << 20
MAX_UPLOAD_PARTS = 10_000  # S3's limit
PARALLEL_UPLOADS = 4  # parts in memory at a time
MAX_UPLOAD_ATTEMPTS = 3  # when somebody else aborts an upload of ours


class S3Bucket(Bucket):
    def __init__(self, files: Any, place: str, notice: Notice) -> None:
        super().__init__(files, place, notice)
        files.retries = 1  # that is: no second try

    def read_unchecked(self, url: str) -> bytes | None:
        try:
            # Without a bound on parallelism it would ask for the size first.
            get = self.files.cat_file
            data: bytes = self.ask("read", url, lambda: get(url, max_concurrency=1))
        except FileNotFoundError:
            return None
        return data

    def upload(self, url: str, path: str) -> None:
        if os.path.getsize(path) < MULTIPART_BYTES:
            with open(path, "rb") as file:
                return self.write(url, file.read())
        for _ in range(MAX_UPLOAD_ATTEMPTS - 1):
            with contextlib.suppress(FileNotFoundError):  # another attempt aborted it, to clean up
                return self._upload_in_parts(url, path)
        return self._upload_in_parts(url, path)

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

    def _upload_in_parts(self, url: str, path: str) -> None:
        num_bytes = os.path.getsize(path)
        part_bytes = max(UPLOAD_PART_BYTES, -(-num_bytes // MAX_UPLOAD_PARTS))
        key = self._key(url)
        begun = self._call("write", url, "create_multipart_upload", **key)
        upload = {**key, "UploadId": begun["UploadId"]}

        def send(number: int) -> dict[str, Any]:
            with open(path, "rb") as file:
                file.seek(number * part_bytes)
                data = file.read(part_bytes)
            sent = self._call(
                "write", url, "upload_part", **upload, PartNumber=number + 1, Body=data
            )
            return {"ETag": sent["ETag"], "PartNumber": number + 1}

        try:
            with ThreadPoolExecutor(PARALLEL_UPLOADS) as pool:
                sending = [pool.submit(send, i) for i in range(-(-num_bytes // part_bytes))]
                try:
                    parts = [one.result() for one in sending]
                finally:
                    for one in sending:
                        one.cancel()
            self._complete(url, num_bytes, upload, parts)
        except BaseException:
            with contextlib.suppress(TokenmillError, OSError):  # what went wrong is said below
                self._abort(url, key["Bucket"], key["Key"], upload["UploadId"])
            raise

    def _complete(
        self, url: str, num_bytes: int, upload: dict[str, str], parts: list[dict[str, Any]]
    ) -> None:
        try:
            self._call(
                "write",
                url,
                "complete_multipart_upload",
                **upload,
                MultipartUpload={"Parts": parts},
            )
        except FileNotFoundError:
            # The answer to a first try that succeeded may have been lost.
            info = self.look(url)
            if info is None or info.num_bytes != num_bytes:
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

    def _call(self, doing: str, url: str, method: str, **parameters: Any) -> Any:
        return self.ask(doing, url, lambda: self.files.call_s3(method, **parameters))

    def _key(self, url: str) -> dict[str, str]:
        bucket, key, _ = self.files.split_path(url)
        return {"Bucket": bucket, "Key": key}
