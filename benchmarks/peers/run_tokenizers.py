"""Hugging Face `tokenizers`: encode_batch_fast, 1,000 documents at a time, in its own threads.

How many threads: RAYON_NUM_THREADS. Ids are appended to one file; nothing else is done.

    python benchmarks/peers/run_tokenizers.py CORPUS OUT NUM_PROC
"""

from __future__ import annotations

import glob
import os
import sys

import numpy as np


def main(corpus: str, out: str) -> None:
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer

    os.makedirs(out)
    tokenizer = Tokenizer.from_file(os.environ["PEER_TOKENIZER"])
    eot = tokenizer.token_to_id("<|endoftext|>")
    with open(os.path.join(out, "tokens.bin"), "wb") as sink:
        for path in sorted(glob.glob(os.path.join(corpus, "*.parquet"))):
            for batch in pq.ParquetFile(path).iter_batches(1000, columns=["text"]):
                for found in tokenizer.encode_batch_fast(batch.column(0).to_pylist()):
                    sink.write(np.array([*found.ids, eot], np.uint16))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
