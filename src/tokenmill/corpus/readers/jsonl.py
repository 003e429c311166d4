"""JSON lines: byte ranges cut at line ends, parsed in blocks of whole lines (jsonrows.py). A file
that begins with [ is one array of objects (json_array.py).

395-430 MB/s of text per thread; a block with a bad line, blank lines or odd spacing takes the slow
path of jsonrows.py. A line may be up to 1 GiB. At plan time the first lines show whether this is
JSON lines at all (a pretty-printed object is not), and whether the text field exists.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tokenmill.arrays import indices
from tokenmill.corpus.readers import COMPRESSED_TEXT_RATIO, ReadOptions, TextBatch
from tokenmill.corpus.readers.byte_cuts import cut_spans
from tokenmill.corpus.readers.bytestream import (
    MAX_DOCUMENT_BYTES,
    chunks_of,
    head_of,
    is_counted_from_start,
    too_long,
)
from tokenmill.corpus.readers.choice import Chosen
from tokenmill.corpus.readers.column import CHAT_NAMES, CHAT_TURNS, chat_refusal, list_refusal
from tokenmill.corpus.readers.json_array import (
    begins_array,
    element_blocks,
    first_elements,
    is_array,
)
from tokenmill.corpus.readers.json_kept import kept_of_objects, lines_schema
from tokenmill.corpus.readers.jsonrows import (
    DECODER,
    EXACT_DECODER,
    MISSING,
    WHITESPACE,
    BadLine,
    chosen_rows,
    field_of,
    kind_of,
    line_rows,
    lines_in,
    object_of,
    paths_of,
    rows_of,
)
from tokenmill.corpus.readers.rows import Rows, numbered, with_row_numbers, without_bad
from tokenmill.corpus.readers.sample import Sampler, sampled, sampler_of
from tokenmill.corpus.readers.signature import HEAD_BYTES
from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import ConfigError, InputError
from tokenmill.where.template import template_of
from tokenmill.wording.name_list import name_list

if TYPE_CHECKING:
    from tokenmill.corpus.readers.json_choice import LineChoice


_FIRST_LINES = 100
_FIRST_BYTES = 1 << 20


class JsonlReader:
    """Span unit: bytes of the file."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._counted: tuple[Span, int, Iterator[int]] | None = None

    def spans(self, source: Input) -> list[Span]:
        if source.num_bytes == 0 and not source.compression:
            return []
        is_found_array = self._check_first_lines(source)
        if is_found_array and _is_empty_array(source):
            return []
        if not source.compression and not is_found_array:
            return cut_spans(source, b"\n", self.options.span_bytes)
        text_bytes = source.num_bytes * (COMPRESSED_TEXT_RATIO if source.compression else 1)
        return [Span(source, 0, source.num_bytes, text_bytes)]

    def kept_schema(self, source: Input) -> pa.Schema:
        """The types of the kept fields in the first lines."""
        head = _first_objects(source)
        return lines_schema(head.objects, self.options.keep or (), source.name, head.which)

    def batches(self, span: Span) -> Iterator[TextBatch]:
        blocks = _blocks(span, self.options.batch_bytes)
        sampler = sampler_of(span, self.options)
        if self.options.lists == "documents":  # --sample takes a line with all its documents
            return numbered(span, _documents(blocks, self.options, sampler))
        rows = (rows_in(block, self.options) for block in blocks)
        return numbered(span, sampled(rows, sampler))

    def place(self, span: Span, row: int) -> str:
        if self.options.lists == "documents":
            where = f" from byte {span.start} on" if span.start else ""
            return f"document {row + 1}{where}"
        if span.start == 0 and is_array(span.input):
            return f"element {row + 1}"
        # Rows are requested in order, so the lines are scanned once, not once per bad row.
        if self._counted is None or self._counted[0] != span or self._counted[1] > row:
            self._counted = (span, 0, _lines_of_rows(span, self.options.batch_bytes))
        _, first, lines = self._counted
        line = next(itertools.islice(lines, row - first, None))
        self._counted = (span, row + 1, lines)
        if span.start and not is_counted_from_start(span):
            return f"line {line} from byte {span.start} on"
        return f"line {line}"

    def _check_first_lines(self, source: Input) -> bool:
        """Whether the file is an array. Raises an error if its beginning shows a mistake."""
        head = _first_objects(source)
        if any(head.objects):
            require_text(head.objects, self.options, source.name, head.which)
        if head.objects and self.options.where is not None:
            line_choice(self.options).require_fields(head.objects, source.name, head.which)
        return head.is_array


class _Head(NamedTuple):
    """The objects at the beginning of a file."""

    objects: list[dict[str, Any]]
    which: str
    is_array: bool


