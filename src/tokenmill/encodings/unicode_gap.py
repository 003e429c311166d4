"""The code points on which gigatoken and a reference disagree, and finding documents with one.

gigatoken 0.10 has the tables of Unicode 17; tiktoken 0.14 and tokenizers 0.23 have those of
Unicode 16, so letters, digits and marks that came in between are cut differently. The ranges come
from trying every code point in 28 contexts under each pattern (`tools/unicode_gap.py`, which prints
them). tokenizers' NFC tables are older still (about Unicode 9), hence its longer list; and whole
blocks are added to it where newer letters compose in pairs.

The search must cost next to nothing beside an engine that does 200 MB/s, so it looks for lead
bytes: first at the largest byte of each kilobyte, then, where that is high enough, at each byte,
then at pairs of bytes, and decodes what is left. Measured beside gigatoken on text it has not seen
(one thread, AMD EPYC; English is 59 MB of MDN, the other 75 MB of it in eight languages):

                    search         of the time, gpt2    o200k_base
    English         8.1 GB/s       1.9 %                1.5 %
    multilingual    3.2 GB/s       2.5 %                1.5 %

One regular expression over the same ranges does 0.6 GB/s (RE2, in pyarrow) or 0.01 (`re`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_ROW_BYTES = 1024
_ROWS_AT_A_TIME = 256  # 256 KiB of text and its masks stay in the processor's cache


@dataclass(frozen=True)
class CodePointSet:
    """`ranges` are inclusive. `leads` are tests (mask, value) of which every first byte in UTF-8
    passes one: `byte & mask == value`. They may let others pass, at a cost in time only."""

    ranges: tuple[tuple[int, int], ...]
    leads: tuple[tuple[int, int], ...]

    def documents_holding_any(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
    ) -> list[int]:
        """The positions of the documents `data[offsets[i]:offsets[i + 1]]` that hold one."""
        import numpy as np

        first = int(offsets[0])
        text = data[first : int(offsets[-1])]
        places = self._places(text)
        if not len(places):
            return []
        documents = offsets.searchsorted(places + first, side="right") - 1
        return [int(position) for position in np.unique(documents)]

    def _places(self, text: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Where in the text a code point of the set begins."""
        import numpy as np

        whole = len(text) - len(text) % _ROW_BYTES
        rows = text[:whole].reshape(-1, _ROW_BYTES)
        suspect = np.flatnonzero(rows.max(axis=1) >= self._smallest_lead)
        found = [whole + self._lead_places(text[whole:])]
        for start in range(0, len(suspect), _ROWS_AT_A_TIME):
            numbers = suspect[start : start + _ROWS_AT_A_TIME]
            first, last = numbers[0], numbers[-1]
            if last - first + 1 == len(numbers):
                found.append(self._lead_places(rows[first : last + 1]) + first * _ROW_BYTES)
            else:
                row, column = np.divmod(self._lead_places(rows[numbers]), _ROW_BYTES)
                found.append(numbers[row] * _ROW_BYTES + column)
        return self._confirmed(text, np.concatenate(found))

    def _lead_places(self, some: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        import numpy as np

        passed = np.zeros(some.shape, dtype=bool)
        for mask, value in self.leads:
            passed |= (some if mask == 0xFF else some & np.uint8(mask)) == value
        return np.flatnonzero(passed)

    def _confirmed(
        self, text: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        import numpy as np

        places = places[places < len(text) - 1]
        pairs = text[places].astype(np.uint16) << 8 | text[places + 1]
        places = places[self._first_pairs[pairs]]
        bounds = self._bounds.searchsorted(_code_points(text, places), side="right")
        inside: npt.NDArray[np.bool_] = bounds % 2 == 1
        return places[inside]

    @cached_property
    def _smallest_lead(self) -> int:
        return min(chr(start).encode()[0] for start, _ in self.ranges)

    @cached_property
    def _bounds(self) -> npt.NDArray[np.int64]:
        """start, stop, start, stop, ...: an odd insertion point is inside a range."""
        import numpy as np

        return np.array([bound for a, b in self.ranges for bound in (a, b + 1)], dtype=np.int64)

    @cached_property
    def _first_pairs(self) -> npt.NDArray[np.bool_]:
        """By the first two bytes in UTF-8, as one number: whether a code point begins so."""
        import numpy as np

        table = np.zeros(1 << 16, dtype=bool)
        for start, stop in self.ranges:
            for code_point in range(start, stop + 1):
                lead, second = chr(code_point).encode()[:2]
                table[lead << 8 | second] = True
        return table


def _code_points(
    text: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The code points that begin at these places, each a lead byte of two to four."""
    import numpy as np

    last = len(text) - 1
    lead = text[places].astype(np.int64)
    second, third, fourth = (
        text[np.minimum(places + step, last)].astype(np.int64) & 0x3F for step in (1, 2, 3)
    )
    two = (lead & 0x1F) << 6 | second
    three = (lead & 0x0F) << 12 | second << 6 | third
    four = (lead & 0x07) << 18 | second << 12 | third << 6 | fourth
    return np.where(lead < 0xE0, two, np.where(lead < 0xF0, three, four))


TIKTOKEN_GAP = CodePointSet(
    ranges=(
        *((0x88F, 0x88F), (0xC5C, 0xC5C), (0xCDC, 0xCDC), (0x1ACF, 0x1ADD), (0x1AE0, 0x1AEB)),
        *((0xA7CE, 0xA7CF), (0xA7D2, 0xA7D2), (0xA7D4, 0xA7D4), (0xA7F1, 0xA7F1)),
        *((0x10940, 0x10959), (0x10EC5, 0x10EC7), (0x10EFA, 0x10EFB), (0x11B60, 0x11B67)),
        *((0x11DB0, 0x11DDB), (0x11DE0, 0x11DE9), (0x16EA0, 0x16EB8), (0x16EBB, 0x16ED3)),
        *((0x16FF2, 0x16FF6), (0x187F8, 0x187FF), (0x18D09, 0x18D1E), (0x18D80, 0x18DF2)),
        *((0x1E6C0, 0x1E6DE), (0x1E6E0, 0x1E6F5), (0x1E6FE, 0x1E6FF), (0x2B73A, 0x2B73F)),
        *((0x2CEA2, 0x2CEAD), (0x323B0, 0x33479)),
    ),
    leads=((0xEE, 0xE0), (0xFF, 0xEA)),  # E0, E1, F0 (and F1, which no text has); EA
)

TOKENIZERS_GAP = CodePointSet(
    ranges=(
        *((0x7FD, 0x7FD), (0x88F, 0x88F), (0x897, 0x89F), (0x8CA, 0x8D3), (0x9FE, 0x9FE)),
        *((0xC3C, 0xC3C), (0xC5C, 0xC5C), (0xCDC, 0xCDC), (0xD3B, 0xD3C), (0xEBA, 0xEBA)),
        *((0x1715, 0x1715), (0x1ABF, 0x1ADD), (0x1AE0, 0x1AEB), (0x1DF6, 0x1DFA)),
        *((0xA7CE, 0xA7CF), (0xA7D2, 0xA7D2), (0xA7D4, 0xA7D4), (0xA7F1, 0xA7F1)),
        *((0xA82C, 0xA82C), (0x105C0, 0x105FF), (0x10940, 0x10959), (0x10D24, 0x10D27)),
        *((0x10D69, 0x10D6D), (0x10EAB, 0x10EAC), (0x10EC5, 0x10EC7), (0x10EFA, 0x10EFB)),
        *((0x10EFD, 0x10EFF), (0x10F46, 0x10F50), (0x10F82, 0x10F85), (0x11070, 0x11070)),
        *((0x1133B, 0x1133B), (0x11380, 0x113FF), (0x1145E, 0x1145E), (0x11839, 0x1183A)),
        *((0x11900, 0x1195F), (0x119E0, 0x119E0), (0x11A34, 0x11A34), (0x11A47, 0x11A47)),
        *((0x11A99, 0x11A99), (0x11B60, 0x11B67), (0x11D42, 0x11D42), (0x11D44, 0x11D45)),
        *((0x11D97, 0x11D97), (0x11DB0, 0x11DDB), (0x11DE0, 0x11DE9), (0x11F41, 0x11F42)),
        *((0x16100, 0x1613F), (0x16D40, 0x16D7F), (0x16EA0, 0x16EB8), (0x16EBB, 0x16ED3)),
        *((0x16FF0, 0x16FF6), (0x187F8, 0x187FF), (0x18D09, 0x18D1E), (0x18D80, 0x18DF2)),
        *((0x1E08F, 0x1E08F), (0x1E130, 0x1E136), (0x1E2AE, 0x1E2AE), (0x1E2EC, 0x1E2EF)),
        *((0x1E4EC, 0x1E4EF), (0x1E5EE, 0x1E5EF), (0x1E6C0, 0x1E6DE), (0x1E6E0, 0x1E6F5)),
        *((0x1E6FE, 0x1E6FF), (0x2B73A, 0x2B73F), (0x2CEA2, 0x2CEAD), (0x323B0, 0x33479)),
    ),
    leads=((0xEE, 0xE0), (0xFF, 0xEA), (0xFF, 0xDF)),
)

# For expressions that ask for symbols or punctuation, as DeepSeek's: those of Unicode 17, too.
_SYMBOLS = (
    *((0x20C1, 0x20C1), (0x2B96, 0x2B96), (0xFBC3, 0xFBD2), (0xFD90, 0xFD91), (0xFDC8, 0xFDCE)),
    *((0x10ED0, 0x10ED8), (0x1CCFA, 0x1CCFC), (0x1CEBA, 0x1CED0), (0x1CEE0, 0x1CEF0)),
    *((0x1F6D8, 0x1F6D8), (0x1F777, 0x1F77A), (0x1F8D0, 0x1F8D8), (0x1FA54, 0x1FA57)),
    *((0x1FA8A, 0x1FA8A), (0x1FA8E, 0x1FA8E), (0x1FAC8, 0x1FAC8), (0x1FACD, 0x1FACD)),
    *((0x1FAEA, 0x1FAEA), (0x1FAEF, 0x1FAEF), (0x1FBFA, 0x1FBFA)),
)
TOKENIZERS_SYMBOLS_GAP = CodePointSet(
    ranges=tuple(sorted((*TOKENIZERS_GAP.ranges, *_SYMBOLS))),
    leads=(*TOKENIZERS_GAP.leads, (0xFF, 0xE2), (0xFF, 0xEF)),
)


def tokenizers_gap(pre_tokenizer: str) -> CodePointSet:
    """The set for a tokenizer.json whose `pre_tokenizer` this is, as JSON."""
    asks_for_symbols = "p{S" in pre_tokenizer or "p{P" in pre_tokenizer
    return TOKENIZERS_SYMBOLS_GAP if asks_for_symbols else TOKENIZERS_GAP
