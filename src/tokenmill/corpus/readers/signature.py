"""Checks the first bytes of a file: refuses files that are not UTF-8 text.

Only signatures that cannot begin real text are refused. NUL bytes are valid text, so their number
is no evidence.
"""

from __future__ import annotations

from os.path import splitext

from tokenmill.corpus.readers.conversion import filtered, local_command, renamed
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
# Magic bytes, the kind of file, its usual extensions, and advice if the extension is not the cause.
_NO_TEXT: tuple[tuple[bytes, str, tuple[str, ...], str], ...] = (
    (b"\x1f\x8b", "a gzip file", (".gz", ".tgz"), "gunzip -k {name}"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", (".zst", ".zstd"), "unzstd -k {name}"),
    (b"PAR1", "a parquet file", (".parquet", ".pq"), "leave out --input-format"),
    (b"ARROW1\0\0", "an Arrow file", (".arrow", ".feather", ".ipc"), "leave out --input-format"),
    (b"PK\x03\x04", "a zip file", (), "unzip {name} -d DIR, then give DIR as SOURCE"),
    (b"%PDF-", "a PDF file", (), "pdftotext {name}, then give the .txt file as SOURCE"),
    (b"BZh91AY&SY", "a bzip2 file", (".bz2",), "bunzip2 -k {name}"),
    (b"\xfd7zXZ\0", "an xz file", (".xz",), "unxz -k {name}"),
    (b"\x04\x22\x4d\x18", "an lz4 file", (".lz4",), "unlz4 -k {name}"),
    (b"\x7fELF", "a program", (), "leave it out"),
)
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257


def check_signature(source: Input, head: bytes) -> None:
    """Raise InputError if the file's first bytes show that it is not UTF-8 text."""
    path = source.name
    for mark, encoding in _OTHER_ENCODINGS:
        if head.startswith(mark):
            raise InputError(
                f"{path}: encoded as {encoding}, not UTF-8 (its first bytes are a byte order mark)",
                hint=filtered(
                    source, f"iconv -f {encoding[:6]} -t UTF-8", f"utf8{_ending(source)}"
                ),
            )
    if head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC):
        raise InputError(
            f"{path}: a tar archive, not text",
            hint=local_command(path, "mkdir DIR && tar -xf {name} -C DIR, then give DIR as SOURCE"),
        )
    for magic, what, extensions, advice in _NO_TEXT:
        if head.startswith(magic):
            hint = local_command(path, advice)
            if path == "-" and extensions[:1] in ((".parquet",), (".arrow",)):
                hint = f"--input-format {extensions[0][1:]}"
            elif path == "-":
                hint = "decompress or convert it in the pipe: zcat corpus.jsonl.gz | tokenmill ..."
            elif extensions and not path.lower().endswith(extensions):
                hint = renamed(path, path + extensions[0])
            raise InputError(f"{path}: {what}, not text", hint=hint)


def begins_as_text(head: bytes) -> bool:
    """Whether the first bytes are UTF-8 that can be printed, as no compressed file begins."""
    start = head[:64].decode(errors="replace").removesuffix("\ufffd")  # may be cut
    return "\ufffd" not in start and "".join(start.split()).isprintable()


def _ending(source: Input) -> str:
    """That of its name, without the compression's."""
    stem, ending = splitext(source.name)
    return (splitext(stem)[1] if source.compression else ending) or ".txt"