def _first_objects(source: Input) -> _Head:
    head = head_of(source, _FIRST_BYTES)
    is_found_array = begins_array(head)
    if is_found_array:
        lines = first_elements(head, _FIRST_LINES)
    else:
        lines = head.split(b"\n")
        if len(head) >= _FIRST_BYTES:
            lines.pop()  # it may be incomplete
        lines = [line for line in lines if line.strip(WHITESPACE)][:_FIRST_LINES]
        _check_is_lines(source, lines, head)
    objects = []
    for line in lines:
        try:
            objects.append(object_of(line.decode(errors="replace"), EXACT_DECODER))
        except (BadLine, RecursionError):
            continue
    what = "element" if is_found_array else "line"
    which = f"its first {what}" if len(lines) == 1 else f"its first {len(lines)} {what}s"
    return _Head(objects, which, is_found_array)


def _is_empty_array(source: Input) -> bool:
    head = head_of(source)
    is_whole = len(head) < HEAD_BYTES and not source.compression
    return is_whole and head.translate(None, WHITESPACE) == b"[]"


def _check_is_lines(source: Input, lines: list[bytes], head: bytes) -> None:
    """Raise InputError for an object that spans several lines."""
    if len(lines) > 1 and _is_cut_off(lines[0], head):
        raise InputError(
            f"{source.name}: a JSON object over several lines, not one JSON object per line",
            hint=f"jq -c . {shlex.quote(source.name)} > lines.jsonl",
        )


def _is_cut_off(line: bytes, head: bytes) -> bool:
    """Whether the first line begins an object that continues on the next line."""
    if line.strip(WHITESPACE) == b"{":
        return True
    text = head.decode(errors="replace").lstrip(WHITESPACE.decode())
    try:
        _, end = DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return "\n" in text[:end]


# Functions, not methods: a reader that keeps an unfinished generator must not be referenced by it,
# or the file stays open until the garbage collector runs.


def line_choice(options: ReadOptions) -> LineChoice:
    from tokenmill.corpus.readers.json_choice import choice_of
    from tokenmill.where.parser import parsed

    assert options.where is not None
    return choice_of(parsed(options.where), options.replace_bad_text)


Block = bytes | list[bytes]  # whole lines, or an array's elements


def rows_in(block: Block, options: ReadOptions) -> Rows:
    """The rows of a block that satisfy --where, if it is given."""
    if options.where is None:
        rows = line_rows(block, options) if isinstance(block, list) else rows_of(block, options)
        return rows if options.kept_types is None else _with_kept(rows, _lines(block), options)
    lines = _lines(block)
    chosen = line_choice(options).among(lines)
    rows, _ = chosen_rows(lines, chosen, options)
    return _with_kept(rows, _those_in(lines, chosen), options)


def _lines(block: Block) -> list[bytes]:
    return block if isinstance(block, list) else lines_in(block)


def _those_in(lines: Sequence[bytes], chosen: Chosen) -> list[bytes]:
    return [lines[at] for at in np.flatnonzero(chosen.is_in).tolist()]


def _with_kept(
    rows: Rows, lines: Sequence[bytes], options: ReadOptions, line_of: Sequence[int] | None = None
) -> Rows:
    """The rows with what is kept of their lines, which are parsed once more. `line_of` has the line
    of each row, unless each line is one row."""
    if options.keep is None or options.kept_types is None:
        return rows
    found = kept_of_objects(
        [_object_or_nothing(line) for line in lines], options.keep, options.kept_types
    )
    kept, bad = found.array, found.bad
    if line_of is not None:
        kept = kept.take(indices(np.array(line_of, np.int64)))
        bad = {at: bad[line] for at, line in enumerate(line_of) if line in bad}
    bad = {at: why for at, why in bad.items() if at not in rows.bad}
    return without_bad(dataclasses.replace(rows, kept=kept), bad)


def _object_or_nothing(line: bytes) -> dict[str, Any]:
    try:
        return object_of(line.decode(errors="replace"), EXACT_DECODER)
    except (BadLine, RecursionError):
        return {}


def _documents(
    blocks: Iterable[Block], options: ReadOptions, sampler: Sampler | None
) -> Iterator[Rows]:
    """The documents of all lines that go in; a line that is left out counts as one row."""
    first_line = 0
    for block in blocks:
        lines = _lines(block)
        chosen = Chosen(np.ones(len(lines), np.bool_), {})
        if options.where is not None:
            chosen = line_choice(options).among(lines)
        if sampler is not None:
            chosen = chosen.only(sampler.drawn(first_line, len(lines)))
        rows, line_of = chosen_rows(lines, chosen, options)
        if options.keep is not None and line_of is not None:
            rows = _with_kept(rows, _those_in(lines, chosen), options, line_of)
            numbers = first_line + np.flatnonzero(chosen.is_in)[line_of]
            rows = dataclasses.replace(rows, kept=with_row_numbers(rows.kept, numbers))
        yield rows
        first_line += len(lines)


