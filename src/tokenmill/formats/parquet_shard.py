"""Reads parquet token shards, ours and foreign ones; see parquet.py.

A row group is decoded on access, and must then hold what the footer announced.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.errors import IntegrityError, TokenmillError
from tokenmill.formats.format import Files
from tokenmill.formats.index_json import parsed_json

COLUMN = "input_ids"
_COLUMNS = (COLUMN, "tokens", "ids")
KEY = b"tokenmill"
# Tokens decoded at once from larger row groups, which foreign files may have.
_PIECE_TOKENS = 4 << 20
_FEW_ROWS = 1024  # the same in rows, if their number of tokens is unknown
_READ_FAILURES = (pa.ArrowException, OSError, ValueError, KeyError, MemoryError)
# Arrow's own writer counts a row without tokens as a null value; others may not.
_COUNTS_EMPTY_ROWS = "parquet-cpp-arrow"

Lengths = npt.NDArray[np.int64]
Tokens = npt.NDArray[np.integer]


class ParquetShard:
    """Consecutive rows. Keeps the last decoded row group, or some rows of a large one. The file is
    open only while it is read."""

    def __init__(self, files: Files, name: str) -> None:
        self._files, self._name = files, name
        self._path = path = files.path_of(name)
        with _opened(files, name) as file:
            self._metadata = file.metadata
            self._column, self.dtype = _token_column(file, path)
            is_fixed, group_tokens = _announced(file, self._column, path)
        self.has_boundaries = not is_fixed
        num_groups = self._metadata.num_row_groups
        if group_tokens is None:
            group_tokens = [
                sum(len(values) for values, _ in self._decoded(group, 0))
                for group in range(num_groups)
            ]
        self._bounds = list(itertools.accumulate(group_tokens, initial=0))
        self.num_tokens = self._bounds[-1]
        self._pieces: Iterator[tuple[int, Tokens]] = iter(())
        self._group = -1  # whose pieces these are
        self._held: tuple[int, Tokens] = 0, np.empty(0, self.dtype)

    def tokens(self, start: int, stop: int) -> Tokens:
        start, stop, _ = slice(start, stop).indices(self.num_tokens)
        found = []
        while start < stop:
            at, piece = self._piece_with(start)
            found.append(piece[start - at : stop - at])
            start += len(found[-1])
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else np.empty(0, self.dtype)

    def ends(self) -> Lengths | None:
        if not self.has_boundaries:
            return None
        groups = range(len(self._bounds) - 1)
        lengths = [lengths for group in groups for _, lengths in self._decoded_group(group)]
        return np.cumsum(np.concatenate([np.empty(0, np.int64), *lengths]), dtype=np.int64)

    def _piece_with(self, token: int) -> tuple[int, Tokens]:
        """A piece that holds the token, and where it starts."""
        at, piece = self._held
        if at <= token < at + len(piece):
            return self._held
        group = bisect.bisect_right(self._bounds, token) - 1
        if group != self._group or token < at:
            self._group, self._pieces = group, self._pieces_of(group)
        for at, piece in self._pieces:
            self._held = at, piece
            if token < at + len(piece):
                return self._held
        raise AssertionError("a row group's pieces fill it")

    def _pieces_of(self, group: int) -> Iterator[tuple[int, Tokens]]:
        at = self._bounds[group]
        for values, _ in self._decoded_group(group):
            yield at, values
            at += len(values)

    def _decoded_group(self, group: int) -> Iterator[tuple[Tokens, Lengths]]:
        """The pieces of a row group. The last one is yielded only once the whole group is as
        announced."""
        announced = self._bounds[group + 1] - self._bounds[group]
        num_tokens, held = 0, None
        for piece in self._decoded(group, announced):
            if held is not None:
                yield held
            held = piece
            num_tokens += len(piece[0])
            if num_tokens > announced:
                break
        if num_tokens != announced:
            raise IntegrityError(
                f"{self._path}: row group {group} announces {announced:,} tokens and has "
                f"{'more' if num_tokens > announced else f'{num_tokens:,}'}"
            )
        if held is not None:
            yield held

    def _decoded(self, group: int, num_tokens: int) -> Iterator[tuple[Tokens, Lengths]]:
        """The tokens and lengths of some rows at a time; of `num_tokens` in all, if known."""
        num_rows = self._metadata.row_group(group).num_rows
        at_once = _FEW_ROWS if not num_tokens else num_rows * _PIECE_TOKENS // num_tokens
        found = 0
        with _opened(self._files, self._name, self._metadata) as file:
            for batch in file.iter_batches(
                max(1, min(at_once, num_rows)), [group], [self._column], use_threads=False
            ):
                found += len(batch)
                yield _values(batch, self.dtype, f"{self._path}: row group {group}")
        if found != num_rows:
            raise IntegrityError(
                f"{self._path}: row group {group} announces {num_rows:,} rows and has {found:,}"
            )


@contextmanager
def _opened(files: Files, name: str, metadata: Any = None) -> Iterator[pq.ParquetFile]:
    """The file; any error while it is used becomes an IntegrityError."""
    try:
        with pq.ParquetFile(
            files.local_path(name) or files.open(name),
            metadata=metadata,
            memory_map=True,
            pre_buffer=False,
            page_checksum_verification=True,
        ) as file:
            yield file
    except TokenmillError:
        raise
    except _READ_FAILURES as error:
        path = files.path_of(name)
        raise IntegrityError(f"{path} is not a valid parquet file: {error}") from error


def _token_column(file: pq.ParquetFile, path: str) -> tuple[str, str]:
    """The column that holds tokens, and their dtype."""
    schema = file.schema_arrow
    lists = {field.name: _dtype_of(field.type) for field in schema if _dtype_of(field.type)}
    named = [name for name in _COLUMNS if name in lists] or list(lists)
    # `input_ids` may go with an `attention_mask`; of unknown names only one can be the tokens.
    if not named or (named[0] not in _COLUMNS and len(named) > 1):
        columns = ", ".join(f"{field.name[:40]} ({str(field.type)[:40]})" for field in schema)
        raise IntegrityError(
            f"{path}: no column holds tokens: expected lists of integers in {', '.join(_COLUMNS)}, "
            f"or in a single column; got {columns[:400] or 'no columns'}"
        )
    dtype = lists[named[0]]
    assert dtype is not None
    if schema.names.count(named[0]) > 1 or len(_leaves(file, named[0])) != 1:
        raise IntegrityError(f"{path}: several columns are called {named[0][:40]!r}")
    return named[0], dtype


def _leaves(file: pq.ParquetFile, column: str) -> list[int]:
    """The indices of a column's leaves, as the footer counts them."""
    paths = [file.schema.column(number).path for number in range(len(file.schema))]
    return [number for number, path in enumerate(paths) if path.startswith(f"{column}.")]


