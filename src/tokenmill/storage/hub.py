"""The Hugging Face Hub by its own client: the files of a dataset, and the right bytes of a file.

`huggingface_hub` has the endpoint, the token, the cache, offline mode (HF_ENDPOINT, HF_TOKEN,
HF_HOME, HF_HUB_OFFLINE), HTTP and Xet. Left to us is what its download (2.4) does not do: it
compares a file's size and not its hash, ends at a 5xx answer, a reset or an address of the CDN that
has expired, and `hf_xet` may wait for ever. Nothing here writes a token or a signed URL anywhere.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from tokenmill.errors import NetworkError
from tokenmill.storage import disk
from tokenmill.storage.output_errors import as_output_error
from tokenmill.storage.range_reader import BackgroundCall
from tokenmill.storage.retry import Notice, Retry, is_network_error, message_of, status_of
from tokenmill.storage.store import store_of

DATASET = "dataset"  # the type of repository
# Without a byte for so long, a download is left behind. The client itself gives up on silent HTTP
# connections, after at most 66 seconds; `hf_xet` has been seen to wait for ever.
SILENT_SECONDS = 90.0
MAX_REFUSED_ADDRESSES = 5  # of one file; the CDN says 403 to an address that has expired
LOOK_SECONDS = 0.5
UNUSED_SECONDS = 3600.0  # after which a temporary file that nobody writes to is nobody's
# The user's own settings override these. By default, `hf_xet` buffers 2 GB, keeps logs below
# HF_HOME and reports each transfer to the storage.
XET_SETTINGS = {
    "HF_XET_RECONSTRUCTION_MIN_RECONSTRUCTION_FETCH_SIZE": "16mb",
    "HF_XET_RECONSTRUCTION_MAX_RECONSTRUCTION_FETCH_SIZE": "16mb",
    "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_SIZE": "256mb",
    "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_PERFILE_SIZE": "64mb",
    "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_LIMIT": "320mb",
    "HF_XET_RECONSTRUCTION_MIN_PREFETCH_BUFFER": "256mb",
    "HF_XET_LOG_DEST": os.devnull,
    "HF_XET_TELEMETRY_ENABLED": "false",
}
_LOGGERS = ("huggingface_hub.utils._http", "huggingface_hub.file_download")
_ROOM_ELSEWHERE = (
    "make room there, name a folder on another disk with HF_HOME, or keep no files with "
    "--no-keep-downloads; then run the same command again: it resumes"
)
_UNFINISHED = "*.????????.incomplete"  # a temporary file of one download
_COMMIT = re.compile(r"[0-9a-f]{40}")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a dataset at a fixed commit, with the hash that it must have."""

    repo: str
    commit: str
    path: str
    num_bytes: int
    digest: str  # "sha256:..." of an LFS file, "git:..." (a blob id) of a small one

    @property
    def url(self) -> str:
        return f"hf://datasets/{self.repo}@{self.commit}/{self.path}"


def digest_of(path: str, algorithm: str) -> str:
    """The hash of a file's bytes in the Hub's terms: by sha256, or as git names a blob."""
    found = hashlib.sha256()
    if algorithm == "git":
        found = hashlib.sha1(f"blob {os.path.getsize(path)}\0".encode())
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            found.update(block)
    return f"{algorithm}:{found.hexdigest()}"


class TransferStopped(Exception):
    """Nobody wants the file any more."""


class AddressRefused(Exception):
    """The CDN refuses one address of a file after the other."""


