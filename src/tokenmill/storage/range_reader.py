"""An object as a file with open, seek and read, whose next ranges are prefetched.

Our readers use it directly and pyarrow uses it through `pa.PythonFile`, asking for exactly the
column chunks and buffers that it decodes. So an object needs no copy on disk, and only bytes that
are decoded are fetched. Readers announce the ranges they will read (`expect`): these arrive in
parallel, at most 32 MiB ahead, while earlier ranges are decoded and encoded.

Both ends of an object, with its header and footer, stay in memory for its next reader.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar, cast

from tokenmill.storage.objects import bucket

BLOCK_BYTES = 4 << 20  # per request; a batch of text is about as large
MAX_AHEAD_BYTES = 32 << 20
MAX_AHEAD_BLOCKS = 16
# A gap smaller than this is fetched too: a request costs as much time as 2 MB.
MIN_READ_BYTES = 64 << 10
SMALL_OBJECT_BYTES = 1 << 20  # fetched whole
MAX_AHEAD_OBJECTS = 32
# FineWeb's footers have 0.3 MB.
MAX_EDGE_BYTES = 16 << 20
MAX_KEPT_BYTES = 64 << 20

Result = TypeVar("Result")
Range = tuple[int, int]


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

    def __init__(self, url: str, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self._data = BackgroundCall(lambda: bucket(url).fetch(url, [(start, stop)])[0])

    @property
    def data(self) -> bytes:
        return self._data.result()

    def holds(self, position: int) -> bool:
        """Whether the piece holds that byte. A failed piece holds nothing, so the next read
        retries."""
        return self.start <= position < self.stop and not self._data.has_failed


class RangedFile:
    """An object as a file, for one thread. Its memory is bounded by the expected ranges, or by the
    largest single read."""

    def __init__(self, url: str, num_bytes: int, digest: str) -> None:
        self.closed = False
        self._url = url
        self._num_bytes = num_bytes
        self._position = 0
        self._edges = _edges.of(url, digest)
        self._expected: collections.deque[Range] = collections.deque()
        self._begun: collections.deque[_Piece] = collections.deque()
        self._last: list[_Piece] = []  # fetched without having been expected

    def expect(self, ranges: Iterable[Range]) -> None:
        """Announce the next reads in their order, and start to prefetch them."""
        self._expected = collections.deque(_blocks(self._clipped(ranges)))
        self._begun.clear()
        self._begin()

    def read(self, size: int = -1) -> bytes:
        start = self._position
        stop = self._num_bytes if size < 0 else min(start + size, self._num_bytes)
        parts = []
        while start < stop:
            piece = self._piece_at(start, stop)
            parts.append(piece.data[start - piece.start : stop - piece.start])
            start += len(parts[-1])
        self._position = max(self._position, start)
        while self._begun and self._begun[0].stop <= start:
            self._begun.popleft()
        self._begin()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __getitem__(self, position: int) -> int:
        """One byte. It does not count as a read: earlier bytes are kept."""
        if not 0 <= position < self._num_bytes:
            raise IndexError(position)
        piece = self._piece_at(position, position + 1)
        return piece.data[position - piece.start]

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._num_bytes)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True
        self._expected.clear()
        self._begun.clear()
        self._last.clear()

    def _clipped(self, ranges: Iterable[Range]) -> Iterator[Range]:
        """The ranges, clipped to bytes that exist (footers are not trusted) and are not kept
        already."""
        for start, stop in ranges:
            start, stop = max(0, start), min(stop, self._num_bytes)  # noqa: PLW2901
            if start < stop and not any(e.holds(start) and e.holds(stop - 1) for e in self._edges):
                yield start, stop

    def _begin(self) -> None:
        num_bytes = sum(piece.stop - piece.start for piece in self._begun)
        while self._expected and len(self._begun) < MAX_AHEAD_BLOCKS:
            start, stop = self._expected[0]
            if self._begun and num_bytes + stop - start > MAX_AHEAD_BYTES:
                return
            self._begun.append(_Piece(self._url, *self._expected.popleft()))
            num_bytes += stop - start

    def _piece_at(self, start: int, stop: int) -> _Piece:
        """A piece that holds byte `start`; an unexpected range is fetched now, up to `stop`."""
        for piece in (*self._edges, *self._begun, *self._last):
            if piece.holds(start):
                return piece
        while any(first <= start < last for first, last in self._expected):
            self._begun.append(_Piece(self._url, *self._expected.popleft()))
            if self._begun[-1].holds(start):
                return self._begun[-1]
        piece = _Piece(self._url, *self._unexpected(start, stop))
        if piece.stop - piece.start <= MAX_EDGE_BYTES and (
            piece.start == 0
            or piece.stop == self._num_bytes
            or any(piece.stop == edge.start for edge in self._edges)
        ):
            _edges.keep(self._edges, piece)
        else:
            self._last = [piece]
        return piece

    def _unexpected(self, start: int, stop: int) -> Range:
        """The range to fetch for an unannounced read: a little more than asked for, but no byte
        twice."""
        if self._num_bytes <= SMALL_OBJECT_BYTES:
            return 0, self._num_bytes
        tail = self._num_bytes - MIN_READ_BYTES
        if start >= tail:
            return tail, self._num_bytes
        stop = max(stop, min(start + MIN_READ_BYTES, self._num_bytes))
        return start, min([stop, *(edge.start for edge in self._edges if edge.start > start)])


def _blocks(ranges: Iterable[Range]) -> Iterator[Range]:
    """The ranges as requests: near neighbours merged, large ranges split."""
    begin = end = 0
    for start, stop in ranges:
        if not (end <= start <= end + MIN_READ_BYTES and stop - begin <= BLOCK_BYTES):
            yield from _pieces(begin, end)
            begin = start
        end = stop
    yield from _pieces(begin, end)


def _pieces(start: int, stop: int) -> Iterator[Range]:
    return ((at, min(at + BLOCK_BYTES, stop)) for at in range(start, stop, BLOCK_BYTES))


class _Edges:
    """Pieces at the ends of objects, kept for the next reader.

    The oldest are evicted first, used or not: objects are read in order, so the next ones are
    newest.
    """

    def __init__(self) -> None:
        self._pieces: dict[tuple[str, str], list[_Piece]] = {}
        self._lock = threading.Lock()

    def of(self, url: str, digest: str) -> list[_Piece]:
        with self._lock:
            found = self._pieces.setdefault((url, digest), [])
            self._shrink()
            return found

    def fetch(self, url: str, digest: str, start: int, stop: int) -> None:
        """Start to fetch a piece, unless it is cached."""
        pieces = self.of(url, digest)
        if start < stop and not any(p.holds(start) and p.holds(stop - 1) for p in pieces):
            self.keep(pieces, _Piece(url, start, stop))

    def keep(self, pieces: list[_Piece], piece: _Piece) -> None:
        with self._lock:
            pieces.append(piece)
            self._shrink()

    def _shrink(self) -> None:
        sizes = [sum(p.stop - p.start for p in pieces) for pieces in self._pieces.values()]
        num_bytes = sum(sizes)
        for size in sizes[:-1]:
            if num_bytes <= MAX_KEPT_BYTES and len(self._pieces) <= 2 * MAX_AHEAD_OBJECTS:
                return
            del self._pieces[next(iter(self._pieces))]
            num_bytes -= size


_edges = _Edges()


def prefetch_edge(url: str, digest: str, edge: Range) -> None:
    """Start to fetch an end of an object, unless it is cached, for the object's next reader."""
    _edges.fetch(url, digest, *edge)
