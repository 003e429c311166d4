"""What a contestant's tokens were: a faster answer that differs does not count.

A format adds headers, puts EOT before or after documents, and some tools reorder them; none of
that is a difference. So an answer is a set of documents: each one's ids between two EOTs, hashed,
and the hashes added up, which leaves no trace of their order.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import xxhash


@dataclass(frozen=True)
class Answer:
    num_documents: int
    num_tokens: int  # without EOT
    digest: str


def answer(out: str, reads: str, eot: int, dtype: str = "<u2") -> Answer:
    """Of the folder `out`, read as `reads` says: raw files, npy, litdata or a tokenmill folder."""
    num_documents = num_tokens = total = 0
    for ids in _files(out, reads, dtype):
        marks = np.flatnonzero(ids == eot)
        bounds = [-1, *marks.tolist(), len(ids)]
        wide = np.ascontiguousarray(ids, "<u4")
        for before, after in pairwise(bounds):
            if after - before > 1:
                total += xxhash.xxh3_128_intdigest(wide[before + 1 : after])
                num_documents += 1
        num_tokens += len(ids) - len(marks)
    return Answer(num_documents, num_tokens, f"{total % (1 << 128):032x}")


def _files(out: str, reads: str, dtype: str) -> Iterator[Any]:
    """The token streams. A document never crosses from one into the next."""
    if reads == "npy":
        paths = sorted(glob.glob(os.path.join(out, "*.npy")))
        yield np.concatenate([np.load(path) for path in paths])
    elif reads == "litdata":
        with open(os.path.join(out, "index.json")) as file:
            chunks = json.load(file)["chunks"]
        for chunk in chunks:
            header = 4 * (2 + chunk["chunk_size"])  # number of samples, their offsets
            yield np.fromfile(os.path.join(out, chunk["filename"]), "<i4", offset=header)
    else:  # a pattern of files that are tokens and nothing else
        for path in sorted(glob.glob(os.path.join(out, reads), recursive=True)):
            yield np.fromfile(path, dtype)


def differs(found: Answer, wanted: Answer) -> str:
    """In what, or nothing."""
    if found.num_documents != wanted.num_documents:
        return f"{found.num_documents:,} documents instead of {wanted.num_documents:,}"
    if found.num_tokens != wanted.num_tokens:
        return f"{found.num_tokens:,} tokens instead of {wanted.num_tokens:,}"
    return "" if found == wanted else "other ids"
