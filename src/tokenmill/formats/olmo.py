"""OLMo-core and dolma: `{name}-{split}-{index:05d}.npy`, only tokens (no NumPy header, despite the
suffix), and a `.csv.gz` beside it with a row for each document:

    start,end,id,src,loc

`start` and `end` are tokens of this file; `id` is the document's number in the split, `src` the
name of the shard, `loc` the number in the shard, from 1. OLMo-core reads the first two columns, and
only for remote files: it searches local files for EOS ids. It drops the end of each file that does
not fill a sequence, so shards are large. The file does not say how wide a token is.

A row takes 0.9 us to write and 0.4 us to read back. Half of the former is gzip at level 1, which
leaves 13 bytes a row; level 6 would take six times as long and leave 11.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from tokenmill.arrays import indices
from tokenmill.errors import IntegrityError, TokenmillError
from tokenmill.formats.format import (
    Contents,
    Create,
    Defaults,
    Files,
    Format,
    FoundShard,
    ShardReader,
    Traits,
)
from tokenmill.formats.mapped import (
    MappedShard,
    begins_with,
    bounds_in_pieces,
    by_number,
    mapped_tokens,
    require_increasing,
    split_of,
)
from tokenmill.formats.npy import MAGIC as NUMPY_MAGIC

_BLOCK_BYTES = 1 << 22
# The tokens beside it bound the unpacked size of a .csv.gz: one document per token and this many
# empty ones, in rows of this many bytes on average.
_EMPTY_DOCUMENTS = 1 << 20
_ROW_BYTES = 256
_ROW = re.compile(rb"\d{1,18},\d{1,18}(,.*)?", re.DOTALL)


class OlmoFormat(Format):
    name = "olmo"
    trainers = "OLMo-core, dolma"
    files = "part-train-00000.npy, .csv.gz ..."
    pattern = r"{name}-(train|val)-\d{5,}\.(npy|csv\.gz)"
    defaults = Defaults(eot="append", val="none", shard_tokens=1_000_000_000, name="part")
    traits = Traits(boundaries=True)

    def shard_name(self, name: str, split: str, index: int) -> str:
        return f"{name}-{split}-{index:05d}.npy"

    def write(self, contents: Contents, create: Create) -> None:
        assert contents.lengths is not None
        # Arrow's zlib, not Python's, which is zlib-ng in some builds and gives other bytes. Each
        # piece is its own gzip member, without time or name.
        codec = pa.Codec("gzip", compression_level=1)
        source = re.sub(r'[,"\r\n]', "_", contents.name.removesuffix(".npy"))
        number = 0
        with create(_csv_name(contents.name)) as file:
            for starts, ends in bounds_in_pieces(contents.lengths):
                numbers = np.arange(number, number + len(ends), dtype=np.int64)
                ids = contents.first_document + numbers
                file.write(codec.compress(_rows(starts, ends, ids, source, numbers + 1)))
                number += len(ends)

    def find(self, files: Files, names: Sequence[str]) -> list[FoundShard]:
        return [
            FoundShard(name, split_of(name, self.pattern))
            for name in sorted(names, key=by_number)
            if name.endswith(".npy") and _is_headerless(files, name)
        ]

    def open(self, files: Files, name: str, dtype: str | None) -> ShardReader:
        if begins_with(files, name, NUMPY_MAGIC):
            path = files.path_of(name)
            raise IntegrityError(f"{path} has NumPy's header, and OLMo's files have none")
        tokens, csv = mapped_tokens(files, name, dtype or "uint16"), _csv_name(name)
        has_csv = files.size(csv) is not None
        return MappedShard(tokens, (lambda: _ends_in(files, csv, len(tokens))) if has_csv else None)


def _csv_name(name: str) -> str:
    return name.removesuffix(".npy") + ".csv.gz"


def _is_headerless(files: Files, name: str) -> bool:
    return files.size(name) is not None and not begins_with(files, name, NUMPY_MAGIC)


def _rows(
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    ids: npt.NDArray[np.int64],
    source: str,
    locations: npt.NDArray[np.int64],
) -> pa.Buffer:
    text = source.encode("utf-8", "replace")
    offsets = np.arange(len(ends) + 1, dtype=np.int64) * len(text)
    sources = pa.Array.from_buffers(
        pa.large_string(),
        len(ends),
        [None, pa.py_buffer(offsets), pa.py_buffer(text * len(ends))],
    )
    table = pa.Table.from_arrays(
        [indices(starts), indices(ends), indices(ids), sources, indices(locations)],
        names=["start", "end", "id", "src", "loc"],
    )
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(table, sink, options)
    return sink.getvalue()


def _ends_in(files: Files, name: str, num_tokens: int) -> npt.NDArray[np.int64]:
    """The ends of documents from the rows of a `.csv.gz`; each row must begin where the last
    ended."""
    path, most = files.path_of(name), num_tokens + _EMPTY_DOCUMENTS
    pieces: list[npt.NDArray[np.int64]] = []
    number = last = 0
    for lines in _lines_of(files, name, most * _ROW_BYTES):
        starts, ends = _bounds_in(lines, path, number)
        expected = np.append(last, ends[:-1])
        if (starts != expected).any():
            worst = int(np.argmax(starts != expected))
            raise IntegrityError(
                f"{path}: row {number + worst + 1} begins at token {int(starts[worst]):,}, and the "
                f"one before it ends at {int(expected[worst]):,}"
            )
        number += len(ends)
        if number > most:
            raise IntegrityError(f"{path} has more than {most:,} rows for {num_tokens:,} tokens")
        last = int(ends[-1])
        pieces.append(ends)
    found = np.concatenate(pieces) if pieces else np.empty(0, np.int64)
    require_increasing(found, num_tokens, path)
    return found


def _lines_of(files: Files, name: str, max_bytes: int) -> Iterator[bytes]:
    """The unpacked content of a gzip file, some whole lines at a time; the last one always ends in
    a newline."""
    path, num_bytes, rest = files.path_of(name), 0, b""
    try:
        with files.open(name) as packed, gzip.open(packed) as file:
            while block := file.read(_BLOCK_BYTES):
                num_bytes += len(block)
                whole = block.rfind(b"\n") + 1
                if num_bytes > max_bytes or (not whole and len(rest) + len(block) > _BLOCK_BYTES):
                    raise IntegrityError(f"{path} unpacks to more than the tokens beside it need")
                if whole:
                    yield rest + block[:whole]
                    rest = b""
                rest += block[whole:]
    except TokenmillError:
        raise
    except (OSError, EOFError, zlib.error) as error:
        raise IntegrityError(f"{path} is not a whole gzip file: {error}") from error
    if rest:
        yield rest + b"\n"


def _bounds_in(
    lines: bytes, path: str, number: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The first two fields of each line, as OLMo-core reads them: up to a comma, unquoted."""
    lines = lines.replace(b"\r\n", b"\n")
    data = np.frombuffer(lines, np.uint8)
    marks = np.flatnonzero((data == ord(",")) | (data == ord("\n")))
    last_marks = np.flatnonzero(data[marks] == ord("\n"))  # of each line
    first_marks = np.append(0, last_marks[:-1] + 1)
    begins = np.append(0, marks[last_marks[:-1]] + 1)
    starts = ends = None
    if (first_marks < last_marks).all():
        starts = _numbers(data, begins, marks[first_marks])
        ends = _numbers(data, marks[first_marks] + 1, marks[first_marks + 1])
    if starts is None or ends is None:
        rows = enumerate(lines.split(b"\n"), number + 1)
        bad, row = next((bad, row) for bad, row in rows if not _ROW.fullmatch(row))
        raise IntegrityError(f"{path}: row {bad} begins with {row[:40]!r}, expected two numbers")
    return starts, ends


def _numbers(
    data: npt.NDArray[np.uint8], begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64] | None:
    """Decimal numbers of up to 18 digits; None if there is anything else."""
    widths = ends - begins
    if widths.min() < 1 or widths.max() > 18:
        return None
    found = np.zeros(len(begins), np.int64)
    for place in range(int(widths.max())):
        is_there = place < widths
        digits = data[np.where(is_there, begins + place, begins)] - np.uint8(ord("0"))
        if digits.max() > 9:
            return None
        found = np.where(is_there, found * 10 + digits, found)
    return found
