"""An object as a file with open, seek and read, whose next ranges are prefetched.

Our readers use it directly and pyarrow uses it through `pa.PythonFile`, asking for exactly the
column chunks and buffers that it decodes. So an object needs no copy on disk, and only bytes that
are decoded are fetched. Readers announce the ranges they will read (`expect`): these arrive in
parallel, at most 32 MiB ahead, while earlier ranges are decoded and encoded.

Other reads go through one cache a process, of blocks of 64 KiB, so an object's next reader finds
its header and footer, and scattered reads of one place take one request.
"""

from __future__ import annotations

import collections
import io
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

BLOCK_BYTES = 4 << 20  # per request; a batch of text is about as large
MAX_AHEAD_BYTES = 32 << 20
MAX_AHEAD_BLOCKS = 16
# A gap smaller than this is fetched too: a request costs as much time as 2 MB.
MIN_READ_BYTES = 64 << 10
SMALL_OBJECT_BYTES = 1 << 20  # fetched whole
MAX_AHEAD_OBJECTS = 32
KEPT_BYTES = MIN_READ_BYTES  # a block of those that are kept
MAX_KEPT_BYTES = 64 << 20
MAX_KEPT_READ_BYTES = 4 << 20  # what a larger unexpected read finds is not kept
REQUEST_BYTES = 1 << 20  # of an unexpected read; larger ones are split and fetched in parallel
MAX_REQUESTS = 32  # for one read, unless these would be over 8 MiB each

Result = TypeVar("Result")
Range = tuple[int, int]
Fetch = Callable[[Sequence[Range]], list[bytes]]  # ObjectStore.fetch, of one object


class ByteFile(Protocol):
    """The file methods that our readers use."""

    def read(self, size: int = -1, /) -> bytes: ...

    def seek(self, offset: int, whence: int = 0, /) -> int: ...


