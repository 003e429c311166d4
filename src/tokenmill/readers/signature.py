"""What the first bytes of a text file say: a byte order mark, or that it is no text at all.

Only signatures that cannot begin honest text are refused. NUL bytes are legal text, so nothing here
guesses from their number.
"""

from __future__ import annotations

import shlex

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
_NO_TEXT = (
    (b"\x1f\x8b", "a gzip file", "name it {path}.gz"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "name it {path}.zst"),
    (b"PK\x03\x04", "a zip file", "unzip {path}"),
    (b"PAR1", "a parquet file", "name it {path}.parquet"),
    (b"ARROW1\0\0", "an Arrow file", "name it {path}.arrow"),
    (b"%PDF-", "a PDF file", "pdftotext {path}"),
    (b"BZh91AY&SY", "a bzip2 file", "bunzip2 {path}"),
    (b"\xfd7zXZ\0", "an xz file", "unxz {path}"),
    (b"\x7fELF", "a program", "leave it out"),
)


def check_signature(path: str, head: bytes) -> None:
    """Raise InputError where the file's first bytes show that it is not UTF-8 text."""
    for mark, encoding in _OTHER_ENCODINGS:
        if head.startswith(mark):
            name = shlex.quote(path)
            raise InputError(
                f"{path}: encoded as {encoding}, not UTF-8 (its first bytes are a byte order mark)",
                hint=f"iconv -f {encoding[:6]} -t UTF-8 {name} > utf8.txt",
            )
    for magic, what, way_out in _NO_TEXT:
        if head.startswith(magic):
            raise InputError(
                f"{path}: {what}, not text", hint=way_out.format(path=shlex.quote(path))
            )
