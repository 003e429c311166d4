"""Rows of a folder of parquet files, as Hugging Face datasets reads them.

Runs in the project's own environment: datasets is one of its development requirements.
"""

import argparse
import json
import tempfile
from importlib.metadata import version
from pathlib import Path

from datasets import Dataset, disable_progress_bars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--split", default="", help="only the files whose names start with this")
    parser.add_argument("--column", default="input_ids")
    options = parser.parse_args()
    paths = [str(path) for path in sorted(options.folder.glob(f"{options.split}*.parquet"))]
    if not paths:
        parser.error(f"no such .parquet file in {options.folder}")
    disable_progress_bars()
    with tempfile.TemporaryDirectory() as cache:
        dataset = Dataset.from_parquet(paths, cache_dir=cache)
        result = {
            "loader": f"datasets {version('datasets')} Dataset.from_parquet",
            "files": [Path(path).name for path in paths],
            "dtype": str(dataset.features[options.column].feature.dtype),
            "documents": list(dataset[options.column]),
        }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
