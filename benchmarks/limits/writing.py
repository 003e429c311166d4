"""Writing alone: as many bytes as the tokens take, in pieces of 16 MB, synced at the end.

Prints the seconds as JSON: the making of the bytes is not the question.

    python benchmarks/limits/writing.py CORPUS OUT NUM_PROC NUM_BYTES
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from typing import Any

from bare import in_processes

PIECE_BYTES = 16 << 20


def write(
    corpus: str, out: str, rank: int, world: int, num_bytes: int, barrier: Any, spent: Any
) -> None:
    piece = memoryview(os.urandom(PIECE_BYTES))
    left = num_bytes // world
    barrier.wait()
    began = time.perf_counter()
    with open(os.path.join(out, f"{rank:03d}.random"), "wb", buffering=0) as sink:
        while left > 0:
            left -= sink.write(piece[:left])
        os.fsync(sink.fileno())
    spent.put(time.perf_counter() - began)


def main(corpus: str, out: str, num_proc: str, num_bytes: str) -> None:
    os.makedirs(out, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    barrier, spent = context.Barrier(int(num_proc)), context.Queue()
    in_processes(write, int(num_proc), corpus, out, int(num_bytes), barrier, spent)
    print(json.dumps({"seconds": max(spent.get() for _ in range(int(num_proc)))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
