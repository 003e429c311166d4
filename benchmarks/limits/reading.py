"""Reading alone: every row group's text, as the bare loop reads it, and nothing done with it.

python benchmarks/limits/reading.py CORPUS OUT NUM_PROC
"""

from __future__ import annotations

import sys

from bare import in_processes, share, text_of


def read(corpus: str, out: str, rank: int, world: int) -> None:
    import pyarrow as pa

    pa.set_cpu_count(1)
    for file, row_group in share(corpus, rank, world):
        text_of(file, row_group)


if __name__ == "__main__":
    in_processes(read, int(sys.argv[3]), sys.argv[1], sys.argv[2])
