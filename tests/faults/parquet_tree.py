"""A parquet file taken apart: the footer as a tree, each page as a header tree and its bytes.

`written` puts it together again with right offsets and sizes, so that one lie in one place is all
that is wrong with a mutated file, and it gets as deep into a reader as can be.
"""

from __future__ import annotations

import copy
import struct
from dataclasses import dataclass

import pyarrow as pa
import thrift_tree
from thrift_tree import Struct

MAGIC = b"PAR1"
CODECS = {0: None, 1: "snappy", 2: "gzip", 6: "zstd"}
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3


@dataclass
class Page:
    header: Struct
    levels: bytes  # of a v2 data page: never compressed
    body: bytes  # as it is before compression
    codec: str | None


@dataclass
class ParquetTree:
    footer: Struct
    chunks: list[list[Page]]  # by row group and column, in the file's order

    def columns(self) -> list[Struct]:
        groups = self.footer.get(4).items
        return [column.get(3) for group in groups for column in group.get(1).items]


def parsed(data: bytes) -> ParquetTree:
    [length] = struct.unpack("<I", data[-8:-4])
    footer, _ = thrift_tree.parsed(data, len(data) - 8 - length)
    tree = ParquetTree(footer, [])
    for column in tree.columns():
        starts = (column.get(9), column.get(11))
        start = min(offset for offset in starts if offset)
        stop = start + column.get(7)
        pages = []
        while start < stop:
            header, start = thrift_tree.parsed(data, start)
            raw = data[start : start + header.get(3)]
            start += header.get(3)
            pages.append(_page(header, raw, CODECS[column.get(4)]))
        tree.chunks.append(pages)
    return tree


def _page(header: Struct, raw: bytes, codec: str | None) -> Page:
    num_levels = 0
    if header.get(1) == DATA_PAGE_V2:
        v2 = header.get(8)
        num_levels = v2.get(5) + v2.get(6)
        if any(number == 7 and kind == thrift_tree.FALSE for number, kind, _ in v2.fields):
            codec = None
    levels, body = raw[:num_levels], raw[num_levels:]
    if codec and body:
        body = pa.decompress(body, header.get(2) - num_levels, codec, asbytes=True)
    return Page(header, levels, body, codec)


def page_bytes(page: Page) -> bytes:
    """Header and body, with the sizes that are true of them."""
    body = pa.compress(page.body, page.codec, asbytes=True) if page.codec else page.body
    page.header.set(2, len(page.levels) + len(page.body))
    page.header.set(3, len(page.levels) + len(body))
    return thrift_tree.written(page.header) + page.levels + body


def file_bytes(tree: ParquetTree, chunks: list[list[bytes]] | None = None) -> bytes:
    """The file. `chunks`: the bytes of each page, where they are not to be made from the tree."""
    out = bytearray(MAGIC)
    footer = copy.deepcopy(tree.footer)
    written = chunks or [[page_bytes(page) for page in pages] for pages in tree.chunks]
    whole = ParquetTree(footer, tree.chunks)
    for column, pages, kinds in zip(whole.columns(), written, tree.chunks, strict=True):
        column.set(7, sum(map(len, pages)))
        is_first = True
        for page, kind in zip(pages, kinds, strict=True):
            if kind.header.get(1) == DICTIONARY_PAGE:
                column.set(11, len(out))
            elif is_first:
                column.set(9, len(out))
                is_first = False
            out += page
    return bytes(out) + footer_bytes(thrift_tree.written(footer))


def footer_bytes(written: bytes) -> bytes:
    return written + struct.pack("<I", len(written)) + MAGIC
