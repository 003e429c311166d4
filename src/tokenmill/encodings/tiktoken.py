"""Encodings made of a rank file: OpenAI's in the package, or a user's `.tiktoken` file.

tiktoken is their reference, built from our own files and never through `tiktoken.get_encoding`,
which uses the network. gigatoken is their engine where it gives the same ids.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.encodings.eot import parsed_special, special_named
from tokenmill.encodings.gigatoken import GigatokenEngine
from tokenmill.encodings.identity import EncodingId, identity_sha256
from tokenmill.encodings.own_pattern import encoding_of_ranks, require_whole_pieces
from tokenmill.encodings.patterns import Pattern, pattern_named
from tokenmill.encodings.published import BUILTIN, Published, of_rank_file
from tokenmill.encodings.rank_engine import builder_of_ranks, checked_engine
from tokenmill.encodings.ranks import known_ranks, parsed_ranks
from tokenmill.encodings.reference import Engine, ReferenceEngine, ReferenceLoader
from tokenmill.encodings.unicode_gap import TIKTOKEN_GAP
from tokenmill.encodings.vocabulary_file import VOCAB_FOLDER, checked_bytes, vocabulary_bytes
from tokenmill.errors import ConfigError

if TYPE_CHECKING:
    import tiktoken

_MAX_EOT_TOKEN = 1 << 24


def builtin_identity(name: str, pattern: str | None, eot: str | None) -> EncodingId:
    shipped = BUILTIN[name]
    if pattern not in (None, shipped.pattern):
        raise ConfigError(
            f"the encoding {name} has the pattern {shipped.pattern}, not {pattern}",
            hint="leave the pattern out, or give the path of a .tiktoken file",
        )
    eot = special_named(eot or shipped.eot, shipped.special_tokens, f"the encoding {name}")
    expression = pattern_named(shipped.pattern, name).expression
    return EncodingId(
        name=name,
        kind="tiktoken",
        source=None,
        file_sha256=shipped.file_sha256,
        pattern=shipped.pattern,
        eot=eot,
        eot_token=shipped.special_tokens[eot],
        max_token_value=shipped.n_vocab - 1,
        sha256=identity_sha256(shipped.file_sha256, expression, shipped.special_tokens),
    )


def rank_file_identity(path: Path, pattern: str | None, eot: str | None) -> EncodingId:
    """The identity of a user's file. Pattern and special tokens are its family's, or the user's."""
    data = vocabulary_bytes(path)
    file_sha256 = hashlib.sha256(data).hexdigest()
    family = of_rank_file(file_sha256)
    ranks = parsed_ranks(data, str(path))  # first: what is no such file needs no pattern
    chosen = _family_pattern(family, pattern, path) if family else pattern_named(pattern, str(path))
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


def _family_pattern(family: Published, pattern: str | None, path: Path) -> Pattern:
    asked = pattern_named(pattern or family.pattern, str(path))
    if asked.name != family.pattern:
        raise ConfigError(
            f"{path} is the file of {family.models}, which has the pattern {family.pattern}, "
            f"not {pattern}",
            hint="leave the pattern out",
        )
    return asked


def _family_eot(
    family: Published, eot: str | None, ranks: dict[bytes, int], path: Path
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
        return dict(BUILTIN[identity.name].special_tokens)
    family = of_rank_file(identity.file_sha256)
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
    """gigatoken, unless it differs from tiktoken for a user's file."""
    pattern = pattern_named(identity.pattern, identity.name)
    if pattern.gigatoken_name is None:
        return ReferenceEngine(reference())

    def direct() -> Any:
        import gigatoken

        path = _path(identity)
        checked_bytes(path, identity.file_sha256)
        return gigatoken.Tokenizer.from_tiktoken(path, pattern.gigatoken_name, special_tokens={})

    if _has_direct_loader(identity):
        build = direct
    else:
        build = builder_of_ranks(lambda: _ranks(identity), pattern)
    if _is_builtin(identity):
        return GigatokenEngine(build, reference, TIKTOKEN_GAP)
    return checked_engine(identity, pattern, build, reference)


def _has_direct_loader(identity: EncodingId) -> bool:
    """Whether gigatoken itself reads the file, in a fourth of the time. Known files only: on others
    it may panic, with a trace on stderr."""
    family = of_rank_file(identity.file_sha256)
    return family is not None and not family.needs_all_merges


def _is_builtin(identity: EncodingId) -> bool:
    return any(identity.file_sha256 == known.file_sha256 for known in BUILTIN.values())


def _path(identity: EncodingId) -> Path:
    if identity.source is None:
        return VOCAB_FOLDER / BUILTIN[identity.name].file
    return Path(identity.source)


def _ranks(identity: EncodingId) -> dict[bytes, int]:
    path = _path(identity)
    data = checked_bytes(path, identity.file_sha256)
    if _is_builtin(identity):
        return known_ranks(data)
    return parsed_ranks(data, str(path))


def tiktoken_rows(identity: EncodingId) -> list[bytes]:
    """The bytes of every id, b"" where there are none, without building tiktoken's encoder."""
    ranks, special = _ranks(identity), special_tokens(identity)
    rows = [b""] * (max(*ranks.values(), *special.values()) + 1)
    for text, token in reversed(special.items()):  # of two names of one id, the first
        rows[token] = text.encode()
    for row, token in ranks.items():
        rows[token] = row
    return rows
