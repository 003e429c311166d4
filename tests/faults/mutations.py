"""Hostile inputs, made from sound ones by changing one thing or a few: `mutated(kind, seed)`.

A mutation knows the format: it changes a field of a parquet footer and writes the footer again, a
byte of a page before it is compressed, an offset in an Arrow buffer. Random bytes alone would be
refused at the first checksum or length. The same kind and seed always give the same bytes.
"""

from __future__ import annotations

import bz2
import copy
import csv
import functools
import gzip
import io
import itertools
import json
import lzma
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import parquet_tree
import pyarrow as pa
import pyarrow.parquet as pq
import thrift_tree
from parquet_tree import ParquetTree
from thrift_tree import Sequence, Struct

from corpora import made_texts

EXTREMES = (0, 1, -1, 2, 7, 127, 128, 255, 256, -128, 1 << 15, 1 << 20, (1 << 31) - 1, 1 << 31)
EXTREMES += (-(1 << 31), (1 << 32) - 1, 1 << 40, (1 << 62) + 7, (1 << 63) - 1, -(1 << 63))
TEXTS: list[str | None] = [*made_texts(30, seed=3), None, "", "a" * 300, None, *["again"] * 12]


def mutated(kind: str, seed: int) -> tuple[str, bytes]:
    """(name of the file, its bytes)."""
    rng = random.Random(f"{kind} {seed}")
    return KINDS[kind](rng)


# Bytes, of any kind.


