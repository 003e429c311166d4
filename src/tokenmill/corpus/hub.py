"""Datasets on the Hugging Face Hub: what files there are, what they must hash to, and the files.

`huggingface_hub` knows the endpoint, the token, the cache and offline mode, which are as users know
them (HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE), and its session makes the requests. Its own
download (2.4) checks a file's size but not its hash, starts over after an interruption, and gives
up on 5xx and on a reset connection. So the bytes are fetched here: continued where they ended,
compared with the hash that the Hub names, with storage/retry.py for what passes, and put where its
cache expects them. Nothing here writes a token or a signed URL anywhere.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from tokenmill.corpus.hub_digests import digest_of, new_hash
from tokenmill.corpus.hub_errors import CdnRefusal, explained
from tokenmill.corpus.hub_listing import HubListing
from tokenmill.corpus.hub_names import DatasetName, HubFile, HubSource
from tokenmill.corpus.readers.naming import kind_named
from tokenmill.corpus.spans import Input
from tokenmill.errors import NetworkError
from tokenmill.storage import disk, files
from tokenmill.storage.partial_file import PartialFile
from tokenmill.storage.retry import Notice, Retry

MAX_REFUSALS = 5  # by the CDN, of fresh addresses in a row


class Closing(BaseException):
    """Unwinds a download that nobody waits for any more."""


class Hub:
    """A connection to the Hub. `folder`: where files go; None: the cache, to be kept there."""

    def __init__(self, folder: str | None, notice: Notice) -> None:
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
        self._num_refusals = 0
        self._tags: dict[str, str | None] = {}  # of files that are being downloaded

    def files(self, source: HubSource | DatasetName) -> list[HubFile]:
        """The files that a source means, by name. From the cache alone in offline mode."""
        listing = HubListing(self._client, self._retry, self._notice, self._text_of)
        return listing.files(source)

    def input(self, file: HubFile, input_format: str | None) -> Input:
        kind, compression = kind_named(file.url, input_format)
        return Input(
            self.local_path(file), kind, compression, file.num_bytes, 0, file.digest, file.url
        )

    def local_path(self, file: HubFile) -> str:
        """Where `download` puts the file."""
        if self._folder is not None:
            return os.path.join(self._folder, *file.path.split("/"))
        snapshot = os.path.join(self._cache_folder(file), "snapshots", file.commit)
        return os.path.join(snapshot, *file.path.split("/"))

    def is_here(self, file: HubFile) -> bool:
        return files.size(self.local_path(file)) == file.num_bytes

    def download(self, file: HubFile, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Bring the file to its local path, hash compared; a wrong one is fetched again, once.

        An interrupted download is continued, by this process or a later one.
        """
        if self._is_right(file, self.local_path(file)):
            return
        partial = self._partial_path(file)
        files.make_folder(os.path.dirname(partial))
        algorithm = file.digest.partition(":")[0]
        with PartialFile(partial, lambda: new_hash(algorithm, file.num_bytes)) as target:
            for attempt in range(2):
                if self._is_right(file, self.local_path(file)):
                    files.remove(partial)
                    return
                with self._explained(file):
                    self._retry.result_of(lambda: self._continue(file, target, should_stop))
                self._tags.pop(file.url, None)
                found = f"{algorithm}:{target.digest}"
                if found == file.digest:
                    self._put_in_place(file, partial)
                    return
                target.restart()
                if not attempt:
                    self._notice(f"{file.url} came as {found}, not {file.digest}; again")
        files.remove(partial)
        raise NetworkError(
            f"{file.url} came with the wrong bytes twice: {found}, expected {file.digest}",
            hint="something between here and the Hub changes data: try another network",
        )

    def parquet_edges(self, file: HubFile) -> tuple[bytes, bytes]:
        """The first bytes of a parquet file and its whole footer, without the data between."""
        with self._explained(file):
            head, _ = self._retry.result_of(lambda: self._range(file, 0, 4))
            return head, self._retry.result_of(lambda: self._footer(file))

    def _footer(self, file: HubFile) -> bytes:
        size = file.num_bytes
        end, tag = self._range(file, max(0, size - 8), size)
        footer_at = max(0, size - 8 - int.from_bytes(end[:4], "little"))
        footer, footer_tag = self._range(file, footer_at, size)
        if tag != footer_tag or not footer.endswith(end):
            raise ConnectionError(f"{file.url} changed while its footer was read")
        return footer

    def _text_of(self, file: HubFile) -> str:
        """A small file as text. One that is kept can be read again in offline mode."""
        if self._folder is None:
            self.download(file)
            with open(self.local_path(file), "rb") as kept:
                data = kept.read()
        else:
            with self._explained(file):
                data, _ = self._retry.result_of(lambda: self._range(file, 0, file.num_bytes))
        return data.decode(errors="replace")

    def _explained(self, file: HubFile) -> contextlib.AbstractContextManager[None]:
        return explained(HubSource(file.repo, file.commit, file.path), self._client)

    def _is_right(self, file: HubFile, path: str) -> bool:
        if files.size(path) != file.num_bytes:
            return False
        return digest_of(path, file.digest.partition(":")[0]) == file.digest

    def _continue(
        self, file: HubFile, target: PartialFile, should_stop: Callable[[], bool]
    ) -> None:
        """Append what is missing to the partial file."""
        if target.num_bytes > file.num_bytes:
            target.restart()
        while target.num_bytes < file.num_bytes:
            before = target.num_bytes
            with self._response(file, before, file.num_bytes) as response:
                tag, first_tag = _tag(response), self._tags.get(file.url)
                self._tags[file.url] = tag
                if before and first_tag not in (None, tag):
                    self._notice(f"{file.url} changed during the download; again from its start")
                    target.restart()
                    continue
                if before and response.status_code != 206:
                    target.restart()  # the server sends all of it again
                for chunk in response.iter_bytes():
                    if should_stop():
                        raise Closing
                    target.write(chunk)
            if target.num_bytes <= before:
                raise ConnectionError(f"{file.url} ended after {target.num_bytes:,} bytes")
        if target.num_bytes > file.num_bytes:
            target.restart()
            raise ConnectionError(f"{file.url} is longer than {file.num_bytes:,} bytes")

    def _range(self, file: HubFile, start: int, stop: int) -> tuple[bytes, str | None]:
        """Some bytes of a file, and the tag of the file that they were read from."""
        data = b""
        with self._response(file, start, stop) as response:
            if response.status_code == 206:
                for chunk in response.iter_bytes():
                    data += chunk
        if len(data) != stop - start:
            raise ConnectionError(f"{file.url}: asked for {stop - start} bytes, got {len(data)}")
        return data, _tag(response)

    @contextlib.contextmanager
    def _response(self, file: HubFile, start: int, stop: int) -> Iterator[Any]:
        """The Hub's answer, or that of the CDN to which it leads, by a new address every time."""
        url = self._client.hf_hub_url(
            file.repo, file.path, repo_type="dataset", revision=file.commit
        )
        # The client drops the token by itself where a redirect leads to another host. A range is
        # one of the file's bytes, so nobody may compress them on the way.
        headers = {
            **self._client.utils.build_hf_headers(),
            "Range": f"bytes={start}-{stop - 1}",
            "Accept-Encoding": "identity",
        }
        timeout = self._client.constants.HF_HUB_DOWNLOAD_TIMEOUT
        session = self._client.utils.get_session()
        with session.stream(
            "GET", url, headers=headers, follow_redirects=True, timeout=timeout
        ) as response:
            self._require_address(file, url, response)
            self._client.utils.hf_raise_for_status(response)
            yield response

    def _require_address(self, file: HubFile, url: str, response: Any) -> None:
        """Raise for an address that the CDN refuses: its signature has expired. Rights are the
        Hub's business, and it has just given us this address."""
        is_cdn = urlsplit(str(response.url)).netloc != urlsplit(url).netloc
        if not is_cdn or response.status_code not in (401, 403):
            self._num_refusals = 0
            return
        self._num_refusals += 1
        what = f"the CDN refused the address of {file.url} ({response.status_code})"
        if self._num_refusals > MAX_REFUSALS:
            raise CdnRefusal(f"{what}, {self._num_refusals} times in a row")
        raise ConnectionError(f"{what}; asking the Hub for another")

    def _partial_path(self, file: HubFile) -> str:
        """Beside where the file will be, named after what it must be: continued by any run."""
        name = file.digest.partition(":")[2] + ".tokenmill-partial"
        if self._folder is not None:
            return os.path.join(self._folder, name)
        return os.path.join(self._cache_folder(file), "blobs", name)

    def _put_in_place(self, file: HubFile, partial: str) -> None:
        target = self.local_path(file)
        files.make_folder(os.path.dirname(target))
        if self._folder is not None:
            disk.rename(partial, target)
            return
        # The cache's own layout: blobs by hash, and snapshots that link to them.
        blob = os.path.join(self._cache_folder(file), "blobs", file.digest.partition(":")[2])
        disk.rename(partial, blob)
        disk.symlink(os.path.relpath(blob, os.path.dirname(target)), target)

    def _cache_folder(self, file: HubFile) -> str:
        name = self._client.file_download.repo_folder_name(repo_id=file.repo, repo_type="dataset")
        return os.path.join(str(self._client.constants.HF_HUB_CACHE), str(name))


def _tag(response: Any) -> str | None:
    """What stands for a file's contents, as whoever sends it says."""
    tag = response.headers.get("ETag")
    return str(tag) if tag is not None else None
