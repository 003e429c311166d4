"""Code points newer than the reference's Unicode tables: found, and encoded as it does."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from tokenmill.encodings import get_encoding
from tokenmill.encodings.gigatoken import text_buffers
from tokenmill.encodings.loading import reference_of
from tokenmill.encodings.unicode_gap import (
    TIKTOKEN_GAP,
    TOKENIZERS_GAP,
    TOKENIZERS_SYMBOLS_GAP,
    CodePointSet,
)

GAPS = {
    "tiktoken": TIKTOKEN_GAP,
    "tokenizers": TOKENIZERS_GAP,
    "symbols": TOKENIZERS_SYMBOLS_GAP,
}
FAST = ["gpt2", "cl100k_base", "o200k_base"]
ASSIGNED = [range(a, b) for a, b in ((1, 0x250), (0x300, 0x600), (0x900, 0xE80), (0x1E00, 0x2C00))]
ASSIGNED += [range(0x3000, 0x3100), range(0x4E00, 0x5200), range(0xA600, 0xAC80)]
ASSIGNED += [range(0xF900, 0x10000), range(0x10300, 0x10380), range(0x1F300, 0x1FA00)]


def holding(code_points: CodePointSet, texts: list[str]) -> list[int]:
    return code_points.documents_holding_any(*text_buffers(pa.array(texts, pa.large_string())))


@pytest.mark.parametrize("gap", GAPS.values(), ids=GAPS)
def test_search_when_any_code_point_of_the_set_stands_anywhere_then_finds_it(
    gap: CodePointSet,
) -> None:
    code_points = [chr(c) for a, b in gap.ranges for c in range(a, b + 1)]
    assert holding(gap, [*code_points, "none"]) == list(range(len(code_points)))
    # Through all positions of a row of 1024 bytes, and of the tail after the last whole row.
    texts = [" " * (i % 2051) + c + "東京" * (i % 700) for i, c in enumerate(code_points[::3])]
    assert holding(gap, ["x", *texts]) == list(range(1, len(texts) + 1))


@pytest.mark.parametrize("gap", GAPS.values(), ids=GAPS)
def test_search_when_code_points_are_all_others_then_finds_none(gap: CodePointSet) -> None:
    inside = {c for a, b in gap.ranges for c in range(a, b + 1)}
    others = [chr(c) for c in range(0x110000) if c not in inside and not 0xD800 <= c < 0xE000]
    assert holding(gap, ["".join(others[i : i + 5000]) for i in range(0, len(others), 5000)]) == []


def test_search_when_array_is_a_slice_then_positions_are_the_slices() -> None:
    texts = pa.array(["\u088f", "a", "", "b\U0002ceab", "c"], pa.large_string())
    for start, expected in enumerate([[0, 3], [2], [1], [0], []]):
        assert TIKTOKEN_GAP.documents_holding_any(*text_buffers(texts[start:])) == expected
    assert holding(TIKTOKEN_GAP, []) == []


def test_ranges_when_read_then_are_sorted_and_apart() -> None:
    for gap in GAPS.values():
        bounds = [bound for pair in gap.ranges for bound in pair]
        assert bounds == sorted(bounds)
        assert all(b < c for (_, b), (c, _) in zip(gap.ranges, gap.ranges[1:], strict=False))


@pytest.mark.parametrize("name", FAST)
def test_gap_code_points_when_encoded_in_contexts_then_equal_tiktoken(name: str) -> None:
    encoding = get_encoding(name)
    code_points = [chr(c) for a, b in TIKTOKEN_GAP.ranges for c in range(a, min(b + 1, a + 40))]
    texts = [
        context.format(c)
        for c in code_points
        for context in ("{}", "a{}b", " {} ", "1{}1", "{0}{0}'s", "\n{}\n", "A{}a")
    ]
    # Between documents that the fast engine keeps.
    texts = [
        text for pair in zip(texts, ["hello world"] * len(texts), strict=True) for text in pair
    ]
    tokens = encoding.encode_array(pa.array(texts, pa.large_string()))
    reference = reference_of(encoding.identity)
    for position, text in enumerate(texts):
        assert tokens.document(position).tolist() == reference.encode_ordinary(text), ascii(text)


@pytest.mark.parametrize("name", FAST)
def test_texts_when_random_over_many_scripts_then_equal_tiktoken(name: str) -> None:
    source = random.Random(7)
    spaces = [" ", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\x00", "\x85", "\u200d", ""]
    contractions = ["'s", "'S", "'LL", "'lL", "'rE", "'ſ", "’s", "''d"]

    def word() -> str:
        kind = source.random()
        if kind < 0.15:
            return source.choice(contractions)
        if kind < 0.3:
            return str(source.randrange(10 ** source.randint(1, 9)))
        if kind < 0.32:
            return chr(source.randrange(0x323B0, 0x3347A))
        block = source.choice(ASSIGNED)
        start = source.choice(block)
        letters = range(start, min(start + 30, block.stop))
        return "".join(chr(c) for c in source.choices(letters, k=source.randint(1, 8)))

    texts = [
        "".join(word() + source.choice(spaces) for _ in range(source.randint(0, 30)))
        for _ in range(1500)
    ]
    encoding = get_encoding(name)
    tokens = encoding.encode_array(pa.array(texts, pa.large_string()))
    reference = reference_of(encoding.identity)
    expected = [reference.encode_ordinary(text) for text in texts]
    assert np.array_equal(tokens.ids, np.concatenate(expected))
    assert np.diff(tokens.offsets).tolist() == [len(ids) for ids in expected]
