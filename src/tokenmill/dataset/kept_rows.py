"""Reads the sidecars of a split back (--keep): row i belongs to document i.

Reading one row decodes its row group; the last ones stay in memory. Sidecars are hostile, like
everything that is read back: they must hold as many rows as the manifest says.
"""

from __future__ import annotations

import bisect
import collections
import itertools
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tokenmill.assemble.sidecars import PATTERN
from tokenmill.dataset.manifest import Manifest, OutputFile
from tokenmill.errors import IntegrityError, TokenmillError
from tokenmill.formats import Files
from tokenmill.wording.plural import counted

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MAX_HELD_BYTES = 256 << 20  # of row groups
MAX_GROUP_BYTES = 1 << 32  # decoded; ours are smaller


def sidecars_of(manifest: Manifest, split: str) -> list[OutputFile]:
    """The sidecars of a split, in order."""
    found = [(re.fullmatch(PATTERN, file.name), file) for file in manifest.files]
    own = [file for match, file in found if match is not None and match[1] == split]
    return sorted(own, key=lambda file: (len(file.name), file.name))


def is_sidecar(file: OutputFile) -> bool:
    return re.fullmatch(PATTERN, file.name) is not None


def kept_rows_of(files: Files, manifest: Manifest | None, split: str) -> KeptRows | None:
    """The kept rows of a split; None if nothing was kept."""
    if manifest is None or manifest.identity["options"].get("keep") is None:
        return None
    return KeptRows(files, sidecars_of(manifest, split))


class KeptRows:
    """The rows of one split's sidecars."""

    def __init__(self, files: Files, sidecars: Sequence[OutputFile]) -> None:
        self._files = files
        self.sidecars = sidecars
        counts = (file.num_documents or 0 for file in sidecars)
        self._starts = list(itertools.accumulate(counts, initial=0))
        self._lock = threading.Lock()
        self._bounds: dict[int, list[int]] = {}  # of a sidecar's row groups, in rows
        self._held: collections.OrderedDict[tuple[int, int], pa.Table] = collections.OrderedDict()
        self._num_held_bytes = 0

    @property
    def num_rows(self) -> int:
        return self._starts[-1]

    def row(self, number: int) -> dict[str, Any] | None:
        """What is kept of a document, by its number; None if there is no such row."""
        if not 0 <= number < self.num_rows:
            return None
        sidecar = bisect.bisect_right(self._starts, number) - 1
        within = number - self._starts[sidecar]
        with self._lock:
            bounds = self._bounds_of(sidecar)
            group = bisect.bisect_right(bounds, within) - 1
            table = self._group(sidecar, group)
        at = within - bounds[group]
        return {name: kept_value(table[name][at]) for name in table.column_names}

    def groups(self, columns: Sequence[str] | None = None) -> Iterator[tuple[str, pa.Table]]:
        """All rows in order, a row group at a time, with the name of their sidecar."""
        for sidecar, listed in enumerate(self.sidecars):
            with self._opened(sidecar) as file:
                for group in range(file.metadata.num_row_groups):
                    yield listed.name, file.read_row_group(group, columns, use_threads=False)

    def _bounds_of(self, sidecar: int) -> list[int]:
        if sidecar not in self._bounds:
            with self._opened(sidecar) as file:
                groups = range(file.metadata.num_row_groups)
                sizes = (file.metadata.row_group(group).num_rows for group in groups)
                self._bounds[sidecar] = list(itertools.accumulate(sizes, initial=0))
        return self._bounds[sidecar]

    def _group(self, sidecar: int, group: int) -> pa.Table:
        place = sidecar, group
        if place in self._held:
            self._held.move_to_end(place)
            return self._held[place]
        with self._opened(sidecar) as file:
            table = file.read_row_group(group, use_threads=False)
        self._held[place] = table
        self._num_held_bytes += table.nbytes
        while self._num_held_bytes > MAX_HELD_BYTES and len(self._held) > 1:
            self._num_held_bytes -= self._held.popitem(last=False)[1].nbytes
        return table

    @contextmanager
    def _opened(self, sidecar: int) -> Iterator[pq.ParquetFile]:
        """Raises IntegrityError for a sidecar that is not what the manifest says."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        listed = self.sidecars[sidecar]
        path = self._files.path_of(listed.name)
        try:
            with (
                self._files.open(listed.name) as data,
                pq.ParquetFile(
                    data, page_checksum_verification=True, pre_buffer=False
                ) as file,  # no Arrow thread may start while a short command ends
            ):
                self._require_announced(file.metadata, listed, path)
                yield file
        except TokenmillError:
            raise
        except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
            raise IntegrityError(f"{path}: not a readable sidecar: {error}") from error

    def _require_announced(self, metadata: pq.FileMetaData, listed: OutputFile, path: str) -> None:
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        num_rows = sum(group.num_rows for group in groups)
        if num_rows != listed.num_documents:
            raise IntegrityError(
                f"{path}: holds {counted(num_rows, 'row')}, but should hold {listed.num_documents}"
            )
        if any(not 0 <= group.total_byte_size <= MAX_GROUP_BYTES for group in groups):
            raise IntegrityError(f"{path}: a row group of over {MAX_GROUP_BYTES:,} bytes")


def kept_value(value: pa.Scalar) -> Any:
    """A kept value in Python. A time that no Python type holds (digits below microseconds, years
    after 9999) is Arrow's text."""
    import pyarrow as pa

    types, type_ = pa.types, value.type
    if not value.is_valid or not (types.is_nested(type_) or types.is_temporal(type_)):
        return value.as_py()
    if types.is_temporal(type_):
        return _time(value)
    if types.is_struct(type_):
        return {name: kept_value(one) for name, one in value.items()}
    if types.is_map(type_):
        return [(kept_value(one[0]), kept_value(one[1])) for one in value.values]
    return [kept_value(one) for one in value.values]


def _time(value: pa.Scalar) -> Any:
    """Nanoseconds are cast first: pyarrow takes pandas for them, or fails without."""
    import pyarrow as pa

    type_ = value.type
    try:
        if type_ == pa.time64("ns"):
            value = value.cast(pa.time64("us"))
        elif type_ == pa.duration("ns"):
            value = value.cast(pa.duration("us"))
        elif pa.types.is_timestamp(type_) and type_.unit == "ns":
            value = value.cast(pa.timestamp("us", type_.tz))
        return value.as_py()
    except (pa.ArrowInvalid, OverflowError, ValueError):
        text = value.cast(pa.string()).as_py()
        return f"{text} {type_.unit}" if pa.types.is_duration(type_) else text


def jsonable(value: Any) -> Any:
    """A kept value for JSON: bytes in hexadecimal, times and other types as text."""
    if isinstance(value, dict):
        return {str(name): jsonable(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
