"""Shards that are one mapped array of tokens, as in most formats, and what formats share to read
files and document boundaries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from tokenmill.errors import IntegrityError, TokenmillError
from tokenmill.formats.format import Files

_SPLIT = re.compile(
    r"(?<![a-z])((?P<train>train(ing)?)|(?P<test>test)|val|valid|validation|eval|dev)(?![a-z])",
    re.IGNORECASE,
)

# Documents per piece of a written index. It affects the bytes of olmo's .csv.gz, in which each
# piece is a gzip member.
PIECE_DOCUMENTS = 1 << 18


class MappedShard:
    """The tokens of a file, and the ends of its documents, if the format has them."""

    def __init__(
        self,
        array: npt.NDArray[np.integer],
        ends: Callable[[], npt.NDArray[np.int64]] | None = None,
    ) -> None:
        self.dtype = array.dtype.name
        self.num_tokens = len(array)
        self.has_boundaries = ends is not None
        self.array = array  # mapped, or fetched from an object when a slice is taken
        self._ends = ends

    def tokens(self, start: int, stop: int) -> npt.NDArray[np.integer]:
        return self.array[start:stop]

    def ends(self) -> npt.NDArray[np.int64] | None:
        return self._ends() if self._ends is not None else None


def mapped_tokens(
    files: Files, name: str, dtype: str, offset: int = 0, num_tokens: int | None = None
) -> npt.NDArray[np.integer]:
    """The tokens of a file from byte `offset` on: all that are there, or exactly `num_tokens`."""
    path, size = files.path_of(name), files.size(name)
    if size is None:
        raise IntegrityError(f"{path} is missing, or is not a regular file")
    num_bytes = size - offset
    kind = np.dtype(dtype).newbyteorder("<")
    if num_tokens is None:
        if num_bytes < 0 or num_bytes % kind.itemsize:
            raise IntegrityError(f"{path}: {num_bytes:,} bytes are not whole {dtype} tokens")
        num_tokens = num_bytes // kind.itemsize
    elif num_bytes != num_tokens * kind.itemsize:
        raise IntegrityError(
            f"{path}: {num_bytes + offset:,} bytes, expected {num_tokens:,} {dtype} tokens "
            f"({offset + num_tokens * kind.itemsize:,} bytes)"
        )
    if not num_tokens:
        return np.empty(0, kind)  # mmap refuses an empty range
    return files.array(name, kind, offset, num_tokens)


def start_of(files: Files, name: str, num_bytes: int) -> bytes:
    """The first bytes of a file, or all if it has fewer. Raises IntegrityError if it cannot be
    read."""
    try:
        with files.open(name) as file:
            return file.read(num_bytes)
    except TokenmillError:
        raise
    except OSError as error:
        raise IntegrityError(f"cannot read {files.path_of(name)}: {error.strerror}") from error


def begins_with(files: Files, name: str, magic: bytes) -> bool:
    """Whether the file begins with these bytes; False if it cannot be read."""
    try:
        return start_of(files, name, len(magic)) == magic
    except IntegrityError:
        return False


def bounds_in_pieces(
    lengths: npt.NDArray[np.integer],
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """The starts and ends of documents of these lengths, PIECE_DOCUMENTS at a time."""
    last = 0
    for number in range(0, len(lengths), PIECE_DOCUMENTS):
        piece = np.asarray(lengths[number : number + PIECE_DOCUMENTS])
        ends = last + np.cumsum(piece, dtype=np.int64)
        yield ends - piece, ends
        last = int(ends[-1])


def document_runs(ends: npt.NDArray[np.int64], max_tokens: int) -> Iterator[tuple[int, int]]:
    """Runs of documents, as (first, one past the last), of up to `max_tokens` or one longer one."""
    first = before = 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, before + max_tokens, "right")))
        yield first, last
        first, before = last, int(ends[last - 1])


def require_increasing(ends: npt.NDArray[np.int64], num_tokens: int, path: str) -> None:
    """Raise IntegrityError unless `ends` could be the ends of documents that fill a shard."""
    is_early = ends[1:] < ends[:-1]  # not by a difference, which could overflow
    if (len(ends) and int(ends[0]) < 0) or is_early.any():
        worst = 0 if int(ends[0]) < 0 else int(np.argmax(is_early)) + 1
        raise IntegrityError(
            f"{path}: document {worst} ends at token {int(ends[worst]):,}, before it starts"
        )
    last = int(ends[-1]) if len(ends) else 0
    if last != num_tokens:
        raise IntegrityError(
            f"{path}: its documents end at token {last:,}, but there are {num_tokens:,} tokens"
        )


def split_of(name: str, pattern: str = "") -> str:
    """The split that a file's folder or name indicates: `val`, `test` or else `train`.

    A name that matches the format's own `pattern` has the split in its first group, whatever the
    stem contains: `fw-dev_train_000001.npy` is train. In other names the last word counts, of the
    file name or else of its folder; a folder named like a split is that split.
    """
    if pattern and (own := re.fullmatch(pattern.replace("{name}", ".+"), name)):
        return own[1]
    return said_split(name) or "train"


def said_split(name: str) -> str | None:
    """The same without a pattern; None if nothing indicates one."""
    folder, _, base = name.rpartition("/")
    for said in (folder if _SPLIT.fullmatch(folder) else "", base, folder):
        if words := list(_SPLIT.finditer(said)):
            return "train" if words[-1]["train"] else "test" if words[-1]["test"] else "val"
    return None


def by_number(name: str) -> list[str | int]:
    """A key that sorts names by the numbers in them: shard_2 before shard_10."""
    parts = re.split(r"(\d+)", name)
    return [int(part) if at % 2 else part for at, part in enumerate(parts)]
