"""What OLMo-core reads in a folder of raw .npy arrays and their .csv.gz.

"documents" come from the .csv.gz, "documents_by_eos" from the end-of-text ids in the arrays (what
OLMo-core does with local files), "samples" (with --seq-len) are NumpyFSLDataset's instances.
Without --dtype the arrays are read as OLMo-core itself would read them for that --vocab-size.
"""

import argparse
import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from absent import leave_out

leave_out("olmo")

import numpy as np  # noqa: E402
from olmo_core.data.numpy_dataset import NumpyFSLDataset, NumpyFSLDatasetConfig  # noqa: E402
from olmo_core.data.tokenizer import TokenizerConfig  # noqa: E402
from olmo_core.data.utils import iter_document_indices, load_array_slice  # noqa: E402


def documents(paths: list[str], dtype: type, **how: object) -> Iterator[list[int]]:
    for path in paths:
        where = Path(path).parent
        for start, end in iter_document_indices(path, local_cache=where, dtype=dtype, **how):
            yield load_array_slice(path, int(start), int(end), dtype).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--split", default="", help="only part-SPLIT*.npy")
    parser.add_argument("--eos", type=int, required=True)
    parser.add_argument("--vocab-size", type=int, default=50257)
    parser.add_argument("--dtype", choices=["uint8", "uint16", "uint32"])
    parser.add_argument("--seq-len", type=int)
    options = parser.parse_args()
    paths = [str(path) for path in sorted(options.folder.glob(f"part-{options.split}*.npy"))]
    if not paths:
        parser.error(f"no such .npy file in {options.folder}")
    ids = {"eos_token_id": options.eos, "pad_token_id": options.eos}
    tokenizer = TokenizerConfig(vocab_size=options.vocab_size, **ids)
    config = NumpyFSLDatasetConfig(tokenizer=tokenizer, paths=paths, sequence_length=1)
    dtype = getattr(np, options.dtype) if options.dtype else config.get_dtype()
    result = {
        "loader": f"ai2-olmo-core {version('ai2-olmo-core')} iter_document_indices",
        "files": [Path(path).name for path in paths],
        "dtype": np.dtype(dtype).name,
        "documents": list(documents(paths, dtype, use_array_if_local=False)),
        "documents_by_eos": list(documents(paths, dtype, eos_token_id=options.eos)),
    }
    if options.seq_len:
        dataset = NumpyFSLDataset(
            *paths,
            sequence_length=options.seq_len,
            vocab_size=options.vocab_size,
            dtype=dtype,
            **ids,
        )
        result["loader"] += " and NumpyFSLDataset"
        result["samples"] = [dataset[i]["input_ids"].tolist() for i in range(len(dataset))]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