class Transfer:
    """How far the download of a file is; shared by who downloads it and who looks."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self._is_stopped = False
        self._heard_at: float | None = None
        self._number = 0  # of the current download

    def stop(self) -> None:
        """End the download at its next byte."""
        self._is_stopped = True

    def require_wanted(self) -> None:
        if self._is_stopped:
            raise TransferStopped

    @property
    def is_silent(self) -> bool:
        """Whether an answer has begun and no byte has come for long. Before that, the client may
        be waiting for another process that downloads the same file."""
        return self._heard_at is not None and time.monotonic() - self._heard_at > SILENT_SECONDS

    def begin(self) -> type[Meter]:
        """The class of the progress bars of a download that begins."""
        self._heard_at = None
        self._number += 1
        return type("OneMeter", (Meter,), {"transfer": self, "number": self._number})

    def leave(self) -> None:
        """Leave the current download behind: it ends at its next byte."""
        self._number += 1

    def hear(self, number: int, num_bytes: int) -> None:
        """Note how far a download is."""
        self.require_wanted()
        if number != self._number:
            raise TransferStopped
        self.num_bytes, self._heard_at = num_bytes, time.monotonic()


class Meter:
    """What the client takes for a tqdm. It makes one for a file; its class knows which."""

    transfer: ClassVar[Transfer]
    number: ClassVar[int]

    def __init__(
        self, *_: object, total: int | None = None, initial: int = 0, **__: object
    ) -> None:
        self.n, self.total = initial, total
        self.update(0)

    def update(self, num_bytes: float = 1) -> None:
        self.n += int(num_bytes)
        self.transfer.hear(self.number, self.n)

    def update_transfer(self, num_bytes: float = 1) -> None:
        """Bytes have come over the network, which Xet has yet to put together."""
        self.update(0)

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None  # all that a tqdm shows


class Hub:
    """A connection to the Hub. Files go to its client's cache, where they stay, or to `folder`."""

    def __init__(self, notice: Notice, folder: str | None = None) -> None:
        import logging  # 5 ms

        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.file_download
        import huggingface_hub.hf_api
        import huggingface_hub.utils

        self.client: Any = huggingface_hub
        self.notice = notice
        self.retry = Retry(notice)
        self._api = huggingface_hub.HfApi()
        self._folder = folder
        self._lock = threading.Lock()
        self._has_left_xet = False
        self._swept: set[str] = set()
        for name, value in XET_SETTINGS.items():
            os.environ.setdefault(name, value)
        for name in _LOGGERS:  # the client's retries: our own notices say it all
            logging.getLogger(name).setLevel(logging.ERROR)
        # Its estimate of the free space; a full disk is an error of its own.
        warnings.filterwarnings("ignore", "Not enough free disk space")

    def close(self) -> None:
        if self._has_left_xet:
            self.client.constants.HF_HUB_DISABLE_XET = False

    @property
    def is_offline(self) -> bool:
        return bool(self.client.constants.HF_HUB_OFFLINE)

    # What there is

    def commit(self, repo: str, revision: str) -> str:
        """The commit of a revision. Without a network it fails at once; the client's listing takes
        23 seconds."""
        info = self.retry.result_of(
            lambda: self._api.repo_info(repo, revision=revision, repo_type=DATASET)
        )
        return str(info.sha)

    def tree(
        self, repo: str, commit: str, folder: str | None = None, recursive: bool = True
    ) -> list[HubFile]:
        """The files of a folder."""

        def entries() -> list[Any]:
            listed = self._api.list_repo_tree(
                repo, folder, recursive=recursive, revision=commit, repo_type=DATASET
            )
            return list(listed)

        return [
            HubFile(
                repo,
                commit,
                entry.path,
                entry.size,
                f"sha256:{entry.lfs.sha256}" if entry.lfs else f"git:{entry.blob_id}",
            )
            for entry in self.retry.result_of(entries)
            if isinstance(entry, self.client.hf_api.RepoFile) and _is_below(entry.path)
        ]

    def cached(self, repo: str, revision: str) -> list[HubFile]:
        """The files of a revision that the cache has; nobody knows whether these are all."""
        folder = self._repo_folder(self._cache, repo)
        commit = revision
        if not _COMMIT.fullmatch(revision):
            with contextlib.suppress(FileNotFoundError):
                path = os.path.join(folder, "refs", revision)
                commit = store_of(path).read(path).decode().strip()
        snapshot = os.path.join(folder, "snapshots", commit)
        paths = (
            os.path.join(below, name) for below, _, names in os.walk(snapshot) for name in names
        )
        return [
            HubFile(
                repo,
                commit,
                os.path.relpath(path, snapshot).replace(os.sep, "/"),
                os.path.getsize(path),
                cached_digest(path),
            )
            for path in sorted(paths)
            if os.path.exists(path)
        ]

    def keep_revision(self, repo: str, revision: str, commit: str) -> None:
        """Note in the cache which commit a revision stands for, as the client does; for offline
        mode, so all files should be here."""
        if self._folder is None and not self.is_offline and revision != commit:
            folder = self._repo_folder(self._cache, repo)
            path = os.path.join(folder, "refs", *revision.split("/"))
            disk.make_folder_of(path)
            store_of(path).write(path, commit.encode())

    # Where it is

    def path(self, file: HubFile) -> str | None:
        """Where the file is, if it is here: in the client's cache, or in the private folder."""
        path = self.place(file)
        return path if store_of(path).size(path) == file.num_bytes else None

    def place(self, file: HubFile) -> str:
        """Where the file is, or where `fetch` will put it."""
        return self._snapshot_path(self._cache_for(file), file)

    def release(self, file: HubFile) -> None:
        """Remove the file, if it is in the private folder."""
        if self._folder is not None:
            disk.remove_folder(self._private_cache(self._folder, file))

    @property
    def _cache(self) -> str:
        return str(self.client.constants.HF_HUB_CACHE)

    def _cache_for(self, file: HubFile) -> str:
        """The cache for a file. One that the client's cache has is read there."""
        is_here = (
            store_of(self._cache).size(self._snapshot_path(self._cache, file)) == file.num_bytes
        )
        if self._folder is None or is_here:
            return self._cache
        return self._private_cache(self._folder, file)

    def _private_cache(self, folder: str, file: HubFile) -> str:
        """Each file has its own, which goes with it."""
        return os.path.join(folder, hashlib.sha256(file.url.encode()).hexdigest()[:32])

    def _repo_folder(self, cache: str, repo: str) -> str:
        name = self.client.file_download.repo_folder_name(repo_id=repo, repo_type=DATASET)
        return os.path.join(cache, str(name))

    def _snapshot_path(self, cache: str, file: HubFile) -> str:
        folder = self._repo_folder(cache, file.repo)
        return os.path.join(folder, "snapshots", file.commit, *file.path.split("/"))

    # Its bytes

    def fetch(self, file: HubFile, transfer: Transfer | None = None) -> str:
        """The path of the file, downloaded if it is not here, its hash compared.

        Wrong bytes are downloaded again, without Xet. NetworkError if they are wrong twice."""
        transfer = transfer or Transfer()
        algorithm = file.digest.partition(":")[0]
        here = self.path(file)
        if here is not None:
            if digest_of(here, algorithm) == file.digest:
                return here
            self.notice(f"{file.url}: other bytes in the cache; downloading it again")
        cache = self._cache_for(file)
        self._remove_unused(file, cache)
        is_forced = here is not None
        for is_last in (False, True):
            path = self._downloaded(file, cache, transfer, is_forced)
            found = digest_of(path, algorithm)
            if found == file.digest:
                return path
            if not is_last:
                self.notice(f"{file.url}: its hash is {found}; downloading it again")
                self._leave_xet()
                is_forced = True
        for wrong in (os.path.realpath(path), path):
            disk.remove(wrong)
        raise NetworkError(
            f"{file.url}: downloaded twice, and its hash is {found}, expected {file.digest}",
            hint="does a proxy change files? Run the same command again: it resumes",
        )

    def end(self, file: HubFile, num_bytes: int) -> bytes | None:
        """The last bytes of a file; no hash covers them. None: the server sends whole files."""
        utils = self.client.utils
        url = self.client.hf_hub_url(file.repo, file.path, repo_type=DATASET, revision=file.commit)
        seconds = float(self.client.constants.HF_HUB_DOWNLOAD_TIMEOUT)

        def request() -> bytes | None:
            headers = {
                **utils.build_hf_headers(),
                "Range": f"bytes=-{num_bytes}",
                "Accept-Encoding": "identity",
            }
            with utils.get_session().stream(  # a CDN that it is redirected to gets no token
                "GET", url, headers=headers, follow_redirects=True, timeout=seconds
            ) as response:
                utils.hf_raise_for_status(response)
                if response.status_code != 206:
                    return None
                data = bytes(response.read())
            if len(data) != num_bytes:
                raise ConnectionError(f"{file.url}: {len(data):,} bytes of {num_bytes:,}")
            return data

        return self.answer(file.url, request)

    def _downloaded(self, file: HubFile, cache: str, transfer: Transfer, is_forced: bool) -> str:
        def request() -> str:
            transfer.require_wanted()
            call = BackgroundCall(
                lambda: self.client.hf_hub_download(
                    file.repo,
                    file.path,
                    repo_type=DATASET,
                    revision=file.commit,
                    cache_dir=cache,
                    force_download=is_forced,
                    tqdm_class=transfer.begin(),
                )
            )
            while not call.is_done_within(LOOK_SECONDS):
                transfer.require_wanted()
                if transfer.is_silent:
                    transfer.leave()
                    self._unlock(file, cache)
                    raise TimeoutError(f"no byte of {file.url} for {SILENT_SECONDS:.0f} s")
            return str(call.result())

        with _disk_errors(cache, _ROOM_ELSEWHERE if self._folder is None else None):
            return self.answer(file.url, request)

    def answer(self, url: str, request: Callable[[], Result]) -> Result:
        """The result of a request for a URL, after retries and, if Xet fails, without it."""
        num_refused = 0

        def attempt() -> Result:
            nonlocal num_refused
            has_xet = not self.client.constants.HF_HUB_DISABLE_XET
            try:
                return request()
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as raised:  # a Rust panic is not an Exception
                error = _reason(raised)
                if self._is_refused_by_cdn(error):
                    num_refused += 1
                    if num_refused > MAX_REFUSED_ADDRESSES:
                        raise AddressRefused(message_of(error)) from None
                    raise ConnectionError(f"the CDN refused the address of {url}") from None
                if not has_xet or not _is_of_xet(error):
                    raise error from error.__cause__
                self._leave_xet(f"{type(error).__name__}: {message_of(error)}")
            return attempt()

        try:
            return self.retry.result_of(attempt)
        except AddressRefused as refused:
            raise NetworkError(
                f"{url}: the CDN refused the addresses that the Hub gave: {refused}",
                hint="does a firewall stand between? Run the same command again: it resumes",
            ) from None

    def _is_refused_by_cdn(self, error: BaseException) -> bool:
        if status_of(error) not in (401, 403):
            return False
        endpoint = urlsplit(str(self.client.constants.ENDPOINT))
        return urlsplit(_url_of(error))[:2] != endpoint[:2]

    def _leave_xet(self, why: str = "") -> None:
        """Use HTTP for the rest of the run."""
        constants = self.client.constants
        with self._lock:
            if constants.HF_HUB_DISABLE_XET:
                return
            constants.HF_HUB_DISABLE_XET = self._has_left_xet = True
        if why:
            self.notice(f"Xet storage fails, so plain HTTP is used from now on: {why}")

    def _unlock(self, file: HubFile, cache: str) -> None:
        """Remove the lock of a download that was left behind: it may never release it. The client
        uses it to avoid double work, and is right without it."""
        name = os.path.basename(self._repo_folder("", file.repo))
        lock = f"{file.digest.partition(':')[2]}.lock"
        disk.remove(os.path.join(cache, ".locks", name, lock))

    def _remove_unused(self, file: HubFile, cache: str) -> None:
        """Remove what killed downloads left, which the client never continues."""
        if cache != self._cache:
            return disk.remove_folder(cache)
        folder = self._repo_folder(cache, file.repo)
        with self._lock:
            if folder in self._swept:
                return None
            self._swept.add(folder)
        for path in glob.glob(os.path.join(glob.escape(folder), "blobs", _UNFINISHED)):
            with contextlib.suppress(FileNotFoundError):  # it has just become a whole file
                if os.stat(path).st_mtime < time.time() - UNUSED_SECONDS:
                    disk.remove(path)
        return None


