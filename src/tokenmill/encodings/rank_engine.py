"""The engine of vocabularies made of ranks: gigatoken, if it gives tiktoken's ids on all probes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tokenmill.encodings.gigatoken import GigatokenEngine
from tokenmill.encodings.identity import EncodingId
from tokenmill.encodings.normalized import NfcEngine
from tokenmill.encodings.patterns import Pattern
from tokenmill.encodings.rank_merges import tokenizer_json_of_ranks
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
