"""Where the row groups of a file on the Hub end, for a run that is resumed while the file arrives.

A new plan has these bytes from the footers that it was cut by. A saved plan has not: a corpus of
two million slices would carry a number for each, and only the file that is arriving needs its own.
So its footer is requested once more, in the background: one request a file. Without an answer,
slices wait for the whole file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenmill.corpus.spans import Span
from tokenmill.storage.range_reader import BackgroundCall


@dataclass(frozen=True, slots=True)
class Footer:
    data: bytes  # the end of the file
    ends: tuple[int, ...]  # of each row group, whichever columns are read

    def end_of(self, span: Span) -> int:
        """The byte before which everything is that a span reads; 0: unknown."""
        return max(self.ends[span.start : span.stop], default=0)


class RowGroupEnds:
    def __init__(self, footer_of: Callable[[str], bytes]) -> None:
        self._footer_of = footer_of
        self._asked: dict[str, BackgroundCall[Footer]] = {}  # by name

    def footer(self, name: str) -> Footer | None:
        """A parquet file's footer; None while it is not known. The first call requests it."""
        if name not in self._asked:
            self._asked[name] = BackgroundCall(lambda: _parsed(self._footer_of(name)))
        call = self._asked[name]
        return None if not call.is_done or call.has_failed else call.result()


def _parsed(data: bytes) -> Footer:
    import pyarrow as pa  # a process that resumes nothing does without
    import pyarrow.parquet as pq

    from tokenmill.corpus.readers.column_chunks import chunk_range

    metadata = pq.read_metadata(pa.BufferReader(data))
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return Footer(
        data,
        tuple(
            max((chunk_range(g.column(i))[1] for i in range(g.num_columns)), default=0)
            for g in groups
        ),
    )
