"""The lean bare loop: the least that any program must do, and the limit of `cores.py`.

Read a row group, wrap its text without a copy, encode it, put EOT behind each document, write. A
pool of spawned processes takes a file at a time; nothing is planned, checked, counted or synced.
It is leaner than bare.py: offsets stay 32-bit until they are needed, and EOT goes in by a mask.

    python benchmarks/limits/lean.py CORPUS OUT NUM_PROC [ENCODING]

Needs gigatoken, awkward, pyarrow, NumPy, and tokenmill's vocabularies; prints nothing.
"""

from __future__ import annotations

import glob
import importlib.util
import multiprocessing
import os
import sys
from typing import Any

SCHEMES = {
    "gpt2": ("r50k_base", "gpt2", "<u2", 50256),
    "cl100k_base": ("cl100k_base", "cl100k", "<u4", 100257),
    "o200k_base": ("o200k_base", "o200k", "<u4", 199999),
}
_tokenizers: dict[str, Any] = {}  # of this process


def vocabulary(name: str) -> str:
    """The file, in the package, wherever that is: it is not imported."""
    spec = importlib.util.find_spec("tokenmill")
    assert spec is not None and spec.submodule_search_locations
    return os.path.join(spec.submodule_search_locations[0], "encodings", "vocab", name)


def tokenizer(encoding: str) -> Any:
    if encoding not in _tokenizers:
        import gigatoken

        name, scheme, _, _ = SCHEMES[encoding]
        _tokenizers[encoding] = gigatoken.Tokenizer.from_tiktoken(
            vocabulary(f"{name}.tiktoken"), pretokenizer=scheme, special_tokens={}
        )
    return _tokenizers[encoding]


def wrapped(texts: Any) -> Any:
    """An Arrow string array as an awkward one, its bytes not copied."""
    import awkward as ak
    import numpy as np

    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    characters = ak.contents.NumpyArray(
        np.frombuffer(data, np.uint8), parameters={"__array__": "char"}
    )
    return ak.Array(
        ak.contents.ListOffsetArray(
            ak.index.Index64(ends.astype(np.int64)),
            characters,
            parameters={"__array__": "string"},
        )
    )


def with_eot(ids: Any, ends: Any, dtype: str, eot: int) -> Any:
    import numpy as np

    num_documents = len(ends) - 1
    result = np.empty(len(ids) + num_documents, dtype)
    where = ends[1:] + np.arange(num_documents)
    is_id = np.ones(len(result), np.bool_)
    is_id[where] = False
    result[where] = eot
    result[is_id] = ids
    return result


def encode_file(task: tuple[str, str, str]) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, out, encoding = task
    _, _, dtype, eot = SCHEMES[encoding]
    engine = tokenizer(encoding)
    file = pq.ParquetFile(path, memory_map=True)
    with open(os.path.join(out, f"{os.path.basename(path)}.bin"), "wb") as sink:
        for group in range(file.num_row_groups):
            column = file.read_row_group(group, columns=["text"], use_threads=False)["text"]
            texts = column.combine_chunks()
            if isinstance(texts, pa.ChunkedArray):
                texts = texts.chunk(0)
            found = engine.encode_batch(wrapped(texts), parallel=False).layout
            ends, ids = np.asarray(found.offsets), np.asarray(found.content.data)
            sink.write(with_eot(ids, ends, dtype, eot).data)


def main(corpus: str, out: str, num_proc: str, encoding: str = "gpt2") -> None:
    os.makedirs(out, exist_ok=True)
    paths = sorted(glob.glob(os.path.join(corpus, "*.parquet")))
    tasks = [(path, out, encoding) for path in paths]
    with multiprocessing.get_context("spawn").Pool(int(num_proc)) as pool:
        pool.map(encode_file, tasks, chunksize=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
