"""The encoding that a configuration asks for."""

from __future__ import annotations

from tokenmill.config import Config
from tokenmill.encodings import EncodingId, get_encoding
from tokenmill.encodings.bos import with_bos


def encoding_of(config: Config) -> EncodingId:
    named = get_encoding(config.tokenizer, pattern=config.pattern, eot=config.eot_token).identity
    return with_bos(named, config.bos_token) if config.has_bos else named
