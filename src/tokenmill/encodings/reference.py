"""The reference of an encoding: the library whose ids are right by definition, and its engine.

A reference is slow (tiktoken 12 MB/s, tokenizers 2 to 4) and takes Python strings. It encodes
documents that the fast engine cannot, decodes, and handles special tokens. It is the only engine
of files that gigatoken refuses or gets wrong, and of patterns that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Literal, Protocol

from tokenmill.encodings.tokens import TokenArray, token_array

if TYPE_CHECKING:
    import pyarrow as pa

# These must never count as an engine's failure. A Rust panic is a BaseException too.
NOT_FAILURES = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)


class Engine(Protocol):
    def encode(self, texts: pa.LargeStringArray, dtype: str = "uint32") -> TokenArray:
        """Encode documents as ordinary text. The array has no nulls and is valid UTF-8.

        The ids have `dtype` if all fit into it, else uint32.
        """


class TextEncoder(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...

    def encode(
        self,
        text: str,
        *,
        allowed_special: Literal["all"] | AbstractSet[str],
        disallowed_special: Literal["all"] | Collection[str],
    ) -> list[int]: ...


def allowed_and_forbidden(
    known: set[str],
    allowed_special: Literal["all"] | AbstractSet[str],
    disallowed_special: Literal["all"] | Collection[str],
) -> tuple[set[str], set[str]]:
    """The special tokens that `encode` encodes as such, and those that it raises ValueError for."""
    allowed = known if allowed_special == "all" else set(allowed_special) & known
    forbidden = known - allowed if disallowed_special == "all" else set(disallowed_special)
    return allowed, forbidden


class TokenDecoder(Protocol):
    def decode_bytes(self, tokens: Sequence[int]) -> bytes: ...

    def decode_single_token_bytes(self, token: int) -> bytes: ...

    def encode_single_token(self, text_or_bytes: str | bytes) -> int: ...


class Reference(TextEncoder, TokenDecoder, Protocol):
    """The methods of `tiktoken.Encoding` that we use."""

    def token_byte_values(self) -> list[bytes]: ...


class ReferenceEngine:
    """Encodes documents one by one with the reference, on the calling thread."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference

    def encode(self, texts: pa.LargeStringArray, dtype: str = "uint32") -> TokenArray:
        documents, failed = encoded_documents(self._reference, texts, range(len(texts)))
        return token_array([documents[position] for position in range(len(texts))], failed)


def encoded_documents(
    reference: TextEncoder, texts: pa.LargeStringArray, positions: Iterable[int]
) -> tuple[dict[int, list[int]], dict[int, str]]:
    """The ids of the documents at `positions`; those that failed have none, and a reason."""
    documents: dict[int, list[int]] = {}
    failed: dict[int, str] = {}
    for position in positions:
        try:
            documents[position] = reference.encode_ordinary(texts[position].as_py())
        except NOT_FAILURES:
            raise
        except BaseException as error:
            documents[position] = []
            failed[position] = reason(error)
    return documents, failed


def reason(error: BaseException) -> str:
    """An engine's failure on one line, short enough for a list of bad documents."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


ReferenceLoader = Callable[[], Reference]
