"""Patterns of the user's own: tiktoken runs them, and its output is checked.

tiktoken silently drops text that the expression does not match. Here that is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tokenmill.encodings.normalized import nfc_encoding
from tokenmill.encodings.patterns import Pattern
from tokenmill.encodings.reference import NOT_FAILURES, reason
from tokenmill.encodings.selfcheck import probe_texts
from tokenmill.errors import ConfigError

if TYPE_CHECKING:
    import tiktoken

_BYTES = {bytes([byte]): byte for byte in range(256)}


def encoding_of_ranks(
    name: str, pattern: Pattern, ranks: dict[bytes, int], special_tokens: Mapping[str, int]
) -> tiktoken.Encoding:
    import tiktoken

    class Checked(tiktoken.Encoding):
        def encode_ordinary(self, text: str) -> list[int]:
            ids = super().encode_ordinary(text)
            if self.decode_bytes(ids) != text.encode():
                raise ValueError("the tokenizer's pattern leaves out a part of the text")
            return ids

    kind = tiktoken.Encoding if pattern.gigatoken_name else Checked
    kind = nfc_encoding(kind) if pattern.is_nfc else kind
    return kind(
        name,
        pat_str=pattern.expression,
        mergeable_ranks=ranks,
        special_tokens=dict(special_tokens),
    )


def require_whole_pieces(expression: str, where: str) -> None:
    """Raise ConfigError for an expression that tiktoken cannot run, or that drops text."""
    try:
        encoding = encoding_of_ranks("own", Pattern(expression, expression, None), _BYTES, {})
        for text in probe_texts([]):
            encoding.encode_ordinary(text)
    except NOT_FAILURES:
        raise
    except BaseException as error:
        raise ConfigError(
            f"{where}: the pattern {expression[:80]!r} cannot be used: {reason(error)}",
            hint="give the expression that the vocabulary was trained with; one that ends in "
            r"|\s+|. usually covers all text",
        ) from None
