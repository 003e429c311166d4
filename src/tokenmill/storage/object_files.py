"""The files of a dataset below a URL (the seam: `Files` of formats/format.py).

Nothing is copied to disk. Bytes are fetched in ranges when they are read:

    open        any bytes of an object: headers, footers, an index
    in_order    the whole object in order, with 32 MiB prefetched (range_reader.py)
    array       its numbers as an array; a slice is fetched when it is taken

Scattered reads fetch blocks of 64 KiB and keep the last 32 MiB in memory. Objects that are read
twice (hashed, then decoded) stay in memory in between, up to 512 MiB in all.
"""

from __future__ import annotations

import collections
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
from tokenmill.storage.objects.store import RANGE_BYTES
from tokenmill.storage.range_reader import RangedFile

BLOCK_BYTES = 64 << 10  # smaller requests are not worth their latency
MAX_KEPT_BYTES = 32 << 20
MAX_HELD_BYTES = 512 << 20
REQUEST_BYTES = 1 << 20  # larger ranges are split and fetched in parallel
MAX_REQUESTS = 32  # for one range, unless these would be over 8 MiB each

Range = tuple[int, int]


class ObjectFiles:
    """Objects below a URL, by their names relative to it. `whole` holds the objects already
    read."""

    is_local = False

    def __init__(
        self, url: str, found: Mapping[str, Stat], whole: Mapping[str, bytes] | None = None
    ) -> None:
        self.label = url
        self._objects = found
        self._kept: collections.OrderedDict[tuple[str, int], bytes] = collections.OrderedDict()
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
        return f"{self._num_bytes(name)}-{self._objects[name].tag}"

    def local_path(self, name: str) -> None:
        return None

    def open(self, name: str) -> IO[bytes]:
        raw = _ObjectFile(functools.partial(self._read, name), self._num_bytes(name))
        return io.BufferedReader(raw, BLOCK_BYTES)

    def in_order(self, name: str) -> IO[bytes]:
        return cast("IO[bytes]", _ObjectFile(self._reader(name), self._num_bytes(name)))

    def array(
        self, name: str, dtype: np.dtype[Any], offset: int, count: int
    ) -> npt.NDArray[np.integer]:
        stored = ObjectArray(functools.partial(self._read, name), dtype, offset, count)
        return cast("npt.NDArray[np.integer]", stored)

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        num_bytes = self._num_bytes(name)
        with self._lock:
            is_held = name not in self._held
            is_held &= self._num_held_bytes + num_bytes <= MAX_HELD_BYTES
            self._num_held_bytes += num_bytes if is_held else 0
        if not is_held:
            yield
            return
        try:
            [self._held[name]] = self._fetched(name, [(0, num_bytes)])
            yield
        finally:
            self._held.pop(name, None)
            with self._lock:
                self._num_held_bytes -= num_bytes

    def _num_bytes(self, name: str) -> int:
        if name not in self._objects:
            raise IntegrityError(f"{self.path_of(name)} is missing")
        return self._objects[name].num_bytes

    def _read(self, name: str, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop` of an object."""
        stop = min(stop, self._num_bytes(name))
        if start >= stop:
            return b""
        if (whole := self._held.get(name)) is not None:
            return whole[start:stop]
        if stop - start > MAX_KEPT_BYTES // 8:
            return b"".join(self._fetched(name, [(start, stop)]))
        first, last = start // BLOCK_BYTES, -(-stop // BLOCK_BYTES)
        blocks = self._blocks(name, range(first, last))
        return b"".join(blocks)[start - first * BLOCK_BYTES : stop - first * BLOCK_BYTES]

    def _reader(self, name: str) -> Callable[[int, int], bytes]:
        """Like `_read`, for a caller that reads the whole object in order."""
        num_bytes, url = self._num_bytes(name), self.path_of(name)
        if name in self._held:
            return functools.partial(self._read, name)
        file = RangedFile(url, num_bytes, self._objects[name].tag)
        file.expect([(0, num_bytes)])

        def read(start: int, stop: int) -> bytes:
            with _explained(url):
                file.seek(start)
                return file.read(stop - start)

        return read

    def _blocks(self, name: str, numbers: range) -> list[bytes]:
        with self._lock:
            found = {n: self._kept[name, n] for n in numbers if (name, n) in self._kept}
        ranges: list[Range] = []
        for number in numbers:
            if number not in found:
                start = number * BLOCK_BYTES
                stop = min(start + BLOCK_BYTES, self._num_bytes(name))
                if ranges and ranges[-1][1] == start:
                    start = ranges.pop()[0]
                ranges.append((start, stop))
        for (start, _), data in zip(ranges, self._fetched(name, ranges), strict=True):
            for at in range(0, len(data), BLOCK_BYTES):
                found[(start + at) // BLOCK_BYTES] = data[at : at + BLOCK_BYTES]
        with self._lock:
            for number in numbers:
                self._kept[name, number] = found[number]
                self._kept.move_to_end((name, number))
            while len(self._kept) > MAX_KEPT_BYTES // BLOCK_BYTES:
                self._kept.popitem(last=False)
        return [found[number] for number in numbers]

    def _fetched(self, name: str, ranges: Sequence[Range]) -> list[bytes]:
        url = self.path_of(name)
        cut = [_pieces(start, stop) for start, stop in ranges]
        with _explained(url):
            arrived = iter(bucket(url).fetch(url, [piece for one in cut for piece in one]))
        return [b"".join(next(arrived) for _ in one) for one in cut]


def _pieces(start: int, stop: int) -> list[Range]:
    size = max(REQUEST_BYTES, min(RANGE_BYTES, (stop - start) // MAX_REQUESTS))
    return [(at, min(at + size, stop)) for at in range(start, stop, size)]


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


class _ObjectFile(io.RawIOBase):
    def __init__(self, read: Callable[[int, int], bytes], num_bytes: int) -> None:
        super().__init__()
        self._read = read
        self._num_bytes = num_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._num_bytes)[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        stop = min(self._position + len(buffer), self._num_bytes)
        data = self._read(self._position, stop) if self._position < stop else b""
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


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
