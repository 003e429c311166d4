"""What every process that encodes must have in common with the driver, or the bytes may differ.

Versions of tokenmill and of the libraries that decide ids or read inputs, the vocabulary by its
sha256, and the storage: the driver leaves a nonce in the work folder, and a process that reads
another one, or none, would write its parts where nobody looks for them.
"""

from __future__ import annotations

import hashlib
import os
import time
from importlib import metadata
from pathlib import Path

from tokenmill import __version__, storage
from tokenmill.encodings import EncodingId
from tokenmill.encodings.shipped import SHIPPED_ENCODINGS
from tokenmill.encodings.vocabulary_file import SHIPPED, vocabulary_bytes
from tokenmill.errors import ConfigError, TokenmillError

STORAGE = "storage"
# A client of a network file system may be that late to see a new file.
PATIENCE_SECONDS = 2.0
_LIBRARIES = ("gigatoken", "tiktoken", "pyarrow")


def new_nonce(work: str) -> str:
    """Leave a nonce in the work folder; its path, which is a new one each time: clients of a
    network file system may go on seeing what an old name stood for."""
    nonce = os.urandom(16).hex()
    path = os.path.join(work, f"nonce.{nonce}{storage.TEMPORARY_SUFFIX}")
    storage.write_file(path, nonce.encode())
    return path


def facts_here(encoding: EncodingId, nonce_path: str | None) -> dict[str, str]:
    """What this process finds; `nonce_path` is None while there is no work folder yet."""
    found = {"tokenmill": __version__}
    names = (*_LIBRARIES, "tokenizers") if encoding.kind == "huggingface" else _LIBRARIES
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["vocabulary sha256"] = _vocabulary_sha256(encoding)
    if nonce_path is not None:
        found[STORAGE] = _nonce(nonce_path)
    return found


def mismatch(node: str, here: dict[str, str], there: dict[str, str]) -> ConfigError:
    """The error for a node that is not like this machine: both values of all that differs."""
    lines = [
        f"{name}: {here[name]} here, {there.get(name, 'unknown')} there"
        for name in here
        if there.get(name) != here[name]
    ]
    is_storage = here.get(STORAGE) != there.get(STORAGE)
    return ConfigError(
        "\n  ".join([f"node {node} is not like this machine:", *lines]),
        hint="every node must see the output folder: on a shared file system, at the same path"
        if is_storage
        else f"install the same on every node: pip install tokenmill=={__version__}",
    )


def _vocabulary_sha256(encoding: EncodingId) -> str:
    if encoding.source is not None:
        path = Path(encoding.source)
    elif encoding.name in SHIPPED_ENCODINGS:
        path = SHIPPED / SHIPPED_ENCODINGS[encoding.name].file
    else:
        return "no such encoding"
    try:
        return hashlib.sha256(vocabulary_bytes(path)).hexdigest()
    except ConfigError as error:
        return error.message


def _nonce(path: str) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return storage.read_file(path)[:64].decode(errors="replace")
        except OSError as error:
            if time.monotonic() > deadline:
                return f"{error.strerror or error}: {path}"
        except TokenmillError as error:  # an object store's: it was patient already
            return error.message
        time.sleep(0.1)
