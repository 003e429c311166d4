"""Readers, one module per kind of input. A reader cuts an input into spans and yields their rows as
Arrow columns (corpus/rows.py). It knows nothing about tokens, and decides nothing about a row.

    parquet.py  arrow.py  jsonl.py  delimited.py (CSV, TSV)  text.py    the kinds, each a Reader
    naming.py           how to read a file, by its name; advice if no reader takes it
  parquet
    parquet_pages.py    how many rows of a column can safely be decoded at once
  arrow
    ipc.py              the messages of an Arrow IPC file or stream
  jsonl, csv, text
    bytestream.py       inputs opened; bytes of a span, decompressed; the first bytes are checked
    decompression.py    compressed streams
    byte_cuts.py        where a file of bytes can be cut
    json_values.py      a block of JSON lines, or of elements, as typed columns
    json_array.py       the elements of one array
    records.py          where the records of a CSV file end

Measured (AMD EPYC, pyarrow 26, FineWeb English, page cache warm, a machine busy with other work):
MB of text per second of one thread's CPU time, for all the work of the reader. The encoder takes
140-220, so every reader except .gz is much faster than the encoder.

    parquet  820-930 zstd, 640 snappy
    arrow    3,500-4,800 plain, 1,100-1,200 zstd
    jsonl    395-430 plain, 300-340 .zst, 190-230 .gz
    text     860-1,130 plain with a separator, 520-650 .zst, 280-320 .gz; over 10,000 as a whole
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os.path import splitext
from typing import TYPE_CHECKING, Final, Protocol

from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import unknown_name
from tokenmill.plugins import loaded_plugin, plugin_names

if TYPE_CHECKING:
    from tokenmill.config import Config
    from tokenmill.corpus.columns import SourceSchema
    from tokenmill.corpus.rows import Rows

KINDS: Final = ("parquet", "arrow", "jsonl", "csv", "tsv", "text")
EVEN_KINDS: Final = ("jsonl", "text")  # their readers yield rows in batches of even size
BYTE_KINDS: Final = ("jsonl", "csv", "tsv", "text")  # spans are bytes; files may be compressed
COMPRESSED_TEXT_RATIO: Final = 3  # text : compressed bytes, for estimates
GROUP: Final = "tokenmill.readers"  # the entry points of plugins

_KIND_OF_EXTENSION: Final = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "text",
    ".text": "text",
}
_COMPRESSION_OF_EXTENSION: Final = {
    ".gz": "gzip",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".bz2": "bzip2",
    ".xz": "xz",
    ".lz4": "lz4",
}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The part of the configuration that a reader needs."""

    text_column: str = "text"
    # Between the documents of a text file, or the joined strings of a list. None: a text file is
    # one document, and strings are joined with a blank line.
    separator: str | None = None
    template: str | None = None  # the text is made of several columns (where/template.py)
    lists: str | None = None  # for a column of lists of strings: "join" or "documents"
    replace_bad_text: bool = False  # invalid UTF-8 becomes U+FFFD, and is counted, instead of bad
    span_bytes: int = 32 << 20  # approximate text per span
    batch_bytes: int = 4 << 20  # approximate text per batch
    where: str | None = None  # an expression that rows must satisfy (tokenmill.where)
    sample: float | None = None  # the fraction of the rows that goes in (sample.py)
    seed: int = 0  # of the sample
    keep: tuple[str, ...] | None = None  # columns to keep beside the tokens (corpus/columns.py)
    kept_types: str | None = None  # their types in the plan; without them batches do not keep any

    def __post_init__(self) -> None:
        if self.keep is not None:  # a list if the options came as JSON
            object.__setattr__(self, "keep", tuple(self.keep))

    @staticmethod
    def of(config: Config, kept_types: str | None = None) -> ReadOptions:
        """The options of a configuration. With the plan's `kept_types`, kept columns are read."""
        return ReadOptions(
            keep=config.kept_columns,
            kept_types=kept_types,
            text_column=config.text_column,
            separator=config.separator,
            template=config.template,
            lists=config.lists,
            replace_bad_text=config.on_bad_document == "replace",
            span_bytes=config.slice_bytes,
            where=config.where,
            sample=config.sample,
            seed=config.seed if config.sample is not None else 0,
        )

    @staticmethod
    def by_source(config: Config) -> dict[str, ReadOptions]:
        """Of each named source, by its name; of a corpus without any, under ""."""
        return {name: ReadOptions.of(own) for name, own in config.by_source().items()}

    @property
    def filters_rows(self) -> bool:
        """Whether some rows may be left out."""
        return self.where is not None or self.sample is not None


