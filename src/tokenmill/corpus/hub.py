"""Datasets on the Hugging Face Hub: lists their files, downloads them and compares their hashes.

`huggingface_hub` provides the endpoint, the token, the cache and offline mode (HF_ENDPOINT,
HF_TOKEN, HF_HOME, HF_HUB_OFFLINE), and makes the requests to the Hub. Its own download (2.4) checks
a file's size but not its hash, starts over after an interruption, and gives up on 5xx and on a
reset connection. So `download/` fetches the bytes: it resumes, retries transient failures
(storage/retry.py), compares the hash with the Hub's, and puts files where the cache of
`huggingface_hub` expects them. Nothing here writes a token or a signed URL anywhere.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from tokenmill.corpus.download.byte_source import ByteSource
from tokenmill.corpus.download.downloads import Downloads
from tokenmill.corpus.download.file_download import RemoteFile
from tokenmill.corpus.download.http_answers import HttpAnswers
from tokenmill.corpus.download.http_source import Address, FileChanged, HttpSource
from tokenmill.corpus.hub_digests import digest_of
from tokenmill.corpus.hub_errors import explained
from tokenmill.corpus.hub_listing import HubListing, Revisions
from tokenmill.corpus.hub_names import DatasetName, HubFile, HubSource
from tokenmill.corpus.readers.naming import kind_named
from tokenmill.corpus.spans import Input
from tokenmill.corpus.xet import Xet, XetSource
from tokenmill.storage import disk, files
from tokenmill.storage.retry import Notice, Retry

MAX_REDIRECTS = 5
PUBLIC_HEADERS = ("user-agent",)  # the only ones sent to servers that the Hub redirects to
# How much of a parquet file's end is read at first, at least: long texts in the statistics of 1,000
# rows make a footer of 3.5 kB for each row group. For FineWeb's files of 2.1 GB it is more than
# their footers have (0.3 MB).
END_BYTES = 128 << 10


class Hub:
    """A connection to the Hub. Files go to `folder`; None: to the cache, where they stay.
    `revisions` has the commits of branches when the run began, if it is resumed."""

    def __init__(
        self, folder: str | None, notice: Notice, revisions: Mapping[str, str] | None = None
    ) -> None:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.file_download
        import huggingface_hub.hf_api
        import huggingface_hub.utils

        self._client: Any = huggingface_hub
        self._folder = folder
        self._notice = notice
        self._retry = Retry(notice)
        self.revisions = Revisions(revisions or {})
        self._timeout_seconds = float(huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT)
        self._answers = HttpAnswers(
            self._client.utils.get_session(), _is_plain(self._client), self._timeout_seconds
        )
        self._xet = Xet(huggingface_hub, notice)
        self._sources: dict[str, ByteSource] = {}  # by URL: each knows its file's address

    def files(self, source: HubSource | DatasetName) -> list[HubFile]:
        """The files that a source means, sorted by name. In offline mode, from the cache alone."""
        listing = HubListing(self._client, self._retry, self._notice, self._text_of, self.revisions)
        return listing.files(source)

    @property
    def is_offline(self) -> bool:
        return bool(self._client.constants.HF_HUB_OFFLINE)

    def keep_revisions(self) -> None:
        """Save the commits of the branches in the cache, as `huggingface_hub` does."""
        if self._folder is not None or self.is_offline:
            return
        for name, commit in self.revisions.used.items():
            repo, _, revision = name.partition("@")
            path = os.path.join(self._cache_folder(repo), "refs", *revision.split("/"))
            files.make_folder(os.path.dirname(path))
            files.write_file(path, commit.encode())

    def input(self, file: HubFile, input_format: str | None) -> Input:
        kind, compression = kind_named(file.url, input_format)
        return Input(
            self.local_path(file), kind, compression, file.num_bytes, 0, file.digest, file.url
        )

    def local_path(self, file: HubFile) -> str:
        """Where `download` puts the file."""
        if self._folder is not None:
            repo = file.repo.replace("/", "--")
            return os.path.join(self._folder, repo, file.commit, *file.path.split("/"))
        snapshot = os.path.join(self._cache_folder(file.repo), "snapshots", file.commit)
        return os.path.join(snapshot, *file.path.split("/"))

    def is_here(self, file: HubFile) -> bool:
        return files.size(self.local_path(file)) == file.num_bytes

    def download(self, file: HubFile) -> None:
        """Download the file to its local path, and compare its hash."""
        with contextlib.closing(self.downloads([file])) as downloads:
            downloads.wait()

    def downloads(
        self,
        wanted: Iterable[HubFile],
        may_begin: Callable[[str], bool] = lambda name: True,
        changed: threading.Condition | None = None,
    ) -> Downloads:
        """Start to download files to their local paths. `Downloads` knows them by their URLs."""
        remote = map(self._remote_file, wanted)
        return Downloads(remote, self._retry, self._notice, may_begin, changed)

    def _remote_file(self, file: HubFile) -> RemoteFile:
        return RemoteFile(
            file.url,
            file.num_bytes,
            file.digest,
            self._partial_path(file),
            XetSource(self._xet, file, self._source(file)),
            functools.partial(self._has_size, file),
            functools.partial(self._is_right, file),
            functools.partial(self._put_in_place, file),
            functools.partial(self._explained, file),
        )

    def _source(self, file: HubFile) -> ByteSource:
        if file.url not in self._sources:
            self._sources[file.url] = HttpSource(
                file.url, file.num_bytes, functools.partial(self._address, file), self._answers
            )
        return self._sources[file.url]

    def close(self) -> None:
        self._xet.close()
        self._answers.close()

    def parquet_footer(self, file: HubFile) -> bytes:
        """The end of a parquet file, with its whole footer."""
        return self._retried(file, lambda: self._footer(file))

    def _footer(self, file: HubFile) -> bytes:
        size = file.num_bytes
        end_bytes = max(min(END_BYTES, size // 16), size // 4096, min(size, 8))
        end = self._range(file, size - end_bytes, size)
        footer_bytes = 8 + int.from_bytes(end[-8:-4], "little")
        if footer_bytes <= len(end) or footer_bytes > size:
            return end
        return self._range(file, size - footer_bytes, size - len(end)) + end

    def _text_of(self, file: HubFile) -> str:
        """A small file as text. In the cache, it can be read again in offline mode."""
        if self._folder is None:
            self.download(file)
            with open(self.local_path(file), "rb") as kept:
                data = kept.read()
        else:
            data = self._retried(file, lambda: self._range(file, 0, file.num_bytes))
        return data.decode(errors="replace")

    def _explained(self, file: HubFile) -> contextlib.AbstractContextManager[None]:
        return explained(HubSource(file.repo, file.commit, file.path), self._client)

    def _has_size(self, file: HubFile) -> bool:
        return self.is_here(file) or self._has_blob(file)

    def _has_blob(self, file: HubFile) -> bool:
        return self._folder is None and files.size(self._blob_path(file)) == file.num_bytes

    def _is_right(self, file: HubFile) -> bool:
        """Whether the file has the right bytes. Also links a blob that has no link: a run was
        killed before that, or another commit has the same file."""
        if self.is_here(file):
            return _has_digest(self.local_path(file), file.digest)
        if self._has_blob(file) and _has_digest(self._blob_path(file), file.digest):
            self._link(file)
            return True
        return False

    def _retried(self, file: HubFile, request: Callable[[], bytes]) -> bytes:
        with self._explained(file):
            return self._retry.result_of(request)

    def _range(self, file: HubFile, start: int, stop: int) -> bytes:
        """Some bytes of a file. Raises ConnectionError if the file has changed."""
        if start == stop:
            return b""
        try:
            with contextlib.closing(self._source(file).stream(start, stop)) as blocks:
                return b"".join(map(bytes, blocks))  # each is valid until the next
        except FileChanged as change:
            raise ConnectionError(str(change)) from None

    def _address(self, file: HubFile) -> Address:
        """Where the file is: on the Hub, or where the Hub redirects to, which gets no token."""
        url = self._client.hf_hub_url(
            file.repo, file.path, repo_type="dataset", revision=file.commit
        )
        headers = dict(self._client.utils.build_hf_headers())
        session, timeout = self._client.utils.get_session(), self._timeout_seconds
        for _ in range(MAX_REDIRECTS):
            response = session.request(
                "HEAD", url, headers=headers, follow_redirects=False, timeout=timeout
            )
            self._client.utils.hf_raise_for_status(response)
            if "Location" not in response.headers:
                return Address(url, headers, may_expire=False)
            before, url = url, urljoin(url, response.headers["Location"])
            if urlsplit(url)[:2] != urlsplit(before)[:2]:
                return Address(url, {key: headers[key] for key in headers if key in PUBLIC_HEADERS})
        raise ConnectionError(f"the Hub redirects {file.url} again and again")

    def _partial_path(self, file: HubFile) -> str:
        """Beside the file's final place, named after its hash, so that any run can resume it. Not
        in the cache, two files with the same bytes are two downloads, each with its own partial
        file: what reads that of the first (run/early_slices.py) must not find the second's."""
        key = file.digest.partition(":")[2]
        if self._folder is None:
            folder = os.path.join(self._cache_folder(file.repo), "blobs")
        else:
            folder = self._folder
            key = hashlib.sha256(f"{key} {file.url}".encode()).hexdigest()
        return os.path.join(folder, f"{key}.tokenmill-partial")

    def _put_in_place(self, file: HubFile) -> None:
        """Nothing waits for the disk: after a power loss, what is in place is hashed again."""
        partial, target = self._partial_path(file), self.local_path(file)
        files.make_folder_of(target)
        if self._folder is not None:
            disk.rename(partial, target, is_durable=False)
            return
        disk.rename(partial, self._blob_path(file), is_durable=False)
        self._link(file)

    def _link(self, file: HubFile) -> None:
        """Link the snapshot's file to its blob, as in the layout of the cache."""
        target = self.local_path(file)
        files.make_folder_of(target)
        disk.symlink(os.path.relpath(self._blob_path(file), os.path.dirname(target)), target)

    def _blob_path(self, file: HubFile) -> str:
        name = file.digest.partition(":")[2]
        return os.path.join(self._cache_folder(file.repo), "blobs", name)

    def _cache_folder(self, repo: str) -> str:
        name = self._client.file_download.repo_folder_name(repo_id=repo, repo_type="dataset")
        return os.path.join(str(self._client.constants.HF_HUB_CACHE), str(name))


def _has_digest(path: str, digest: str) -> bool:
    return digest_of(path, digest.partition(":")[0]) == digest


def _is_plain(client: Any) -> bool:
    """Whether the session is the default one: `set_client_factory` was not called."""
    module = client.utils._http
    default = getattr(module, "default_client_factory", None)
    return getattr(module, "_GLOBAL_CLIENT_FACTORY", default) is default
