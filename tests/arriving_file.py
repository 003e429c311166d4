"""A file on the tests' Hub with much to fetch and little to encode, and its end held back."""

from __future__ import annotations

import io
import random
import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

import oracle
from corpora import made_texts
from hub_server import Request, Response

NAME = "some/corpus"
TEXTS = made_texts(120, seed=7)
NUM_GROUPS = 12


def parquet(texts: list[str]) -> bytes:
    """Little to encode, and 6 MB to fetch."""
    sink, rows = io.BytesIO(), random.Random(texts[0])
    table = pa.table(
        {"text": texts, "id": range(len(texts)), "unread": [rows.randbytes(50_000) for _ in texts]}
    )
    pq.write_table(table, sink, row_group_size=len(texts) // NUM_GROUPS, compression="none")
    return sink.getvalue()


FILE = parquet(TEXTS)
EXPECTED = oracle.stream(oracle.ids(TEXTS))


def is_near_end(request: Request) -> bool:
    start, last = map(int, re.findall(r"\d+", request.range or "0 0"))
    return start < len(FILE) - 500_000 < last  # and not the footer, for the plan


def wrong_text(right: Response) -> Response:
    """Other words, of the same length: it can be read, but it is not the file."""
    return replace(right, body=memoryview(bytes(right.body).replace(b"e", b"o")))
