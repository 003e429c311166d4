"""A dataset on object storage, as a folder: names and sizes on disk, bytes when they are read.

A format looks for files, asks how large they are, and opens some of them, all by path. So a remote
dataset gets a temporary folder of stand-ins: files with the right names and sizes and nothing in
them, which take no room on the disk. Whoever reads a dataset's file opens it here. For a local path
that is the file itself; for a stand-in it is the object, by ranges:

    opened      any bytes of it: headers, footers, an index
    in_order    all of them, one after the other: 32 MiB are on their way ahead (range_reader.py)
    array_of    its numbers as an array, whose slices are fetched when they are taken

What is read here and there comes in blocks of 64 KiB, of which the last 32 MiB are kept in memory,
and what is to be read twice (hashed, then decoded) is held there meanwhile, up to 512 MiB in all;
nothing of it is written. Stand-ins may not be opened (mode 0), so that code which does not come
here gets an error and not zeros.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import InputError, IntegrityError, TokenmillError
from tokenmill.storage import disk, files, objects
from tokenmill.storage.objects import ObjectInfo
from tokenmill.storage.range_reader import RangedFile

BLOCK_BYTES = 64 << 10  # less is not worth a request of its own
MAX_KEPT_BYTES = 32 << 20
MAX_HELD_BYTES = 512 << 20
REQUEST_BYTES = 1 << 20  # more is asked for in pieces, in parallel
MAX_REQUESTS = 32  # for one range, unless these would be over 8 MiB each

Range = tuple[int, int]


class Mirror:
    """The folder of stand-ins for the objects below a URL."""

    def __init__(self, url: str, folder: str) -> None:
        self.url = url
        self.folder = folder
        self._objects: dict[str, ObjectInfo] = {}
        self._kept: collections.OrderedDict[tuple[str, int], bytes] = collections.OrderedDict()
        self._held: dict[str, bytes] = {}
        self._num_held_bytes = 0
        self._lock = threading.Lock()

    def add(self, name: str, info: ObjectInfo) -> None:
        """Make a stand-in. `name` is relative, with at most one folder in it."""
        path = os.path.join(self.folder, name)
        if not os.path.isdir(os.path.dirname(path)):
            files.make_folder(os.path.dirname(path))
        disk.write_stand_in(path, info.num_bytes)
        self._objects[name] = info

    def named(self, text: str) -> str:
        """The text, with the URL in place of the folder."""
        return text.replace(self.folder, self.url)

    def holds(self, name: str) -> bool:
        return name in self._objects

    def num_bytes(self, name: str) -> int:
        return self._objects[name].num_bytes

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop` of an object."""
        stop = min(stop, self.num_bytes(name))
        if start >= stop:
            return b""
        if (whole := self._held.get(name)) is not None:
            return whole[start:stop]
        if stop - start > MAX_KEPT_BYTES // 8:
            return b"".join(self._fetched(name, [(start, stop)]))
        first, last = start // BLOCK_BYTES, -(-stop // BLOCK_BYTES)
        blocks = self._blocks(name, range(first, last))
        return b"".join(blocks)[start - first * BLOCK_BYTES : stop - first * BLOCK_BYTES]

    def read_in_order(self, name: str) -> Callable[[int, int], bytes]:
        """As `read`, for someone who will read all of it from the beginning."""
        if name in self._held:
            return functools.partial(self.read, name)
        info, url = self._objects[name], f"{self.url}/{name}"
        file = RangedFile(url, info.num_bytes, info.tag)
        file.expect([(0, info.num_bytes)])

        def read(start: int, stop: int) -> bytes:
            with _explained(url):
                file.seek(start)
                return file.read(stop - start)

        return read

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        num_bytes = self.num_bytes(name)
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

    def _blocks(self, name: str, numbers: range) -> list[bytes]:
        with self._lock:
            found = {n: self._kept[name, n] for n in numbers if (name, n) in self._kept}
        ranges: list[Range] = []
        for number in numbers:
            if number not in found:
                start = number * BLOCK_BYTES
                stop = min(start + BLOCK_BYTES, self.num_bytes(name))
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
        url = f"{self.url}/{name}"
        cut = [_pieces(start, stop) for start, stop in ranges]
        with _explained(url):
            arrived = iter(objects.read_ranges(url, [piece for one in cut for piece in one]))
        return [b"".join(next(arrived) for _ in one) for one in cut]


