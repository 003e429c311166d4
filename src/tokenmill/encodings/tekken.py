"""Mistral's `tekken.json`: ranks, pattern and special tokens in one file.

tiktoken is its reference. gigatoken runs it if it has the pattern of the published files.

Special tokens have the first ids and ranks follow them, as in mistral-common: an unnamed
special token is `<SPECIAL_n>`, files up to version 7 that name none have `_UNNAMED`, and the
vocabulary is cut at `default_vocab_size`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.encodings.eot import special_named
from tokenmill.encodings.identity import EncodingId, identity_sha256
from tokenmill.encodings.own_pattern import encoding_of_ranks, require_whole_pieces
from tokenmill.encodings.patterns import TEKKEN, Pattern, refuse_pattern
from tokenmill.encodings.rank_engine import builder_of_ranks, checked_engine
from tokenmill.encodings.ranks import parsed_ranks
from tokenmill.encodings.reference import Engine, ReferenceEngine, ReferenceLoader
from tokenmill.encodings.vocabulary_file import checked_bytes, vocabulary_bytes
from tokenmill.errors import ConfigError

if TYPE_CHECKING:
    import tiktoken

_UNNAMED = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]"),
    *("[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "[TOOL_CONTENT]",
)
_LAST_VERSION_UNNAMED = 7
_MAX_IDS = 1 << 24
_BASE64 = re.compile(r"[A-Za-z0-9+/]+=*")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def is_tekken(plain: Any) -> bool:
    return (
        isinstance(plain, dict)
        and isinstance(plain.get("vocab"), list)
        and isinstance(plain.get("config"), dict)
        and isinstance(plain["config"].get("pattern"), str)
    )


def tekken_identity(path: Path, pattern: str | None, eot: str | None) -> EncodingId:
    refuse_pattern(pattern, path, "a tekken.json has its own pattern")
    data = vocabulary_bytes(path)
    plain = json.loads(data)
    specials, ranks = _tokens(plain, str(path))
    require_whole_pieces(plain["config"]["pattern"], str(path))
    text = special_named(eot or "</s>", specials, str(path))
    file_sha256 = hashlib.sha256(data).hexdigest()
    return EncodingId(
        name=path.parent.name if path.name == "tekken.json" else path.stem,
        kind="tekken",
        source=str(path),
        file_sha256=file_sha256,
        pattern=None,
        eot=text,
        eot_token=specials[text],
        max_token_value=max(ranks.values()),
        sha256=identity_sha256(file_sha256, None, specials),
        bos="<s>" if "<s>" in specials else None,
    )


def tekken_special_tokens(identity: EncodingId) -> dict[str, int]:
    assert identity.source is not None
    return _tokens(_plain(identity), identity.source)[0]


def tekken_reference(identity: EncodingId) -> tiktoken.Encoding:
    assert identity.source is not None
    plain = _plain(identity)
    specials, ranks = _tokens(plain, identity.source)
    return encoding_of_ranks(identity.name, _pattern(plain), ranks, specials)


def tekken_engine(identity: EncodingId, reference: ReferenceLoader) -> Engine:
    """gigatoken, unless it does not know the pattern or differs from tiktoken."""
    pattern = _pattern(_plain(identity))
    if pattern.gigatoken_name is None:
        return ReferenceEngine(reference())

    def ranks() -> dict[bytes, int]:
        return _tokens(_plain(identity), str(identity.source))[1]

    return checked_engine(identity, pattern, builder_of_ranks(ranks, pattern), reference)


def _pattern(plain: Mapping[str, Any]) -> Pattern:
    expression = plain["config"]["pattern"]
    is_known = expression == TEKKEN.expression
    return TEKKEN if is_known else Pattern(expression, expression, None)


def _plain(identity: EncodingId) -> dict[str, Any]:
    assert identity.source is not None
    plain: dict[str, Any] = json.loads(checked_bytes(Path(identity.source), identity.file_sha256))
    return plain


def _tokens(plain: Mapping[str, Any], where: str) -> tuple[dict[str, int], dict[bytes, int]]:
    """The special tokens' ids, and those of the ranks after them. The file may be hostile."""
    num_special = _size(plain, "default_num_special_tokens", where)
    num_ranks = _size(plain, "default_vocab_size", where) - num_special
    if not 0 < num_ranks <= len(plain["vocab"]):
        raise _not_tekken(where, f"{num_ranks} ranks expected, got {len(plain['vocab'])}")
    tokens = enumerate(plain["vocab"][:num_ranks])
    ranks = parsed_ranks(
        b"\n".join(_rank_line(token, rank, where) for rank, token in tokens), where
    )
    return _specials(plain, num_special, where), {
        token: rank + num_special for token, rank in ranks.items()
    }


def _size(plain: Mapping[str, Any], name: str, where: str) -> int:
    size = plain["config"].get(name)
    if type(size) is not int or not 0 < size < _MAX_IDS:
        raise _not_tekken(where, f"its {name} is {str(size)[:40]}")
    return size


def _rank_line(token: Any, rank: int, where: str) -> bytes:
    """The same token as a line of a rank file."""
    encoded = token.get("token_bytes") if isinstance(token, dict) else None
    if not isinstance(encoded, str) or token.get("rank") != rank or not _BASE64.fullmatch(encoded):
        raise _not_tekken(where, f"rank {rank} is {str(token)[:80]!r}")
    return f"{encoded} {rank}".encode()


def _specials(plain: Mapping[str, Any], num_special: int, where: str) -> dict[str, int]:
    texts = [f"<SPECIAL_{rank}>" for rank in range(num_special)]
    for token in _named_specials(plain, where):
        rank, text = token.get("rank"), token.get("token_str")
        if type(rank) is not int or not 0 <= rank < num_special or not _is_text(text):
            raise _not_tekken(where, f"a special token is {str(token)[:80]!r}")
        texts[rank] = str(text)
    if len(set(texts)) != num_special:
        raise _not_tekken(where, "two special tokens have the same text")
    return {text: rank for rank, text in enumerate(texts)}


def _named_specials(plain: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    named = plain.get("special_tokens")
    if named is None:
        version = re.match(r"v(\d{1,3})", str(plain["config"].get("version")))
        if version is None or int(version[1]) > _LAST_VERSION_UNNAMED:
            raise _not_tekken(where, "it names no special tokens")
        return [{"rank": rank, "token_str": text} for rank, text in enumerate(_UNNAMED)]
    if not isinstance(named, list) or not all(isinstance(token, dict) for token in named):
        raise _not_tekken(where, "its special_tokens are not a list of tokens")
    return named


def _is_text(text: Any) -> bool:
    return isinstance(text, str) and text != "" and not _SURROGATE.search(text)


def _not_tekken(where: str, why: str) -> ConfigError:
    return ConfigError(f"{where}: not a tekken.json: {why}")
