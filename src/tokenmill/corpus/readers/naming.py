"""How to read a file, by its name or the user's choice, and advice if no reader takes it.

Also knows the names of files that are never text, so that `--input-format text` for a folder does
not turn a table or an archive into a document.
"""

from __future__ import annotations

import os
import shlex

from tokenmill.corpus.readers import BYTE_KINDS, compression_of, kind_of, kinds
from tokenmill.corpus.readers.conversion import is_on_disk
from tokenmill.errors import ConfigError, InputError, TokenmillError

_TAR = (".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")
_OFFICE = (".docx", ".odt", ".rtf", ".epub")
# By extension: the command, and the extension of its result.
_CONVERSIONS = {
    **dict.fromkeys(_TAR, ("mkdir {result} && tar -xf {name} -C {result}", "")),
    ".zip": ("unzip {name} -d {result}", ""),
    ".pdf": ("pdftotext {name} {result}", ".txt"),
    **dict.fromkeys(_OFFICE, ("pandoc -t plain -o {result} {name}", ".txt")),
}
_DECOMPRESSORS = {".bz2": "bunzip2", ".xz": "unxz", ".lz4": "unlz4", ".gz": "gunzip"}
_DECOMPRESSORS |= dict.fromkeys((".zst", ".zstd"), "unzstd")
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
            hint=conversion_hint(path),
        )
    return kind, compression if kind in BYTE_KINDS else None


def unread(path: str) -> TokenmillError:
    """The error for a file that no reader takes by its name."""
    hint = conversion_hint(path)
    if hint is not None:
        return InputError(f"{path}: tokenmill does not read {ending(path)} files", hint=hint)
    return ConfigError(
        f"the name of {path} does not show how to read it",
        hint=f"leave it out, or say how to read all sources: --input-format {'|'.join(kinds())}",
    )


def conversion_hint(path: str) -> str | None:
    """A command that makes a file readable; None if it may be text."""
    if not is_on_disk(path):
        local = conversion_hint(path.rpartition("/")[2])
        return f"copy it to a disk first; there: {local}" if local else None
    if found := _conversion(path):
        command, result = found
        return f"{command}, then give {shlex.quote(result)} as SOURCE"
    return "leave it out" if ending(path) in _BINARY else None


def _conversion(path: str) -> tuple[str, str] | None:
    """A command that makes a file readable, and the path of its result."""
    name, end = shlex.quote(path), ending(path)
    last = os.path.splitext(end)[1] or end
    if end in _CONVERSIONS:
        command, new_end = _CONVERSIONS[end]
        result = path[: -len(end)] + new_end
        return command.format(name=name, result=shlex.quote(result)), result
    if last in _DECOMPRESSORS and not _is_readable_as_text(path):
        return f"{_DECOMPRESSORS[last]} -k {name}", path[: -len(last)]
    return None


def may_be_text(path: str) -> bool:
    """Whether a file that no reader claims by its name is worth reading as text."""
    return kind_of(path) is None and conversion_hint(path) is None


def ending(path: str) -> str:
    """The name's extension in lower case; two extensions if the last one is a compression."""
    stem, last = os.path.splitext(os.path.basename(path).lower())
    return os.path.splitext(stem)[1] + last if last in _DECOMPRESSORS else last


def _is_readable_as_text(path: str) -> bool:
    """Whether a compressed file can be text that --input-format text decompresses."""
    return compression_of(path) is not None and may_be_text(os.path.splitext(path)[0])
