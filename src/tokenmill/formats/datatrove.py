"""datatrove and nanotron: `{split}/{index:05d}_{name}.ds`, only tokens, with two files beside it:
`.ds.index` holds where each document ends, in tokens, as uint64; `.ds.metadata` is text,

    <tokenizer>|<bytes a token>
    <number of tokens>
    <the same, for people>

Both trainers take every `*.ds` of a folder, sorted by name, so each split has its own folder. They
do not read the metadata: set token_size=4 for uint32 tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tokenmill.errors import IntegrityError
from tokenmill.formats.format import (
    DTYPE_BYTES,
    Contents,
    Create,
    Defaults,
    Files,
    Format,
    FoundShard,
    ShardReader,
    Traits,
)
from tokenmill.formats.mapped import (
    MappedShard,
    bounds_in_pieces,
    by_number,
    mapped_tokens,
    require_increasing,
    split_of,
    start_of,
)

_METADATA_BYTES = 1 << 16


class DatatroveFormat(Format):
    name = "datatrove"
    trainers = "datatrove, nanotron"
    files = "train/00000_tokens.ds, .ds.index, .ds.metadata ..."
    pattern = r"(train|val)/\d{5,}_{name}\.ds(\.index|\.metadata)?"
    defaults = Defaults(eot="append", val="none", shard_tokens=1_000_000_000, name="tokens")
    traits = Traits(boundaries=True)

    def shard_name(self, name: str, split: str, index: int) -> str:
        return f"{split}/{index:05d}_{name}.ds"

    def write(self, contents: Contents, create: Create) -> None:
        assert contents.lengths is not None
        with create(f"{contents.name}.index") as file:
            for _, ends in bounds_in_pieces(contents.lengths):
                file.write(ends.astype("<u8"))
        # datatrove's merger cuts the first line at its only "|".
        tokenizer = re.sub(r"[|\r\n]", "_", contents.layout.encoding)
        num_tokens, token_bytes = len(contents.tokens), DTYPE_BYTES[contents.layout.dtype]
        lines = (f"{tokenizer}|{token_bytes}", str(num_tokens), _humanized(num_tokens))
        with create(f"{contents.name}.metadata") as file:
            file.write("\n".join(lines).encode("utf-8", "replace"))

    def find(self, files: Files, names: Sequence[str]) -> list[FoundShard]:
        shards = sorted((n for n in names if n.endswith(".ds")), key=by_number)
        return [FoundShard(name, split_of(name, self.pattern)) for name in shards]

    def open(self, files: Files, name: str, dtype: str | None) -> ShardReader:
        found, num_tokens = _metadata_of(files, f"{name}.metadata")
        tokens = mapped_tokens(files, name, found or dtype or "uint16", num_tokens=num_tokens)
        return MappedShard(tokens, _ends_of(files, f"{name}.index", len(tokens)))


def _metadata_of(files: Files, name: str) -> tuple[str | None, int | None]:
    """The dtype and the number of tokens, if the file states them."""
    if files.size(name) is None:
        return None, None
    path = files.path_of(name)
    text = start_of(files, name, _METADATA_BYTES).decode("utf-8", "replace")
    first, count, *_ = (*text.splitlines(), "", "")
    if not re.fullmatch("[0-9]{1,18}", count):
        raise IntegrityError(f"{path}: its second line is {count[:40]!r}, not a number of tokens")
    # Files of an older datatrove have the tokenizer alone in the first line.
    _, bar, token_bytes = first.rpartition("|")
    found = {str(size): dtype for dtype, size in DTYPE_BYTES.items()}.get(token_bytes)
    if bar and found is None:
        raise IntegrityError(f"{path}: tokens of {token_bytes[:40]!r} bytes, expected 2 or 4")
    return found if bar else None, int(count)


def _ends_of(
    files: Files, name: str, num_tokens: int
) -> Callable[[], npt.NDArray[np.int64]] | None:
    if files.size(name) is None:
        return None
    path, mapped = files.path_of(name), mapped_tokens(files, name, "uint64")

    def ends() -> npt.NDArray[np.int64]:
        entries = np.asarray(mapped)
        beyond = entries > num_tokens
        if beyond.any():
            worst = int(np.argmax(beyond))
            raise IntegrityError(
                f"{path}: document {worst} ends at token {int(entries[worst]):,}, but there are "
                f"{num_tokens:,} tokens"
            )
        found = entries.astype(np.int64)
        require_increasing(found, num_tokens, path)
        return found

    return ends


def _humanized(count: int) -> str:
    """Three digits and a unit, T for tokens: 11.0 T, 1.25 GT. Like the humanize package."""
    digits, exponent = f"{count:.2e}".split("e")
    power = int(exponent)
    unit = ("", "k", "M", "G", "T", "P", "E")[power // 3]
    return f"{float(digits) * 10 ** (power % 3):.{2 - power % 3}f} {unit}T"
