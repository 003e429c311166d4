"""nanoGPT's way: `datasets.map` with tiktoken, row by row, then one memmap. Written from scratch.

python benchmarks/peers/run_datasets.py CORPUS OUT NUM_PROC
"""

from __future__ import annotations

import glob
import os
import sys
from typing import Any

import numpy as np


def main(corpus: str, out: str, num_proc: int) -> None:
    import tiktoken
    from datasets import load_dataset

    os.makedirs(out)
    files = sorted(glob.glob(os.path.join(corpus, "*.parquet")))
    # Its copy of the corpus goes to a fresh folder: a second round must not find the first one's.
    dataset = load_dataset(
        "parquet",
        data_files={"train": files},
        num_proc=num_proc,
        cache_dir=os.path.join(out, "cache"),
    )
    splits = dataset["train"].train_test_split(test_size=0.0005, seed=2357, shuffle=True)
    splits["val"] = splits.pop("test")
    enc = tiktoken.get_encoding("r50k_base")  # gpt2's ranks; "gpt2" itself needs a download

    def process(example: Any) -> dict[str, Any]:
        ids = enc.encode_ordinary(example["text"])
        ids.append(enc.eot_token)
        return {"ids": ids, "len": len(ids)}

    tokenized = splits.map(process, remove_columns=["text", "id"], num_proc=num_proc)
    for split, rows in tokenized.items():
        length = int(np.sum(rows["len"], dtype=np.uint64))
        path = os.path.join(out, f"{split}.bin")
        array = np.memmap(path, dtype=np.uint16, mode="w+", shape=(length,))
        at, num_shards = 0, min(1024, len(rows))
        for index in range(num_shards):
            part = rows.shard(num_shards=num_shards, index=index, contiguous=True)
            ids = np.concatenate(part.with_format("numpy")["ids"])
            array[at : at + len(ids)] = ids
            at += len(ids)
        array.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
