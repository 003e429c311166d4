"""litdata's `optimize` with TokensLoader and tiktoken, as its README shows for pre-training.

A generator over the documents of a file, one file an input. Written from scratch.

    python benchmarks/peers/run_litdata.py CORPUS OUT NUM_PROC
"""

from __future__ import annotations

import functools
import glob
import os
import sys
from collections.abc import Iterator
from typing import Any


@functools.cache
def encoding() -> Any:
    import tiktoken

    return tiktoken.get_encoding("r50k_base")  # gpt2's ranks; "gpt2" itself needs a download


def tokenize(path: str) -> Iterator[Any]:
    import pyarrow.parquet as pq
    import torch

    enc = encoding()
    for batch in pq.ParquetFile(path).iter_batches(8192, columns=["text"]):
        for text in batch.column(0).to_pylist():
            yield torch.tensor([*enc.encode_ordinary(text), enc.eot_token], dtype=torch.int32)


def main(corpus: str, out: str, num_proc: int) -> None:
    from litdata import TokensLoader, optimize

    optimize(
        fn=tokenize,
        inputs=sorted(glob.glob(os.path.join(corpus, "*.parquet"))),
        output_dir=out,
        chunk_size=2049 * 8012,
        item_loader=TokensLoader(),
        num_workers=num_proc,
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
