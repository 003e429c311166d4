"""The files of a dataset below a URL (the seam: `Files` of formats/format.py).

Nothing is copied to disk. Bytes are fetched in ranges when they are read (range_reader.py):

    open        any bytes of an object: headers, footers, an index
    in_order    the whole object in order, with 32 MiB prefetched
    array       its numbers as an array; a slice is fetched when it is taken

Objects that are read twice (hashed, then decoded) stay in memory in between, up to 512 MiB in all.
"""

from __future__ import annotations

import contextlib
import functools
import io
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from tokenmill.errors import InputError, IntegrityError, TokenmillError
from tokenmill.storage.local import Stat
from tokenmill.storage.objects import bucket
from tokenmill.storage.range_reader import Range, RangedFile, requests_of

MAX_HELD_BYTES = 512 << 20


class ObjectFiles:
    """Objects below a URL, by their names relative to it. `whole` holds the objects already
    read."""

    is_local = False

    def __init__(
        self, url: str, found: Mapping[str, Stat], whole: Mapping[str, bytes] | None = None
    ) -> None:
        self.label = url
        self._objects = found
        self._held = dict(whole or {})
        self._num_held_bytes = 0
        self._lock = threading.Lock()

    def path_of(self, name: str) -> str:
        return f"{self.label}/{name}"

    def names(self) -> list[str]:
        return sorted(self._objects, key=lambda name: name.split("/"))

    def has(self, name: str) -> bool:
        return name in self._objects

    def size(self, name: str) -> int | None:
        return self._objects[name].num_bytes if name in self._objects else None

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        return [self.size(name) for name in names]

    def stamp(self, name: str) -> str:
        found = self._stat(name)
        return f"{found.num_bytes}-{found.tag}"

    def local_path(self, name: str) -> None:
        return None

    def open(self, name: str) -> IO[bytes]:
        return io.BufferedReader(self._file(name))

    def in_order(self, name: str) -> IO[bytes]:
        file = self._file(name)
        file.expect([(0, file.num_bytes)], is_begun=False)
        return cast("IO[bytes]", file)

    def array(
        self, name: str, dtype: np.dtype[Any], offset: int, count: int
    ) -> npt.NDArray[np.integer]:
        self._stat(name)
        stored = ObjectArray(
            lambda *range_: self._file(name).read_at(*range_), dtype, offset, count
        )
        return cast("npt.NDArray[np.integer]", stored)

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        num_bytes = self._stat(name).num_bytes
        with self._lock:
            is_held = name not in self._held
            is_held &= self._num_held_bytes + num_bytes <= MAX_HELD_BYTES
            self._num_held_bytes += num_bytes if is_held else 0
        if not is_held:
            yield
            return
        try:
            self._held[name] = b"".join(self._fetch(name, requests_of(0, num_bytes)))
            yield
        finally:
            self._held.pop(name, None)
            with self._lock:
                self._num_held_bytes -= num_bytes

    def _stat(self, name: str) -> Stat:
        if name not in self._objects:
            raise IntegrityError(f"{self.path_of(name)} is missing")
        return self._objects[name]

    def _file(self, name: str) -> RangedFile:
        found = self._stat(name)
        fetch, key = functools.partial(self._fetch, name), (self.path_of(name), found.tag)
        return RangedFile(fetch, found.num_bytes, key, self._held.get(name))

    def _fetch(self, name: str, ranges: Sequence[Range]) -> list[bytes]:
        url = self.path_of(name)
        with _explained(url):
            return bucket(url).fetch(url, ranges)


class ObjectArray:
    """The consecutive numbers of an object, as an array with the operations that formats use:
    taking a slice fetches it, and any other operation fetches the whole object."""

    def __init__(
        self, read: Callable[[int, int], bytes], dtype: np.dtype[Any], offset: int, count: int
    ) -> None:
        self.dtype = dtype
        self.nbytes = count * dtype.itemsize
        self._read = read
        self._offset = offset
        self._count = count
        self._whole: npt.NDArray[Any] | None = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, key: Any) -> Any:
        if self._whole is not None or not isinstance(key, slice):
            return np.asarray(self)[key]
        start, stop, step = key.indices(self._count)
        width = self.dtype.itemsize
        data = self._read(self._offset + start * width, self._offset + max(start, stop) * width)
        return np.frombuffer(data, self.dtype)[::step]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if self._whole is None:
            self._whole = self[:]
        dtype = self.dtype if dtype is None else dtype
        return np.array(self._whole, dtype) if copy else self._whole.astype(dtype, copy=False)


@contextlib.contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except TokenmillError:
        raise
    except FileNotFoundError:
        raise IntegrityError(f"{url} was removed while it was being read") from None
    except OSError as error:
        raise unreadable_object(url, error) from error


def unreadable_object(url: str, error: OSError) -> InputError:
    """The error to raise when the store refuses access."""
    if isinstance(error, PermissionError):
        return InputError(
            f"{url} cannot be read with the credentials found: {error}",
            hint="can your own client list it? For S3: aws s3 ls, with AWS_PROFILE as here",
        )
    return InputError(f"{url}: {error}")
