"""Reads a vocabulary file's bytes: at most 100 MB, checked against the expected sha256.

Vocabulary files are hostile until parsed (ranks.py, tokenizer_json.py). The largest in use have
about 35 MB.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tokenmill.errors import ConfigError, IntegrityError

MAX_BYTES = 100 * 1000 * 1000
VOCAB_FOLDER = Path(__file__).parent / "vocab"


def vocabulary_bytes(path: Path) -> bytes:
    try:
        num_bytes = path.stat().st_size
        if num_bytes > MAX_BYTES:
            raise ConfigError(
                f"{path}: a vocabulary file of {num_bytes:,} bytes; at most {MAX_BYTES:,} are read",
                hint="name a .tiktoken file of ranks or a tokenizer.json, not a model's weights",
            )
        with path.open("rb") as file:
            return file.read(num_bytes or MAX_BYTES)  # a pipe has no size
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read as a vocabulary: {error.strerror}") from error


def json_beside(path: Path, name: str, hint: str | None = None) -> dict[str, Any]:
    """The object in a JSON file beside the vocabulary; empty if there is none."""
    file = path.with_name(name)
    if not file.is_file():
        return {}
    try:
        plain = json.loads(vocabulary_bytes(file))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: not JSON: {error}", hint=hint) from None
    return plain if isinstance(plain, dict) else {}


def checked_bytes(path: Path, expected_sha256: str) -> bytes:
    """The file's bytes, if they are still those that the identity was made from."""
    data = vocabulary_bytes(path)
    got = hashlib.sha256(data).hexdigest()
    if got == expected_sha256:
        return data
    if path.parent == VOCAB_FOLDER:
        raise IntegrityError(
            f"{path}: the vocabulary in the package is damaged: sha256 is {got}, "
            f"expected {expected_sha256}",
            hint="pip install --force-reinstall tokenmill",
        )
    raise IntegrityError(
        f"{path}: the vocabulary changed: sha256 is {got}, the run began with {expected_sha256}",
        hint="restore the file, or start over with the new one in a new output folder",
    )
