"""How to read a file, by its name or the user's choice, and advice if no reader takes it.

Also knows the names of files that are never text, so that `--input-format text` for a folder does
not turn a table or an archive into a document.
"""

from __future__ import annotations

import os

from tokenmill.corpus.readers import BYTE_KINDS, compression_of, kind_of, kinds
from tokenmill.errors import ConfigError, InputError, TokenmillError

_COMPRESSED = (".gz", ".bz2", ".xz", ".lz4", ".zst", ".zstd")
_ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".txz", *(f".tar{last}" for last in _COMPRESSED))
_OFFICE = (".pdf", ".docx", ".odt", ".rtf", ".epub")
_BINARY = (
    *(".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".mp3", ".mp4", ".wav", ".ttf", ".woff"),
    *(".bin", ".npy", ".npz", ".pt", ".pth", ".pkl", ".safetensors", ".h5", ".db", ".sqlite"),
    *(".o", ".so", ".a", ".exe", ".pyc", ".class", ".jar", ".xls", ".xlsx", ".ppt", ".pptx"),
    *(".7z", ".rar", ".doc"),
)


def kind_named(path: str, input_format: str | None) -> tuple[str, str | None]:
    """(kind, compression) of a file that the user named by path or URL. If no reader takes it, the
    error says what to do."""
    kind, compression = kind_of(path) or (None, None)
    if input_format is not None:
        kind, compression = input_format, compression_of(path)
    if kind is None:
        raise unread(path)
    if kind in ("parquet", "arrow") and compression:
        raise InputError(
            f"{path}: {kind} files compressed with {compression} are not read",
            hint="decompress it first",
        )
    return kind, compression if kind in BYTE_KINDS else None


def unread(path: str) -> TokenmillError:
    """The error for a file that no reader takes by its name."""
    hint = advice(path)
    if hint is not None:
        return InputError(f"{path}: tokenmill does not read {ending(path)} files", hint=hint)
    return ConfigError(
        f"the name of {path} does not show how to read it",
        hint=f"leave it out, or say how to read all sources: --input-format {'|'.join(kinds())}",
    )


def may_be_text(path: str) -> bool:
    """Whether a file that no reader claims by its name is worth reading as text."""
    return kind_of(path) is None and advice(path) is None


def ending(path: str) -> str:
    """The name's extension in lower case; two extensions if the last one is a compression."""
    stem, last = os.path.splitext(os.path.basename(path).lower())
    return os.path.splitext(stem)[1] + last if last in _COMPRESSED else last


def advice(path: str) -> str | None:
    """What to do with a file whose name says that it is no text; None if it may be text."""
    end = ending(path)
    if end in _BINARY:
        return "leave it out"
    if end in _ARCHIVES:
        return "unpack it, and give the folder as SOURCE"
    if end in _OFFICE:
        return "convert it to .txt first, and give that as SOURCE"
    stem, last = os.path.splitext(path)
    if last.lower() in _COMPRESSED and not (compression_of(path) and may_be_text(stem)):
        return "decompress it first"
    return None
