"""Text made up from a seed, for machines that have no corpus: near English where it counts.

What an encoder's time depends on is how long words are, how often each comes again, how many are
new, and how many tokens they become. English: gpt2's own vocabulary has its words, about in the
order of how frequent they are; they are drawn by Zipf's law, after the hundred words that are half
of all English, with 7% of words that are in no vocabulary. That comes to 4.8 bytes a gpt2 token
(FineWeb: 4.6) and 6.2 bytes a word. Multilingual: words of invented syllables in five scripts, one
of them without spaces. Nobody should read it.
"""

from __future__ import annotations

import base64
import os
from itertools import pairwise

import numpy as np
import numpy.typing as npt

VOCAB = os.path.join(os.path.dirname(__file__), "..", "src", "tokenmill", "encodings", "vocab")
POOL_BYTES = 32 << 20  # of different paragraphs
NEW_WORDS = 300_000
NEW_SHARE = 0.07
COMMON = (
    "the of and to a in is that for it as was with be by on not he his but at are this have from "
    "or had an they which one you were all her she there would their we him been has when who "
    "will no more if out so up said what its about than into them can only other time new some "
    "could these two may first then do any like my now over such our man me even most made after "
    "also well did many before must years back through much where your way down should because "
    "long each just state people those too world good work life still own while"
)
# The first letter of each alphabet, how many there are, and whether words stand apart.
SCRIPTS = (
    (0x0430, 32, True),  # Cyrillic
    (0x03B1, 25, True),  # Greek
    (0x00E0, 23, True),  # Latin with accents
    (0xAC00, 2400, True),  # Hangul
    (0x4E00, 3000, False),  # Han
)


def made_paragraphs(language: str) -> list[str]:
    rng = np.random.RandomState(7)  # whose streams never change
    if language == "english":
        return _paragraphs(_english_words(rng), " ", rng, POOL_BYTES)
    found = []
    for first, count, is_spaced in SCRIPTS:
        words = _script_words(first, count, is_spaced, rng)
        found += _paragraphs(words, " " if is_spaced else "", rng, POOL_BYTES // len(SCRIPTS))
    return found


def _english_words(rng: np.random.RandomState) -> list[str]:
    with open(os.path.join(VOCAB, "r50k_base.tiktoken"), "rb") as lines:
        tokens = [base64.b64decode(line.split()[0]) for line in lines]
    common = COMMON.split()
    known = [token[1:].decode() for token in tokens if token[:1] == b" " and token[1:].isalpha()]
    words = [word for word in known if word.islower() and len(word) > 3 and word not in common]
    pieces = [t.decode() for t in tokens if t.isalpha() and t.islower() and 2 <= len(t) <= 4]
    picked = rng.randint(len(pieces), size=(NEW_WORDS, 3)).tolist()
    lengths = rng.randint(2, 4, size=NEW_WORDS).tolist()
    new = ["".join(pieces[i] for i in row[:n]) for row, n in zip(picked, lengths, strict=True)]
    return [*common, *words, *new]


def _script_words(first: int, count: int, is_spaced: bool, rng: np.random.RandomState) -> list[str]:
    num_words = 30_000
    longest = 4 if count > 1000 else 10
    letters = np.minimum(rng.exponential(count / 4, size=(num_words, longest)), count - 1)
    lengths = rng.randint(1 if not is_spaced else 2, longest + 1, size=num_words)
    rows = zip((letters.astype(int) + first).tolist(), lengths.tolist(), strict=True)
    return ["".join(map(chr, row[:n])) for row, n in rows]


def _paragraphs(
    words: list[str], space: str, rng: np.random.RandomState, num_bytes: int
) -> list[str]:
    mean = sum(len(word.encode()) for word in words[:2000]) / 2000 + len(space)
    count = int(num_bytes / mean)
    drawn = _drawn(len(words), count, rng)
    # Each word in three forms: as it is, before a comma, at the end of a sentence.
    forms = np.array([*words, *(f"{w}," for w in words), *(f"{w}." for w in words)], object)
    ends = rng.random_sample(count) < 1 / 18
    commas = rng.random_sample(count) < 0.06
    text = forms[drawn + len(words) * np.where(ends, 2, np.where(commas, 1, 0))]
    starts = np.flatnonzero(ends[:-1]) + 1
    text[starts] = [word.capitalize() for word in text[starts]]
    bounds = starts[::2].tolist()  # two sentences a paragraph: 4 kB a document, as FineWeb has
    return [space.join(text[a:b]) for a, b in pairwise(bounds)]


def _drawn(num_words: int, count: int, rng: np.random.RandomState) -> npt.NDArray[np.intp]:
    """Ranks under Zipf's law (Mandelbrot's form); the last NEW_WORDS share NEW_SHARE evenly."""
    num_known = num_words - NEW_WORDS if num_words > NEW_WORDS else num_words
    weights = 1 / (np.arange(num_known) + 2.7)
    bounds = np.cumsum(weights / weights.sum())
    drawn = np.searchsorted(bounds, rng.random_sample(count))
    drawn = np.minimum(drawn, num_known - 1)
    if num_words > num_known:
        is_new = rng.random_sample(count) < NEW_SHARE
        drawn[is_new] = num_known + rng.randint(NEW_WORDS, size=int(is_new.sum()))
    return drawn
