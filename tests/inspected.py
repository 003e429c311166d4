"""Datasets to look into, and `tokenmill inspect` as a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import tokenmill
import warm
from corpora import write_corpus
from tokenmill.dataset.inspect import (
    LookedInto,
    document,
)
from tokenmill.errors import ConfigError
from tokenmill.formats import NAMES, get_format

COMMAND = [sys.executable, "-m", "tokenmill", "inspect"]
ALL = sys.maxsize
SAMPLED = tuple(name for name in NAMES if get_format(name).traits.samples)


def inspect(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    if not options:
        return warm.tokenmill("inspect", *arguments)
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def prepared(folder: Path, texts: list[str], **options: Any) -> str:
    """A dataset of these texts; samples are documents unless asked for otherwise."""
    out = str(folder / f"out-{len(list(folder.iterdir())) if folder.exists() else 0}")
    source = write_corpus("jsonl", folder / "corpus", list(texts))
    if options.get("format") in SAMPLED and get_format(options["format"]).traits.boundaries:
        options = {"seq_len": 0, **options}
    tokenmill.prepare(source, out, num_proc=1, **options)
    return out


def documents_of(looked: LookedInto, split: str) -> list[str]:
    """Every document's text, found by its number."""
    found = []
    while True:
        try:
            view = document(looked, split, len(found), ALL)
        except ConfigError:
            return found
        found.append(view.to_plain(looked)["text"])


def number_of(text: str) -> int:
    """`made_texts` ends each document with its number."""
    return int(text.rpartition("#")[2])
