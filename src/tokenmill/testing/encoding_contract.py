"""What every encoding promises, as tests to inherit: the ids of the library that its vocabulary was
made for, in any batches and any process."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tokenmill.encodings import Encoding, EncodingId, TokenArray

TEXTS = (
    "hello world",
    "    x = 1\n\n",
    "I'LL <|endoftext|>",
    "naïve 東京 👍🏽",
    "",
    " \t\r\n  \u3000 end ",
    "12345678 1,234.5 ½ ٣٤",
    "they've We'Re o'clock 'tis",
    "e\u0301\u0323 \u200d\ufe0f a\u0000b \u2028",
    "<|fim_prefix|><|endofprompt|>",
    "\U0002ceab new letters \u088f and \U00011385",
)
NUM_CUTTINGS = 5
IN_ANOTHER_PROCESS = """
import json, sys
from tokenmill.encodings import Encoding, EncodingId
plain, texts = json.load(sys.stdin)
print(json.dumps(Encoding(EncodingId.from_plain(plain)).encode_ordinary_batch(texts)))
"""


def strings(texts: Sequence[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def lists(tokens: TokenArray) -> list[list[int]]:
    return [tokens.document(position).tolist() for position in range(len(tokens))]


class EncodingContract:
    """Inherit, set `encoding` and implement `expected`."""

    encoding: Encoding
    texts: Sequence[str] = TEXTS
    is_lossless = True  # whether decoding gives every text back
    unknown: frozenset[str] = frozenset()  # special tokens that stand for unknown text

    def expected(self, text: str) -> list[int]:
        """The ids of ordinary text: from tiktoken or tokenizers itself, not from us."""
        raise NotImplementedError

    def all_expected(self) -> list[list[int]]:
        return [self.expected(text) for text in self.texts]

    def test_every_way_to_encode_gives_the_ids_of_the_reference(self) -> None:
        expected = self.all_expected()
        tokens = self.encoding.encode_array(strings(self.texts))
        assert lists(tokens) == expected and tokens.failed == {}
        assert self.encoding.encode_ordinary_batch(self.texts) == expected
        assert [self.encoding.encode_ordinary(text) for text in self.texts] == expected
        for text, ids in zip(self.texts, expected, strict=True):
            assert self.encoding.encode(text, disallowed_special=()) == ids

    def test_arrays_have_the_types_that_were_asked_for(self) -> None:
        tokens = self.encoding.encode_array(strings(self.texts))
        assert tokens.ids.dtype == np.uint32 and tokens.offsets.dtype == np.int64
        narrow = self.encoding.encode_array(strings(self.texts), "uint16")
        assert lists(narrow) == lists(tokens)
        assert narrow.ids.dtype in (np.uint16, np.uint32)

    def test_batches_cut_anywhere_have_the_ids_of_the_whole(self) -> None:
        whole, expected, rng = strings(self.texts), self.all_expected(), random.Random(0)
        for _ in range(NUM_CUTTINGS):
            places = sorted(rng.choices(range(len(whole) + 1), k=3))
            found: list[list[int]] = []
            for start, stop in zip([0, *places], [*places, len(whole)], strict=True):
                tokens = self.encoding.encode_array(whole.slice(start, stop - start))
                assert tokens.offsets[0] == 0 and len(tokens) == stop - start
                found += lists(tokens)
            assert found == expected

    def test_nothing_to_encode_is_no_error(self) -> None:
        bare = pa.LargeStringArray.from_buffers(0, None, pa.py_buffer(b""))
        for nothing in (strings([]), bare, strings(["a"]).slice(1)):
            assert lists(self.encoding.encode_array(nothing)) == []
        empty = self.expected("")
        assert lists(self.encoding.encode_array(strings(["", "", ""]))) == [empty] * 3

    def test_a_long_text_between_short_ones_has_the_ids_of_the_reference(self) -> None:
        texts = ["a b", "the mill grinds 12 sacks of grain, \n" * 3000, "", "c"]
        expected = [self.expected(text) for text in texts]
        assert lists(self.encoding.encode_array(strings(texts))) == expected
        assert self.encoding.encode_ordinary(texts[1]) == expected[1]

    def test_special_tokens_in_text_stay_text(self) -> None:
        """Or the document fails, if the model itself turns the text into the token."""
        specials = self.encoding.special_tokens_set - self.unknown
        texts = [f"a{token}b" for token in specials]
        tokens = self.encoding.encode_array(strings(texts))
        forbidden = set(map(self.encoding.encode_single_token, specials))
        assert forbidden and forbidden.isdisjoint(map(int, tokens.ids))
        for position, text in enumerate(texts):
            if self.is_lossless and position not in tokens.failed:
                assert self.encoding.decode(tokens.document(position).tolist()) == text

    def test_decoding_gives_the_text_back(self) -> None:
        if self.is_lossless:
            for text in self.texts:
                assert self.encoding.decode(self.expected(text)) == text

    def test_no_id_is_above_the_largest(self) -> None:
        largest = self.encoding.max_token_value
        specials = map(self.encoding.encode_single_token, self.encoding.special_tokens_set)
        ids = [token for document in self.all_expected() for token in document]
        assert max([*ids, *specials, self.encoding.eot_token]) <= largest
        assert self.encoding.n_vocab == largest + 1
        assert self.encoding.is_special_token(self.encoding.eot_token)
        self.encoding.decode_single_token_bytes(largest)
        try:
            self.encoding.decode_single_token_bytes(largest + 1)
        except KeyError:
            return
        raise AssertionError(f"{largest + 1} is a token")

    def test_the_identity_is_all_that_another_process_needs(self) -> None:
        sent = json.dumps([self.encoding.identity.to_plain(), self.texts])
        plain, _ = json.loads(sent)
        assert EncodingId.from_plain(plain) == self.encoding.identity
        assert Encoding(EncodingId.from_plain(plain)) == self.encoding
        command = [sys.executable, "-c", IN_ANOTHER_PROCESS]
        said = subprocess.run(command, input=sent.encode(), capture_output=True, check=True).stdout
        assert json.loads(said) == self.all_expected()