def bytes_mutated(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, lost, repeated or added."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(out) + 1)
        what = rng.randrange(7)
        if what <= 2 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif what == 3 and at < len(out):
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif what == 4:
            out[at:at] = rng.randbytes(rng.randint(1, 9))
        elif what == 5:
            del out[at : at + rng.choice((1, 1, 4, 100))]
        else:
            out[at:at] = out[at : at + rng.choice((1, 8, 200))]
    return bytes(out)


def number_mutated(data: bytes, rng: random.Random, width: int) -> bytes:
    """An aligned little-endian number changed."""
    out = bytearray(data)
    if len(out) < width:
        return bytes_mutated(data, rng)
    at = rng.randrange(len(out) // width) * width
    value = int.from_bytes(out[at : at + width], "little")
    value = rng.choice((*EXTREMES, value + 1, value - 1, value * 2, value + 8, -value))
    out[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(out)


def cut_short(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


# Parquet.


def _table(rng: random.Random) -> pa.Table:
    texts = pa.array(TEXTS, rng.choice((pa.string(), pa.large_string(), pa.binary())))
    columns = {"id": pa.array(range(len(TEXTS))), "text": texts}
    if rng.random() < 0.5:
        columns["tags"] = pa.array([["a", None], []] * (len(TEXTS) // 2))
        columns["score"] = pa.array([0.5, None] * (len(TEXTS) // 2))
    return pa.table(columns)


@functools.cache
def sound_parquet_file(variant: int) -> bytes:
    rng = random.Random(variant)
    sink = io.BytesIO()
    pq.write_table(
        _table(rng),
        sink,
        row_group_size=rng.choice((7, 16, 100)),
        compression=rng.choice(("none", "snappy", "zstd", "gzip")),
        use_dictionary=rng.random() < 0.6,
        data_page_version=rng.choice(("1.0", "2.0")),
        data_page_size=rng.choice((200, 1 << 20)),
        write_statistics=rng.random() < 0.7,
        write_page_checksum=rng.random() < 0.1,
        store_schema=rng.random() < 0.8,
        column_encoding=None,
    )
    return sink.getvalue()


def parquet(rng: random.Random) -> tuple[str, bytes]:
    data = sound_parquet_file(rng.randrange(24))
    what = rng.random()
    if what < 0.45:
        data = _footer_mutated(data, rng)
    elif what < 0.6:
        data = _page_headers_mutated(data, rng)
    elif what < 0.85:
        data = _page_bodies_mutated(data, rng)
    elif what < 0.93:
        data = bytes_mutated(data, rng)
    else:
        data = cut_short(data, rng)
    return "a.parquet", data


def _footer_mutated(data: bytes, rng: random.Random) -> bytes:
    [length] = struct.unpack("<I", data[-8:-4])
    pages, raw = data[: -8 - length], data[-8 - length : -8]
    what = rng.random()
    if what < 0.8:
        footer, _ = thrift_tree.parsed(raw)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            _tree_mutated(footer, rng)
        return pages + parquet_tree.footer_bytes(thrift_tree.written(footer))
    if what < 0.95:
        return pages + parquet_tree.footer_bytes(bytes_mutated(raw, rng))
    wrong = rng.choice((0, 1, length - 1, length + 1, length * 2, (1 << 31) - 1, (1 << 32) - 1))
    return pages + raw + struct.pack("<I", wrong) + b"PAR1"


def _page_headers_mutated(data: bytes, rng: random.Random) -> bytes:
    tree = parquet_tree.parsed(data)
    chunks = [[parquet_tree.page_bytes(page) for page in pages] for pages in tree.chunks]
    chunk = rng.randrange(len(chunks))
    number = rng.randrange(len(chunks[chunk]))
    page, raw = tree.chunks[chunk][number], chunks[chunk][number]
    body = raw[len(thrift_tree.written(page.header)) :]
    header = copy.deepcopy(page.header)
    _tree_mutated(header, rng)
    chunks[chunk][number] = thrift_tree.written(header) + body
    return parquet_tree.file_bytes(tree, chunks)


def _page_bodies_mutated(data: bytes, rng: random.Random) -> bytes:
    """Levels, dictionaries, runs of indices, lengths: changed before they are compressed."""
    tree: ParquetTree = copy.deepcopy(parquet_tree.parsed(data))
    for _ in range(rng.choice((1, 1, 2))):
        page = rng.choice(rng.choice(tree.chunks))
        what = rng.random()
        if what < 0.4:
            # Levels, bit widths and the first lengths stand at the front.
            page.body = bytes_mutated(page.body[:24], rng) + page.body[24:]
        elif what < 0.7:
            page.body = bytes_mutated(page.body, rng)
        elif what < 0.9:
            page.body = number_mutated(page.body, rng, 4)
        else:
            page.levels = bytes_mutated(page.levels, rng)
    return parquet_tree.file_bytes(tree)


def _tree_mutated(tree: Struct, rng: random.Random) -> None:
    """One value of a tree changed, lost, doubled or of another type."""
    holder, index, value = rng.choice(_leaves(tree))
    fields = holder.fields if isinstance(holder, Struct) else holder.items
    what = rng.random()
    if what < 0.08:
        del fields[index]
    elif what < 0.16:
        fields.insert(index, copy.deepcopy(fields[index]))
    elif what < 0.2 and isinstance(holder, Struct):
        fields[index][1] = rng.randrange(16)
    elif what < 0.24 and isinstance(holder, Struct):
        fields[index][0] = rng.choice((-1, 0, 1, 2, 3, 5, 9, 100, 32767))
    else:
        new = _value_mutated(value, rng)
        if isinstance(holder, Struct):
            fields[index][2] = new
        else:
            fields[index] = new


def _value_mutated(value: Any, rng: random.Random) -> Any:
    if isinstance(value, int):
        near = (value + 1, value - 1, value * 2, -value, value ^ 1 << rng.randrange(16))
        return rng.choice((*EXTREMES, *near))
    if isinstance(value, bytes):
        return rng.choice((b"", b"\xff", b"text", value * 2, rng.randbytes(5), b"\0" * 300, value))
    if isinstance(value, Sequence) and value.items:
        items = list(value.items)
        if rng.random() < 0.5:
            items *= rng.choice((0, 2, 9))
        else:
            rng.shuffle(items)
        return Sequence(rng.choice((value.kind, value.kind, rng.randrange(16))), items)
    return value


def _leaves(tree: Struct | Sequence) -> list[tuple[Any, int, Any]]:
    """(holder, index in it, value) of everything in a tree."""
    found: list[tuple[Any, int, Any]] = []
    values = [value for _, _, value in tree.fields] if isinstance(tree, Struct) else tree.items
    for index, value in enumerate(values):
        found.append((tree, index, value))
        if isinstance(value, (Struct, Sequence)):
            found += _leaves(value)
    return found


# Arrow IPC.


_ARROW_TYPES = (
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.binary_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.large_string()),
)


@functools.cache
def _arrow_messages(variant: int) -> tuple[tuple[bytes, ...], bytes, bool]:
    """(messages, each framed and padded; what follows them; is it a file, not a stream)."""
    rng = random.Random(variant)
    kind = rng.choice(_ARROW_TYPES)
    texts = pa.array([text and text.encode() for text in TEXTS], pa.binary())
    if pa.types.is_dictionary(kind):
        column = texts.cast(kind.value_type).dictionary_encode().cast(kind)
    else:
        column = pa.array(TEXTS if "string" in str(kind) else texts.to_pylist(), kind)
    table = pa.table({"id": range(len(TEXTS)), "text": column})
    is_file = rng.random() < 0.5
    options = pa.ipc.IpcWriteOptions(compression=rng.choice((None, None, "lz4", "zstd")))
    sink = io.BytesIO()
    new = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with new(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rng.choice((7, 16, 100)))
    data = sink.getvalue()
    source = pa.BufferReader(data)
    edges = [8 if is_file else 0]
    source.seek(edges[0])
    while True:
        try:
            pa.ipc.read_message(source)
        except EOFError:
            break
        edges.append(source.tell())
    messages = tuple(data[a:b] for a, b in itertools.pairwise(edges))
    return messages, data[edges[-1] :], is_file


def arrow(rng: random.Random) -> tuple[str, bytes]:
    framed, rest, is_file = _arrow_messages(rng.randrange(40))
    messages = list(framed)
    for _ in range(rng.choice((1, 1, 1, 2))):
        at = rng.randrange(len(messages))
        what = rng.random()
        if what < 0.75 and len(messages[at]) >= 8:
            messages[at] = _message_mutated(messages[at], rng)
        elif what < 0.8:
            del messages[at]
        elif what < 0.84:
            messages.insert(at, messages[at])
        elif what < 0.88:
            rng.shuffle(messages)
        elif what < 0.94 and rest:
            rest = rng.choice((number_mutated(rest, rng, 4), bytes_mutated(rest, rng), b""))
        else:
            messages[at] = bytes_mutated(messages[at], rng)
        if not messages:
            break
    data = (b"ARROW1\0\0" if is_file else b"") + b"".join(messages) + rest
    if rng.random() < 0.05 and data:
        data = cut_short(data, rng)
    return "a.arrow", data


def _message_mutated(message: bytes, rng: random.Random) -> bytes:
    """A message is a marker, a length, metadata (a flatbuffer) and a body of buffers."""
    length = int.from_bytes(message[4:8], "little")
    head, metadata, body = message[:8], message[8 : 8 + length], message[8 + length :]
    what = rng.random()
    if what < 0.5 and metadata:
        metadata = number_mutated(metadata, rng, rng.choice((1, 2, 4, 4, 8, 8)))
    elif what < 0.85 and body:
        # Offsets, views and the sizes of compressed buffers stand at the front of buffers.
        width = rng.choice((1, 4, 4, 8))
        front = rng.choice((16, 64, 256, len(body)))
        body = number_mutated(body[:front], rng, width) + body[front:]
    elif what < 0.92:
        head = number_mutated(head, rng, 4)
    else:
        body = body[: -8 * rng.randint(1, 4)]
    return head + metadata + body


# JSON lines and text, plain and compressed.

_ODD_LINES = (
    b"",
    b"{}",
    b"null",
    b"[]",
    b'"text"',
    b"17",
    b'{"text": null}',
    b'{"text": 17}',
    b'{"text": ["a"]}',
    b'{"text": "a", "text": "b"}',
    b'{"text": "\\ud83d"}',
    b'{"text": "\\ud83d\\ude42 \\udc00"}',
    b'{"text": "\\u0000"}',
    b'{"text": "a\x00b"}',
    b'{"text": "\xff\xfe"}',
    b'{"text": "\xed\xa0\x80"}',
    b'{"text": "a\tb"}',
    b'{"text": "\\x"}',
    b'{"text": "a"} {"text": "b"}',
    b'{"text": "a"}}',
    b'{"text": "a"',
    b'\xef\xbb\xbf{"text": "mark"}',
    b'{"text": "\xe2\x80\xa8\xc2\x85"}',
    b'{"text": 1e999, "n": -1e-999, "i": ' + b"9" * 5000 + b"}",
    b'{"n": Inf, "m": NaN, "text": "a"}',
    b'{"text": "a", "deep": ' + b"[" * 3000 + b"]" * 3000 + b"}",
    b'{"text": "a", "deep": ' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"}",
    b'{"deep": ' + b"[" * 100_000,
    b'{"te\\u0078t": "a"}',
    b'{"a": {"text": "b"}}',
    b" \t\r",
    b'{"text": "a"}\r',
    b'{\x0b"text": "a"}',
    b"\x1f\x8b\x08",
    b"\xff\xfe{\x00",
)


@functools.cache
def _lines() -> tuple[bytes, ...]:
    rows = ({"id": number, "text": text} for number, text in enumerate(TEXTS))
    return tuple(json.dumps(row, ensure_ascii=row["id"] % 2 == 0).encode() for row in rows)


def jsonl(rng: random.Random) -> tuple[str, bytes]:
    return "a.jsonl", _jsonl_bytes(rng)


def _jsonl_bytes(rng: random.Random) -> bytes:
    lines = list(_lines())
    for _ in range(rng.choice((1, 2, 5))):
        at = rng.randrange(len(lines))
        what = rng.random()
        if what < 0.45:
            lines.insert(at, rng.choice(_ODD_LINES))
        elif what < 0.75:
            lines[at] = bytes_mutated(lines[at], rng)
        elif what < 0.85:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        else:
            lines[at] = lines[at].replace(
                b'"', rng.choice((b"'", b'"' * 2, b"")), rng.randint(1, 3)
            )
    return rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b"\r")).join(lines)


def json_array(rng: random.Random) -> tuple[str, bytes]:
    lines = _jsonl_bytes(rng).split(b"\n") if rng.random() < 0.7 else list(_lines())
    data = b"[" + rng.choice((b",", b",\n", b" , ")).join(lines) + b"]"
    return "a.json", bytes_mutated(data, rng) if rng.random() < 0.3 else data


_ODD_VALUES = (
    *(b"null", b"17", b"-0", b"1.5", b"NaN", b"true", b'""', b"[]", b"{}", b"[[]]", b'["a", 1]'),
    *(b"[null]", b'["a", null, "", "\\ud800"]', b'{"text": "x"}', b'{"text": {"er": "y"}}'),
    *(b'"\\ud83d"', b'"{text}"', b"9" * 5000, b"[" * 900 + b"]" * 900, b'{"deep": {"er": []}}'),
    *(b'{"deep": 5}', b'{"text": "a", "text": "b"}', b'["a"', b'{"text": ["a", "b"]}', b"1e999"),
)
NESTED = ("id", "title", "text", "meta", "parts", "meta.text")


def nested(rng: random.Random) -> tuple[str, bytes]:
    """Rows with objects and lists in them, some of them not what they should be."""
    rows = []
    for number in range(24):
        text = json.dumps(TEXTS[number]).encode()
        row = {"id": b"%d" % number, "title": b'"t%d"' % number, "text": text}
        row["meta"] = b'{"text": ' + text + b', "deep": {"er": "e"}}'
        row["parts"] = b'["a", ' + text + b"]"
        rows.append(row)
    for _ in range(rng.choice((1, 3, 9))):
        row = rng.choice(rows)
        if rng.random() < 0.8:
            row[rng.choice(NESTED)] = rng.choice(_ODD_VALUES)
        else:
            row.pop(rng.choice(NESTED), None)
    lines = [
        b"{" + b", ".join(b'"%s": %s' % (key.encode(), row[key]) for key in row) + b"}"
        for row in rows
    ]
    if rng.random() < 0.5:
        return "a.json", b"[" + b",\n ".join(lines) + b"]"
    return "a.jsonl", b"\n".join(lines)


_ODD_FIELDS = (
    *(b'"', b'""', b'"""', b'a"b', b'"a"b', b' "a"', b'"a" ', b"", b'"\n"', b'"\r\n,"', b"\r"),
    *(b"\xff", b"\xef\xbb\xbf", b"\0", b"\xed\xa0\x80", b"a" * 70_000, b"'a,b'", b"\\"),
)


def delimited(rng: random.Random) -> tuple[str, bytes]:
    mark = rng.choice((b",", b"\t"))
    sink = io.StringIO(newline="")
    end = rng.choice(("\n", "\r\n"))
    writer = csv.writer(sink, delimiter=mark.decode(), lineterminator=end)
    writer.writerows([["id", "text"], *enumerate(TEXTS)])
    records = sink.getvalue().encode().split(b"\n")
    for _ in range(rng.choice((1, 2, 5))):
        at = rng.randrange(rng.choice((1, len(records), len(records), len(records))))
        what = rng.random()
        if what < 0.5:
            fields = rng.choices((*_ODD_FIELDS, b"plain"), k=rng.choice((1, 2, 2, 2, 3, 50)))
            records.insert(at + 1, mark.join(fields))
        elif what < 0.8:
            records[at] = bytes_mutated(records[at], rng)
        else:
            records[at] = records[at][: rng.randrange(len(records[at]) + 1)]
    data = rng.choice((b"", b"", b"\xef\xbb\xbf", b"\n")) + b"\n".join(records)
    return ("a.csv" if mark == b"," else "a.tsv"), data


def text(rng: random.Random) -> tuple[str, bytes]:
    return "a.txt", _text_bytes(rng)


def _text_bytes(rng: random.Random) -> bytes:
    data = "\n\n".join(text or "" for text in TEXTS).encode()
    for mark in rng.choices(
        (b"\n\n\n", b"\0" * 50, b"\xff\xfe", b"\xf0\x9f\x99", b"\xef\xbb\xbf"), k=2
    ):
        at = rng.randrange(len(data))
        data = data[:at] + mark + data[at:]
    return bytes_mutated(data, rng)


def _compressed(name: str, data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """One stream or several, with a lie in its frame, its blocks or its end."""
    half = rng.randrange(len(data) + 1)
    parts = [data] if rng.random() < 0.7 else [data[:half], data[half:]]
    if rng.random() < 0.4:
        extension, pack = rng.choice((("bz2", bz2.compress), ("xz", lzma.compress), ("lz4", _lz4)))
        whole = b"".join(pack(part) for part in parts)
        harm = rng.choice((lambda one, _: one, bytes_mutated, bytes_mutated, cut_short))
        return f"{name}.{extension}", harm(whole, rng)
    if rng.random() < 0.5:
        packed = [_gzip_mutated(part, rng) for part in parts]
        return name + ".gz", b"".join(packed)
    packed = [_zstd_mutated(part, rng) for part in parts]
    return name + ".zst", b"".join(packed)


def _lz4(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def _gzip_mutated(data: bytes, rng: random.Random) -> bytes:
    packed = bytearray(gzip.compress(data, rng.choice((1, 6, 9)), mtime=0))
    what = rng.random()
    if what < 0.15:
        return bytes(packed)
    if what < 0.3:
        packed[3] |= 1 << rng.randrange(8)  # flags: extra fields, a name, a comment, a checksum
    elif what < 0.45:
        packed[-8:] = struct.pack("<II", zlib.crc32(data) ^ rng.choice((0, 1)), rng.choice(_U32))
    elif what < 0.6:
        packed[10:20] = bytes_mutated(bytes(packed[10:20]), rng)  # the first block's header
    elif what < 0.75:
        return cut_short(bytes(packed), rng)
    elif what < 0.8:
        packed += rng.choice((b"\0" * 8, b"garbage", b"\x1f\x8b", bytes(packed[:18])))
    else:
        return bytes_mutated(bytes(packed), rng)
    return bytes(packed)


_U32 = (0, 1, 1 << 31, (1 << 32) - 1)


def _zstd_mutated(data: bytes, rng: random.Random) -> bytes:
    packed = bytearray(pa.compress(data, codec="zstd", asbytes=True))
    what = rng.random()
    if what < 0.15:
        return bytes(packed)
    if what < 0.4:
        # Magic, frame header (flags, window, content size), the first block's header.
        packed[:14] = bytes_mutated(bytes(packed[:14]), rng)
    elif what < 0.5:
        size = rng.choice((0, 5, 1 << 20, (1 << 32) - 1))
        packed[:0] = struct.pack("<II", 0x184D2A50 + rng.randrange(16), size) + b"skip!"
    elif what < 0.65:
        return cut_short(bytes(packed), rng)
    elif what < 0.7:
        packed += rng.choice((b"\0" * 8, b"garbage", bytes(packed[:9])))
    else:
        return bytes_mutated(bytes(packed), rng)
    return bytes(packed)


def compressed(rng: random.Random) -> tuple[str, bytes]:
    if rng.random() < 0.5:
        data = b"\n".join(_lines()) if rng.random() < 0.7 else _jsonl_bytes(rng)
        return _compressed("a.jsonl", data, rng)
    return _compressed("a.txt", _text_bytes(rng), rng)


KINDS: dict[str, Callable[[random.Random], tuple[str, bytes]]] = {
    "parquet": parquet,
    "arrow": arrow,
    "jsonl": jsonl,
    "json_array": json_array,
    "nested": nested,
    "delimited": delimited,
    "text": text,
    "compressed": compressed,
}
