"""An object as a file, read by ranges: open, seek and read, with what comes next on its way.

Readers open, seek and read, and pyarrow does the same through `pa.PythonFile`; it asks for exactly
the column chunks and buffers that it decodes. So an object needs no copy on disk, and nothing of it
is read that is not decoded. Readers say beforehand which ranges they will come to (`expect`): these
arrive in parallel, at most 32 MiB ahead, while what came before them is decoded and encoded.

Ends of objects, where footers and headers are, are kept for the next reader of the same object.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar, cast

from tokenmill.storage import objects

BLOCK_BYTES = 4 << 20  # of one request; batches of text are as large
MAX_AHEAD_BYTES = 32 << 20
MAX_AHEAD_BLOCKS = 16
# Less than this is not worth a request of its own: it costs as much time as 2 MB.
MIN_READ_BYTES = 64 << 10
SMALL_OBJECT_BYTES = 1 << 20  # fetched whole
MAX_AHEAD_OBJECTS = 32
# Footers of FineWeb have 0.3 MB.
MAX_EDGE_BYTES = 16 << 20
MAX_KEPT_BYTES = 64 << 20

Result = TypeVar("Result")
Range = tuple[int, int]


class ByteFile(Protocol):
    """As much of a file as our readers use."""

    def read(self, size: int = -1, /) -> bytes: ...

    def seek(self, offset: int, whence: int = 0, /) -> int: ...


class Begun(Generic[Result]):
    """Something that a thread of its own has begun. As a daemon it keeps nobody who wants to end,
    while it sits out a pause between two tries. (A Future of concurrent.futures would do, at 10 ms
    that every process pays for the import.)"""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._is_done = threading.Event()
        self._result: Result | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._do, name="ahead", daemon=True).start()

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

    def result(self) -> Result:
        self._is_done.wait()
        if self._error is not None:
            raise self._error
        return cast("Result", self._result)


class _Piece:
    """A range of an object, on its way or here."""

    def __init__(self, url: str, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self._data = Begun(lambda: objects.read_range(url, start, stop))

    @property
    def data(self) -> bytes:
        return self._data.result()

    def holds(self, position: int) -> bool:
        """Whether that byte is in it. What has failed holds nothing: who comes back tries again."""
        return self.start <= position < self.stop and not self._data.has_failed


class RangedFile:
    """An object as a file, for one thread. What it holds in memory is bounded by what is expected,
    or by what is read at once."""

    def __init__(self, url: str, num_bytes: int, digest: str) -> None:
        self.closed = False
        self._url = url
        self._num_bytes = num_bytes
        self._position = 0
        self._edges = _edges.of(url, digest)
        self._expected: collections.deque[Range] = collections.deque()
        self._begun: collections.deque[_Piece] = collections.deque()
        self._last: list[_Piece] = []  # that was fetched without having been expected

    def expect(self, ranges: Iterable[Range]) -> None:
        """Say what will be read next, in this order; it is begun to be fetched."""
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
        """One byte. It does not count as read: what lies before it is kept."""
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
        """The ranges without what is kept, or does not exist: footers are not trusted."""
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
        """A piece that holds byte `start`; what nobody expected is fetched now, up to `stop`."""
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
        """What to fetch for a read that nobody announced: a little more, but nothing twice."""
        if self._num_bytes <= SMALL_OBJECT_BYTES:
            return 0, self._num_bytes
        tail = self._num_bytes - MIN_READ_BYTES
        if start >= tail:
            return tail, self._num_bytes
        stop = max(stop, min(start + MIN_READ_BYTES, self._num_bytes))
        return start, min([stop, *(edge.start for edge in self._edges if edge.start > start)])


def _blocks(ranges: Iterable[Range]) -> Iterator[Range]:
    """The ranges as requests: near neighbours together, large ones in pieces."""
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
    """Pieces at the ends of objects, for those who open them again.

    The oldest go first, used or not: objects are read in order, so those to come are the newest.
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
        """Begin to fetch a piece, unless it is here."""
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


def fetch_ahead(url: str, digest: str, edge: Range) -> None:
    """Begin to fetch an end of an object, unless it is here, for whoever opens the object next."""
    _edges.fetch(url, digest, *edge)
