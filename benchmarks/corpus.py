"""Corpora to measure on: real paragraphs, recombined into new documents with a fixed seed.

Laid out as FineWeb is: parquet, snappy, row groups of 1,000 rows. Paragraphs come from the parquet
files under --corpus, or, without one, from the docstrings and comments of Python's own library.
"""

from __future__ import annotations

import glob
import os
import random
import sysconfig

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP = 1_000
FILE_BYTES = 256 << 20


def paragraphs(corpus: str | None) -> list[str]:
    if corpus is None:
        texts = []
        for path in sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "*.py"))):
            with open(path, encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
    else:
        files = sorted(glob.glob(os.path.join(corpus, "**", "*.parquet"), recursive=True))
        texts = [
            t for f in files for t in pq.read_table(f, columns=["text"])["text"].to_pylist() if t
        ]
    return [piece for text in texts for piece in text.split("\n\n") if piece.strip()]


def make_corpus(
    corpus: str | None,
    folder: str,
    num_bytes: int,
    seed: int = 1,
    file_bytes: int = FILE_BYTES,
) -> str:
    """Write about `num_bytes` of text into `folder`, unless it is there already; the folder."""
    done = os.path.join(folder, f".{num_bytes}-{seed}")
    if os.path.exists(done):
        return folder
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(seed)
    pieces = paragraphs(corpus)
    written = file_number = 0
    while written < num_bytes:
        path = os.path.join(folder, f"{file_number:03d}_00000.parquet")
        in_file = 0
        with pq.ParquetWriter(
            path, pa.schema([("text", pa.string()), ("id", pa.string())])
        ) as writer:
            while in_file < file_bytes and written < num_bytes:
                texts = [
                    "\n\n".join(rng.choices(pieces, k=max(1, int(rng.lognormvariate(2.5, 1.0)))))
                    for _ in range(ROW_GROUP)
                ]
                ids = [f"<urn:uuid:{rng.getrandbits(128):032x}>" for _ in texts]
                writer.write_table(pa.table({"text": texts, "id": ids}), row_group_size=ROW_GROUP)
                size = sum(len(text.encode()) for text in texts)
                in_file, written = in_file + size, written + size
        file_number += 1
    open(done, "w").close()
    return folder
