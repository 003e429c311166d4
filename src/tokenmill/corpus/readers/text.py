"""Plain text: the whole file is one document, or separators divide it into documents.

The documents are exactly `content.split(separator)`, for any separator and any spans, except that
an empty piece after the last separator is not a document. An empty file is one empty document.
Bytes are kept unchanged (line ends, NULs), except a UTF-8 byte order mark at the start of the file.

Without a separator an uncompressed file is memory-mapped and not copied, whatever its size (over
10 GB/s, the speed of the UTF-8 check). Documents between separators are copied three times
(860-1,130 MB/s) and held in memory, as is a compressed file that is one document: these are limited
to 1 GiB each.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tokenmill.arrays import binary_array_of
from tokenmill.corpus.columns import SourceSchema, require_columns
from tokenmill.corpus.readers import COMPRESSED_TEXT_RATIO, ReadOptions
from tokenmill.corpus.readers.byte_cuts import cut_spans
from tokenmill.corpus.readers.bytestream import (
    MAX_DOCUMENT_BYTES,
    UTF8_BOM,
    chunks_of,
    head_of,
    is_counted_from_start,
    native_file,
    too_long,
)
from tokenmill.corpus.rows import Rows
from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import ConfigError, InputError


class TextReader:
    """Span unit: bytes of the file."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._counted: tuple[Span, int] | None = None
        self.separator = None if options.separator is None else options.separator.encode()
        if self.separator == b"":
            raise ConfigError("the separator is empty", hint=r"--separator '\n\n'")

    def spans(self, source: Input) -> list[Span]:
        require_columns(None, self.options, source.name)
        head_of(source)
        if self.separator is not None and not source.compression:
            return cut_spans(source, self.separator, self.options.span_bytes)
        text_bytes = source.num_bytes * (COMPRESSED_TEXT_RATIO if source.compression else 1)
        num_rows = 1 if self.separator is None else None
        return [Span(source, 0, source.num_bytes, text_bytes, 0, num_rows)]

    def schema(self, source: Input) -> SourceSchema | None:
        return None

    def rows(self, span: Span) -> Iterator[Rows]:
        first_row = 0
        for texts in self._texts(span):
            yield Rows.of_texts(texts, first_row, self.options.replace_bad_text)
            first_row += len(texts)

    def place(self, span: Span, row: int) -> str:
        if self.separator is None:
            return "the file"
        if span.start and not is_counted_from_start(span):
            return f"document {row + 1} from byte {span.start} on"
        if self._counted is None or self._counted[0] != span:
            before = self._documents(span.input, 0, span.start) if span.start else []
            self._counted = (span, sum(map(len, before)))
        return f"document {self._counted[1] + row + 1}"

    def _texts(self, span: Span) -> Iterator[pa.LargeBinaryArray]:
        if self.separator is not None:
            for documents in self._documents(span.input, span.start, span.stop):
                yield _array_of(documents)
        elif span.input.compression:
            yield _array_of([self._whole(span.input)])
        else:
            yield _one_row(self._mapped(span))

    def _documents(self, source: Input, start: int, stop: int) -> Iterator[list[bytes]]:
        """Documents in lists of about `batch_bytes`; `stop` is the end of the file or right after a
        separator.

        A separator may straddle chunks, so `tail` keeps the last len - 1 bytes of the unfinished
        document. No occurrence can start earlier: it would have ended in an earlier chunk.
        """
        assert self.separator is not None
        overlap = len(self.separator) - 1
        parts: list[bytes] = []  # the unfinished document, up to its tail
        tail = b""
        num_bytes = num_separators = 0
        begin = start  # of the unfinished document
        for chunk in chunks_of(source, start, stop, self.options.batch_bytes):
            *done, rest = (tail + chunk).split(self.separator)
            if done:
                done[0] = b"".join([*parts, done[0]])
                yield done
                num_separators += len(done)
                begin += sum(map(len, done)) + len(done) * len(self.separator)
                parts, num_bytes = [], 0
            split = max(0, len(rest) - overlap)
            tail = rest[split:]
            parts.append(rest[:split])
            num_bytes += len(parts[-1])
            if num_bytes > MAX_DOCUMENT_BYTES:
                raise too_long(source, "the document", begin)
        last = b"".join([*parts, tail])
        if last or not num_separators:
            yield [last]

    def _whole(self, source: Input) -> bytes:
        parts: list[bytes] = []
        num_bytes = 0
        for chunk in chunks_of(source, 0, source.num_bytes, self.options.batch_bytes):
            parts.append(chunk)
            num_bytes += len(chunk)
            if num_bytes > MAX_DOCUMENT_BYTES:
                raise too_long(source, "the document", 0)
        return b"".join(parts)

    def _mapped(self, span: Span) -> pa.Buffer:
        """The whole file in a memory map; an object in memory."""
        with native_file(span.input, is_mapped=True) as (file, expect):
            expect([(span.start, span.stop)])
            content = file.read_buffer() if file.size() else pa.py_buffer(b"")
        if content.size != span.stop:
            raise InputError(
                f"{span.input.name}: has {content.size} bytes, had {span.stop}: it has changed"
            )
        is_marked = content.slice(0, min(3, content.size)).to_pybytes() == UTF8_BOM
        return content.slice(3) if is_marked else content


def _array_of(documents: list[bytes]) -> pa.LargeBinaryArray:
    if len(documents) == 1:
        return _one_row(pa.py_buffer(documents[0]))
    return binary_array_of(documents)


def _one_row(content: pa.Buffer) -> pa.LargeBinaryArray:
    offsets = pa.py_buffer(np.array([0, content.size], np.int64))
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, content])
