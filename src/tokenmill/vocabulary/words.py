"""Counts the words of a text: the pieces that merges never cross.

A pattern (encodings/patterns.py) cuts text into words, at a few MB/s. Most of a text is repeated
words, so it is first cut where every known pattern cuts: after an ASCII letter before other ASCII
(except an apostrophe), and before a space between a visible character and a letter. Arrow counts
these chunks, and the pattern cuts only the distinct ones. With the user's own pattern, a chunk is a
whole text.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.arrays import offsets_of
from tokenmill.encodings.patterns import Pattern
from tokenmill.encodings.selfcheck import probe_texts
from tokenmill.errors import ConfigError

_SPACE = 0x20


def _table(characters: bytes) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[[*characters]] = True
    return table


_VISIBLE = bytes(range(0x21, 0x7F))
_LETTERS = bytes(byte for byte in _VISIBLE if chr(byte).isalpha())
_IS_LETTER = _table(_LETTERS)
_IS_VISIBLE = _table(_VISIBLE)
_ENDS_LETTERS = _table(bytes(set(range(0x80)) - {*_LETTERS, ord("'")}))


class WordCounter:
    """Counts the words of texts."""

    def __init__(self, pattern: Pattern) -> None:
        import regex  # type: ignore[import-untyped]

        self._find_words = regex.compile(pattern.in_any_library).findall
        self._is_known = pattern.gigatoken_name is not None
        self._is_nfc = pattern.is_nfc

    def chunks(self, texts: pa.LargeStringArray) -> pa.Table:
        """The distinct chunks of the texts, and how often each occurs."""
        if self._is_nfc:
            texts = pc.utf8_normalize(texts, "NFC")
        found = pc.value_counts(_cut_between_words(texts) if self._is_known else texts)
        return pa.table([found.field(0), found.field(1)], ["chunk", "count"])

    def words(self, chunks: Iterable[tuple[str, int]]) -> dict[str, int]:
        """The words of counted chunks."""
        words: dict[str, int] = {}
        for chunk, count in chunks:
            for word in self._find_words(chunk):
                words[word] = words.get(word, 0) + count
        return words


def _cut_between_words(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """The texts cut where any known pattern cuts, without copying them."""
    offsets = offsets_of(texts)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[: offsets[-1]]
    left, here, right = data[:-2], data[1:-1], data[2:]
    after_letters = _IS_LETTER[left] & _ENDS_LETTERS[here]
    before_word = (here == _SPACE) & _IS_VISIBLE[left] & _IS_LETTER[right]
    cuts = np.flatnonzero(after_letters | before_word) + 1
    cuts = cuts[np.searchsorted(cuts, offsets[0], "right") :]
    ends = np.insert(offsets, np.searchsorted(offsets, cuts), cuts)  # a cut at an end has no effect
    return pa.LargeStringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends), texts.buffers()[2])


def require_portable(expression: str) -> None:
    """Raise ConfigError for an expression that cuts text differently in `tokenizers`, which runs
    Oniguruma: the saved tokenizer.json would differ from the trained one."""
    import regex
    import tokenizers

    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(expression), "isolated")
    for text in probe_texts([]):
        theirs, ours = split.pre_tokenize_str(text), regex.findall(expression, text)
        if [piece for piece, _ in theirs] != ours:
            raise ConfigError(
                f"--pattern {expression[:80]!r}: tokenizers, which reads it in a tokenizer.json, "
                f"cuts {text[:60]!r} differently",
                hint=r"write (?:...) for (...), {1,3} for {1,3}+, [\p{L}\p{N}_] for \w",
            )
