"""Hashes in the Hub's terms: "sha256:..." of an LFS file, "git:..." (a blob id) of a small one."""

from __future__ import annotations

import hashlib
import os
from typing import Any


def digest_of(path: str, algorithm: str) -> str:
    """The hash of a file's bytes."""
    found = new_hash(algorithm, os.path.getsize(path))
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            found.update(block)
    return f"{algorithm}:{found.hexdigest()}"


def new_hash(algorithm: str, num_bytes: int) -> Any:
    if algorithm == "git":
        return hashlib.sha1(f"blob {num_bytes}\0".encode())
    return hashlib.sha256()
