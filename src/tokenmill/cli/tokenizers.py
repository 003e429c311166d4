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
    from tokenmill.encodings.families import FAMILIES, OPENAI
    from tokenmill.encodings.whole_files import WHOLE_FILES

    for family in (*OPENAI, *FAMILIES):
        specials = family.special_tokens
        bos = usual_bos(family.bos, specials)  # what --bos prepend uses
        is_shipped = family in OPENAI
        yield {
            "tokenizer": family.name,
            "models": family.models,
            "name it": f"--tokenizer {family.name}"
            if is_shipped
            else f"--tokenizer FILE, the {family.file} of {family.models}",
            "file sha256": family.file_sha256,
            "pattern": family.pattern,
            "vocabulary size": family.n_vocab,
            "eot": family.eot,
            "eot id": specials[family.eot],
            "bos": bos,
            "bos id": None if bos is None else specials[bos],
            "checked against": family.checked,
        }
    for file in WHOLE_FILES:
        yield {
            "tokenizer": file.name,
            "models": file.models,
            "name it": f"--tokenizer FILE, the {file.file} of {file.models}",
            "file sha256": file.file_sha256,
            "pattern": None,
            "vocabulary size": file.n_vocab,
            "eot": file.eot,
            "eot id": file.eot_token,
            "bos": file.bos,
            "bos id": file.bos_token,
            "checked against": file.checked,
        }