def _lines_of_rows(span: Span, batch_bytes: int) -> Iterator[int]:
    """The line number of each row of the span, counted from the start of the file unless that takes
    too long."""
    line = 1
    if span.start and is_counted_from_start(span):
        before = chunks_of(span.input, 0, span.start, batch_bytes)
        line += sum(chunk.count(b"\n") for chunk in before)
    for block in _line_blocks(chunks_of(span.input, span.start, span.stop, batch_bytes), span):
        for text in block.removesuffix(b"\n").split(b"\n"):
            if text.strip(WHITESPACE):
                yield line
            line += 1
    yield line


def _blocks(span: Span, batch_bytes: int) -> Iterator[Block]:
    """Whole lines, or elements, in blocks of about `batch_bytes`."""
    chunks = chunks_of(span.input, span.start, span.stop, batch_bytes)
    if span.start:
        return _line_blocks(chunks, span)
    num_lines = num_bytes = 0  # of blank chunks: there may be gigabytes of them
    for chunk in chunks:
        if chunk.lstrip(WHITESPACE):
            chunks = itertools.chain([chunk], chunks)
            if begins_array(chunk):
                return element_blocks(chunks, span.input, batch_bytes, num_lines)
            break
        num_lines += chunk.count(b"\n")
        num_bytes += len(chunk)
    return _line_blocks(chunks, span, num_bytes)


def _line_blocks(chunks: Iterable[bytes], span: Span, num_before: int = 0) -> Iterator[bytes]:
    """`num_before`: bytes of the span that come before these chunks."""
    parts: list[bytes] = []  # an unfinished line
    num_bytes = 0
    begin = span.start + num_before
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if end:
            block = b"".join([*parts, chunk[:end]])
            yield block
            begin += len(block)
            parts, num_bytes = [], 0
        parts.append(chunk[end:])
        num_bytes += len(parts[-1])
        if num_bytes > MAX_DOCUMENT_BYTES:
            raise too_long(span.input, "the line", begin)
    if num_bytes:
        yield b"".join(parts)


Objects = Sequence[dict[str, Any]]


def require_text(objects: Objects, options: ReadOptions, path: str, which: str) -> None:
    """Raise ConfigError if a field of the text is in none of the objects, or is never text. `which`
    describes the objects in the message."""
    if options.template is not None:
        _require_slots(objects, options.template, path, which)
        return
    name = options.text_column
    found = _values(objects, name)
    if not found:
        _refuse_only_chats(objects, path)
        keys = dict.fromkeys(key for one in objects for key in paths_of(one))
        texts = [key for key in keys if any(isinstance(v, str) for v in _values(objects, key))]
        near = difflib.get_close_matches(name, texts, n=1) or texts[: len(texts) == 1]
        raise ConfigError(
            f"{path}: no field {name!r} in {which}: there are {name_list(keys)}",
            hint=f"--text-column {shlex.quote(near[0]) if near else 'NAME'}",
        )
    given = [value for value in found if value is not None]
    if not given:
        return
    if all(_is_chat(name.rpartition(".")[2], value) for value in given):
        raise chat_refusal(f"{path}: field {name!r}")
    if options.lists is None and all(isinstance(value, list) for value in given):
        raise list_refusal(f"{path}: field {name!r}")


def _require_slots(objects: Objects, text: str, path: str, which: str) -> None:
    template = template_of(text)
    for slot in template.slots:
        values = _values(objects, slot.name)
        known = dict.fromkeys(key for one in objects for key in paths_of(one))
        if not values:
            raise template.mistake(f"{path}: no field {slot.name!r} in {which}", slot, known)
        given = [value for value in values if value is not None]
        if given and not any(type(value) in (str, int) for value in given):
            texts = [n for n in known if any(isinstance(v, str) for v in _values(objects, n))]
            what = f"{path}: field {slot.name!r} is {kind_of(given[0])}, not text or a whole number"
            raise template.mistake(what, slot, texts)


def _values(objects: Objects, name: str) -> list[Any]:
    found = (field_of(one, tuple(name.split("."))) for one in objects)
    return [value for value in found if value is not MISSING]


def _refuse_only_chats(objects: Objects, path: str) -> None:
    """Raise ConfigError if there are conversations and no text."""
    keys = dict.fromkeys(key for one in objects for key in one)
    values = {key: [one[key] for one in objects if one.get(key) is not None] for key in keys}
    chats = [key for key in keys if values[key] and all(_is_chat(key, v) for v in values[key])]
    has_text = any(isinstance(value, str) for key in keys for value in values[key])
    if chats and not has_text:
        raise chat_refusal(f"{path}: field {chats[0]!r}")


def _is_chat(name: str, value: Any) -> bool:
    if not isinstance(value, list) or not value or not all(isinstance(v, dict) for v in value):
        return False
    return name in CHAT_NAMES or any(turn <= value[0].keys() for turn in CHAT_TURNS)
