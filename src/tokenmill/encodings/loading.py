"""Engines and references of this process: each loaded at most once, when first used.

The caches are keyed by the identity's sha256: two names of one encoding share an engine. A forked
child inherits what its parent had loaded (nothing here holds a thread or a lock); a spawned one
loads its own. Loading gigatoken costs 40 to 230 ms and 30 to 60 MB (seconds for ranks that become a
tokenizer.json first, rank_engine.py), tiktoken 0.1 to 0.4 s and 20 to 75 MB, and importing awkward,
once per process, 0.2 to 0.7 s.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from tokenmill.encodings.identity import EncodingId
from tokenmill.encodings.published import BUILTIN
from tokenmill.encodings.reference import Engine, Reference, ReferenceEngine
from tokenmill.encodings.sentencepiece_library import library_reference, library_special_tokens
from tokenmill.encodings.tekken import (
    tekken_engine,
    tekken_reference,
    tekken_special_tokens,
)
from tokenmill.encodings.tiktoken import (
    builtin_identity,
    rank_file_engine,
    special_tokens,
    tiktoken_reference,
    tiktoken_rows,
)
from tokenmill.errors import IntegrityError

# The kinds whose reference is the library tokenizers.
_OF_TOKENIZERS = ("huggingface", "sentencepiece", "vocab-merges")
_ENGINES: dict[str, Engine] = {}
_REFERENCES: dict[str, Reference] = {}


def engine_of(identity: EncodingId) -> Engine:
    engine = _ENGINES.get(identity.sha256)
    if engine is None:
        _require_builtin(identity)
        if identity.kind in _OF_TOKENIZERS:
            from tokenmill.encodings.huggingface import huggingface_engine  # 11 ms

            engine = huggingface_engine(identity, lambda: reference_of(identity))
        elif identity.kind == "tekken":
            engine = tekken_engine(identity, lambda: reference_of(identity))
        elif identity.kind == "sentencepiece-library":
            engine = ReferenceEngine(reference_of(identity))
        else:
            engine = rank_file_engine(identity, lambda: reference_of(identity))
        _ENGINES[identity.sha256] = engine
    return engine


def reference_of(identity: EncodingId) -> Reference:
    reference = _REFERENCES.get(identity.sha256)
    if reference is None:
        _require_builtin(identity)
        if identity.kind in _OF_TOKENIZERS:
            from tokenmill.encodings.huggingface import huggingface_reference

            reference = huggingface_reference(identity)
        elif identity.kind == "tekken":
            reference = tekken_reference(identity)
        elif identity.kind == "sentencepiece-library":
            reference = library_reference(identity)
        else:
            reference = tiktoken_reference(identity)
        _REFERENCES[identity.sha256] = reference
    return reference


def token_rows_of(identity: EncodingId) -> list[bytes]:
    """The bytes of every id, special ones included; b"" for an id that stands for nothing."""
    is_rank_file = identity.kind not in (*_OF_TOKENIZERS, "tekken", "sentencepiece-library")
    if is_rank_file and identity.sha256 not in _REFERENCES:
        _require_builtin(identity)
        return tiktoken_rows(identity)  # in a quarter of the time
    reference = reference_of(identity)
    return [_row_of(reference, token) for token in range(identity.n_vocab)]


def _row_of(reference: Reference, token: int) -> bytes:
    try:
        return reference.decode_single_token_bytes(token)
    except KeyError:  # ids may have holes
        return b""


@functools.cache
def special_tokens_of(identity: EncodingId) -> dict[str, int]:
    if identity.kind in _OF_TOKENIZERS:
        from tokenmill.encodings.huggingface import huggingface_special_tokens

        return huggingface_special_tokens(identity)
    if identity.kind == "tekken":
        return tekken_special_tokens(identity)
    if identity.kind == "sentencepiece-library":
        return library_special_tokens(identity)
    return special_tokens(identity)


def _require_builtin(identity: EncodingId) -> None:
    """An identity may come from a file: what it says about a builtin encoding must be true."""
    if identity.source is not None:
        return
    known = identity.name in BUILTIN
    expected = builtin_identity(identity.name, None, identity.eot) if known else None
    if replace(identity, bos=None, bos_token=None) != expected:
        raise IntegrityError(
            f"the encoding {identity.name} is not the one in this package: sha256 is "
            f"{identity.sha256}, expected {expected.sha256 if expected else 'none of that name'}",
            hint="use the version of tokenmill that this identity comes from",
        )
