"""Encodings made of a `tokenizer.json`: tokenizers is the reference, gigatoken the accelerator.

Ordinary text means: nothing is added around it, special tokens in it are text, and other added
tokens are recognised as by tokenizers. gigatoken is used if it accepts the file (without its
special tokens) and passes the self-check; it refuses most normalizers and unknown expressions. A
document that the model itself turns into a special token is refused (`_control_tokens`). tokenizers
alone does 2 to 4 MB/s and is called text by text: its batch calls start threads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokenmill.encodings import vocab_merges
from tokenmill.encodings.byte_level import byte_level_alphabet
from tokenmill.encodings.gigatoken import GigatokenEngine
from tokenmill.encodings.identity import EncodingId
from tokenmill.encodings.reference import (
    NOT_FAILURES,
    Engine,
    Reference,
    ReferenceEngine,
    ReferenceLoader,
    allowed_and_forbidden,
    reason,
)
from tokenmill.encodings.selfcheck import agree, probe_texts, vocabulary_texts
from tokenmill.encodings.sentencepiece import tokenizer_json_of_model
from tokenmill.encodings.tokenizer_json import parsed_tokenizer_json, special_added_tokens
from tokenmill.encodings.unicode_gap import tokenizers_gap
from tokenmill.encodings.verdict import is_exact, remember, verdict_of
from tokenmill.encodings.vocabulary_file import checked_bytes
from tokenmill.errors import ConfigError, TokenmillError

if TYPE_CHECKING:
    import tokenizers

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_NUM_VOCABULARY_PROBES = 4000


def huggingface_special_tokens(identity: EncodingId) -> dict[str, int]:
    plain = _plain(identity)
    return special_added_tokens(plain, str(identity.source))


def huggingface_reference(identity: EncodingId) -> HuggingFaceReference:
    import tokenizers

    plain = _plain(identity)
    try:
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(plain))
    except NOT_FAILURES:
        raise
    except BaseException as error:
        raise ConfigError(
            f"{identity.source}: tokenizers cannot load it: {reason(error)}"
        ) from None
    _require_ids_of_the_file(tokenizer, plain, str(identity.source))
    return HuggingFaceReference(tokenizer, plain, special_added_tokens(plain, str(identity.source)))


def _require_ids_of_the_file(
    tokenizer: tokenizers.Tokenizer, plain: dict[str, Any], where: str
) -> None:
    """tokenizers takes the id of an added token from the model's vocabulary; one that is not there
    gets the next free id, whatever the file says."""
    for token in plain.get("added_tokens") or []:
        own = tokenizer.token_to_id(token["content"])
        if own != token["id"]:
            raise ConfigError(
                f"{where}: its added token {token['content']!r} has the id {token['id']}, but "
                f"tokenizers reads it as {own}: there is a gap before it, or another token has "
                "that id",
                hint="add the token to the file's model.vocab with the id that the model was "
                "trained with",
            )


def huggingface_engine(identity: EncodingId, reference: ReferenceLoader) -> Engine:
    """gigatoken, if it accepts the file and agrees with tokenizers on all probes."""
    if verdict_of(identity) is False:
        return ReferenceEngine(reference())

    def agrees() -> bool:
        slow = reference()
        texts = probe_texts(huggingface_special_tokens(identity)) + _vocabulary_probes(slow)
        return agree(engine, slow, texts)

    try:
        gap = tokenizers_gap(json.dumps(_plain(identity).get("pre_tokenizer")))
        engine = GigatokenEngine(lambda: _gigatoken(identity), reference, gap)
        if is_exact(identity, agrees):
            return engine
    except (*NOT_FAILURES, ImportError, TokenmillError):
        raise
    except BaseException:  # it refuses a file with ValueError, or panics
        remember(identity, False)
    return ReferenceEngine(reference())


def _gigatoken(identity: EncodingId) -> Any:
    import gigatoken

    plain = _plain(identity)
    added = plain.get("added_tokens") or []
    plain["added_tokens"] = [token for token in added if not token.get("special")]
    plain["post_processor"] = None
    return gigatoken.Tokenizer.from_json(json.dumps(plain))


def _plain(identity: EncodingId) -> dict[str, Any]:
    """The file's content, without truncation and padding of documents."""
    assert identity.source is not None
    if identity.kind == vocab_merges.KIND:
        return vocab_merges.tokenizer_json_of_pair(identity)
    data = checked_bytes(Path(identity.source), identity.file_sha256)
    if identity.kind == "sentencepiece":
        plain = tokenizer_json_of_model(data, identity.source)
    else:
        plain = parsed_tokenizer_json(data, identity.source)
    return {**plain, "truncation": None, "padding": None}


