"""Samples of a folder of MDS shards (one split), as MosaicML streaming's LocalDataset reads them.

The same list is called "samples" and, where a sample's length is free, "documents" too.
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path

from absent import leave_out

leave_out("mds")

from streaming.base.local import LocalDataset  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="holds index.json")
    parser.add_argument("--column", default="tokens")
    options = parser.parse_args()
    dataset = LocalDataset(str(options.folder))
    samples = [dataset[i][options.column] for i in range(len(dataset))]
    result = {
        "loader": f"mosaicml-streaming {version('mosaicml-streaming')} LocalDataset",
        "files": [shard.raw_data.basename for shard in dataset.shards],
        "dtypes": sorted({sample.dtype.name for sample in samples}),
        "samples": [sample.tolist() for sample in samples],
    }
    if all(shard.column_sizes == [None] for shard in dataset.shards):
        result["documents"] = result["samples"]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
