"""The engine of vocabularies made of ranks: gigatoken, if it gives tiktoken's ids on all probes.

gigatoken takes the ranks as the tokenizer.json of a byte-level BPE, in memory. Its own loader of
rank files derives one merge for each token, and panics on a token that the merges before it do not
reach (Llama 3 has such tokens) or on ids with a hole (p50k_base, tekken). tiktoken needs no merges:
it joins the two neighbours whose bytes together have the lowest rank, and a piece that is a token
is never split. So here every cut of a token into two tokens is a merge with that token's rank, and
`ignore_merges` is set: the same ids by construction, for any ranks. There are about 2.2 merges for
each token; loading takes 1.1 s of CPU for Llama 3's 128,000 tokens, where gigatoken's own loader
takes 0.2 to 0.3 s for vocabularies that it can read.

That is for tokens of some bytes each. A file of 6 MB with one token for every length of a run
would have merges of 9 GB, and is refused here.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tokenmill.encodings.byte_level import byte_level_alphabet
from tokenmill.encodings.gigatoken import GigatokenEngine
from tokenmill.encodings.identity import EncodingId
from tokenmill.encodings.normalized import NfcEngine
from tokenmill.encodings.patterns import Pattern
from tokenmill.encodings.reference import (
    NOT_FAILURES,
    Engine,
    ReferenceEngine,
    ReferenceLoader,
)
from tokenmill.encodings.selfcheck import agree, probe_texts, vocabulary_texts
from tokenmill.encodings.unicode_gap import TIKTOKEN_GAP
from tokenmill.encodings.verdict import is_exact, remember, verdict_of
from tokenmill.errors import TokenmillError


def builder_of_ranks(
    ranks: Callable[[], Mapping[bytes, int]], pattern: Pattern
) -> Callable[[], Any]:
    """Makes gigatoken's tokenizer. Text whose words never repeat has it made again and again, so
    the JSON is kept: 12 MB for Llama 3, which take 0.6 s to make."""
    split = pattern.split
    assert split is not None

    @functools.cache
    def plain() -> str:
        return tokenizer_json_of_ranks(ranks(), split)

    def build() -> Any:
        import gigatoken

        return gigatoken.Tokenizer.from_json(plain())

    return build


def checked_engine(
    identity: EncodingId, pattern: Pattern, build: Callable[[], Any], reference: ReferenceLoader
) -> Engine:
    """`build` makes gigatoken's tokenizer. tiktoken, if that fails or differs on a single probe."""
    if verdict_of(identity) is False:
        return ReferenceEngine(reference())

    def agrees() -> bool:
        slow = reference()
        texts = probe_texts([identity.eot]) + vocabulary_texts(slow.token_byte_values())
        return agree(engine, slow, texts)

    try:
        engine: Engine = GigatokenEngine(build, reference, TIKTOKEN_GAP)
        engine = NfcEngine(engine) if pattern.is_nfc else engine
        if is_exact(identity, agrees):
            return engine
    except (*NOT_FAILURES, ImportError, TokenmillError):
        raise
    except BaseException:  # a panic is one
        remember(identity, False)
    return ReferenceEngine(reference())


# The bytes of all merges, if every cut were one: ten times those of o200k_base.
MAX_MERGE_BYTES = 128 << 20


def tokenizer_json_of_ranks(ranks: Mapping[bytes, int], split: str) -> str:
    """`split` is the expression by which gigatoken knows the pattern. No token is special. Raises
    ValueError if that would take too much time and memory."""
    if sum(len(token) ** 2 for token in ranks) > MAX_MERGE_BYTES:
        raise ValueError("tokens too long to list their merges")
    letters = {ord(byte): letter for letter, byte in byte_level_alphabet().items()}
    by_rank = sorted(ranks, key=ranks.__getitem__)
    vocab = {token.decode("latin-1").translate(letters): ranks[token] for token in by_rank}
    return json.dumps(
        {
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": split},
                "behavior": "Isolated",
                "invert": False,
            },
            "post_processor": None,
            "decoder": None,
            "model": {
                "type": "BPE",
                "ignore_merges": True,
                "vocab": vocab,
                "merges": [*_merges(vocab)],
            },
        }
    )


def _merges(vocab: Mapping[str, int]) -> Iterator[str]:
    """In the order of the tokens that they make, so that gigatoken takes the ids for ranks."""
    for token in vocab:
        for cut in range(1, len(token)):
            if token[:cut] in vocab and token[cut:] in vocab:
                yield f"{token[:cut]} {token[cut:]}"
