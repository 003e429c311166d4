"""Datasets on the Hugging Face Hub: their file lists, expected hashes, and downloads.

`huggingface_hub` provides the endpoint, the token, the cache and offline mode with their usual
settings (HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE), and its session makes the requests. Its
own download (2.4) checks a file's size but not its hash, starts over after an interruption, and
gives up on 5xx and on a reset connection. So this module fetches the bytes: it resumes partial
downloads, compares the hash that the Hub names, retries transient failures (storage/retry.py), and
puts files where the cache expects them. It never writes a token or a signed URL.
"""

from __future__ import annotations

import collections
import contextlib
import fnmatch
import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tokenmill.corpus.readers import kind_of
from tokenmill.corpus.readers.naming import ending, kind_named
from tokenmill.corpus.spans import HUB_SCHEME, Input
from tokenmill.errors import ConfigError, InputError, NetworkError
from tokenmill.storage import disk, files
from tokenmill.storage.listing import matching
from tokenmill.storage.partial_file import PartialFile
from tokenmill.storage.retry import Notice, Retry, is_of_the_network, message_of, status_of

SCHEME = HUB_SCHEME


@dataclass(frozen=True, slots=True)
class HubSource:
    """`hf://datasets/OWNER/NAME[@REVISION]/GLOB`, parsed."""

    repo: str
    revision: str
    pattern: str

    @staticmethod
    def parsed(url: str) -> HubSource:
        match = re.fullmatch(r"hf://datasets/([\w.-]+/[\w.-]+)(?:@([^/]+))?/(.+)", url)
        if match is None:
            raise ConfigError(
                f"not a dataset on the Hub: {url!r}",
                hint="write hf://datasets/OWNER/NAME[@REVISION]/data/*.parquet",
            )
        # A branch such as refs/convert/parquet is written with %2F, as in huggingface_hub.
        return HubSource(match[1], (match[2] or "main").replace("%2F", "/"), match[3])

    @property
    def download_command(self) -> str:
        """The command that fetches the files on a machine with a network."""
        return (
            f"hf download {self.repo} --repo-type dataset --revision {self.revision} "
            f"--include '{self.pattern}' --local-dir DIR"
        )


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a dataset at a fixed commit. `digest` is the expected hash of its bytes."""

    repo: str
    commit: str
    path: str
    num_bytes: int
    digest: str  # "sha256:..." of an LFS file, "git:..." (a blob id) of a small one

    @property
    def url(self) -> str:
        return f"{SCHEME}datasets/{self.repo}@{self.commit}/{self.path}"


class Closing(BaseException):
    """Unwinds a download that is no longer needed."""


class Hub:
    """A connection to the Hub. `folder` receives the files; None: they are kept in the cache."""

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

    def files(self, source: HubSource) -> list[HubFile]:
        """The files that the pattern matches, sorted by name. Offline mode uses only the cache."""
        if self._client.constants.HF_HUB_OFFLINE:
            return self._cached_files(source)
        api = self._client.HfApi()
        with _explained(source):
            info = self._retry.result_of(
                lambda: api.repo_info(source.repo, revision=source.revision, repo_type="dataset")
            )
            commit = str(info.sha)
            folder = _folder_of(source.pattern)
            entries = self._retry.result_of(
                lambda: list(
                    api.list_repo_tree(
                        source.repo, folder, recursive=True, revision=commit, repo_type="dataset"
                    )
                )
            )
        found = [
            HubFile(
                source.repo,
                commit,
                entry.path,
                entry.size,
                f"sha256:{entry.lfs.sha256}" if entry.lfs else f"git:{entry.blob_id}",
            )
            for entry in entries
            if isinstance(entry, self._client.hf_api.RepoFile)
            and _matches(entry.path, source.pattern)
        ]
        if not found:
            raise _no_match(source, [e.path for e in entries if hasattr(e, "blob_id")])
        return sorted(found, key=lambda file: file.path.encode())

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
        """Download the file to its local path and compare its hash; a wrong file is fetched once
        more.

        This process or a later one resumes an interrupted download.
        """
        if self._is_right(file, self.local_path(file)):
            return
        partial = self._partial_path(file)
        files.make_folder(os.path.dirname(partial))
        algorithm = file.digest.partition(":")[0]
        with PartialFile(partial, lambda: _hash(algorithm, file.num_bytes)) as target:
            for attempt in range(2):
                if self._is_right(file, self.local_path(file)):
                    files.remove(partial)
                    return
                with _explained(HubSource(file.repo, file.commit, file.path)):
                    self._retry.result_of(lambda: self._continue(file, target, should_stop))
                found = f"{algorithm}:{target.digest}"
                if found == file.digest:
                    self._put_in_place(file, partial)
                    return
                target.restart()
                if not attempt:
                    self._notice(
                        f"{file.url} came as {found}, not {file.digest}; fetching it again"
                    )
        files.remove(partial)
        raise NetworkError(
            f"{file.url} came with the wrong bytes twice: {found}, expected {file.digest}",
            hint="something between here and the Hub changes data: try another network",
        )

    def parquet_edges(self, file: HubFile) -> tuple[bytes, bytes]:
        """The first bytes of a parquet file and its whole footer, without the data between."""
        with _explained(HubSource(file.repo, file.commit, file.path)):
            head = self._retry.result_of(lambda: self._range(file, 0, 4))
            size = file.num_bytes
            end = self._retry.result_of(lambda: self._range(file, max(0, size - 8), size))
            footer_at = max(0, size - 8 - int.from_bytes(end[:4], "little"))
            return head, self._retry.result_of(lambda: self._range(file, footer_at, size))

    def _is_right(self, file: HubFile, path: str) -> bool:
        if files.size(path) != file.num_bytes:
            return False
        return digest_of(path, file.digest.partition(":")[0]) == file.digest

    def _continue(
        self, file: HubFile, target: PartialFile, should_stop: Callable[[], bool]
    ) -> None:
        """Append the missing bytes to the partial file."""
        if target.num_bytes > file.num_bytes:
            target.restart()
        while target.num_bytes < file.num_bytes:
            before = target.num_bytes
            with self._response(file, before, file.num_bytes) as response:
                if before and response.status_code != 206:
                    target.restart()  # the server sends the whole file again
                for chunk in response.iter_bytes():
                    if should_stop():
                        raise Closing
                    target.write(chunk)
            if target.num_bytes <= before:
                raise ConnectionError(f"{file.url} ended after {target.num_bytes:,} bytes")
        if target.num_bytes > file.num_bytes:
            target.restart()
            raise ConnectionError(f"{file.url} is longer than {file.num_bytes:,} bytes")

    def _range(self, file: HubFile, start: int, stop: int) -> bytes:
        data = b""
        with self._response(file, start, stop) as response:
            if response.status_code == 206:
                for chunk in response.iter_bytes():
                    data += chunk
        if len(data) != stop - start:
            raise ConnectionError(f"{file.url}: asked for {stop - start} bytes, got {len(data)}")
        return data

    @contextlib.contextmanager
    def _response(self, file: HubFile, start: int, stop: int) -> Iterator[Any]:
        url = self._client.hf_hub_url(
            file.repo, file.path, repo_type="dataset", revision=file.commit
        )
        # The client itself drops the token when a redirect leads to another host.
        headers = {**self._client.utils.build_hf_headers(), "Range": f"bytes={start}-{stop - 1}"}
        timeout = self._client.constants.HF_HUB_DOWNLOAD_TIMEOUT
        session = self._client.utils.get_session()
        with session.stream(
            "GET", url, headers=headers, follow_redirects=True, timeout=timeout
        ) as response:
            self._client.utils.hf_raise_for_status(response)
            yield response

    def _partial_path(self, file: HubFile) -> str:
        """Beside the final path and named after the expected hash, so that any run can continue
        it."""
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

    def _cached_files(self, source: HubSource) -> list[HubFile]:
        try:
            folder = self._client.snapshot_download(
                source.repo,
                repo_type="dataset",
                revision=source.revision,
                allow_patterns=[source.pattern],
                local_files_only=True,
            )
        except self._client.errors.LocalEntryNotFoundError:
            folder = ""
        found = []
        for path in matching(os.path.join(glob.escape(folder), "**")).files if folder else []:
            relative = os.path.relpath(path, folder).replace(os.sep, "/")
            if _matches(relative, source.pattern):
                # In the cache, a snapshot's entries are links to blobs named by their hash.
                blob = os.path.basename(os.path.realpath(path))
                digest = ("sha256:" if len(blob) == 64 else "git:") + blob
                if not os.path.islink(path):  # a cache that was copied without its links
                    digest = digest_of(path, "sha256")
                commit = os.path.basename(folder)
                found.append(HubFile(source.repo, commit, relative, os.path.getsize(path), digest))
        if not found:
            raise NetworkError(
                f"HF_HUB_OFFLINE is set, and the cache holds no {source.pattern} of {source.repo}",
                hint=f"on a machine with a network: {source.download_command}; then give that "
                "folder as SOURCE, or, to `tokenmill fineweb`, as --local-dir DIR",
            )
        return sorted(found, key=lambda file: file.path.encode())


def _hash(algorithm: str, num_bytes: int) -> Any:
    if algorithm == "git":
        return hashlib.sha1(f"blob {num_bytes}\0".encode())
    return hashlib.sha256()


def digest_of(path: str, algorithm: str) -> str:
    """The hash of a file's bytes, as the Hub writes it: "sha256:..." or "git:..."."""
    found = _hash(algorithm, os.path.getsize(path))
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            found.update(block)
    return f"{algorithm}:{found.hexdigest()}"


