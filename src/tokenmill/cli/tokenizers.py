"""`tokenmill tokenizers`: lists the known vocabularies and how to name them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from tokenmill.cli.screen import printable
from tokenmill.cli.usage import CommandParser

DESCRIPTION = """\
List the tokenizers that come with the package, the rank files that are recognised by
their sha256, and the kinds of files that need no other option. To train or compare
tokenizers: tokenmill tokenizer --help"""


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")


def run(arguments: argparse.Namespace) -> int:
    rows = [*_rows()]
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return 0
    width = max(len(row["tokenizer"]) for row in rows)
    for row in rows:
        print(printable(f"{row['tokenizer']:<{width}}  {row['name it']}"))
        print(printable(f"{'':<{width}}    {_facts(row)}"))
        print(printable(f"{'':<{width}}    checked against {row['checked against']}"))
    print()
    for file, meaning in _FILES.items():
        print(printable(f"{file:<{width}}  {meaning}"))
    return 0


_FILES = {
    "of a model": "--tokenizer OWNER/NAME[@REVISION], from the Hub, such as Qwen/Qwen3-0.6B",
    "any other": "--tokenizer FILE",
    "tokenizer.json": "  tokenizers' ids",
    "vocab.json": "  with merges.txt, as for GPT-2 and RoBERTa: tokenizers' ids",
    "tekken.json": "  mistral-common's ids",
    "SentencePiece": "  sentencepiece's ids; unigram and others: pip install "
    "'tokenmill[sentencepiece]'",
    "ranks": "  of another family: also --pattern NAME|REGEX and --eot-token TEXT=ID",
}


def _facts(row: dict[str, Any]) -> str:
    bos = "no BOS" if row["bos"] is None else f"BOS {row['bos']} = {row['bos id']}"
    eot = f"EOT {row['eot']} = {row['eot id']}"
    pattern = f"pattern {row['pattern']}" if row["pattern"] else "pattern in the file"
    return f"{pattern}, {row['vocabulary size']:,} ids, {eot}, {bos}"


def _rows() -> Iterator[dict[str, Any]]:
    from tokenmill.encodings.bos import usual_bos
    from tokenmill.encodings.published import PUBLISHED

    for row in PUBLISHED:
        bos = usual_bos(row.bos, row.special_tokens)  # what --bos prepend uses
        named = f"FILE, the {row.file} of {row.models}"
        yield {
            "tokenizer": row.name,
            "models": row.models,
            "name it": f"--tokenizer {row.name if row.kind == 'builtin' else named}",
            "file sha256": row.file_sha256,
            "pattern": row.pattern,
            "vocabulary size": row.n_vocab,
            "eot": row.eot,
            "eot id": row.eot_token,
            "bos": bos,
            "bos id": None if bos is None else row.special_tokens[bos],
            "checked against": row.checked,
        }
