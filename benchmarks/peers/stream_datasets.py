"""`datasets` streaming from the Hub: reads every row, and does nothing with it.

    python benchmarks/peers/stream_datasets.py REPO COMMIT NUM_PROC

It reads in one process, whatever NUM_PROC is.
"""

from __future__ import annotations

import sys


def main(repo: str, commit: str) -> None:
    from datasets import load_dataset

    rows = load_dataset(
        repo, data_files="sample/10BT/*.parquet", revision=commit, split="train", streaming=True
    )
    print(sum(batch.num_rows for batch in rows.with_format("arrow").iter(1000)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
