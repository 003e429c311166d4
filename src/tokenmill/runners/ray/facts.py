"""What every process that encodes must have in common with the driver, or the bytes may differ.

Versions of tokenmill and of the libraries that decide ids or read inputs, the vocabulary by its
sha256, and the storage: the driver leaves a nonce in the work folder, and a process that reads
another one, or none, would write its parts where nobody looks for them.
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
from tokenmill.encodings.shipped import SHIPPED_ENCODINGS
from tokenmill.encodings.vocabulary_file import SHIPPED, vocabulary_bytes
from tokenmill.errors import (
    ConfigError,
    ConflictError,
    InputError,
    NetworkError,
    TokenmillError,
)
from tokenmill.storage import disk, files

STORAGE = "storage"
# A client of a network file system may be that late to see a new file.
RETRY_SECONDS = 2.0
_LIBRARIES = ("gigatoken", "tiktoken", "pyarrow")


@dataclass(frozen=True, slots=True)
class Nonce:
    """What the driver left in the work folder, and where. It stays there until the run ends."""

    path: str
    value: str

    @staticmethod
    def left_in(work: str) -> Nonce:
        """The name is a new one each time: clients of a network file system may go on seeing what
        an old name stood for."""
        value = os.urandom(16).hex()
        path = os.path.join(work, f"nonce.{value}{disk.TEMPORARY_SUFFIX}")
        files.write_file(path, value.encode())
        return Nonce(path, value)


def require_nonce(path: str | None) -> None:
    """Raise ConflictError if the nonce is gone. A process that does not find it is not to blame
    then: another run has removed the work folder, perhaps because it has finished the dataset."""
    if path is not None and files.size(path) is None:
        raise ConflictError(
            f"{path} was removed while the run was under way",
            hint="by another run? Once that has ended, run the same command again: it resumes",
        ) from FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


@contextlib.contextmanager
def removal_noticed(path: str | None) -> Iterator[None]:
    """Where the nonce is gone, that explains whatever else the nodes did not find."""
    try:
        yield
    except (ConflictError, InputError, NetworkError):
        raise
    except TokenmillError:
        require_nonce(path)
        raise


def facts_here(encoding: EncodingId, nonce: str | None) -> dict[str, str]:
    """What this process finds; `nonce` is None while there is no work folder yet."""
    found = {"tokenmill": __version__}
    names = (*_LIBRARIES, "tokenizers") if encoding.kind == "huggingface" else _LIBRARIES
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["vocabulary sha256"] = _vocabulary_sha256(encoding)
    if nonce is not None:
        found[STORAGE] = nonce
    return found


def nonce_at(path: str) -> str:
    """What this process reads there, or why it cannot."""
    deadline = time.monotonic() + RETRY_SECONDS
    while True:
        try:
            return files.read_file(path)[:64].decode(errors="replace")
        except OSError as error:
            if time.monotonic() > deadline:
                return f"{error.strerror or error}: {path}"
        except TokenmillError as error:  # an object store's: it was patient already
            return error.message
        time.sleep(0.1)


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
