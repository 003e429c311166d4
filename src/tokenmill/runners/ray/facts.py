"""What every encoding process must share with the driver, or the bytes may differ.

These are the versions of tokenmill and of the libraries that determine ids or read inputs, the
sha256 of the vocabulary, and the storage. The driver leaves a nonce in the work folder; a process
that reads another nonce, or none, would write its parts to the wrong place.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tokenmill import __version__
from tokenmill.encodings import EncodingId
from tokenmill.encodings.published import BUILTIN
from tokenmill.encodings.vocabulary_file import VOCAB_FOLDER, vocabulary_bytes
from tokenmill.errors import (
    ConfigError,
    ConflictError,
    InputError,
    NetworkError,
    TokenmillError,
)
from tokenmill.storage import disk
from tokenmill.storage.store import store_of

STORAGE = "storage"
VERDICT = "verdict"  # of the self-check: not compared, but sent to later workers
# A client of a network file system may take this long to see a new file.
RETRY_SECONDS = 2.0
_LIBRARIES = ("gigatoken", "tiktoken", "pyarrow")
_LIBRARIES_OF = {  # by the kind of an encoding
    "huggingface": ("tokenizers",),
    "sentencepiece": ("tokenizers",),
    "sentencepiece-library": ("sentencepiece",),
    "vocab-merges": ("tokenizers",),
}


@dataclass(frozen=True, slots=True)
class Nonce:
    """The driver's nonce and its path in the work folder, where it stays until the run ends."""

    path: str
    value: str

    @staticmethod
    def left_in(work: str) -> Nonce:
        """Write a nonce under a new name: clients of a network file system may cache the content of
        an old name."""
        value = os.urandom(16).hex()
        path = os.path.join(work, f"nonce.{value}{disk.TEMPORARY_SUFFIX}")
        store_of(path).write(path, value.encode())
        return Nonce(path, value)


def require_nonce(path: str | None) -> None:
    """Raise ConflictError if the nonce is gone: another run has removed the work folder, perhaps
    because it has finished the dataset."""
    if path is not None and store_of(path).size(path) is None:
        raise ConflictError(
            f"{path} was removed while the run was working",
            hint="by another run? Wait for it, then run the same command again: it resumes",
        ) from FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


@contextlib.contextmanager
def removal_noticed(path: str | None) -> Iterator[None]:
    """Turn an error into that conflict if the nonce is gone, which explains any missing file."""
    try:
        yield
    except (ConflictError, InputError, NetworkError):
        raise
    except TokenmillError:
        require_nonce(path)
        raise


def facts_here(encoding: EncodingId, nonce: str | None) -> dict[str, str]:
    """The facts of this process; `nonce` is None while there is no work folder."""
    found = {"tokenmill": __version__}
    for name in (*_LIBRARIES, *_LIBRARIES_OF.get(encoding.kind, ())):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["vocabulary sha256"] = _vocabulary_sha256(encoding)
    if nonce is not None:
        found[STORAGE] = nonce
    return found


def nonce_at(path: str) -> str:
    """The nonce that this process reads there, or why it cannot."""
    deadline = time.monotonic() + RETRY_SECONDS
    while True:
        try:
            return store_of(path).read(path)[:64].decode(errors="replace")
        except OSError as error:
            if time.monotonic() > deadline:
                return f"{error.strerror or error}: {path}"
        except TokenmillError as error:  # from an object store, after its retries
            return error.message
        time.sleep(0.1)


def mismatch(node: str, here: dict[str, str], there: dict[str, str]) -> ConfigError:
    """The error for a node that differs from this machine, with both values of each difference."""
    lines = [
        f"{name}: {here[name]} here, {there.get(name, 'unknown')} there"
        for name in here
        if there.get(name) != here[name]
    ]
    is_storage = here.get(STORAGE) != there.get(STORAGE)
    return ConfigError(
        "\n  ".join([f"node {node} differs from this machine:", *lines]),
        hint="every node must see the output folder: on a shared file system, at the same path"
        if is_storage
        else f"install the same on every node: pip install tokenmill=={__version__}",
    )


def _vocabulary_sha256(encoding: EncodingId) -> str:
    if encoding.source is not None:
        path = Path(encoding.source)
    elif encoding.name in BUILTIN:
        path = VOCAB_FOLDER / BUILTIN[encoding.name].file
    else:
        return "no such encoding"
    try:
        return hashlib.sha256(vocabulary_bytes(path)).hexdigest()
    except ConfigError as error:
        return error.message