class BackgroundCall(Generic[Result]):
    """The result of a call that runs in its own daemon thread, so that a pause between two retries
    does not delay the exit of the process. (A Future of concurrent.futures would do, but its import
    costs every process 10 ms.)"""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._is_done = threading.Event()
        self._result: Result | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._do, name="prefetch", daemon=True).start()

    def _do(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        finally:
            del self._work
            self._is_done.set()

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def is_done_within(self, seconds: float) -> bool:
        return self._is_done.wait(seconds)

    def result(self) -> Result:
        self._is_done.wait()
        if self._error is not None:
            raise self._error
        return cast("Result", self._result)


class _Piece:
    """A range of an object, in flight or fetched."""

    def __init__(self, fetch: Fetch, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self._data = BackgroundCall(lambda: fetch([(start, stop)])[0])

    def part(self, start: int, stop: int) -> bytes:
        """What it holds of these bytes."""
        return self._data.result()[max(0, start - self.start) : max(0, stop - self.start)]

    @property
    def has_failed(self) -> bool:
        return self._data.has_failed

    def holds(self, position: int) -> bool:
        """Whether the piece holds that byte. A failed piece holds nothing, so the next read
        retries."""
        return self.start <= position < self.stop and not self.has_failed


class RangedFile(io.RawIOBase):
    """An object as a file, for one thread. Its memory is bounded by the expected ranges, or by the
    largest single read.

    `key` is that of the object's content, `whole` all of it, if it is known already. With
    `is_whole` a small object is fetched whole.
    """

    def __init__(
        self,
        fetch: Fetch,
        num_bytes: int,
        key: tuple[str, str],
        whole: bytes | None = None,
        is_whole: bool = False,
    ) -> None:
        super().__init__()
        self.key = key
        self.num_bytes = num_bytes
        self.fetch = fetch
        self.is_fetched_whole = is_whole and num_bytes <= SMALL_OBJECT_BYTES
        self._whole = whole
        self._position = 0
        self._expected: collections.deque[Range] = collections.deque()
        self._begun: collections.deque[_Piece] = collections.deque()

    def expect(self, ranges: Iterable[Range], is_begun: bool = True) -> None:
        """Announce the next reads in their order, and start to prefetch them: now, or, because the
        first may be anywhere, after the first read."""
        self._expected = collections.deque(_blocks(self._clipped(ranges)))
        self._begun.clear()
        if is_begun:
            self._begin()

    def prefetch(self, start: int, stop: int) -> None:
        """Start to fetch a range, unless it is cached, for the object's next reader."""
        if start < stop:
            _cache.pieces(self, max(0, start), stop)

    def read(self, size: int | None = -1) -> bytes:
        start = self._position
        is_all = size is None or size < 0
        stop = self.num_bytes if is_all else min(start + size, self.num_bytes)  # type: ignore[operator]
        parts = []
        while start < stop:
            piece = self._begun_at(start)
            parts.append(self.read_at(start, stop) if piece is None else piece.part(start, stop))
            start += len(parts[-1])
        self._position = max(self._position, start)
        while self._begun and self._begun[0].stop <= start:
            self._begun.popleft()
        self._begin()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read_at(self, start: int, stop: int) -> bytes:
        """Bytes that were not expected; in any thread."""
        stop = min(stop, self.num_bytes)
        if self._whole is not None:
            return self._whole[start:stop]
        if stop - start > MAX_KEPT_READ_BYTES:
            return b"".join(self.fetch(requests_of(start, stop)))
        parts = [piece.part(start, stop) for piece in _cache.pieces(self, start, stop)]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __getitem__(self, position: int) -> int:
        """One byte. It does not count as a read: earlier bytes are kept."""
        if not 0 <= position < self.num_bytes:
            raise IndexError(position)
        piece, stop = self._begun_at(position), position + 1
        data = self.read_at(position, stop) if piece is None else piece.part(position, stop)
        return data[0]

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self.num_bytes)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        super().close()
        self._expected.clear()
        self._begun.clear()

    def _clipped(self, ranges: Iterable[Range]) -> Iterator[Range]:
        """The ranges, clipped to bytes that exist (footers are not trusted) and are not kept
        already."""
        for start, stop in ranges:
            start, stop = max(0, start), min(stop, self.num_bytes)  # noqa: PLW2901
            if start < stop and self._whole is None and not _cache.holds(self, start, stop):
                yield start, stop

    def _begin(self) -> None:
        num_bytes = sum(piece.stop - piece.start for piece in self._begun)
        while self._expected and len(self._begun) < MAX_AHEAD_BLOCKS:
            start, stop = self._expected[0]
            if self._begun and num_bytes + stop - start > MAX_AHEAD_BYTES:
                return
            self._begun.append(_Piece(self.fetch, *self._expected.popleft()))
            num_bytes += stop - start

    def _begun_at(self, position: int) -> _Piece | None:
        """The expected piece that holds that byte, if it was expected."""
        for piece in self._begun:
            if piece.holds(position):
                return piece
        while any(first <= position < last for first, last in self._expected):
            start, stop = self._expected.popleft()
            # What is far back, or before the first read, has been left out.
            if position < stop or (self._begun and position - stop <= MAX_AHEAD_BYTES):
                self._begun.append(_Piece(self.fetch, start, stop))
                if self._begun[-1].holds(position):
                    return self._begun[-1]
        return None


def _blocks(ranges: Iterable[Range]) -> Iterator[Range]:
    """The ranges as requests: near neighbours merged, large ranges split."""
    begin = end = 0
    for start, stop in ranges:
        if not (end <= start <= end + MIN_READ_BYTES and stop - begin <= BLOCK_BYTES):
            yield from _cut(begin, end, BLOCK_BYTES)
            begin = start
        end = stop
    yield from _cut(begin, end, BLOCK_BYTES)


def requests_of(start: int, stop: int) -> list[Range]:
    """An unexpected range as requests."""
    size = max(REQUEST_BYTES, min(8 << 20, (stop - start) // MAX_REQUESTS))
    return list(_cut(start, stop, size))


def _cut(start: int, stop: int, size: int) -> Iterator[Range]:
    return ((at, min(at + size, stop)) for at in range(start, stop, size))


class _Cache:
    """Blocks of objects, for whoever reads them next; the least recently used go first. Blocks are
    numbered from an object's end, where its readers begin."""

    def __init__(self) -> None:
        self._pieces: collections.OrderedDict[tuple[Any, ...], _Piece] = collections.OrderedDict()
        self._lock = threading.Lock()

    def holds(self, file: RangedFile, start: int, stop: int) -> bool:
        with self._lock:
            return not self._missing(file, start, stop)

    def pieces(self, file: RangedFile, start: int, stop: int) -> list[_Piece]:
        """Pieces that hold these bytes, in order; missing ones are begun."""
        with self._lock:
            missing = self._missing(file, start, stop)
            for _, run in itertools.groupby(enumerate(missing), sum):
                numbers = [number for _, number in run]  # neighbours: one request
                begin = max(0, file.num_bytes - (numbers[0] + 1) * KEPT_BYTES)
                piece = _Piece(file.fetch, begin, file.num_bytes - numbers[-1] * KEPT_BYTES)
                self._pieces.update({(file.key, number): piece for number in numbers})
            found = dict[_Piece, None]()
            for number in _numbers(file, start, stop):
                self._pieces.move_to_end((file.key, number))
                found[self._pieces[file.key, number]] = None
            while len(self._pieces) * KEPT_BYTES > MAX_KEPT_BYTES:
                self._pieces.popitem(last=False)
        return list(found)

    def _missing(self, file: RangedFile, start: int, stop: int) -> list[int]:
        pieces = {
            number: self._pieces.get((file.key, number)) for number in _numbers(file, start, stop)
        }
        return [number for number, piece in pieces.items() if piece is None or piece.has_failed]


def _numbers(file: RangedFile, start: int, stop: int) -> range:
    """The blocks that hold these bytes."""
    if file.is_fetched_whole:
        start, stop = 0, file.num_bytes
    first, last = ((file.num_bytes - 1 - at) // KEPT_BYTES for at in (start, stop - 1))
    return range(first, last - 1, -1)


def _forget() -> None:
    """After a fork, because the threads that fetch are not in the child."""
    global _cache  # noqa: PLW0603
    _cache = _Cache()


_cache = _Cache()
os.register_at_fork(after_in_child=_forget)
