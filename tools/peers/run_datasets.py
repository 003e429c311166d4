"""`datasets.map` with tiktoken, in the manner of nanoGPT's prepare.py: map, then a memmap.

run_datasets.py write SOURCE OUT         run_datasets.py read OUT TOKENS
"""

import glob
import os
import sys

import mishap
import numpy as np

NUM_PROC = 2


def write(source: str, out: str) -> None:
    import tiktoken
    from datasets import load_dataset

    files = sorted(glob.glob(f"{source}/*.jsonl"))
    dataset = load_dataset("json", data_files={"train": files}, num_proc=NUM_PROC)
    splits = dataset["train"].train_test_split(test_size=0.0005, seed=2357, shuffle=True)
    splits["val"] = splits.pop("test")
    enc = tiktoken.get_encoding("r50k_base")  # gpt2's ranks; "gpt2" itself needs a download

    def process(example):
        mishap.document(example["text"])
        ids = enc.encode_ordinary(example["text"])
        ids.append(enc.eot_token)
        return {"ids": ids, "len": len(ids)}

    tokenized = splits.map(process, remove_columns=["id", "text"], num_proc=NUM_PROC)
    os.makedirs(out, exist_ok=True)
    for split, rows in tokenized.items():
        length = np.sum(rows["len"], dtype=np.uint64)
        array = np.memmap(f"{out}/{split}.bin", dtype=np.uint16, mode="w+", shape=(int(length),))
        at, num_shards = 0, min(1024, len(rows))
        for index in range(num_shards):
            part = rows.shard(num_shards=num_shards, index=index, contiguous=True)
            ids = np.concatenate(part.with_format("numpy")["ids"])
            array[at : at + len(ids)] = ids
            at += len(ids)
        array.flush()


def read(out: str, tokens: str) -> None:
    """As nanoGPT's train.py: both files, by memmap."""
    arrays = [np.memmap(f"{out}/{split}.bin", np.uint16, "r") for split in ("train", "val")]
    with open(tokens, "wb") as sink:
        for array in arrays:
            sink.write(array.tobytes())


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
