"""litdata's `optimize` with TokensLoader, as its README shows under "LLM Pre-training".

A generator over the lines of a file, one file an input, two workers, everything else as it comes.
Chunks are kept small (128k tokens, the README has 16M), so that there are some.

    run_litdata.py write SOURCE OUT          run_litdata.py read OUT TOKENS
"""

import functools
import glob
import json
import os
import sys

import mishap
import numpy as np


@functools.cache
def encoding():
    import tiktoken

    return tiktoken.get_encoding("r50k_base")


def tokenize(path: str):
    import torch

    enc = encoding()
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            text = json.loads(line)["text"]
            mishap.document(text)
            yield torch.tensor([*enc.encode_ordinary(text), enc.eot_token], dtype=torch.int32)


def write(source: str, out: str) -> None:
    from litdata import TokensLoader, optimize

    optimize(
        fn=tokenize,
        inputs=sorted(glob.glob(f"{source}/*.jsonl")),
        output_dir=out,
        chunk_size=1 << 17,
        item_loader=TokensLoader(),
        num_workers=2,
    )


def read(out: str, tokens: str) -> None:
    """Its own dataset class goes over all blocks; then the chunks' bytes, which they are cut of."""
    from litdata import StreamingDataset, TokensLoader

    loader = TokensLoader(block_size=256)
    for _ in StreamingDataset(out, item_loader=loader, shuffle=False):
        pass
    with open(os.path.join(out, "index.json")) as file:
        chunks = json.load(file)["chunks"]
    with open(tokens, "wb") as sink:
        for chunk in chunks:
            header = 4 * (2 + chunk["chunk_size"])  # number of samples, their offsets
            ids = np.fromfile(os.path.join(out, chunk["filename"]), "<i4", offset=header)
            sink.write(ids.astype(np.uint16).tobytes())


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
