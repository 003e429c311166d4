"""Somebody who downloads files of the tests' Hub, without the rest of tokenmill."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from tokenmill.corpus.download.downloads import Downloads
from tokenmill.corpus.download.file_download import RemoteFile
from tokenmill.corpus.download.http_answers import HttpAnswers
from tokenmill.corpus.download.http_source import Address, HttpSource
from tokenmill.storage import files
from tokenmill.storage.retry import Retry

SMALL_RANGES = {
    "MIN_RANGE_BYTES": 100_000,
    "MAX_FIRST_RANGE_BYTES": 100_000,
    "MAX_RANGE_BYTES": 400_000,
}


class Client:
    def __init__(self, url: str, repo: str, folder: Path) -> None:
        self.url = url
        self.repo = repo
        self.folder = folder
        self.answers = HttpAnswers(None, True, timeout_seconds=10.0)
        self.notices: list[str] = []

    def remote(self, path: str, num_bytes: int, sha256: str) -> RemoteFile:
        target, partial = self.folder / path, str(self.folder / f"{sha256}.partial")
        return RemoteFile(
            path,
            num_bytes,
            f"sha256:{sha256}",
            partial,
            HttpSource(path, num_bytes, lambda: self._address(path), self.answers),
            lambda: files.size(str(target)) == num_bytes,
            lambda: hashlib.sha256(target.read_bytes()).hexdigest() == sha256,
            lambda: shutil.move(partial, target),
            contextlib.nullcontext,
        )

    def _address(self, path: str) -> Address:
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=10)
        with contextlib.closing(connection):
            connection.request("HEAD", f"/datasets/{self.repo}/resolve/main/{path}")
            return Address(connection.getresponse().headers["Location"])

    def downloads(
        self,
        wanted: Mapping[str, tuple[int, str]],  # size and sha256 by path
        may_begin: Callable[[str], bool] = lambda name: True,
    ) -> Downloads:
        remote = [self.remote(path, *known) for path, known in wanted.items()]
        return Downloads(remote, Retry(self.notices.append), self.notices.append, may_begin)
