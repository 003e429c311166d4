"""`--template '{title}\\n\\n{text}'`: a row's text from several columns.

A null column is empty text; a row is null if all of these columns are. `{{` and `}}` are braces. A
column holds text or integers, which are written in decimal digits. Other numbers are refused: each
library spells 0.1 in a file of 32-bit floats differently.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tokenmill.arrays import binary_scalar, null_scalar
from tokenmill.errors import ConfigError
from tokenmill.where.tree import mistake
from tokenmill.wording.name_list import name_list

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[^{}]+|[{}]")


@dataclass(frozen=True, slots=True)
class Slot:
    """A column's place in a template."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Template:
    text: str
    pieces: tuple[str | Slot, ...]

    @property
    def slots(self) -> list[Slot]:
        """Each column once, at its first place."""
        found: dict[str, Slot] = {}
        for piece in self.pieces:
            if isinstance(piece, Slot):
                found.setdefault(piece.name, piece)
        return list(found.values())

    def mistake(self, what: str, slot: Slot, known: Iterable[str]) -> ConfigError:
        """The error for a column that is missing or is not text."""
        known = list(known)
        near = difflib.get_close_matches(slot.name, known, n=1)
        hint = (
            f"did you mean {{{near[0]}}}?" if near else f"columns that are text: {name_list(known)}"
        )
        return mistake(self.text, what, slot.start, slot.stop, hint, "--template")

    def joined(self, columns: Sequence[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
        """The texts of rows, from the columns of `slots`."""
        import pyarrow.compute as pc

        of_name = {slot.name: array for slot, array in zip(self.slots, columns, strict=True)}
        parts = [
            of_name[piece.name] if isinstance(piece, Slot) else binary_scalar(piece.encode())
            for piece in self.pieces
        ]
        nothing = binary_scalar(b"")
        texts = pc.binary_join_element_wise(
            *parts, nothing, null_handling="replace", null_replacement=""
        )
        is_null = functools.reduce(pc.and_, (pc.is_null(array) for array in columns))
        return pc.if_else(is_null, null_scalar(pa.large_binary()), texts)


@functools.lru_cache(maxsize=16)
def template_of(text: str) -> Template:
    """Raises ConfigError with a caret under what is wrong."""
    pieces: list[str | Slot] = []
    for match in _PIECE.finditer(text):
        found, start, stop = match[0], match.start(), match.end()
        if found in ("{", "}"):
            what = f"a single {found}: a column is {{name}}, and a brace is written twice"
            raise mistake(text, what, start, stop, f"{found}{found}", "--template")
        if match[1] is not None and not match[1]:
            what = "empty braces: the name of a column goes in them"
            raise mistake(text, what, start, stop, "{text}", "--template")
        if match[1]:
            pieces.append(Slot(match[1], start, stop))
        else:
            pieces.append(found[0] if found in ("{{", "}}") else found)
    if not any(isinstance(piece, Slot) for piece in pieces):
        what = "it names no column, so every document would be the same"
        raise mistake(text, what, 0, max(1, len(text)), r"'{title}\n\n{text}'", "--template")
    return Template(text, tuple(pieces))
