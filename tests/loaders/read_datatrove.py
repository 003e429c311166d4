"""What datatrove reads in a folder of .ds files and their .ds.index.

"documents" are cut by the .ds.index with the functions datatrove's own merger uses; "samples" and
their "positions" (with --seq-len) are DatatroveFolderDataset's windows of seq_len + 1 tokens.
"""

import argparse
import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from absent import leave_out

leave_out("datatrove")

import numpy as np  # noqa: E402
from datatrove.pipeline.tokens.merger import get_data_reader, load_doc_ends  # noqa: E402
from datatrove.utils.dataset import DatatroveFolderDataset  # noqa: E402


def documents(path: Path, dtype: np.dtype) -> Iterator[list[int]]:
    ends = load_doc_ends(path.with_name(f"{path.name}.index").open("rb"))
    for document in get_data_reader(path.open("rb"), ends, nb_bytes=dtype.itemsize):
        yield np.frombuffer(document, dtype).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--split", default="", help="only *SPLIT.ds")
    parser.add_argument("--dtype", type=np.dtype, default="uint16", help="uint16 or uint32")
    parser.add_argument("--seq-len", type=int)
    options = parser.parse_args()
    pattern = f"*{options.split}.ds"
    paths = sorted(options.folder.glob(pattern))
    if not paths:
        parser.error(f"no such .ds file in {options.folder}")
    result = {
        "loader": f"datatrove {version('datatrove')} load_doc_ends",
        "files": [path.name for path in paths],
        "metadata": [path.with_name(f"{path.name}.metadata").read_text() for path in paths],
        "documents": [document for path in paths for document in documents(path, options.dtype)],
    }
    if options.seq_len:
        dataset = DatatroveFolderDataset(
            str(options.folder),
            options.seq_len,
            filename_pattern=pattern,
            token_size=options.dtype.itemsize,
            return_positions=True,
        )
        windows = [dataset[i] for i in range(len(dataset))]
        result["loader"] += " and DatatroveFolderDataset"
        result["samples"] = [window["input_ids"].tolist() for window in windows]
        result["positions"] = [window["positions"].tolist() for window in windows]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