def _reason(error: BaseException) -> BaseException:
    """The error below those that only say that the file is not in the cache, either."""
    is_wrapper = type(error).__name__ == "LocalEntryNotFoundError" or type(error) is ValueError
    return error.__cause__ if is_wrapper and error.__cause__ is not None else error


def _url_of(error: BaseException) -> str:
    return str(getattr(getattr(error, "response", None), "url", ""))


def _is_of_disk(error: BaseException) -> bool:
    return isinstance(error, OSError) and bool(error.errno) and not is_network_error(error)


@contextlib.contextmanager
def _disk_errors(folder: str, hint: str | None) -> Iterator[None]:
    """Turn what the disk says into OutputError, and leave what the network says."""
    try:
        yield
    except OSError as error:
        if not _is_of_disk(error):
            raise
        with as_output_error("write to", folder, hint):
            raise


def _is_of_xet(error: BaseException) -> bool:
    """Whether it is none of the client's own errors, or about a token for Xet storage."""
    if "xet-read-token" in _url_of(error):
        return True
    if _is_of_disk(error):
        return False
    room = type(error).__module__.partition(".")[0]
    return room in ("builtins", "hf_xet", "pyo3_runtime") and "onsistency check" not in str(error)


def _is_below(path: str) -> bool:
    """Whether a path that a server sends stays within the download folder."""
    return not {"", ".", ".."} & set(path.split("/"))


def cached_digest(path: str) -> str:
    """The hash that a file of the cache must have. A snapshot's entries are links to blobs named by
    their hash. A blob may be a link, too, into the store that all repositories share, whose names
    are other hashes."""
    if not os.path.islink(path):  # a cache that was copied without its links
        return digest_of(path, "sha256")
    blob = os.path.basename(os.readlink(path))
    return ("sha256:" if len(blob) == 64 else "git:") + blob
