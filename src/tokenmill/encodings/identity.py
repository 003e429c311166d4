"""The identity of an encoding as plain values: what is sent between processes.

An `EncodingId` has a few hundred bytes whatever the size of the vocabulary; it goes through pickle,
JSON and the manifest. Its `sha256` covers the vocabulary's bytes, the pattern and the special
tokens: two encodings are the same if these are, whatever their names. (`gpt2` and `r50k_base` are
one encoding under two names.)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tokenmill.errors import IntegrityError

_OF_BOS = {"bos", "bos_token"}  # optional fields


@dataclass(frozen=True, slots=True)
class EncodingId:
    name: str
    # "tiktoken" (ranks), "tekken", "huggingface" (a tokenizer.json), "sentencepiece" (a model that
    # becomes one), "sentencepiece-library" (one that needs its library), "vocab-merges"
    kind: str
    source: str | None  # absolute path of the file; None: it comes with the package
    file_sha256: str
    pattern: str | None  # a name in patterns.py, or an expression; None where the file says it
    eot: str  # the text of the special token that ends a document
    eot_token: int
    max_token_value: int  # the largest id, special tokens included
    sha256: str
    # The tokens that the model's own library puts before a text. The mill does so only if it is
    # asked to: then this is one token, and `bos_token` its id.
    bos: str | None = None
    bos_token: int | None = None

    @property
    def n_vocab(self) -> int:
        return self.max_token_value + 1

    @property
    def eot_option(self) -> str:
        """The value of --eot-token that selects this token."""
        return f"{self.eot}={self.eot_token}"

    @property
    def bos_option(self) -> str | None:
        """The value of --bos-token; None if documents do not begin with BOS."""
        return None if self.bos_token is None else f"{self.bos}={self.bos_token}"

    def to_plain(self) -> dict[str, Any]:
        """Its values as a dict; without the optional ones that are None."""
        return {k: v for k, v in asdict(self).items() if k not in _OF_BOS or v is not None}

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> EncodingId:
        """The identity that `to_plain` turned into a dict; the data may come from a hostile
        file."""
        expected = [field.name for field in fields(EncodingId) if field.name not in _OF_BOS]
        if sorted({*plain} - _OF_BOS) != sorted(expected):
            raise IntegrityError(
                f"an encoding's identity has the fields {', '.join(expected)}; "
                f"got {', '.join(map(str, plain))}"
            )
        for name, value in plain.items():
            number = name in ("eot_token", "max_token_value", "bos_token")
            nothing = value is None and name in ("source", "pattern")
            if not nothing and type(value) is not (int if number else str):
                raise IntegrityError(f"an encoding's identity has {name} = {value!r}")
        return EncodingId(**plain)


def identity_sha256(
    file_sha256: str, expression: str | None, special_tokens: Mapping[str, int]
) -> str:
    """The sha256 over vocabulary bytes (by their own sha256), pattern and special tokens."""
    plain = {
        "expression": expression,
        "special_tokens": dict(special_tokens),
        "vocabulary": file_sha256,
    }
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
