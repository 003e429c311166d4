"""The text that all of them are given, its faulty variants, and what its tokens must be.

16 JSON-lines files of 200 documents, about 9 MB: paragraphs of Python's own library, recombined
with a fixed seed. Each document ends with its number, so that no two are alike and each can be
looked for in what was written. The ids are tests/oracle.py's: tiktoken, document by document.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import random
import shutil
import sysconfig

import oracle

NUM_FILES = 16
DOCUMENTS_A_FILE = 200
NUM_DOCUMENTS = NUM_FILES * DOCUMENTS_A_FILE
SPECIAL = "<|endoftext|>"
TIKTOKEN_URL = "https://openaipublic.blob.core.windows.net/encodings/r50k_base.tiktoken"
VOCABULARY = os.path.join(oracle.VOCAB, "r50k_base.tiktoken")


def mark(number: int) -> str:
    return f"[document {number:05d}]"


def made_texts() -> list[str]:
    rng = random.Random(5)
    pieces: list[str] = []
    for path in sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "*.py"))):
        with open(path, encoding="utf-8", errors="replace") as file:
            pieces += [piece for piece in file.read().split("\n\n") if piece.strip()]
    pieces = [piece for piece in pieces if SPECIAL not in piece]
    return [
        "\n\n".join([*rng.choices(pieces, k=rng.choice([1, 4, 8, 16, 24])), mark(number)])
        for number in range(NUM_DOCUMENTS)
    ]


def write_corpus(folder: str, texts: list[str]) -> None:
    os.makedirs(folder)
    for number in range(NUM_FILES):
        first = number * DOCUMENTS_A_FILE
        with open(os.path.join(folder, f"{number:03d}.jsonl"), "w", encoding="utf-8") as file:
            for position in range(first, first + DOCUMENTS_A_FILE):
                file.write(json.dumps({"id": position, "text": texts[position]}) + "\n")


def corrupt(folder: str, number: int) -> str:
    """Overwrite one byte in the middle of a document by 0xFF; the name of its file."""
    path = os.path.join(folder, f"{number // DOCUMENTS_A_FILE:03d}.jsonl")
    with open(path, "r+b") as file:
        lines = file.readlines()
        line = number % DOCUMENTS_A_FILE
        text = lines[line].index(b'"text": "') + len(b'"text": "')
        middle = text + (len(lines[line]) - text) // 2
        while not lines[line][middle - 2 : middle + 2].isalpha():  # not in an escape
            middle += 1
        file.seek(sum(map(len, lines[:line])) + middle)
        file.write(b"\xff")
    return os.path.basename(path)


def repeated(first: str, others: str, target: str, copies: int) -> str:
    """The files of one folder once and those of another `copies` - 1 times, by links."""
    os.makedirs(target)
    for copy in range(copies):
        folder = others if copy else first
        for name in os.listdir(folder):
            os.link(os.path.join(folder, name), os.path.join(target, f"{copy:03d}-{name}"))
    return target


def fill_tiktoken_cache(folder: str) -> None:
    """`tiktoken.get_encoding("r50k_base")` without a network."""
    os.makedirs(folder)
    shutil.copy(VOCABULARY, os.path.join(folder, hashlib.sha1(TIKTOKEN_URL.encode()).hexdigest()))