class Reader(Protocol):
    """Cuts inputs of one kind into spans, and yields their rows with the columns that options ask
    for. What the options mean for a row, and most of what is wrong with one, is not its business:
    that is done by corpus/rows.py, for all kinds alike."""

    options: ReadOptions

    def schema(self, source: Input) -> SourceSchema | None:
        """The input's columns; None: it has no columns, but text."""

    def spans(self, source: Input) -> list[Span]:
        """Cut an input, at plan time. Raises InputError/ConfigError for anything certain to fail.

        Reads footers, message headers and the surroundings of cut points, never a whole big file.
        The spans cover all rows, in order; an input without rows has no spans.
        """

    def rows(self, span: Span) -> Iterator[Rows]:
        """The span's rows in order, numbered from 0, in bounded memory, with the columns that
        `columns.asked` lists, or as texts. Raises InputError for a broken file: a truncated stream
        never counts as the end of the data.

        May leave out rows that --where and --sample certainly leave out.
        """

    def place(self, span: Span, row: int) -> str:
        """Where row number `row` of the span is, for a person: 'row 17', 'line 18'."""


def kind_of(path: str) -> tuple[str, str | None] | None:
    """(kind, compression) by the name's extensions; None if no reader claims it.

    A plugin's reader claims names by its class's `extensions`, a tuple like (".warc",).
    """
    stem, extension = splitext(path.lower())
    compression = _COMPRESSION_OF_EXTENSION.get(extension)
    if compression:
        extension = splitext(stem)[1]
    kind = _KIND_OF_EXTENSION.get(extension)
    if kind is None and compression is None:
        for name in plugin_names(GROUP):
            if extension in getattr(loaded_plugin(GROUP, name), "extensions", ()):
                return name, None
    if kind is None or (compression and kind not in BYTE_KINDS):
        return None
    return kind, compression


def compression_of(path: str) -> str | None:
    """The compression of the whole file, by its last extension; None: uncompressed."""
    return _COMPRESSION_OF_EXTENSION.get(splitext(path.lower())[1])


def reader_for(kind: str, options: ReadOptions) -> Reader:
    """The reader of one kind of input. Imports it, so that a run loads only the readers it uses."""
    if kind == "parquet":
        from tokenmill.corpus.readers.parquet import ParquetReader

        return ParquetReader(options)
    if kind == "arrow":
        from tokenmill.corpus.readers.arrow import ArrowReader

        return ArrowReader(options)
    if kind == "jsonl":
        from tokenmill.corpus.readers.jsonl import JsonlReader

        return JsonlReader(options)
    if kind in ("csv", "tsv"):
        from tokenmill.corpus.readers.delimited import DelimitedReader

        return DelimitedReader(options, "," if kind == "csv" else "\t")
    if kind == "text":
        from tokenmill.corpus.readers.text import TextReader

        return TextReader(options)
    if kind in plugin_names(GROUP):
        found: Reader = loaded_plugin(GROUP, kind)(options)
        return found
    raise unknown_name("input format", kind, kinds())


def kinds() -> tuple[str, ...]:
    """Every kind of input that has a reader, built in or from a plugin."""
    return (*KINDS, *(name for name in plugin_names(GROUP) if name not in KINDS))
