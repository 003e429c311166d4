"""Encodings made of a rank file: OpenAI's in the package, or a user's `.tiktoken` file.

tiktoken is their reference, built from our own files and never through `tiktoken.get_encoding`,
which uses the network. gigatoken is their engine where it can be.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.encodings.builtin import BUILTIN_ENCODINGS
from tokenmill.encodings.eot import parsed_special, special_named
from tokenmill.encodings.families import RankFamily, family_of
from tokenmill.encodings.gigatoken import GigatokenEngine
from tokenmill.encodings.identity import EncodingId, identity_sha256
from tokenmill.encodings.normalized import NfcEngine
from tokenmill.encodings.own_pattern import encoding_of_ranks, require_whole_pieces
from tokenmill.encodings.patterns import Pattern, pattern_named
from tokenmill.encodings.ranks import are_dense, parsed_ranks
from tokenmill.encodings.reference import (
    NOT_FAILURES,
    Engine,
    ReferenceEngine,
    ReferenceLoader,
)
from tokenmill.encodings.selfcheck import agree, probe_texts, vocabulary_texts
from tokenmill.encodings.unicode_gap import TIKTOKEN_GAP
from tokenmill.encodings.verdict import is_exact, remember, verdict_of
from tokenmill.encodings.vocabulary_file import VOCAB_FOLDER, checked_bytes, vocabulary_bytes
from tokenmill.errors import ConfigError, TokenmillError

if TYPE_CHECKING:
    import tiktoken

_MAX_EOT_TOKEN = 1 << 24


def rank_file_identity(path: Path, pattern: str | None, eot: str | None) -> EncodingId:
    """The identity of a user's file. Pattern and special tokens are its family's, or the user's."""
    data = vocabulary_bytes(path)
    file_sha256 = hashlib.sha256(data).hexdigest()
    family = family_of(file_sha256)
    chosen = _family_pattern(family, pattern, path) if family else pattern_named(pattern, str(path))
    ranks = parsed_ranks(data, str(path))
    if chosen.gigatoken_name is None:
        require_whole_pieces(chosen.expression, str(path))
    if family is None:
        text, token = _given_eot(eot, ranks, path)
    else:
        text, token = _family_eot(family, eot, ranks, path)
    specials = {**(family.special_tokens if family else {}), text: token}
    return EncodingId(
        name=path.name.removesuffix(".tiktoken"),
        kind="tiktoken",
        source=str(path),
        file_sha256=file_sha256,
        pattern=chosen.name,
        eot=text,
        eot_token=token,
        max_token_value=max(*ranks.values(), *specials.values()),
        sha256=identity_sha256(file_sha256, chosen.rule, specials),
        bos=family.bos if family else None,
    )


def _family_pattern(family: RankFamily, pattern: str | None, path: Path) -> Pattern:
    asked = pattern_named(pattern or family.pattern, str(path))
    if asked.name != family.pattern:
        raise ConfigError(
            f"{path} is the file of {family.models}, which has the pattern {family.pattern}, "
            f"not {pattern}",
            hint="leave the pattern out",
        )
    return asked


def _family_eot(
    family: RankFamily, eot: str | None, ranks: dict[bytes, int], path: Path
) -> tuple[str, int]:
    """One of the family's special tokens, or another that the user names with its id."""
    text, token = (None, None) if eot is None else parsed_special(eot)
    if text is not None and token is not None and text not in family.special_tokens:
        return _free_id(text, token, {*ranks.values(), *family.special_tokens.values()}, path)
    text = special_named(eot or family.eot, family.special_tokens, str(path))
    return text, family.special_tokens[text]


def _given_eot(eot: str | None, ranks: dict[bytes, int], path: Path) -> tuple[str, int]:
    text, token = (None, None) if eot is None else parsed_special(eot)
    text, after = text or "<|endoftext|>", max(ranks.values()) + 1
    if text.encode() in ranks:
        raise ConfigError(
            f"{path}: {text!r} is an ordinary token here, so text may contain it",
            hint=f"choose another text: --eot-token '<|end_of_document|>={after}'",
        )
    if token is None:
        raise ConfigError(
            f"{path}: which id does {text} have, the end of a document? A rank file does not say, "
            f"and this one is not of a known model; its ranks end at {after - 1}",
            hint=f"--eot-token '{text}=ID', with the ID from the model's documentation; for a "
            f"vocabulary of your own: --eot-token '{text}={after}'",
        )
    return _free_id(text, token, set(ranks.values()), path)


