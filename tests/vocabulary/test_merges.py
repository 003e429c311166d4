"""Merges are those of `tokenizers`' trainer, and those of a loop that counts again each time."""

from __future__ import annotations

import collections
import itertools
import random
from pathlib import Path

import numpy as np
import pytest
import regex
import tokenizers

from tokenmill.encodings.byte_level import byte_level_alphabet
from tokenmill.encodings.patterns import PATTERNS
from tokenmill.vocabulary.merges import Merges, Words, learned_merges
from tokenmill.vocabulary.saving import BYTE_ORDERS


def learned(words: dict[bytes, int], num_tokens: int, ties: str = "tokenizers") -> Merges:
    data = np.frombuffer(b"".join(words), np.uint8)
    ends = np.cumsum([len(word) for word in words], dtype=np.int64)
    counts = np.array(list(words.values()), np.int64)
    return learned_merges(Words(data, ends, counts), num_tokens, BYTE_ORDERS[ties])


def trained_by_tokenizers(texts: list[str], num_tokens: int) -> list[bytes]:
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=num_tokens,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    letters = byte_level_alphabet()
    vocabulary = sorted(bpe.get_vocab().items(), key=lambda item: item[1])
    return [b"".join(letters[letter] for letter in text) for text, _ in vocabulary]


def merged_by_a_loop(words: dict[bytes, int], num_tokens: int) -> list[bytes]:
    """rustbpe's rule: of equal pairs, the smaller by ids; a byte's id is its value."""
    tokens = [bytes([byte]) for byte in range(256)]
    pieces = [(list(word), count) for word, count in words.items()]
    while len(tokens) < num_tokens:
        pairs: collections.Counter[tuple[int, int]] = collections.Counter()
        for ids, count in pieces:
            for pair in itertools.pairwise(ids):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        for ids, _ in pieces:
            at = 0
            while at < len(ids) - 1:
                if (ids[at], ids[at + 1]) == best:
                    ids[at : at + 2] = [len(tokens)]
                at += 1
        tokens.append(tokens[best[0]] + tokens[best[1]])
    return tokens


def counted(texts: list[str]) -> dict[bytes, int]:
    find = regex.compile(PATTERNS["gpt2"].expression).findall
    return collections.Counter(word.encode() for text in texts for word in find(text))


@pytest.mark.parametrize("letters", ["ab", "abc ", "aab bcd", "abcdefghij  'é中1.\n"])
def test_merges_when_text_repeats_itself_then_they_are_those_of_tokenizers(letters):
    rng = random.Random(letters)
    for _ in range(30):
        texts = ["".join(rng.choices(letters, k=rng.randrange(1, 300))) for _ in range(5)]
        num_tokens = 256 + rng.randrange(150)
        assert learned(counted(texts), num_tokens).tokens == trained_by_tokenizers(
            texts, num_tokens
        )


def test_merges_when_text_is_real_then_they_are_those_of_tokenizers():
    library = sorted(Path(collections.__file__).parent.parent.glob("*.py"))
    texts = [path.read_text() for path in library[:40]]
    found = learned(counted(texts), 3000)
    assert found.tokens == trained_by_tokenizers(texts, 3000)
    assert found.num_symbols < sum(map(len, texts)) / 2.5


def test_merges_when_ties_go_by_bytes_then_they_are_those_of_the_loop():
    rng = random.Random(1)
    for _ in range(60):
        words = {
            bytes(rng.choices(b"abc\xff", k=rng.randrange(1, 12))): i % 4 + 1 for i in range(9)
        }
        assert learned(words, 280, "bytes").tokens == merged_by_a_loop(words, 280)


def test_merges_when_counts_exceed_32_bits_then_they_are_exact():
    words = {b"ab": 2**53 + 1, b"cd": 2**53, b"ef": 2**31, b"gh": 2**32}
    pairs = learned(words, 260, "bytes").pairs
    assert pairs == [(b"a", b"b"), (b"c", b"d"), (b"g", b"h"), (b"e", b"f")]


def test_merges_when_nothing_is_left_to_merge_then_they_end():
    assert learned({b"ab": 1}, 1000).pairs == [(b"a", b"b")]
