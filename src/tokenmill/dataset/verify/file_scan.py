"""Reads the files of a dataset, each once: hashes them and scans their tokens in the same pass.

Files are independent, so threads read several at once: hashing a block and comparing an array both
release the GIL. A raw file (a header, then tokens) is hashed and scanned block by block, while the
block is in the CPU's cache; other files are hashed and then read by their format.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import hashlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenmill.dataset.verify.token_scan import Positions, Rules, TokenScan, expected_eot
from tokenmill.errors import (
    ConfigError,
    InputError,
    IntegrityError,
    NetworkError,
    TokenmillError,
)
from tokenmill.formats import DatasetFiles, ShardReader
from tokenmill.storage import hashing

BLOCK_BYTES = 1 << 20
JOBS_PER_THREAD = 4
_NO_RULES = Rules(None, None, None)
# The current activity, the amount done, and the total.
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class FileToCheck:
    """A file to check. `open` is None for a file without tokens."""

    name: str
    is_hashed: bool
    open: Callable[[], ShardReader] | None = None
    is_raw: bool = False
    rules: Rules = _NO_RULES
    marks: tuple[tuple[int, int], ...] = ()
    has_boundaries: bool | None = False  # None: as the file says
    may_begin_cut: bool = False  # begins with the rest of a document, without its first EOT id
    may_end_cut: bool = False
    in_pieces: bool = False  # has a sha256 for each piece (hashing.PIECE_BYTES)
    is_scanned: bool = True  # with all of its tokens


@dataclass(frozen=True)
class Looked:
    """The results for one file."""

    name: str
    num_bytes: int = 0
    missing: str | None = None  # why it could not be read
    sha256: str | tuple[str, ...] | None = None
    broken: str | None = None  # what its format says is wrong with it
    num_documents: int | None = None  # if the format stores boundaries
    scan: TokenScan | None = None
    dtype: str | None = None
    token_bytes: int | None = None  # of a raw file: the tokens up to its end

    def byte_of(self, token: int) -> int | None:
        if self.token_bytes is None or self.scan is None:
            return None
        return self.num_bytes - (self.scan.num_tokens - token) * self.token_bytes


def looked_at(
    files: DatasetFiles, tasks: Sequence[FileToCheck], num_proc: int, progress: OnProgress
) -> dict[str, Looked]:
    """The results for each file, by name."""
    sizes = {task.name: size_of(files, task.name) for task in tasks}
    work = _Work(files)
    total = sum(_number(size) for size in sizes.values())
    pool = concurrent.futures.ThreadPoolExecutor(num_proc)
    try:
        # The largest first, so that the last thread is not left alone with it.
        largest_first = sorted(tasks, key=lambda task: -_number(sizes[task.name]))
        jobs = (job for task in largest_first for job in work.jobs(task, sizes[task.name]))
        waiting: set[concurrent.futures.Future[Looked | _Piece]] = set()
        found: list[Looked | _Piece] = []
        while True:
            # A few at a time: `wait` scans all its arguments on every call.
            some = itertools.islice(jobs, JOBS_PER_THREAD * num_proc - len(waiting))
            waiting |= {pool.submit(job) for job in some}
            if not waiting:
                return _put_together(found)
            done, waiting = concurrent.futures.wait(
                waiting, 0.1, concurrent.futures.FIRST_COMPLETED
            )
            found += [one.result() for one in done]
            progress("reading", work.num_bytes, total)
    finally:
        work.is_cancelled = True
        # A thread that waits for the network is not waited for: it touches no file.
        pool.shutdown(wait=not files.is_far, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of a file, hashed and, if pieces can be scanned alone, scanned."""

    name: str
    number: int
    sha256: str
    scan: TokenScan | None


def _put_together(found: Sequence[Looked | _Piece]) -> dict[str, Looked]:
    """The result of each file, merged from its pieces if it was hashed in pieces."""
    looked = {one.name: one for one in found if isinstance(one, Looked)}
    pieces: dict[str, list[_Piece]] = {}
    for one in found:
        if isinstance(one, _Piece):
            pieces.setdefault(one.name, []).append(one)
    for name, of_file in pieces.items():
        of_file.sort(key=lambda piece: piece.number)
        sha256, scan = tuple(piece.sha256 for piece in of_file), looked[name].scan
        scans = [piece.scan for piece in of_file if piece.scan is not None]
        if scans and scan is not None:
            scan = TokenScan.joined(scans)
            scan.finish()
        looked[name] = dataclasses.replace(looked[name], sha256=sha256, scan=scan)
    return looked


