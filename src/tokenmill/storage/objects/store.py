"""A bucket as a store: whole objects by name.

There is no folder to make or sync, no rename and no lock. An object is written to a local file
first. The caller explains a missing object; every other refusal of the bucket is a storage error.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tokenmill.errors import DamagedWorkError
from tokenmill.storage import disk, objects
from tokenmill.storage.checked_json import is_intact
from tokenmill.storage.file_piece import FilePiece
from tokenmill.storage.hashing import Proof
from tokenmill.storage.local import LocalStore
from tokenmill.storage.new_file import NewFile
from tokenmill.storage.output_errors import as_output_error
from tokenmill.storage.range_reader import RangedFile
from tokenmill.storage.scratch import scratch_folder, temporary_folder

REQUEST_BYTES = 32 << 20  # per request of an ordered read
Range = tuple[int, int]


class ObjectStore:
    """See Store for what the methods promise."""

    has_quick_calls = False
    has_pieces = False
    has_locks = False
    has_renames = False
    takes_disk_space = False

    def read_file(self, path: str) -> bytes:
        with _reading(path):
            return objects.read(path)

    def read_files(self, paths: Sequence[str]) -> Iterator[bytes | None]:
        with _reading(paths[0]):
            for path, data in zip(paths, objects.read_checksummed(paths), strict=True):
                # The answer may be truncated: `read` fetches it again and compares its length.
                yield data if data is None or is_intact(data) else objects.read(path)

    def read_in_order(self, path: str, start: int, stop: int, block_bytes: int) -> Iterator[bytes]:
        with self.range_reader(path) as read:
            for at in range(start, stop, REQUEST_BYTES):
                yield from read([(at, min(at + REQUEST_BYTES, stop))])

    @contextlib.contextmanager
    def range_reader(self, path: str) -> Iterator[Callable[[Sequence[Range]], list[bytes]]]:
        with _reading(path):
            yield functools.partial(objects.read_ranges, path)

    def ranged_file(self, path: str, num_bytes: int, digest: str) -> RangedFile:
        return RangedFile(path, num_bytes, digest)

    def wait_for(self, path: str) -> None:
        """A written object is visible everywhere at once."""

    def size(self, path: str) -> int | None:
        info = _look(path)
        return None if info is None else info.num_bytes

    def modified_ns(self, path: str) -> int:
        info = _look(path)
        return 0 if info is None else info.modified_ns

    def exists(self, path: str) -> bool:
        return _look(path) is not None

    def is_irregular(self, path: str) -> bool:
        return False

    def names_below(self, folder: str) -> list[str]:
        prefix = folder.rstrip("/") + "/"
        with _asking("list", folder):
            found = [url for url, _ in objects.find(prefix)]
        # Clients normalise the scheme: a listing of s3a:// returns s3://.
        start = len(objects.key_of(prefix))
        names = [objects.key_of(url)[start:] for url in found]
        return [name for name in names if not name.startswith(".") and name.count("/") < 2]

    entries = names_below

    def kinds_in(self, folder: str) -> dict[str, bool]:
        return {}

    def is_link(self, path: str) -> bool:
        return False

    def is_whole(self, path: str, num_bytes: int, checksum: str, hasher: Any) -> bool:
        return self.size(path) == num_bytes  # a crash does not change an object

    def is_intact(self, path: str, proof: Proof) -> bool:
        info = _look(path)
        return info is not None and info.sha256 == proof.kept_sha256

    def new_file(
        self, folder: str, name: str, hasher: Any = None, is_durable: bool = True
    ) -> NewFile:
        place = functools.partial(_put_file, target=os.path.join(folder, name))
        with contextlib.ExitStack() as stack:
            local = os.path.join(stack.enter_context(scratch_folder()), name)
            return NewFile(local, place, hasher, is_synced=False, closing=stack.pop_all())

    def write_file(self, path: str, data: bytes, is_durable: bool = True) -> None:
        with _asking("write", path):
            objects.write(path, data)

    def create_file(self, path: str, data: bytes) -> bool:
        with _asking("create", path):
            return objects.create(path, data)

    def swap_file(self, path: str, old: bytes | None, data: bytes) -> bool:
        with _asking("replace", path):
            return objects.swap(path, old, data)

    def write_record(self, path: str, data: bytes, is_durable: bool = True) -> None:
        if self.create_file(path, data) or (found := self.read_file(path)) == data:
            return
        # Emptied, because the work is to be done again, or damaged.
        is_to_be_replaced = not found or (is_intact(data) and not is_intact(found))
        if is_to_be_replaced and self.swap_file(path, found, data):
            return
        raise DamagedWorkError(
            f"{path} exists with different contents: the same work had two results",
            hint="was it edited, or do the machines differ? Start again: --overwrite",
        )

    def sync_files(self, folder: str, names: Iterable[str]) -> None:
        """An object is durable once it exists."""

    def staging(self, folder: str) -> contextlib.AbstractContextManager[str]:
        return scratch_folder()

    def deliver(
        self, staging: str, folder: str, names: Iterable[str], piece: FilePiece | None
    ) -> dict[str, str | None]:
        return {
            name: _put_file(os.path.join(staging, name), os.path.join(folder, name))
            for name in names
        }

    def make_folder(self, path: str) -> None:
        pass

    def make_work_folders(self, work: str, names: Iterable[str]) -> None:
        with _asking("clean up", work):
            objects.abort_uploads_below(work)

    def remove_temporaries(self, folder: str) -> None:
        """A single-request upload leaves nothing; make_work_folders removes multipart uploads."""

    def remove(self, path: str) -> None:
        with _asking("remove", path):
            objects.remove(path)

    def remove_all(self, paths: Sequence[str]) -> None:
        with _asking("remove", paths[0]):
            objects.remove_all(paths)

    def remove_folder(self, path: str) -> None:
        with _asking("remove", path):
            objects.remove_below(path)

    def remove_empty_folder(self, path: str) -> None:
        pass

    def lock(self, path: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    shared_lock = lock

    def require_lock(self, path: str) -> None:
        """A bucket has no lock to lose."""

    def disk_folder(self, path: str) -> str:
        """The folder that holds files before their upload."""
        return temporary_folder()

    def absolute(self, path: str) -> str:
        return path

    canonical = staticmethod(objects.place_of)

    def file_id(self, path: str) -> object:
        place = objects.place_of(path)
        return place if "://" in place else LocalStore().file_id(place)

    mapped = staticmethod(objects.in_parallel)


def _put_file(path: str, target: str) -> str | None:
    """Upload a finished local file and remove it. Returns the sha256 that the bucket keeps, if
    any."""
    with _asking("write", target):
        sha256 = objects.upload(target, path)
    disk.remove(path)
    return sha256


def _look(url: str) -> objects.ObjectInfo | None:
    with _asking("look at", url):
        return objects.look(url)


def _asking(doing: str, url: str) -> contextlib.AbstractContextManager[None]:
    hint = "check that the bucket exists, and that you may read, write, list and delete"
    return as_output_error(doing, url, hint if objects.has_buckets(url) else None)


@contextlib.contextmanager
def _reading(url: str, doing: str = "read") -> Iterator[None]:
    with _asking(doing, url):
        try:
            yield
        except FileNotFoundError as error:
            missing = error
        else:
            return
    raise missing