def _vocabulary_probes(reference: Reference) -> list[str]:
    values = reference.token_byte_values()
    return vocabulary_texts(values[:: 1 + len(values) // _NUM_VOCABULARY_PROBES])


class HuggingFaceReference:
    """A `tokenizers.Tokenizer` as a Reference."""

    def __init__(
        self, tokenizer: tokenizers.Tokenizer, plain: dict[str, Any], special_tokens: dict[str, int]
    ) -> None:
        self._tokenizer = tokenizer
        self._special_tokens = special_tokens
        splitting_and_joining = json.dumps([plain.get("pre_tokenizer"), plain.get("decoder")])
        self._byte_level = '"ByteLevel"' in splitting_and_joining
        self._byte_fallback = bool(plain["model"].get("byte_fallback"))
        self._added = {token["content"] for token in plain.get("added_tokens") or []}
        self._never_in_text = _control_tokens(plain["model"], special_tokens)

    def encode_ordinary(self, text: str) -> list[int]:
        ids = self._encoded(text, special_tokens_are_text=True)
        if not self._never_in_text.isdisjoint(ids):
            token = next(token for token in ids if token in self._never_in_text)
            raise ValueError(
                f"the tokenizer's model itself takes text for {self._token_text(token)!r}, "
                "a special token"
            )
        return ids

    def encode(
        self,
        text: str,
        *,
        allowed_special: Literal["all"] | AbstractSet[str],
        disallowed_special: Literal["all"] | Collection[str],
    ) -> list[int]:
        known = set(self._special_tokens)
        allowed, forbidden = allowed_and_forbidden(known, allowed_special, disallowed_special)
        present = {token for token in known | forbidden if token in text}
        if present & forbidden:
            token = min(present & forbidden)
            raise ValueError(
                f"Encountered text corresponding to disallowed special token {token!r}.\n"
                f"To encode it as a special token pass allowed_special={{{token!r}, ...}}; "
                "to encode it as ordinary text pass disallowed_special=()."
            )
        if not present & allowed:
            return self.encode_ordinary(text)
        if not present & known <= allowed:
            raise ValueError(
                f"the text holds {', '.join(sorted(present & known))}; tokenizers reads either all "
                "special tokens of a text as such or none"
            )
        return self._encoded(text, special_tokens_are_text=False)

    def _encoded(self, text: str, *, special_tokens_are_text: bool) -> list[int]:
        self._tokenizer.encode_special_tokens = special_tokens_are_text
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        if self._byte_level:
            return b"".join(map(self.decode_single_token_bytes, tokens))
        for token in tokens:
            self._token_text(token)
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=False)
        return text.encode()

    def decode_single_token_bytes(self, token: int) -> bytes:
        text = self._token_text(token)
        if text in self._added:
            return text.encode()
        if self._byte_level:
            return _byte_level_bytes(text)
        byte = _BYTE_TOKEN.fullmatch(text) if self._byte_fallback else None
        return bytes.fromhex(byte[1]) if byte else text.replace("▁", " ").encode()

    def encode_single_token(self, text_or_bytes: str | bytes) -> int:
        if isinstance(text_or_bytes, str):
            if text_or_bytes in self._special_tokens:
                return self._special_tokens[text_or_bytes]
            text_or_bytes = text_or_bytes.encode()
        return self._ids[text_or_bytes]

    def token_byte_values(self) -> list[bytes]:
        specials = {token.encode() for token in self._special_tokens}
        return sorted(set(self._ids) - specials)

    def _token_text(self, token: int) -> str:
        text: str | None = self._tokenizer.id_to_token(token)
        if text is None:
            raise KeyError(token)
        return text

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """Bytes -> id; of two tokens with the same bytes, the one with the smaller id."""
        ids = sorted(self._tokenizer.get_vocab(with_added_tokens=True).values(), reverse=True)
        return {self.decode_single_token_bytes(token): token for token in ids}


def _control_tokens(model: dict[str, Any], special_tokens: dict[str, int]) -> frozenset[int]:
    """The ids that no text may become. A Unigram or word model has special tokens among its own
    pieces and recognises them in text; the unknown token and bytes are legitimate there."""
    return frozenset(
        token
        for text, token in special_tokens.items()
        if text != model.get("unk_token")
        and token != model.get("unk_id")
        and not _BYTE_TOKEN.fullmatch(text)
    )


def _byte_level_bytes(text: str) -> bytes:
    """The bytes of GPT-2's letters for bytes; any other letter is itself."""
    try:
        return text.translate(_byte_level_table()).encode("latin-1")
    except UnicodeEncodeError:
        letters = (letter.translate(_byte_level_table()) for letter in text)
        return b"".join(
            one.encode("latin-1") if one < "\u0100" else letter.encode()
            for letter, one in zip(text, letters, strict=True)
        )


@cache
def _byte_level_table() -> dict[int, int]:
    """The byte of each byte's letter. Other characters between ASCII and U+0100 become characters
    outside Latin-1."""
    letters = {ord(letter): byte[0] for letter, byte in byte_level_alphabet().items()}
    return dict.fromkeys(range(0x80, 0x100), 0xFFFF) | letters
