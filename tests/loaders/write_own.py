"""Writes documents with a trainer's own writer: what tokenmill's files are compared with.

The documents are JSON on stdin, a list of lists of token ids.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from absent import leave_out


def megatron(folder: Path, documents: list[list[int]], dtype: str) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    prefix = folder / "train_text_document"
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=getattr(np, dtype))
    for document in documents:
        builder.add_document(torch.tensor(document), [len(document)])
    builder.finalize(f"{prefix}.idx")


def datatrove(folder: Path, documents: list[list[int]], dtype: str) -> None:
    from datatrove.pipeline.tokens.tokenizer import TokenizedFile

    file = TokenizedFile(
        str(folder),
        "00000_train.ds",
        tokenizer_name_or_path="gpt2",
        save_final_metadata=True,
        token_size=np.dtype(dtype).itemsize,
    )
    for document in documents:
        file.write(document, None)
    file.close()


def mds(folder: Path, documents: list[list[int]], dtype: str) -> None:
    from streaming.base.format import MDSWriter

    encoding, _, length = dtype.partition(":")
    assert not length or {len(document) for document in documents} == {int(length)}
    with MDSWriter(out=str(folder), columns={"tokens": f"ndarray:{dtype}"}) as writer:
        for document in documents:
            writer.write({"tokens": np.array(document, encoding)})


def litdata(folder: Path, documents: list[list[int]], dtype: str) -> None:
    from litdata import TokensLoader
    from litdata.streaming.cache import Cache

    cache = Cache(str(folder), chunk_bytes="64MB", item_loader=TokensLoader())
    to_tokens = (
        partial(np.array, dtype=dtype)
        if dtype == "uint32"
        else partial(torch.tensor, dtype=getattr(torch, dtype))
    )
    for i, document in enumerate(documents):
        cache[i] = to_tokens(document)
    cache.done()
    cache.merge()


WRITERS = {writer.__name__: writer for writer in (megatron, datatrove, mds, litdata)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("format", choices=WRITERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", default="uint16", help="for mds also uint16:LENGTH")
    options = parser.parse_args()
    leave_out(options.format)
    WRITERS[options.format](options.folder, json.load(sys.stdin), options.dtype)


if __name__ == "__main__":
    main()