def _free_id(text: str, token: int, taken: set[int], path: Path) -> tuple[str, int]:
    if token in taken or token > _MAX_EOT_TOKEN:
        raise ConfigError(
            f"{path}: the id {token} is taken or too large; the smallest after all others is "
            f"{max(taken) + 1}"
        )
    return text, token


def with_special_token(identity: EncodingId, text: str, token: int) -> EncodingId:
    """The encoding of a user's file with a BOS token that neither the file nor its family has."""
    path, ranks = _path(identity), _ranks(identity)
    if text.encode() in ranks:
        raise ConfigError(
            f"{path}: {text!r} is an ordinary token here, so text may contain it",
            hint=f"choose another text: --bos-token '<|begin_of_document|>={token}'",
        )
    known = special_tokens(identity)
    _free_id(text, token, {*ranks.values(), *known.values()}, path)
    rule = pattern_named(identity.pattern, identity.name).rule
    return replace(
        identity,
        bos=text,
        bos_token=token,
        max_token_value=max(identity.max_token_value, token),
        sha256=identity_sha256(identity.file_sha256, rule, {**known, text: token}),
    )


def special_tokens(identity: EncodingId) -> dict[str, int]:
    if identity.source is None:
        return dict(BUILTIN_ENCODINGS[identity.name].special_tokens)
    family = family_of(identity.file_sha256)
    known = family.special_tokens if family else {}
    found = {**known, identity.eot: identity.eot_token}
    if identity.bos is not None and identity.bos_token is not None:
        found[identity.bos] = identity.bos_token
    return found


def tiktoken_reference(identity: EncodingId) -> tiktoken.Encoding:
    assert identity.pattern is not None
    pattern = pattern_named(identity.pattern, identity.name)
    return encoding_of_ranks(identity.name, pattern, _ranks(identity), special_tokens(identity))


def rank_file_engine(identity: EncodingId, reference: ReferenceLoader) -> Engine:
    """gigatoken, unless the ids have holes or, for a user's file, it differs from tiktoken."""
    if identity.file_sha256 == BUILTIN_ENCODINGS["p50k_base"].file_sha256:
        return ReferenceEngine(reference())
    pattern = pattern_named(identity.pattern, identity.name)
    scheme = pattern.gigatoken_name

    def build() -> Any:
        import gigatoken

        path = _path(identity)
        checked_bytes(path, identity.file_sha256)
        return gigatoken.Tokenizer.from_tiktoken(path, scheme, special_tokens={})

    if any(identity.file_sha256 == known.file_sha256 for known in BUILTIN_ENCODINGS.values()):
        return GigatokenEngine(build, reference, TIKTOKEN_GAP)
    ranks, family = _ranks(identity), family_of(identity.file_sha256)
    is_refused = family is not None and family.has_unreachable
    is_refused = is_refused or verdict_of(identity) is False
    if scheme is not None and are_dense(ranks) and not is_refused:
        try:
            engine: Engine = GigatokenEngine(build, reference, TIKTOKEN_GAP)
            engine = NfcEngine(engine) if pattern.is_nfc else engine
            texts = probe_texts([identity.eot]) + vocabulary_texts(ranks)
            if is_exact(identity, lambda: agree(engine, reference(), texts)):
                return engine
        except (*NOT_FAILURES, ImportError, TokenmillError):
            raise
        except BaseException:  # it panics on a token that no merge reaches
            remember(identity, False)
    return ReferenceEngine(reference())


def _path(identity: EncodingId) -> Path:
    if identity.source is None:
        return VOCAB_FOLDER / BUILTIN_ENCODINGS[identity.name].file
    return Path(identity.source)


def _ranks(identity: EncodingId) -> dict[bytes, int]:
    path = _path(identity)
    return parsed_ranks(checked_bytes(path, identity.file_sha256), str(path))
