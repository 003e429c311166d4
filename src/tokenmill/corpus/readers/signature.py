"""Checks the first bytes of a file: refuses files that are not UTF-8 text.

Only signatures that cannot begin real text are refused. NUL bytes are valid text, so their number
is no evidence.
"""

from __future__ import annotations

from tokenmill.corpus.spans import Input
from tokenmill.errors import InputError

UTF8_BOM = b"\xef\xbb\xbf"
HEAD_BYTES = 1 << 16

# Longest first: a UTF-32 mark begins with a UTF-16 one.
_OTHER_ENCODINGS = (
    (b"\xff\xfe\0\0", "UTF-32LE"),
    (b"\0\0\xfe\xff", "UTF-32BE"),
    (b"\xff\xfe", "UTF-16LE"),
    (b"\xfe\xff", "UTF-16BE"),
)
_UNPACK = "unpack it, and give the folder as SOURCE"
# Magic bytes, the kind of file, and what to do.
_NO_TEXT = (
    (b"\x1f\x8b", "a gzip file", "decompress it, or let its name end in .gz"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "decompress it, or let its name end in .zst"),
    (b"PAR1", "a parquet file", "--input-format parquet"),
    (b"ARROW1\0\0", "an Arrow file", "--input-format arrow"),
    (b"PK\x03\x04", "a zip file", _UNPACK),
    (b"%PDF-", "a PDF file", "convert it to .txt first, and give that as SOURCE"),
    (b"BZh91AY&SY", "a bzip2 file", "decompress it, or let its name end in .bz2"),
    (b"\xfd7zXZ\0", "an xz file", "decompress it, or let its name end in .xz"),
    (b"\x04\x22\x4d\x18", "an lz4 file", "decompress it, or let its name end in .lz4"),
    (b"\x7fELF", "a program", "leave it out"),
)
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257


def check_signature(source: Input, head: bytes) -> None:
    """Raise InputError if the file's first bytes show that it is not UTF-8 text."""
    path = source.name
    for mark, encoding in _OTHER_ENCODINGS:
        if head.startswith(mark):
            raise InputError(
                f"{path}: encoded as {encoding}, not UTF-8 (its first bytes are a byte order mark)",
                hint=f"convert it first: iconv -f {encoding[:6]} -t UTF-8",
            )
    if head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC):
        raise InputError(f"{path}: a tar archive, not text", hint=_UNPACK)
    for magic, what, hint in _NO_TEXT:
        if head.startswith(magic):
            raise InputError(f"{path}: {what}, not text", hint=hint)


def begins_as_text(head: bytes) -> bool:
    """Whether the first bytes are UTF-8 that can be printed, as no compressed file begins."""
    start = head[:64].decode(errors="replace").removesuffix("\ufffd")  # may be cut
    return "\ufffd" not in start and "".join(start.split()).isprintable()
