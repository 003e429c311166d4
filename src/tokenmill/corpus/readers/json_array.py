"""Reads a file that is one JSON array, one element at a time, in the memory of its largest element.

The end of an element is known only after parsing it, with Python's parser, so the file is one span:
about 150 MB/s, because the elements are parsed again as rows, like JSON lines. A broken array is an
error with its line, not a bad row: after it, it is unknown where the next element begins.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator

from tokenmill.corpus.readers.bytestream import MAX_DOCUMENT_BYTES, head_of, too_long
from tokenmill.corpus.readers.json_values import DECODER, WHITESPACE
from tokenmill.corpus.spans import Input
from tokenmill.errors import InputError

_BLANK = WHITESPACE.decode()
_NEAR_END = 16  # characters: half of an escape, a number or a word


def begins_array(head: bytes) -> bool:
    return head.lstrip(WHITESPACE)[:1] == b"["


def is_array(source: Input) -> bool:
    """Whether a file of JSON is one array and not lines."""
    return source.num_bytes > 0 and begins_array(head_of(source))


def first_elements(head: bytes, max_elements: int) -> list[bytes]:
    """The complete elements at the beginning of an array."""
    found: list[bytes] = []
    try:
        for element in _Elements(iter([head]), "").all():
            found.append(element)
            if len(found) == max_elements:
                break
    except InputError:
        pass
    return found


def element_blocks(
    chunks: Iterable[bytes], source: Input, block_bytes: int, num_lines: int = 0
) -> Iterator[list[bytes]]:
    """The elements in order, in lists of about `block_bytes`. `num_lines` come before them."""
    block: list[bytes] = []
    num_bytes = 0
    for element in _Elements(iter(chunks), source.name, source, num_lines).all():
        block.append(element)
        num_bytes += len(element)
        if num_bytes >= block_bytes:
            yield block
            block, num_bytes = [], 0
    if block:
        yield block


class _Elements:
    """Bytes that are not UTF-8 pass through as lone surrogates; rows are checked later."""

    def __init__(
        self, chunks: Iterator[bytes], path: str, source: Input | None = None, num_lines: int = 0
    ) -> None:
        self._chunks = chunks
        self._path = path
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._text = ""
        self._at = 0
        self._line = num_lines + 1  # of the beginning of the text
        self._num_elements = 0

    def all(self) -> Iterator[bytes]:
        self._take("[")
        if self._next() == "]":
            self._take("]")
        else:
            yield self._element()
            while self._next() == ",":
                self._take(",")
                yield self._element()
            self._take("]")
        if self._next():
            raise self._broken("text after the end of the array")

    def _element(self) -> bytes:
        self._next()
        while True:
            start = self._at
            try:
                _, end = DECODER.raw_decode(self._text, start)
            except json.JSONDecodeError as error:
                if not self._is_cut(error):
                    raise self._broken(f"not JSON: {error.msg}", error.pos) from None
                if not self._more():
                    raise self._broken(f"not JSON: {error.msg}", error.pos - start) from None
                continue
            except RecursionError:
                raise self._broken("nested too deeply") from None
            may_go_on = self._text[end - 1] not in '}]"'  # it may be half of a number
            if not may_go_on or end < len(self._text) - _NEAR_END:
                break
            if not self._more():
                end -= start
                break
        raw, self._at = self._text[self._at : end], end
        self._num_elements += 1
        return raw.encode(errors="surrogateescape")

    def _is_cut(self, error: json.JSONDecodeError) -> bool:
        """Whether the error may go away with more text."""
        is_near_end = error.pos >= len(self._text) - _NEAR_END
        return is_near_end or error.msg.startswith("Unterminated string")

    def _next(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _BLANK:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _take(self, expected: str) -> None:
        found = self._next()
        if found != expected:
            shown = repr(found) if found else "the end of the file"
            raise self._broken(f"expected {expected}, got {shown}")
        self._at += 1

    def _more(self) -> bool:
        """Read at least as much as is waiting, so that a long element is parsed few times; False at
        the end of the file. The text then begins at what was `_at`."""
        self._line += self._text.count("\n", 0, self._at)
        parts, waiting = [self._text[self._at :]], len(self._text) - self._at
        if waiting > MAX_DOCUMENT_BYTES and self._source is not None:
            raise too_long(self._source, f"element {self._num_elements + 1}")
        num_read = 0
        for chunk in self._chunks:
            parts.append(self._decoder.decode(chunk))
            num_read += len(parts[-1])
            if num_read and num_read >= waiting:
                break
        else:
            parts.append(self._decoder.decode(b"", final=True))
            num_read += len(parts[-1])
        self._text, self._at = "".join(parts), 0
        return num_read > 0

    def _broken(self, what: str, at: int | None = None) -> InputError:
        line = self._line + self._text.count("\n", 0, self._at if at is None else at)
        return InputError(
            f"{self._path}: line {line}: {what}, in element {self._num_elements + 1} of a JSON "
            "array",
            hint="fix it there, or fetch the file again if it was cut short",
        )
