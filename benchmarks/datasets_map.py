"""`Tokenize` in `datasets.map` beside tiktoken in the same map: throughput of the call to map.

    python benchmarks/datasets_map.py                                      200 MB made on the spot
    python benchmarks/datasets_map.py --corpus DIR --bytes 400M            real text, recombined

Contestants take turns, `--rounds` times, each in a fresh process; what counts is the median of the
ratios within a round. All are given the same batches, and processes of the same number and start
method. The clock runs while `map` does: workers, engines, encoding, writing the result. tiktoken
reads its vocabulary from the package through its own cache folder. Every contestant's ids are
hashed: a faster answer that differs does not count.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "out")
TIKTOKEN_URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
VOCAB = os.path.join(HERE, "..", "src", "tokenmill", "encodings", "vocab")


def tiktoken_batched(encoding: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    import tiktoken

    enc = tiktoken.get_encoding(encoding)

    def process(batch: Any) -> dict[str, Any]:
        ids = [[*enc.encode_ordinary(text), enc.eot_token] for text in batch["text"]]
        return {"ids": ids, "len": [len(document) for document in ids]}

    return process, {"batched": True}


def tiktoken_rows(encoding: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """As nanoGPT's prepare.py has it."""
    import tiktoken

    enc = tiktoken.get_encoding(encoding)

    def process(example: Any) -> dict[str, Any]:
        ids = enc.encode_ordinary(example["text"])
        ids.append(enc.eot_token)
        return {"ids": ids, "len": len(ids)}

    return process, {}


def tokenize_batched(encoding: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    import tokenmill

    return tokenmill.Tokenize(encoding), {"batched": True}


def tokenize_rows(encoding: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    import tokenmill

    return tokenmill.Tokenize(encoding), {}


def get_encoding_rows(encoding: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """nanoGPT's function with one name replaced."""
    import tokenmill

    enc = tokenmill.get_encoding(encoding)

    def process(example: Any) -> dict[str, Any]:
        ids = enc.encode_ordinary(example["text"])
        ids.append(enc.eot_token)
        return {"ids": ids, "len": len(ids)}

    return process, {}


CONTESTANTS = {
    "Tokenize, batched": tokenize_batched,
    "Tokenize, batched, arrow": tokenize_batched,
    "Tokenize, row by row": tokenize_rows,
    "get_encoding, row by row": get_encoding_rows,
    "tiktoken, batched": tiktoken_batched,
    "tiktoken, row by row": tiktoken_rows,
}


def one_map(name: str, corpus: str, encoding: str, num_proc: int) -> None:
    """Run one contestant in this process; seconds, tokens and their hash on stdout, as JSON."""
    import numpy as np
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    files = sorted(glob.glob(os.path.join(corpus, "*.parquet")))
    dataset = Dataset.from_parquet(files, columns=["text"])
    if name.endswith("arrow"):
        dataset = dataset.with_format("arrow")
    function, options = CONTESTANTS[name](encoding)
    began = time.perf_counter()
    result = dataset.map(
        function,
        remove_columns=["text"],
        num_proc=num_proc,
        load_from_cache_file=False,
        **options,
    )
    seconds = time.perf_counter() - began
    digest, num_tokens = hashlib.sha256(), 0
    for table in result.with_format("arrow").iter(1000):
        ids = table["ids"].combine_chunks().flatten().to_numpy().astype(np.uint32)
        digest.update(ids.tobytes())
        num_tokens += len(ids)
    for cache in result.cache_files:
        os.unlink(cache["filename"])
    print(json.dumps({"seconds": seconds, "tokens": num_tokens, "sha256": digest.hexdigest()}))


def environment(folder: str, encoding: str) -> dict[str, str]:
    """No network, caches in `folder`, and tiktoken's cache filled from our files."""
    file = "r50k_base" if encoding == "gpt2" else encoding
    cache = os.path.join(folder, "tiktoken")
    os.makedirs(cache, exist_ok=True)
    key = hashlib.sha1(TIKTOKEN_URL.format(file).encode()).hexdigest()
    shutil.copy(os.path.join(VOCAB, f"{file}.tiktoken"), os.path.join(cache, key))
    return {
        **os.environ,
        "TIKTOKEN_CACHE_DIR": cache,
        "HF_HOME": os.path.join(folder, "hf"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--corpus", help="folder of parquet files to take paragraphs from")
    parser.add_argument("--bytes", default="200M", help="how much text to make")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num-proc", type=int, default=2)
    parser.add_argument("--encoding", default="cl100k_base")
    parser.add_argument("--only", help="contestants, separated by semicolons")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one_map(arguments.one, arguments.corpus, arguments.encoding, arguments.num_proc)
        return
    from corpus import Recipe
    from tokenmill.cli.screen import parsed_count

    recipe = Recipe(parsed_count(arguments.bytes), arguments.corpus)
    corpus = recipe.corpus(os.path.join(OUT, "corpora"))
    names = arguments.only.split(";") if arguments.only else list(CONTESTANTS)
    times: dict[str, list[float]] = {name: [] for name in names}
    answers = set()
    with tempfile.TemporaryDirectory(dir=OUT) as scratch:
        surroundings = environment(scratch, arguments.encoding)
        for _ in range(arguments.rounds):
            for name in names:
                command = [
                    *(sys.executable, __file__, "--one", name, "--corpus", corpus),
                    *("--encoding", arguments.encoding, "--num-proc", str(arguments.num_proc)),
                ]
                done = subprocess.run(
                    command, env=surroundings, stdout=subprocess.PIPE, text=True, check=True
                )
                found = json.loads(done.stdout)
                times[name].append(found["seconds"])
                answers.add((found["tokens"], found["sha256"]))
    if len(answers) != 1:
        sys.exit(f"contestants do not agree on the tokens: {answers}")
    report(times, text_mb(corpus), arguments.num_proc, arguments.encoding)


def text_mb(corpus: str) -> float:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    files = glob.glob(os.path.join(corpus, "*.parquet"))
    columns = (pq.read_table(file, columns=["text"])["text"] for file in files)
    return float(sum(pc.sum(pc.binary_length(column)).as_py() for column in columns)) / 1e6


def report(times: dict[str, list[float]], num_mb: float, num_proc: int, encoding: str) -> None:
    print(f"{num_mb:.0f} MB of text, {encoding}, num_proc={num_proc}; same tokens from all")
    base = times.get("tiktoken, batched")
    for name, found in times.items():
        median = statistics.median(found)
        line = f"{name:26} {median:7.2f} s  {num_mb / median:7.1f} MB/s"
        if base:
            ratios = [b / t for b, t in zip(base, found, strict=True)]
            line += f"  {statistics.median(ratios):5.2f} x tiktoken, batched"
            line += f"  [{min(ratios):.2f} to {max(ratios):.2f}]"
        print(line)


if __name__ == "__main__":
    main()