def size_of(files: DatasetFiles, name: str) -> int | str:
    """A file's size, or what is wrong with it."""
    try:
        size = files.size(name)
    except IntegrityError as error:
        return error.message.removeprefix(files.path_of(name)).strip()
    if size is None:
        return "is not a regular file" if files.has(name) else "is missing"
    return size


def _number(size: int | str) -> int:
    return size if isinstance(size, int) else 0


class _Cancelled(Exception):
    """The result is no longer needed."""


class _Work:
    """The state that the threads share."""

    def __init__(self, files: DatasetFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self.num_bytes = 0
        self.is_cancelled = False

    def jobs(self, task: FileToCheck, size: int | str) -> Iterator[Callable[[], Looked | _Piece]]:
        """Jobs that can run at the same time: tokens are scanned in order, but the pieces of a
        large file are hashed by any free thread."""
        if task.in_pieces and task.is_hashed and not self._files.is_far:
            # Rules between two documents cannot be checked in a single piece.
            is_scanned = task.has_boundaries is False and task.rules.eot != "both"
            for number in range(-(-_number(size) // hashing.PIECE_BYTES)):
                yield functools.partial(self._piece, task, number, _number(size), is_scanned)
            task = dataclasses.replace(task, is_hashed=False, is_scanned=not is_scanned)
        yield functools.partial(self.look, task, size)

    def _piece(self, task: FileToCheck, number: int, size: int, is_scanned: bool) -> _Piece:
        """Hash a piece of a file, and scan the tokens in it."""
        opened = _Opened(dataclasses.replace(task, open=task.open if is_scanned else None))
        header, width = opened.header_bytes(size), opened.token_bytes or 1
        start = number * hashing.PIECE_BYTES
        stop = min(start + hashing.PIECE_BYTES, size)
        scan = None
        if opened.scan is not None:
            first, last = max(0, start - header) // width, max(0, stop - header) // width
            marks = tuple(mark for mark in task.marks if first <= mark[1] < last)
            scan = TokenScan(task.rules, None, marks, first)
        digest, buffer = hashlib.sha256(), memoryview(bytearray(BLOCK_BYTES))
        with self._files.in_order(task.name) as file:
            file.seek(start)
            while start < stop:
                wanted = header - start if start < header else stop - start
                block = _filled(file, buffer[: min(wanted, BLOCK_BYTES)])
                if not len(block):
                    break
                digest.update(block)
                if scan is not None and start >= header:
                    scan.feed(np.frombuffer(block[: len(block) - len(block) % width], opened.dtype))
                start += len(block)
                self._advance(len(block))
        return _Piece(task.name, number, digest.hexdigest(), scan)

    def look(self, task: FileToCheck, size: int | str) -> Looked:
        if isinstance(size, str):
            return Looked(task.name, missing=size)
        if task.is_hashed and task.open is not None and not task.is_raw:
            with self._files.held(task.name):
                return self._looked(task, size)
        return self._looked(task, size)

    def _looked(self, task: FileToCheck, size: int) -> Looked:
        opened = _Opened(task)
        sha256: str | tuple[str, ...] | None = None
        try:
            if task.is_hashed:
                sha256 = self._hashed(task, opened, size)
            elif opened.reader is not None and not task.in_pieces:
                self._advance(size)
        except TokenmillError:
            raise
        except OSError as error:
            return Looked(task.name, size, missing=f"cannot be read: {error.strerror}")
        if opened.reader is not None and task.is_scanned and not (task.is_hashed and task.is_raw):
            opened.read(lambda: self._advance(0))
        if opened.scan is not None and task.is_scanned:
            opened.scan.finish(opened.ends)
        return Looked(
            task.name,
            size,
            sha256=sha256,
            broken=opened.broken,
            num_documents=None if opened.ends is None else len(opened.ends),
            scan=opened.scan,
            dtype=None if opened.reader is None else opened.reader.dtype,
            token_bytes=opened.token_bytes if task.is_raw and opened.reader is not None else None,
        )

    def _hashed(self, task: FileToCheck, opened: _Opened, size: int) -> str | tuple[str, ...]:
        """The sha256; scans tokens in the same pass."""
        digest: Any = hashing.PieceHash() if task.in_pieces else hashlib.sha256()
        buffer = memoryview(bytearray(BLOCK_BYTES))
        header_bytes = opened.header_bytes(size)
        with self._files.in_order(task.name) as file:
            offset = 0
            while True:
                # Blocks of tokens begin where the tokens begin.
                wanted = header_bytes - offset if offset < header_bytes else BLOCK_BYTES
                block = _filled(file, buffer[: min(wanted, BLOCK_BYTES)])
                if not len(block):
                    return digest.digests if task.in_pieces else str(digest.hexdigest())
                digest.update(block)
                if offset >= header_bytes:
                    opened.take(block)
                offset += len(block)
                self._advance(len(block))

    def _advance(self, num_bytes: int) -> None:
        if self.is_cancelled:
            raise _Cancelled
        with self._lock:
            self.num_bytes += num_bytes


class _Opened:
    """A shard as far as it could be opened, and the scan of its tokens."""

    def __init__(self, task: FileToCheck) -> None:
        self.reader: ShardReader | None = None
        self.ends: Positions | None = None
        self.scan: TokenScan | None = None
        self.broken: str | None = None
        self.token_bytes = 0
        self.dtype: np.dtype[Any] = np.dtype("<u2")
        self._is_raw = task.is_raw
        if task.open is None:
            return
        try:
            self.reader = task.open()
            self.dtype = np.dtype(self.reader.dtype).newbyteorder("<")
            self.token_bytes = self.dtype.itemsize
            if task.has_boundaries is not False:
                self.ends = self.reader.ends()
                if self.ends is None and task.has_boundaries:
                    raise IntegrityError("nothing says where its documents end")
            self.scan = TokenScan(task.rules, self._expected(task, self.reader), task.marks)
        except Exception as error:  # the bytes may be anything, and the format may be a plugin
            self._give_up(error)

    def header_bytes(self, size: int) -> int:
        if self.reader is None or not self._is_raw:
            return 0
        return max(0, size - self.reader.num_tokens * self.token_bytes)

    def take(self, block: Any) -> None:
        """Scan a block of the file that holds only tokens."""
        if self._is_raw and self.scan is not None:
            whole = len(block) - len(block) % self.token_bytes
            self.scan.feed(np.frombuffer(block[:whole], self.dtype))

    def read(self, advance: Callable[[], None]) -> None:
        """Scan the tokens through the format's own reader."""
        assert self.reader is not None and self.scan is not None
        step = BLOCK_BYTES // self.token_bytes
        try:
            for start in range(0, self.reader.num_tokens, step):
                advance()
                self.scan.feed(self.reader.tokens(start, start + step))
        except _Cancelled:
            raise
        except Exception as error:  # as above
            self._give_up(error)

    def _expected(self, task: FileToCheck, reader: ShardReader) -> Positions | None:
        expected = None if self.ends is None else expected_eot(self.ends, task.rules.eot)
        if expected is None or not len(expected) or not reader.num_tokens:
            return expected
        first, last = reader.tokens(0, 1), reader.tokens(reader.num_tokens - 1, reader.num_tokens)
        # A single EOT id can be the rest of a document that has two.
        assert self.ends is not None
        lone_first = task.rules.eot == "both" and self.ends[0] == 1
        lone_last = task.rules.eot == "both" and np.diff(self.ends[-2:], prepend=0)[-1] == 1
        ends_cut = last[0] != task.rules.eot_id or lone_last
        begins_cut = first[0] != task.rules.eot_id or lone_first
        if task.may_end_cut and task.rules.eot != "prepend" and ends_cut:
            expected = expected[:-1]
        if task.may_begin_cut and task.rules.eot != "append" and begins_cut:
            expected = expected[1:]
        return expected

    def _give_up(self, error: Exception) -> None:
        if isinstance(error, (NetworkError, InputError, ConfigError)):
            raise error  # not a fault of the shard
        self.reader = self.scan = self.ends = None
        known = isinstance(error, IntegrityError)
        self.broken = error.message if known else f"cannot be understood: {error!r}"  # type: ignore[attr-defined]


def _filled(file: Any, buffer: memoryview) -> memoryview:
    """The buffer, filled with the file's next bytes, as many as there are."""
    filled = 0
    while filled < len(buffer):
        count = file.readinto(buffer[filled:])
        if not count:
            break
        filled += count
    return buffer[:filled]
