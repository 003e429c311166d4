"""Documents of a folder of .bin/.idx pairs, as megatron-core's IndexedDataset reads them."""

import argparse
import itertools
import json
from importlib.metadata import version
from pathlib import Path

from absent import leave_out

leave_out("megatron")

from megatron.core.datasets.indexed_dataset import IndexedDataset  # noqa: E402


def documents(prefix: Path) -> list[list[int]]:
    dataset = IndexedDataset(str(prefix))
    return [
        [int(token) for i in range(start, end) for token in dataset[i]]
        for start, end in itertools.pairwise(dataset.document_indices.tolist())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--split", default="", help="only the files whose names start with this")
    options = parser.parse_args()
    prefixes = [
        path.with_suffix("") for path in sorted(options.folder.glob(f"{options.split}*.idx"))
    ]
    if not prefixes:
        parser.error(f"no such .idx file in {options.folder}")
    result = {
        "loader": f"megatron-core {version('megatron-core')} IndexedDataset",
        "files": [prefix.name for prefix in prefixes],
        "dtypes": [IndexedDataset(str(prefix)).index.dtype.__name__ for prefix in prefixes],
        "documents": [document for prefix in prefixes for document in documents(prefix)],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