def _folder_of(pattern: str) -> str | None:
    """The longest folder without a wildcard, which has to be listed."""
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    return fixed.rpartition("/")[0] or None


def _matches(path: str, pattern: str) -> bool:
    """Matches like a shell: * stays within a folder, ** does not."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]*\])", pattern)
    names = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    expression = "".join(
        names.get(part) or (fnmatch.translate(part)[4:-3] if part[:1] == "[" else re.escape(part))
        for part in parts
    )
    return re.fullmatch(expression, path) is not None


def _no_match(source: HubSource, paths: list[str]) -> InputError:
    """The error for a pattern that matches none of these files."""
    endings = collections.Counter(ending(path) for path in paths if kind_of(path))
    hint = "the dataset's page lists its files, and ** matches any depth"
    if endings:
        most = endings.most_common(1)[0][0]
        folder = f"{_folder_of(source.pattern) or ''}/**".lstrip("/")
        at = f"@{source.revision}" if source.revision != "main" else ""
        hint = f"'{SCHEME}datasets/{source.repo}{at}/{folder}/*{most}' matches {endings[most]:,}"
    return InputError(
        f"no file of {source.repo} at {source.revision} matches {source.pattern}", hint=hint
    )


@contextlib.contextmanager
def _explained(source: HubSource) -> Iterator[None]:
    """Turn the client's errors into ours; other errors pass through."""
    try:
        yield
    except (ConfigError, InputError, NetworkError):
        raise
    except Exception as error:
        name, status = type(error).__name__, status_of(error)
        if name in ("RepositoryNotFoundError", "GatedRepoError") or status in (401, 403):
            raise InputError(
                f"{source.repo} does not exist, is private, or is gated ({message_of(error)})",
                hint="check the name; if it is gated, accept its terms and set HF_TOKEN",
            ) from None
        if name in ("RevisionNotFoundError", "EntryNotFoundError", "RemoteEntryNotFoundError"):
            raise InputError(
                f"{source.repo} at {source.revision} has no {source.pattern}: {message_of(error)}",
                hint="the dataset's page lists its files; @main is the newest revision",
            ) from None
        if not is_of_the_network(error):
            raise
        raise NetworkError(
            f"cannot reach {source.repo} on the Hub: {message_of(error)}",
            hint=f"run the same command again: it resumes. Without a network here, elsewhere: "
            f"{source.download_command}; then give that folder as SOURCE, or, to "
            "`tokenmill fineweb`, as --local-dir DIR",
        ) from None
