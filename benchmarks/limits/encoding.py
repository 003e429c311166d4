"""Encoding alone, from memory: gigatoken's time on text that is there, with nothing kept.

Every process loads its share of the row groups, waits for the others, and encodes. Prints the
seconds from there on as JSON; the rest is not the question.

    python benchmarks/limits/encoding.py CORPUS OUT NUM_PROC [ENCODING]
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from typing import Any

from bare import as_awkward, in_processes, loaded, share, text_of


def encode(
    corpus: str, out: str, rank: int, world: int, encoding: str, barrier: Any, spent: Any
) -> None:
    tokenizer, _, _ = loaded(encoding)
    texts = [as_awkward(text_of(*one)) for one in share(corpus, rank, world)]
    barrier.wait()
    began = time.perf_counter()
    for text in texts:
        tokenizer.encode_batch(text, parallel=False)
    spent.put(time.perf_counter() - began)


def main(corpus: str, out: str, num_proc: str, encoding: str = "gpt2") -> None:
    context = multiprocessing.get_context("spawn")
    barrier, spent = context.Barrier(int(num_proc)), context.Queue()
    in_processes(encode, int(num_proc), corpus, out, encoding, barrier, spent)
    print(json.dumps({"seconds": max(spent.get() for _ in range(int(num_proc)))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
