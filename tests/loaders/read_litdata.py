"""Blocks of a folder of LitData chunks (one split), as its StreamingDataset reads them.

A block is --block-size tokens of one chunk; what is left at a chunk's end is never read.
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path

from absent import leave_out

leave_out("litdata")

from litdata import StreamingDataset, TokensLoader  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="holds index.json")
    parser.add_argument("--block-size", "--seq-len", type=int, required=True)
    options = parser.parse_args()
    loader = TokensLoader(block_size=options.block_size)
    dataset = StreamingDataset(str(options.folder), item_loader=loader, shuffle=False)
    blocks = list(dataset)
    result = {
        "loader": f"litdata {version('litdata')} StreamingDataset with TokensLoader",
        "dtypes": sorted({str(block.dtype) for block in blocks}),
        "samples": [block.tolist() for block in blocks],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
