"""build-nanogpt's and llm.c's way: a Pool over a tiktoken encoder, written here from scratch.

Documents go to the workers one by one through `imap(chunksize=16)`, ids come back as uint16 arrays,
the parent fills a buffer and saves shards of 100M tokens.

    python benchmarks/peers/run_pool.py CORPUS OUT NUM_PROC
"""

from __future__ import annotations

import glob
import multiprocessing
import os
import sys
from collections.abc import Iterator

import numpy as np

SHARD_TOKENS = 100_000_000


def start() -> None:
    global encoder  # noqa: PLW0603
    import tiktoken

    encoder = tiktoken.get_encoding("r50k_base")  # gpt2's ranks; "gpt2" itself needs a download


def tokenize(text: str) -> np.ndarray:
    tokens = np.array([encoder.eot_token, *encoder.encode_ordinary(text)])
    assert (tokens >= 0).all() and (tokens < 2**16).all()
    return tokens.astype(np.uint16)


def documents(corpus: str) -> Iterator[str]:
    import pyarrow.parquet as pq

    for path in sorted(glob.glob(os.path.join(corpus, "*.parquet"))):
        for batch in pq.ParquetFile(path).iter_batches(1000, columns=["text"]):
            yield from batch.column(0).to_pylist()


def main(corpus: str, out: str, num_proc: int) -> None:
    os.makedirs(out)
    shard, filled, index = np.empty(SHARD_TOKENS, np.uint16), 0, 0
    with multiprocessing.Pool(num_proc, start) as pool:
        for tokens in pool.imap(tokenize, documents(corpus), chunksize=16):
            if filled + len(tokens) > SHARD_TOKENS:
                room = SHARD_TOKENS - filled
                shard[filled:] = tokens[:room]
                np.save(os.path.join(out, f"{index:06d}"), shard)
                index, filled, tokens = index + 1, 0, tokens[room:]  # noqa: PLW2901
            shard[filled : filled + len(tokens)] = tokens
            filled += len(tokens)
    np.save(os.path.join(out, f"{index:06d}"), shard[:filled])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
