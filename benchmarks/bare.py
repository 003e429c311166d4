"""The bare loop: the limit to come close to.

Read a row group, hand its text to gigatoken, insert EOT, append to a file; row groups dealt out to
the processes beforehand. No plan, no record, no checksum, no fsync, no check of anything.

    python benchmarks/bare.py CORPUS OUT NUM_PROC [ENCODING]
"""

from __future__ import annotations

import glob
import multiprocessing
import os
import sys

VOCAB = os.path.join(os.path.dirname(__file__), "..", "src", "tokenmill", "encodings", "vocab")
SCHEMES = {
    "gpt2": ("r50k_base", "gpt2", "<u2", 50256),
    "cl100k_base": ("cl100k_base", "cl100k", "<u4", 100257),
    "o200k_base": ("o200k_base", "o200k", "<u4", 199999),
}


def loop(corpus: str, out: str, rank: int, world: int, encoding: str) -> None:
    import awkward as ak
    import gigatoken
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    pa.set_cpu_count(1)
    vocab, scheme, dtype, eot = SCHEMES[encoding]
    tokenizer = gigatoken.Tokenizer.from_tiktoken(
        os.path.join(VOCAB, f"{vocab}.tiktoken"), pretokenizer=scheme, special_tokens={}
    )
    mark = pa.scalar(np.array(eot, dtype).tobytes(), pa.large_binary())
    empty = pa.scalar(b"", pa.large_binary())
    itemsize = np.dtype(dtype).itemsize
    work = []
    for path in sorted(glob.glob(os.path.join(corpus, "*.parquet"))):
        file = pq.ParquetFile(path)
        work += [(file, i) for i in range(file.num_row_groups)]
    share = len(work) / world
    with open(f"{out}.{rank}", "wb", buffering=0) as sink:
        for file, i in work[int(rank * share) : int((rank + 1) * share)]:
            column = file.read_row_group(i, columns=["text"], use_threads=False)["text"]
            texts = column.chunk(0).cast(pa.large_string())
            buffers = texts.buffers()
            string = ak.contents.ListOffsetArray(
                ak.index.Index64(np.frombuffer(buffers[1], np.int64)[: len(texts) + 1]),
                ak.contents.NumpyArray(
                    np.frombuffer(buffers[2], np.uint8), parameters={"__array__": "char"}
                ),
                parameters={"__array__": "string"},
            )
            found = tokenizer.encode_batch(ak.Array(string), parallel=False).layout
            ids = pa.py_buffer(found.content.data.astype(dtype))
            offsets = pa.py_buffer(found.offsets.data * itemsize)
            documents = pa.Array.from_buffers(pa.large_binary(), len(texts), [None, offsets, ids])
            sink.write(pc.binary_join_element_wise(documents, mark, empty).buffers()[2])


def main(corpus: str, out: str, num_proc: int, encoding: str = "gpt2") -> None:
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=loop, args=(corpus, out, rank, num_proc, encoding))
        for rank in range(num_proc)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        sys.exit("a worker of the bare loop failed")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
