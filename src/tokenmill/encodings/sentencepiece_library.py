"""SentencePiece models that only the library `sentencepiece` encodes exactly: unigram, tables of
normalizations, user-defined symbols.

The library is reference and engine at once: 4 to 7 MB/s. tokenizers' Unigram, built from the
same pieces and table, does 0.5 MB/s and differed in 66 of 5,000 fuzzed documents: it adds scores in
64 bits where sentencepiece has 32, and normalizes grapheme by grapheme. Either can change
which segmentation of a word wins. Special tokens in text are always text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tokenmill.encodings.identity import EncodingId
from tokenmill.encodings.reference import NOT_FAILURES, allowed_and_forbidden, reason
from tokenmill.encodings.sentencepiece import EXTRA, parsed_model
from tokenmill.encodings.vocabulary_file import checked_bytes
from tokenmill.errors import ConfigError


def library_special_tokens(identity: EncodingId) -> dict[str, int]:
    return parsed_model(_model_bytes(identity), str(identity.source)).special_tokens


def library_reference(identity: EncodingId) -> SentencePieceReference:
    try:
        import sentencepiece
    except ImportError:
        raise ConfigError(
            f"{identity.source}: this SentencePiece model needs the library sentencepiece",
            hint=f"pip install 'tokenmill[{EXTRA}]'",
        ) from None
    data = _model_bytes(identity)
    specials = parsed_model(data, str(identity.source)).special_tokens
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=data)
    except NOT_FAILURES:
        raise
    except BaseException as error:
        raise ConfigError(
            f"{identity.source}: sentencepiece cannot load it: {reason(error)}"
        ) from None
    return SentencePieceReference(processor, specials)


def _model_bytes(identity: EncodingId) -> bytes:
    assert identity.source is not None
    return checked_bytes(Path(identity.source), identity.file_sha256)


class SentencePieceReference:
    """A `SentencePieceProcessor` as a Reference."""

    def __init__(self, processor: Any, special_tokens: dict[str, int]) -> None:
        self._processor = processor
        self._special_tokens = special_tokens

    def encode_ordinary(self, text: str) -> list[int]:
        ids: list[int] = self._processor.encode(text)
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
        present = sorted(token for token in allowed | forbidden if token in text)
        if present:
            raise ValueError(
                f"the text holds {', '.join(present)}; sentencepiece never reads a special token "
                "in text as such. To encode it as ordinary text pass disallowed_special=()."
            )
        return self.encode_ordinary(text)

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        for token in tokens:
            self._piece(token)
        text: str = self._processor.decode(list(tokens))
        return text.encode()

    def decode_single_token_bytes(self, token: int) -> bytes:
        piece = self._piece(token)
        if self._processor.is_byte(token):
            return bytes.fromhex(piece[3:5])
        return (piece if piece in self._special_tokens else piece.replace("▁", " ")).encode()

    def encode_single_token(self, text_or_bytes: str | bytes) -> int:
        if isinstance(text_or_bytes, str):
            if text_or_bytes in self._special_tokens:
                return self._special_tokens[text_or_bytes]
            text_or_bytes = text_or_bytes.encode()
        return self._ids[text_or_bytes]

    def token_byte_values(self) -> list[bytes]:
        return sorted(set(self._ids) - {token.encode() for token in self._special_tokens})

    def _piece(self, token: int) -> str:
        if not 0 <= token < self._processor.vocab_size():
            raise KeyError(token)
        piece: str = self._processor.id_to_piece(token)
        return piece

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """Bytes -> id; of two tokens with the same bytes, the one with the smaller id."""
        ids = reversed(range(self._processor.vocab_size()))
        return {self.decode_single_token_bytes(token): token for token in ids}
