"""Compare a tokenizer file with its own library, and print its row for the table of families.

    python tools/check_tokenizer.py FILE... [--corpus DIR] [--fuzzed 100000]

Every file is read as `--tokenizer FILE` reads it, and the ids of fuzzed documents (those of
tests/encodings/test_families.py) and of parquet files below DIR are compared with the library's.
For files that no package on PyPI carries, which the tests therefore cannot compare: a row of
src/tokenmill/encodings/families.py says when this was done and with which file. Ends with 1 if an
id differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from vocabularies import TRUTHS, Truth, fuzzed

from tokenmill.encodings import Encoding, get_encoding
from tokenmill.encodings.bos import bos_id_of
from tokenmill.encodings.loading import special_tokens_of
from tokenmill.encodings.selfcheck import probe_texts

BATCH = 2000
CORPUS_BYTES = 1_000_000  # of each parquet file


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--corpus", type=Path, help="a folder with parquet files")
    parser.add_argument("--fuzzed", type=int, default=100_000, metavar="N")
    parser.add_argument("--eot-token")
    arguments = parser.parse_args()
    num_wrong = 0
    for file in arguments.files:
        encoding = get_encoding(file, eot=arguments.eot_token)
        truth = TRUTHS[encoding.identity.kind](Path(str(encoding.identity.source)))
        texts = probe_texts([*truth.specials])
        texts += fuzzed(arguments.fuzzed, [*truth.specials, *truth.added])
        if arguments.corpus:
            texts += corpus_texts(arguments.corpus)
        wrong = differing(encoding, truth.encode, texts)
        num_wrong += len(wrong) + (special_tokens_of(encoding.identity) != truth.specials)
        print(json.dumps(row(encoding, truth, len(texts), wrong), ensure_ascii=False), flush=True)
    return 1 if num_wrong else 0


def differing(
    encoding: Encoding, encode: Callable[[str], list[int]], texts: list[str]
) -> list[str]:
    found = []
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        tokens = encoding.encode_array(pa.array(batch, pa.large_string()))
        found += [
            text
            for i, text in enumerate(batch)
            if i in tokens.failed or tokens.document(i).tolist() != encode(text)
        ]
    return found


def corpus_texts(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.parquet")):
        left = CORPUS_BYTES
        for batch in pq.ParquetFile(path).iter_batches(50, columns=["text"]):
            rows = batch["text"].to_pylist()
            yield from rows
            left -= sum(len(row.encode()) for row in rows)
            if left <= 0:
                break


def row(encoding: Encoding, truth: Truth, num_texts: int, wrong: list[str]) -> dict[str, Any]:
    identity = encoding.identity
    return {
        "file": str(identity.source),
        "sha256": identity.file_sha256,
        "n_vocab": encoding.n_vocab,
        "n_vocab of the library": truth.n_vocab,
        "eot": [identity.eot, identity.eot_token],
        "bos": [identity.bos, bos_id_of(identity)],
        "special tokens": len(truth.specials),
        "special tokens differ": special_tokens_of(identity) != truth.specials,
        "documents": num_texts,
        "different": len(wrong),
        "first": wrong[:1],
    }


if __name__ == "__main__":
    sys.exit(main())
