"""The survey: reads, encodes and times the drawn cells."""

from __future__ import annotations

import bisect
import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tokenmill.corpus.spans import Slice
from tokenmill.encode.documents import data_of
from tokenmill.encodings import Encoding
from tokenmill.estimate.bounds import is_plain
from tokenmill.estimate.cells import Cell, Reading, table_cells, whole_unit
from tokenmill.estimate.sample import Draw, Drawing
from tokenmill.estimate.stretches import can_start_anywhere, head_cells, plain_cells

# A call of the engine costs a millisecond, so cells are encoded together, as in a run.
ENCODE_BYTES = 4 << 20
PAGE_TOKENS = (1 << 20) // 4
_CODEC = pa.Codec("zstd", compression_level=1)
_EVERYTHING = Draw(number=0, weight=1.0, group=0)
_NO_TEXTS = pa.nulls(0, pa.large_string())


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found in one cell."""

    unit: int
    draw: Draw
    cell: Cell  # without its texts, which would keep the whole read in memory
    num_tokens: int  # without EOT
    num_documents: int
    text_bytes: int


class Survey:
    def __init__(self, encoding: Encoding, reading: Reading) -> None:
        self._encoding = encoding
        self._reading = reading
        self._held: list[tuple[int, Draw, Cell]] = []  # (unit, draw, cell)
        self._held_bytes = 0
        self._found: list[Measured] = []
        self._packed = (0, 0)  # (tokens, bytes)

    def measured(self, units: Sequence[Slice], drawing: Drawing | None) -> list[Measured]:
        """The cells drawn; with no drawing, everything."""
        self._encoding.encode_array(_NO_TEXTS)  # loads the engine, before anything is timed
        if drawing is None:
            for index, unit in enumerate(units):
                for cell in whole_unit(unit, self._reading):
                    self._hold(index, _EVERYTHING, cell)
        else:
            for index, draws in drawing.items():
                cells = self._cells(units[index], [draw.number for draw in draws])
                for draw, cell in zip(draws, cells, strict=True):
                    self._hold(index, draw, cell)
        self._encode_held()
        return self._found

    @property
    def packed_bytes_per_token(self) -> float:
        """The bytes per token in a compressed format, measured on pages of 1 MB like those of
        parquet.py."""
        num_tokens, num_bytes = self._packed
        return num_bytes / max(1, num_tokens)

    def _cells(self, unit: Slice, numbers: Sequence[int]) -> list[Cell]:
        if unit.spans[-1].max_rows is not None:  # --limit-docs: only a reader knows where that is
            return table_cells(unit, numbers, self._reading)
        if not all(can_start_anywhere(span.input, self._reading) for span in unit.spans):
            return table_cells(unit, numbers, self._reading)
        if all(is_plain(span.input) for span in unit.spans):
            return plain_cells(unit, numbers, self._reading)
        if len(unit.spans) == 1:
            return head_cells(unit, numbers, self._reading)
        return table_cells(unit, numbers, self._reading)

    def _hold(self, unit: int, draw: Draw, cell: Cell) -> None:
        self._held.append((unit, draw, cell))
        self._held_bytes += len(data_of(cell.texts))
        if self._held_bytes >= ENCODE_BYTES:
            self._encode_held()

    def _encode_held(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        if not held:
            return
        texts = pa.concat_arrays([cell.texts for _, _, cell in held])
        began = time.perf_counter()
        tokens = self._encoding.encode_array(texts)
        self._reading.spent("encode", time.perf_counter() - began, len(data_of(texts)))
        self._reading.num_bad += len(tokens.failed)
        page = tokens.ids[:PAGE_TOKENS].astype(np.uint32, copy=False)
        num_packed = len(_CODEC.compress(page))
        self._packed = (self._packed[0] + len(page), self._packed[1] + num_packed)
        failed = sorted(tokens.failed)
        first = 0
        for unit, draw, cell in held:
            last = first + len(cell.texts)
            num_failed = bisect.bisect_left(failed, last) - bisect.bisect_left(failed, first)
            self._found.append(
                Measured(
                    unit,
                    draw,
                    dataclasses.replace(cell, texts=_NO_TEXTS),
                    num_tokens=int(tokens.offsets[last] - tokens.offsets[first]),
                    num_documents=last - first - num_failed - cell.num_cut,
                    text_bytes=len(data_of(cell.texts)),
                )
            )
            first = last
