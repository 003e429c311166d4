"""Compare a tokenizer file with its own library, and print its row for the table of published ones.

    python tools/check_tokenizer.py FILE... [--corpus DIR] [--fuzzed 100000]

Every file is read as `--tokenizer FILE` reads it, and the ids of fuzzed documents (those of
tests/encodings/test_families.py) and of parquet files below DIR are compared with the library's.
For files that no package on PyPI carries, which the tests therefore cannot compare: a row of
src/tokenmill/encodings/published.json says when this was done and with which file. Ends with 1 if
an id differs, or the row of a file that has one.
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

from tokenmill.encodings import Encoding, get_encoding
from tokenmill.encodings.bos import usual_bos
from tokenmill.encodings.loading import special_tokens_of
from tokenmill.encodings.published import PUBLISHED
from tokenmill.encodings.selfcheck import probe_texts
from vocabularies import TRUTHS, Truth, fuzzed

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
        found = row(encoding, truth)
        listed = [f for f in PUBLISHED if f.file_sha256 == found["file_sha256"]]
        strange = [name for f in listed for name in found if getattr(f, name) != found[name]]
        num_wrong += len(wrong) + len(strange)
        is_same = special_tokens_of(encoding.identity) == truth.specials
        num_wrong += not is_same or encoding.n_vocab != truth.n_vocab
        said = {
            "path": str(file),
            **found,
            "row": listed[0].name if listed else None,
            "differs from its row in": strange,
            "special tokens": f"{len(truth.specials)}, {'the same' if is_same else 'DIFFERENT'}",
            "documents": len(texts),
            "different": len(wrong),
            "first": wrong[:1],
        }
        print(json.dumps(said, ensure_ascii=False), flush=True)
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


def row(encoding: Encoding, truth: Truth) -> dict[str, Any]:
    identity = encoding.identity
    bos = usual_bos(identity.bos, truth.specials)
    return {
        "file_sha256": identity.file_sha256,
        "eot": identity.eot,
        "eot_token": truth.specials.get(identity.eot),
        "bos": bos,
        "bos_token": None if bos is None else truth.specials[bos],
        "n_vocab": encoding.n_vocab,
    }


if __name__ == "__main__":
    sys.exit(main())
