"""Counts the words of a corpus: slices in threads, added up in plan order and saved regularly.

Arrow and NumPy read, cut and count without holding the GIL. After every GROUP slices the pattern
cuts the counted chunks into words, and the sum is saved, so that an interrupted run continues
there. A table of more than MAX_WORDS different words, or of words with more than MAX_WORD_BYTES,
drops the rarest, always at the same places of the plan, so the result depends on neither threads
nor interruptions.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.arrays import mask, nulls_of
from tokenmill.corpus.hub_inputs import HubInputs
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.prefetch import documents_of
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.spans import Slice
from tokenmill.corpus.unchanged import require_unchanged, unchanged_objects
from tokenmill.errors import ConflictError
from tokenmill.runners.threads import in_threads
from tokenmill.storage.store import store_of
from tokenmill.vocabulary.merges import Words
from tokenmill.vocabulary.words import WordCounter

GROUP = 16
MAX_WORDS = 20_000_000
MAX_WORD_BYTES = 256 << 20  # of distinct words: merging takes at least 24 bytes for each
_COLUMNS = ["word", "count"]
_METADATA = b"tokenmill"  # what the saved counts are of, in the file's schema


@dataclass(frozen=True, slots=True)
class WordTable:
    """Distinct words with their counts, and the amount of text that they come from."""

    table: pa.Table  # word: large_string, count: int64
    num_documents: int = 0
    text_bytes: int = 0
    num_dropped: int = 0  # occurrences of words that were too rare to keep

    @staticmethod
    def empty() -> WordTable:
        types = [pa.large_string(), pa.int64()]
        return WordTable(pa.table([pa.array([], t) for t in types], _COLUMNS))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @staticmethod
    def sum_of(tables: Sequence[WordTable]) -> WordTable:
        return WordTable(
            _summed([one.table for one in tables]),
            sum(one.num_documents for one in tables),
            sum(one.text_bytes for one in tables),
            sum(one.num_dropped for one in tables),
        )

    @property
    def num_words(self) -> int:
        """The number of occurrences."""
        return _total(self.table)

    def without_rarest(self, max_words: int, max_bytes: int) -> WordTable:
        """At most so many distinct words and bytes; words with the same count are dropped
        together."""
        table, least = self.table, 1
        while table.num_rows > max_words or _num_bytes(table) > max_bytes:
            least += 1
            table = table.filter(pc.greater_equal(table["count"], least))
        lost = self.num_words - _total(table)
        return replace(self, table=table, num_dropped=self.num_dropped + lost)

    def words(self) -> Words:
        chunks = self.table["word"].chunks
        column = pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_string())
        offsets = np.frombuffer(column.buffers()[1], np.int64)[: len(column) + 1]
        data = np.frombuffer(column.buffers()[2] or b"", np.uint8)[: offsets[-1]]
        return Words(data, offsets[1:], self.table["count"].to_numpy())


def require_saved_counts(path: str) -> None:
    """Raise ConflictError if there is something at `path` that a run did not save there: saving
    would replace it."""
    if os.path.exists(path) and not _is_saved_counts(path):
        raise ConflictError(
            f"{path} is in the way: a training keeps its counts under that name, and this is "
            "something else",
            hint="move it away, or another -o NAME",
        )


def _is_saved_counts(path: str) -> bool:
    """Damaged counts are ours if they are empty or begin like an Arrow file."""
    if not os.path.isfile(path):
        return False
    data = store_of(path).read(path)
    try:
        with pa.ipc.open_file(io.BytesIO(data)) as reader:
            return _METADATA in (reader.schema.metadata or {})
    except (pa.ArrowException, OSError, ValueError):
        return not data or data.startswith(b"ARROW1")


class SavedCounts:
    """The sum so far in a file, with the id of its plan and the number of counted slices. With
    `path` None nothing is saved."""

    def __init__(self, path: str | None, plan_id: str) -> None:
        self._path = path
        self._plan_id = plan_id

    def load(self) -> tuple[int, WordTable]:
        """The number of slices that have been counted, and their words."""
        try:
            data = store_of(self._path).read(self._path) if self._path else b""
            with pa.ipc.open_file(io.BytesIO(data)) as reader:
                table = reader.read_all()
            kept = json.loads(table.schema.metadata[_METADATA])
            if kept.pop("plan") == self._plan_id:
                num_slices = kept.pop("slices")
                return num_slices, WordTable(table.replace_schema_metadata(None), **kept)
        except (OSError, pa.ArrowException, ValueError, KeyError, TypeError):
            pass  # missing, damaged, or another run's: count again
        return 0, WordTable.empty()

    def save(self, num_slices: int, found: WordTable) -> None:
        if self._path is None:
            return
        kept = {
            "plan": self._plan_id,
            "slices": num_slices,
            "num_documents": found.num_documents,
            "text_bytes": found.text_bytes,
            "num_dropped": found.num_dropped,
        }
        table = found.table.replace_schema_metadata({_METADATA: json.dumps(kept)})
        sink = io.BytesIO()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        store_of(self._path).write(self._path, sink.getvalue())


def counted_words(
    plan: Plan,
    options: Mapping[str, ReadOptions],
    counter: WordCounter,
    remote: HubInputs,
    kept: SavedCounts,
    num_threads: int,
    counted: Callable[[int], None] = lambda text_bytes: None,
) -> WordTable:
    """The words of the plan's slices. `options` are those of each source; `counted` is called with
    the bytes of text of each slice."""
    num_slices, total = kept.load()
    counted(total.text_bytes)
    left = plan.slices[num_slices:]
    remote.begin(left)

    def count(slice_: Slice) -> tuple[Slice, WordTable]:
        return slice_, _chunks_of(slice_, options, counter)

    group: list[WordTable] = []
    for slice_, chunks in in_threads(count, remote.as_they_arrive(left), num_threads):
        remote.release(slice_)
        counted(chunks.text_bytes)
        group.append(chunks)
        num_slices += 1
        if num_slices % GROUP == 0 or num_slices == len(plan.slices):
            words = _cut_into_words(WordTable.sum_of(group), counter)
            total = WordTable.sum_of([total, words])
            total = total.without_rarest(MAX_WORDS, MAX_WORD_BYTES)
            kept.save(num_slices, total)
            group = []
    return total


def _chunks_of(
    slice_: Slice, options: Mapping[str, ReadOptions], counter: WordCounter
) -> WordTable:
    """The chunks of a slice's documents, not yet cut into words."""
    tables, num_documents, text_bytes = [WordTable.empty().table], 0, 0
    with unchanged_objects(slice_.inputs_read):
        for texts in _texts(slice_, options):
            tables.append(counter.chunks(texts).rename_columns(_COLUMNS))
            num_documents += len(texts)
            text_bytes += int(pc.sum(pc.binary_length(texts)).as_py() or 0)
    return WordTable(_summed(tables), num_documents, text_bytes)


