"""The bare loop: the limit to come close to.

Read a row group, hand its text to gigatoken, insert EOT, append to a file; row groups dealt out to
the processes beforehand. No plan, no record, no checksum, no fsync, no check of anything.

    python benchmarks/limits/bare.py CORPUS OUT NUM_PROC [ENCODING or tokenizer.json]
"""

from __future__ import annotations

import glob
import multiprocessing
import os
import sys
from typing import Any

VOCAB = os.path.join(os.path.dirname(__file__), "../../src/tokenmill/encodings/vocab")
SCHEMES = {
    "gpt2": ("r50k_base", "gpt2", "<u2", 50256),
    "cl100k_base": ("cl100k_base", "cl100k", "<u4", 100257),
    "o200k_base": ("o200k_base", "o200k", "<u4", 199999),
}


def loaded(encoding: str) -> tuple[Any, str, int]:
    """gigatoken's tokenizer, the dtype of ids, and EOT."""
    import gigatoken

    if encoding.endswith(".json"):  # gpt2's, the only one that the benchmark makes
        with open(encoding) as file:
            return gigatoken.Tokenizer.from_json(file.read()), "<u2", 50256
    vocab, scheme, dtype, eot = SCHEMES[encoding]
    tokenizer = gigatoken.Tokenizer.from_tiktoken(
        os.path.join(VOCAB, f"{vocab}.tiktoken"), pretokenizer=scheme, special_tokens={}
    )
    return tokenizer, dtype, eot


def share(corpus: str, rank: int, world: int) -> list[tuple[Any, int]]:
    """This process's row groups."""
    import pyarrow.parquet as pq

    work = []
    for path in sorted(glob.glob(os.path.join(corpus, "*.parquet"))):
        file = pq.ParquetFile(path)
        work += [(file, i) for i in range(file.num_row_groups)]
    size = len(work) / world
    return work[int(rank * size) : int((rank + 1) * size)]


def text_of(file: Any, row_group: int) -> Any:
    import pyarrow as pa

    column = file.read_row_group(row_group, columns=["text"], use_threads=False)["text"]
    chunks = [chunk.cast(pa.large_string()) for chunk in column.chunks]
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def as_awkward(texts: Any) -> Any:
    import awkward as ak
    import numpy as np

    buffers = texts.buffers()
    characters = ak.contents.NumpyArray(
        np.frombuffer(buffers[2], np.uint8), parameters={"__array__": "char"}
    )
    offsets = ak.index.Index64(np.frombuffer(buffers[1], np.int64)[: len(texts) + 1])
    parameters = {"__array__": "string"}
    return ak.Array(ak.contents.ListOffsetArray(offsets, characters, parameters=parameters))


def loop(corpus: str, out: str, rank: int, world: int, encoding: str) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    pa.set_cpu_count(1)
    tokenizer, dtype, eot = loaded(encoding)
    mark = pa.scalar(np.array(eot, dtype).tobytes(), pa.large_binary())
    empty = pa.scalar(b"", pa.large_binary())
    itemsize = np.dtype(dtype).itemsize
    with open(os.path.join(out, f"{rank:03d}.bin"), "wb", buffering=0) as sink:
        for file, row_group in share(corpus, rank, world):
            texts = text_of(file, row_group)
            found = tokenizer.encode_batch(as_awkward(texts), parallel=False).layout
            ids = pa.py_buffer(found.content.data.astype(dtype))
            offsets = pa.py_buffer(found.offsets.data * itemsize)
            documents = pa.Array.from_buffers(pa.large_binary(), len(texts), [None, offsets, ids])
            sink.write(pc.binary_join_element_wise(documents, mark, empty).buffers()[2])


def in_processes(target: Any, num_proc: int, *arguments: Any) -> None:
    """`target(corpus, out, rank, num_proc, ...)` in spawned processes."""
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=target, args=(*arguments[:2], rank, num_proc, *arguments[2:]))
        for rank in range(num_proc)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        sys.exit("a worker failed")


def main(corpus: str, out: str, num_proc: str, encoding: str = "gpt2") -> None:
    os.makedirs(out, exist_ok=True)
    in_processes(loop, int(num_proc), corpus, out, encoding)


if __name__ == "__main__":
    main(*sys.argv[1:])