def _pieces(start: int, stop: int) -> list[Range]:
    size = max(REQUEST_BYTES, min(objects.RANGE_BYTES, (stop - start) // MAX_REQUESTS))
    return [(at, min(at + size, stop)) for at in range(start, stop, size)]


class ObjectArray:
    """Numbers that stand in an object one after the other. As far as formats use it it is an array:
    a slice is fetched when it is taken, and anything else takes the whole."""

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


_mirrors: dict[str, Mirror] = {}  # by their folders


@contextlib.contextmanager
def registered(mirror: Mirror) -> Iterator[None]:
    """Have the mirror's paths lead to its objects. Errors on the way out name the URL."""
    _mirrors[mirror.folder] = mirror
    try:
        yield
    except TokenmillError as error:
        if mirror.folder not in str(error):
            raise
        hint = None if error.hint is None else mirror.named(error.hint)
        raise type(error)(mirror.named(error.message), hint) from error
    finally:
        del _mirrors[mirror.folder]


def is_mirror(folder: str) -> bool:
    return folder in _mirrors


def name_of(folder: str) -> str:
    """What to call the folder: the URL that it stands for, or itself."""
    return _mirrors[folder].url if folder in _mirrors else folder


def is_stand_in(path: str) -> bool:
    return _standing_for(path) is not None


def opened(path: str) -> IO[bytes]:
    """The file, for reading. Raises what `open` does; of an object, our own errors alone."""
    found = _standing_for(path)
    if found is None:
        return open(path, "rb")
    mirror, name = found
    return io.BufferedReader(
        _ObjectFile(lambda start, stop: mirror.read(name, start, stop), mirror.num_bytes(name)),
        BLOCK_BYTES,
    )


def in_order(path: str) -> io.RawIOBase:
    """The file, to be read from its beginning to its end, in large pieces."""
    found = _standing_for(path)
    if found is None:
        return open(path, "rb", buffering=0, opener=_opened_at_once)
    mirror, name = found
    return _ObjectFile(mirror.read_in_order(name), mirror.num_bytes(name))


def array_of(path: str, dtype: np.dtype[Any], offset: int, count: int) -> ObjectArray | None:
    """The numbers of a stand-in's object from byte `offset` on; None for any other path."""
    found = _standing_for(path)
    if found is None:
        return None
    mirror, name = found
    return ObjectArray(lambda start, stop: mirror.read(name, start, stop), dtype, offset, count)


@contextlib.contextmanager
def held(path: str) -> Iterator[None]:
    """While this lasts, the file's object is in memory, unless it is too large: for those who read
    it twice. Of a local file, nothing."""
    found = _standing_for(path)
    if found is None:
        yield
        return
    with found[0].held(found[1]):
        yield


def _opened_at_once(path: str, flags: int) -> int:
    """To open a pipe would be to wait for its other end."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)


def _standing_for(path: str) -> tuple[Mirror, str] | None:
    if not _mirrors:
        return None
    folder, name = os.path.split(path)
    if folder not in _mirrors:
        folder, below = os.path.split(folder)
        name = f"{below}/{name}"
    mirror = _mirrors.get(folder)
    return (mirror, name) if mirror is not None and mirror.holds(name) else None


@contextlib.contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except TokenmillError:
        raise
    except FileNotFoundError:
        raise IntegrityError(f"{url} was there a moment ago and is gone") from None
    except OSError as error:
        raise unreadable(url, error) from error


def unreadable(url: str, error: OSError) -> InputError:
    """What to raise when the store refuses."""
    if isinstance(error, PermissionError):
        return InputError(
            f"{url} may not be read with the credentials that were found: {error}",
            hint="can your own client list it? For S3: aws s3 ls, with AWS_PROFILE as here",
        )
    return InputError(f"{url}: {error}")