def _texts(slice_: Slice, options: Mapping[str, ReadOptions]) -> Iterator[pa.LargeStringArray]:
    """The documents; rows without one, and unreadable rows, are left out."""
    for span in slice_.spans:
        if not span.is_ruled_out:
            require_unchanged(span.input)
        for rows in documents_of(span, options[span.input.source])[1]:
            yield rows.texts.filter(mask(~nulls_of(rows.texts)))


def _cut_into_words(chunks: WordTable, counter: WordCounter) -> WordTable:
    texts, counts = (chunks.table[name].to_pylist() for name in _COLUMNS)
    words = counter.words(zip(texts, counts, strict=True))
    table = pa.table(
        [pa.array(words.keys(), pa.large_string()), pa.array(words.values(), pa.int64())], _COLUMNS
    )
    return replace(chunks, table=table)


def _summed(tables: list[pa.Table]) -> pa.Table:
    """Each word once, in no particular order: merges do not depend on it."""
    words = pa.concat_tables(tables).group_by("word", use_threads=False)
    grouped = words.aggregate([("count", "sum")])
    return grouped.rename_columns({"count_sum": "count"}).select(_COLUMNS)


def _num_bytes(table: pa.Table) -> int:
    return int(pc.sum(pc.binary_length(table["word"])).as_py() or 0)


def _total(table: pa.Table) -> int:
    return int(pc.sum(table["count"]).as_py() or 0)
