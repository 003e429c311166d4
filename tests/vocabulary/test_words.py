"""Words are counted chunk by chunk, and are those that the pattern finds in whole texts."""

from __future__ import annotations

import collections
import random
import unicodedata

import pyarrow as pa
import pytest
import regex

from tokenmill.encodings.patterns import PATTERNS, pattern_named
from tokenmill.vocabulary.words import WordCounter

PIECES = ["a", "B", "z", "Foo", " ", "  ", "\n", "\r\n", "\t", "'", "'s", "'LL", "1", "23", "("]
PIECES += [".", "é", "e\u0301", "中", "\u00a0", "\u3000", "\u0301", "-", "/", "ſ", "'ſ", "\u2028"]


def counted(expression: str, texts: list[str]) -> dict[str, int]:
    counter = WordCounter(pattern_named(expression, "test"))
    array = pa.array(["not a part", *texts], pa.large_string()).slice(1)
    chunks = counter.chunks(array)
    return counter.words(zip(*(column.to_pylist() for column in chunks.columns), strict=True))


@pytest.mark.parametrize("name", PATTERNS)
def test_words_when_counted_by_chunks_then_they_are_the_patterns(name):
    find = regex.compile(PATTERNS[name].in_any_library).findall
    rng = random.Random(name)
    for _ in range(400):
        texts = ["".join(rng.choices(PIECES, k=rng.randrange(25))) for _ in range(3)]
        plain = [unicodedata.normalize("NFC", t) if PATTERNS[name].is_nfc else t for t in texts]
        assert counted(name, texts) == collections.Counter(w for t in plain for w in find(t))


def test_words_when_the_pattern_is_ones_own_then_nothing_is_cut_before():
    assert counted(r"\w+ \w+|\s+|.", ["ab cd ef", "ab cd"]) == {"ab cd": 2, " ": 1, "e": 1, "f": 1}
