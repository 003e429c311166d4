"""The tokenizer that a caller names for a dataset that does not name its own."""

from __future__ import annotations

import os

from tokenmill.encodings import Encoding, EncodingId, get_encoding
from tokenmill.errors import ConfigError


def encoding_named(
    tokenizer: str | os.PathLike[str] | Encoding | None, pattern: str | None, eot_token: str | None
) -> EncodingId | None:
    has_options = pattern is not None or eot_token is not None
    if tokenizer is None:
        if has_options:
            raise ConfigError("pattern and eot_token need a tokenizer", hint="tokenizer='FILE'")
        return None
    if not isinstance(tokenizer, Encoding):
        return get_encoding(tokenizer, pattern=pattern, eot=eot_token).identity
    if has_options:
        raise ConfigError("an Encoding already has its pattern and eot_token")
    return tokenizer.identity
