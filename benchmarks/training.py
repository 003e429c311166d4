"""`tokenmill tokenizer train`: its merges beside other trainers', and what it costs.

    python benchmarks/training.py --corpus DIR --bytes 100M --compare    # merges, one by one
    python benchmarks/training.py --corpus DIR --bytes 2G                # seconds and memory

Half of the text is English, half multilingual. rustbpe is compared where it is installed. What a
trainer costs is measured by process, in CPU seconds of all its threads: on a machine with other
work, these say more than the seconds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pyarrow.parquet as pq

from corpus import Recipe
from measure import compile_package, cost
from tokenmill.cli.screen import parsed_count
from tokenmill.encodings.patterns import PATTERNS
from tokenmill.encodings.ranks import parsed_ranks

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "out")
Pairs = list[tuple[str, str]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--corpus", help="folder with parquet files; without one: made-up text")
    parser.add_argument("--bytes", default="100M", help="how much text (default: 100M)")
    parser.add_argument("--vocab-size", type=int, default=32768, help="(default: 32768)")
    parser.add_argument("--pattern", choices=PATTERNS, default="cl100k", help="(default: cl100k)")
    parser.add_argument("--num-proc", type=int, default=2, help="threads (default: 2)")
    parser.add_argument("--compare", action="store_true", help="with tokenizers and rustbpe")
    parser.add_argument("--below", default=OUT, help="where corpora are kept")
    arguments = parser.parse_args()
    half = parsed_count(arguments.bytes) // 2
    folders = [
        Recipe(half, arguments.corpus, language).corpus(arguments.below)
        for language in ("english", "multilingual")
    ]
    compile_package()
    trained(arguments, folders, "tokenizers")
    if not arguments.compare:
        return 0
    different = differences(arguments, folders, "tokenizers", of_tokenizers)
    if importlib.util.find_spec("rustbpe") is None:
        print("rustbpe is not installed: not compared")
        return int(different > 0)
    trained(arguments, folders, "bytes")
    return int(different + differences(arguments, folders, "bytes", of_rustbpe) > 0)


def trained(arguments: argparse.Namespace, folders: list[str], ties: str) -> None:
    out = path_of(ties)
    command = [sys.executable, "-m", "tokenmill", "tokenizer", "train", *folders, "-o", out]
    command += ["--vocab-size", str(arguments.vocab_size), "--pattern", arguments.pattern]
    command += ["--ties", ties, "--num-proc", str(arguments.num_proc)]
    command += ["--overwrite", "--json", "-q"]
    spent = cost(command, log=os.path.join(OUT, "training.log"))
    told = json.loads(spent.stdout)
    print(
        f"tokenmill --ties {ties}: {told['text_bytes'] / 1e6:,.0f} MB of text, "
        f"{told['num_words']:,} different words, {told['vocab_size']:,} tokens: "
        f"{spent.seconds:.0f} s, {spent.cpu_seconds:.0f} CPU s, {spent.tree_mb:,.0f} MB",
        flush=True,
    )


def differences(
    arguments: argparse.Namespace,
    folders: list[str],
    ties: str,
    trainer: Callable[[list[str], int, str], Pairs],
) -> int:
    """How many merges differ from the other trainer's, at their place in the order."""
    begin = time.perf_counter()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        theirs, cpu_seconds, peak_mb = process.submit(
            measured, trainer, folders, arguments.vocab_size - 1, arguments.pattern
        ).result()
    seconds = time.perf_counter() - begin
    ours = own_tokens(ties) if trainer is of_rustbpe else own_pairs(ties)
    different = sum(a != b for a, b in zip(ours, theirs, strict=False))
    different += abs(len(ours) - len(theirs))
    print(
        f"{trainer.__name__.removeprefix('of_')}: {len(theirs):,} merges, {different} different: "
        f"{seconds:.0f} s, {cpu_seconds:.0f} CPU s, {peak_mb:,.0f} MB",
        flush=True,
    )
    return different


def measured(
    trainer: Callable[[list[str], int, str], Pairs], folders: list[str], size: int, pattern: str
) -> tuple[Pairs, float, float]:
    pairs = trainer(folders, size, pattern)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return pairs, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3


def of_tokenizers(folders: list[str], size: int, pattern: str) -> Pairs:
    import tokenizers
    from tokenizers import pre_tokenizers

    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    rule = tokenizers.Regex(PATTERNS[pattern].in_any_library)
    split = pre_tokenizers.Split(rule, "isolated")
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    model.pre_tokenizer = pre_tokenizers.Sequence([split, letters])
    if PATTERNS[pattern].is_nfc:
        model.normalizer = tokenizers.normalizers.NFC()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(texts(folders), trainer)
    return pairs_of(model.to_str())


def of_rustbpe(folders: list[str], size: int, pattern: str) -> Pairs:
    """Its tokens; which two each was made of, it does not tell."""
    import rustbpe  # type: ignore[import-not-found]

    model = rustbpe.Tokenizer()
    model.train_from_iterator(texts(folders), size, pattern=PATTERNS[pattern].in_any_library)
    ranks = sorted(model.get_mergeable_ranks(), key=lambda one: one[1])
    return [(bytes(token).hex(), "") for token, _ in ranks]


def own_pairs(ties: str) -> Pairs:
    with open(path_of(ties)) as file:
        return pairs_of(file.read())


def own_tokens(ties: str) -> Pairs:
    path = path_of(ties).replace(".json", ".tiktoken")
    with open(path, "rb") as file:
        return [(token.hex(), "") for token in parsed_ranks(file.read(), path)]


def pairs_of(tokenizer_json: str) -> Pairs:
    return [(left, right) for left, right in json.loads(tokenizer_json)["model"]["merges"]]


def path_of(ties: str) -> str:
    os.makedirs(OUT, exist_ok=True)
    return os.path.join(OUT, f"trained-{ties}.json")


def texts(folders: list[str]) -> Iterator[str]:
    for folder in folders:
        for name in sorted(os.listdir(folder)):
            if name.endswith(".parquet"):
                for batch in pq.ParquetFile(os.path.join(folder, name)).iter_batches(500):
                    yield from batch["text"].to_pylist()


if __name__ == "__main__":
    sys.exit(main())
