"""Normalization to Unicode's NFC before text is cut, for patterns whose library does that (Qwen).

By `unicodedata`, as in Qwen's own tokenizer. ASCII documents are left as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from tokenmill.encodings.reference import Engine
from tokenmill.encodings.tokens import TokenArray

if TYPE_CHECKING:
    import pyarrow as pa
    import tiktoken


class NfcEngine:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def encode(self, texts: pa.LargeStringArray, dtype: str = "uint32") -> TokenArray:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not pc.all(pc.string_is_ascii(texts)).as_py():
            texts = pa.array((normalize("NFC", text) for text in texts.to_pylist()), texts.type)
        return self._engine.encode(texts, dtype)


def nfc_encoding(kind: type[tiktoken.Encoding]) -> type[tiktoken.Encoding]:
    """A subclass that normalizes text to NFC first."""

    class Nfc(kind):  # type: ignore[misc,valid-type]
        def encode_ordinary(self, text: str) -> list[int]:
            ids: list[int] = super().encode_ordinary(normalize("NFC", text))
            return ids

        def encode(self, text: str, **options: Any) -> list[int]:
            ids: list[int] = super().encode(normalize("NFC", text), **options)
            return ids

    return Nfc
