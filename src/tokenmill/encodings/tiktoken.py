"""Encodings made of a file of ranks: OpenAI's in the package, or a user's `.tiktoken` file.

tiktoken is their reference, built from our own files and never through `tiktoken.get_encoding`,
which goes to the network. gigatoken is their engine where it can be.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.encodings.builtin import SHIPPED_ENCODINGS
from tokenmill.encodings.gigatoken import GigatokenEngine
from tokenmill.encodings.identity import EncodingId, identity_sha256
from tokenmill.encodings.patterns import PATTERNS, pattern_named
from tokenmill.encodings.ranks import are_dense, parsed_ranks
from tokenmill.encodings.reference import (
    NOT_FAILURES,
    Engine,
    ReferenceEngine,
    ReferenceLoader,
)
from tokenmill.encodings.selfcheck import agree, probe_texts, vocabulary_texts
from tokenmill.encodings.unicode_gap import TIKTOKEN_GAP
from tokenmill.encodings.vocabulary_file import SHIPPED, checked_bytes, vocabulary_bytes
from tokenmill.errors import ConfigError, TokenmillError

if TYPE_CHECKING:
    import tiktoken

_MAX_EOT_TOKEN = 1 << 24


def rank_file_identity(path: Path, pattern: str | None, eot: str | None) -> EncodingId:
    """The identity of a user's file. `eot` is a text, or a number: the id of <|endoftext|>."""
    chosen = pattern_named(pattern, str(path))
    data = vocabulary_bytes(path)
    ranks = parsed_ranks(data, str(path))
    ids = set(ranks.values())
    text, token = eot or "<|endoftext|>", max(ids) + 1
    if text.isdecimal():
        text, token = "<|endoftext|>", int(text)
    if text.encode() in ranks:
        raise ConfigError(
            f"{path}: {text!r} is an ordinary token here, so text could hold it",
            hint="choose another text: --eot-token '<|end_of_document|>'",
        )
    if token in ids or token > _MAX_EOT_TOKEN:
        raise ConfigError(
            f"{path}: the id {token} is taken or too large; the smallest after all ranks is "
            f"{max(ids) + 1}"
        )
    file_sha256 = hashlib.sha256(data).hexdigest()
    return EncodingId(
        name=path.name.removesuffix(".tiktoken"),
        kind="tiktoken",
        source=str(path),
        file_sha256=file_sha256,
        pattern=chosen.name,
        eot=text,
        eot_token=token,
        max_token_value=max(*ids, token),
        sha256=identity_sha256(file_sha256, chosen.expression, {text: token}),
    )


def special_tokens(identity: EncodingId) -> dict[str, int]:
    if identity.source is None:
        return dict(SHIPPED_ENCODINGS[identity.name].special_tokens)
    return {identity.eot: identity.eot_token}


def tiktoken_reference(identity: EncodingId) -> tiktoken.Encoding:
    import tiktoken

    assert identity.pattern is not None
    return tiktoken.Encoding(
        identity.name,
        pat_str=PATTERNS[identity.pattern].expression,
        mergeable_ranks=_ranks(identity),
        special_tokens=special_tokens(identity),
    )


def rank_file_engine(identity: EncodingId, reference: ReferenceLoader) -> Engine:
    """gigatoken, unless the ids have holes or, for a user's file, it differs from tiktoken."""
    if identity.file_sha256 == SHIPPED_ENCODINGS["p50k_base"].file_sha256:
        return ReferenceEngine(reference())

    def build() -> Any:
        import gigatoken

        assert identity.pattern is not None
        path = _path(identity)
        checked_bytes(path, identity.file_sha256)
        return gigatoken.Tokenizer.from_tiktoken(
            path, PATTERNS[identity.pattern].gigatoken_name, special_tokens={}
        )

    if any(identity.file_sha256 == known.file_sha256 for known in SHIPPED_ENCODINGS.values()):
        return GigatokenEngine(build, reference, TIKTOKEN_GAP)
    ranks = _ranks(identity)
    if are_dense(ranks):
        try:
            engine = GigatokenEngine(build, reference, TIKTOKEN_GAP)
            if agree(engine, reference(), probe_texts([identity.eot]) + vocabulary_texts(ranks)):
                return engine
        except (*NOT_FAILURES, ImportError, TokenmillError):
            raise
        except BaseException:  # it panics on a token that no merge reaches
            pass
    return ReferenceEngine(reference())


def _path(identity: EncodingId) -> Path:
    if identity.source is None:
        return SHIPPED / SHIPPED_ENCODINGS[identity.name].file
    return Path(identity.source)


def _ranks(identity: EncodingId) -> dict[bytes, int]:
    path = _path(identity)
    return parsed_ranks(checked_bytes(path, identity.file_sha256), str(path))