def _dtype_of(kind: pa.DataType) -> str | None:
    """NumPy's name for what a list holds; None if it is not a list of integers."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list and not pa.types.is_fixed_size_list(kind):
        return None
    return str(kind.value_type) if pa.types.is_integer(kind.value_type) else None


def may_hold_tokens(files: Files, name: str) -> bool:
    """Whether the file is a shard; True for a damaged one, so that opening it reports the
    damage."""
    try:
        with _opened(files, name) as file:
            schema = file.schema_arrow
    except IntegrityError:
        return True
    return any(_dtype_of(field.type) for field in schema)


def _announced(file: pq.ParquetFile, column: str, path: str) -> tuple[bool, list[int] | None]:
    """Whether rows are samples and not documents, and the tokens in each row group, if stated."""
    said = (file.metadata.metadata or {}).get(KEY)
    if said is not None:
        return _stated_by_us(file.metadata, said, path)
    if not str(file.metadata.created_by).startswith(_COUNTS_EMPTY_ROWS):
        return False, None
    [leaf] = _leaves(file, column)
    counts = []
    for group in range(file.metadata.num_row_groups):
        # If a footer contradicts itself, this raises an error; the next line would end the process.
        next(file.iter_batches(1, [group], [column], use_threads=False), None)
        chunk = file.metadata.row_group(group).column(leaf)
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            return False, None
        counts.append(chunk.num_values - statistics.null_count)
    if any(count < 0 for count in counts):
        raise IntegrityError(f"{path}: its footer has more null values than values")
    return False, counts


def _stated_by_us(metadata: Any, said: bytes, path: str) -> tuple[bool, list[int]]:
    data = parsed_json(said, path)
    counts = data.get("group_tokens") if isinstance(data, dict) else None
    if not isinstance(counts, list) or len(counts) != metadata.num_row_groups:
        raise IntegrityError(f"{path}: its footer does not state the tokens of each row group")
    for group, count in enumerate(counts):
        # We write 4 bytes a token, before compression.
        most = metadata.row_group(group).total_byte_size // 4
        if type(count) is not int or not 0 <= count <= most:
            raise IntegrityError(f"{path}: its footer has an impossible size of row group {group}")
    return bool(data.get("seq_len")), counts


def _values(batch: pa.RecordBatch, dtype: str, where: str) -> tuple[Tokens, Lengths]:
    """The tokens of some rows, and how many each row has."""
    lists = batch.column(0) if batch.num_columns == 1 else None
    if lists is None or _dtype_of(lists.type) != dtype:
        raise IntegrityError(f"{where} does not have the column that the footer describes")
    values = lists.flatten()
    if lists.null_count or values.null_count:
        raise IntegrityError(
            f"{where} has {'rows' if lists.null_count else 'tokens'} that are null"
        )
    return _as_numpy(values), _as_numpy(pc.list_value_length(lists)).astype(np.int64)


def _as_numpy(array: pa.Array) -> Tokens:
    kind = np.dtype(str(array.type))
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)
