"""`Encoding`: tiktoken's methods, plus arrays in and out; nothing is loaded until it is used.

Creating, comparing and pickling an encoding touch only its identity. Ordinary text goes to the fast
engine, except a single short string: the reference takes less than the engine's fixed cost (0.5 ms
per call, 1.3 on a fragmented heap). The reference handles special
tokens and decoding.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Literal

from tokenmill.encodings.identity import EncodingId
from tokenmill.encodings.loading import engine_of, reference_of, special_tokens_of
from tokenmill.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.encodings.tokens import TokenArray

_SHORT_CHARACTERS = 16_000


class Encoding:
    """A tokenizer by identity. Picklable; two are equal if they make the same tokens."""

    def __init__(self, identity: EncodingId) -> None:
        self._identity = identity

    @property
    def identity(self) -> EncodingId:
        return self._identity

    @property
    def name(self) -> str:
        return self._identity.name

    @property
    def eot_token(self) -> int:
        return self._identity.eot_token

    @property
    def bos_token(self) -> int | None:
        """The id that begins a document, if one was asked for."""
        return self._identity.bos_token

    @property
    def n_vocab(self) -> int:
        return self._identity.n_vocab

    @property
    def max_token_value(self) -> int:
        return self._identity.max_token_value

    @property
    def special_tokens_set(self) -> set[str]:
        return set(special_tokens_of(self._identity))

    def is_special_token(self, token: int) -> bool:
        return token in special_tokens_of(self._identity).values()

    def encode_array(self, texts: pa.LargeStringArray, dtype: str = "uint32") -> TokenArray:
        """Encode documents as ordinary text, without making Python strings.

        `texts` is valid UTF-8 without nulls, and may be a slice of a larger array. A document that
        cannot be encoded is listed in the result's `failed` and does not affect the others.
        """
        return engine_of(self._identity).encode(texts, dtype)

    def encode_ordinary(self, text: str) -> list[int]:
        """Encode a string; special tokens in it are ordinary text."""
        if len(text) < _SHORT_CHARACTERS:
            return reference_of(self._identity).encode_ordinary(without_surrogates(text))
        return self.encode_ordinary_batch([text])[0]

    def encode_ordinary_batch(
        self, text: Sequence[str], *, num_threads: int | None = None
    ) -> list[list[int]]:
        """Encode strings as ordinary text. Runs on one thread whatever `num_threads` says."""
        import pyarrow as pa

        tokens = self.encode_array(pa.array(map(without_surrogates, text), pa.large_string()))
        for position, reason in tokens.failed.items():
            raise InputError(f"text {position} cannot be encoded by {self.name}: {reason}")
        return [tokens.document(position).tolist() for position in range(len(tokens))]

    def encode(
        self,
        text: str,
        *,
        allowed_special: Literal["all"] | AbstractSet[str] = frozenset(),
        disallowed_special: Literal["all"] | Collection[str] = "all",
    ) -> list[int]:
        """Encode a string. A special token in it raises ValueError, unless it is allowed (then it
        becomes its id) or not disallowed (then it is ordinary text)."""
        return reference_of(self._identity).encode(
            without_surrogates(text),
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
        )

    def encode_batch(
        self,
        text: Sequence[str],
        *,
        num_threads: int | None = None,
        allowed_special: Literal["all"] | AbstractSet[str] = frozenset(),
        disallowed_special: Literal["all"] | Collection[str] = "all",
    ) -> list[list[int]]:
        """`encode` for each string. Runs on one thread whatever `num_threads` says."""
        return [
            self.encode(one, allowed_special=allowed_special, disallowed_special=disallowed_special)
            for one in text
        ]

    def encode_single_token(self, text_or_bytes: str | bytes) -> int:
        """The id of exactly this token, special ones included; KeyError if there is none."""
        return reference_of(self._identity).encode_single_token(text_or_bytes)

    def decode(self, tokens: Sequence[int], errors: str = "replace") -> str:
        return self.decode_bytes(tokens).decode("utf-8", errors=errors)

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        return reference_of(self._identity).decode_bytes(tokens)

    def decode_batch(
        self,
        batch: Sequence[Sequence[int]],
        *,
        errors: str = "replace",
        num_threads: int | None = None,
    ) -> list[str]:
        return [self.decode(tokens, errors) for tokens in batch]

    def decode_bytes_batch(
        self, batch: Sequence[Sequence[int]], *, num_threads: int | None = None
    ) -> list[bytes]:
        return [self.decode_bytes(tokens) for tokens in batch]

    def decode_single_token_bytes(self, token: int) -> bytes:
        """The bytes of one token, special ones included; KeyError if there is none."""
        return reference_of(self._identity).decode_single_token_bytes(token)

    def decode_tokens_bytes(self, tokens: Sequence[int]) -> list[bytes]:
        return [self.decode_single_token_bytes(token) for token in tokens]

    def decode_with_offsets(self, tokens: Sequence[int]) -> tuple[str, list[int]]:
        """The text, and for each token the index of the first character that contains its bytes."""
        pieces = self.decode_tokens_bytes(tokens)
        offsets, num_characters = [], 0
        for piece in pieces:
            inside_character = 0x80 <= piece[0] < 0xC0
            offsets.append(max(0, num_characters - inside_character))
            num_characters += sum(not 0x80 <= byte < 0xC0 for byte in piece)
        return b"".join(pieces).decode("utf-8", errors="strict"), offsets

    def token_byte_values(self) -> list[bytes]:
        """The bytes of all ordinary tokens, sorted."""
        return reference_of(self._identity).token_byte_values()

    def __reduce__(self) -> tuple[type[Encoding], tuple[EncodingId]]:
        return Encoding, (self._identity,)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Encoding):
            return NotImplemented
        mine, theirs = self._identity, other._identity
        return (mine.sha256, mine.eot_token) == (theirs.sha256, theirs.eot_token)

    def __hash__(self) -> int:
        return hash((self._identity.sha256, self._identity.eot_token))

    def __repr__(self) -> str:
        return f"<Encoding {self.name!r} {self._identity.sha256[:12]}>"


def without_surrogates(text: str) -> str:
    """Like tiktoken: surrogate pairs become their character, lone ones U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
