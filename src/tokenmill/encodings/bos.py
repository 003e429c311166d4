"""The special token that begins a document.

A document gets no such token unless the user asks for it. It is the one that the user names (TEXT,
ID, or TEXT=ID), or the one that the model's own library puts before a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tokenmill.encodings.eot import parsed_special, special_named
from tokenmill.encodings.identity import EncodingId
from tokenmill.encodings.loading import special_tokens_of
from tokenmill.encodings.tiktoken import with_special_token
from tokenmill.errors import ConfigError

# Tried in this order if neither the user nor the tokenizer names one.
_USUAL_BOS = (
    "<|begin_of_text|>",
    "<bos>",
    "<s>",
    "<|startoftext|>",
    "<｜begin▁of▁sentence｜>",
    "<|bos|>",
    "<BOS>",
    "[BOS]",
)


def with_bos(identity: EncodingId, asked: str | None = None) -> EncodingId:
    """The encoding with the token that begins a document. If that is its EOT token, nothing is
    added: documents that begin with EOT are a matter of --eot."""
    specials = special_tokens_of(identity)
    text, token = (None, None) if asked is None else parsed_special(asked)
    is_ranks = identity.kind == "tiktoken" and identity.source is not None
    if is_ranks and text is not None and token is not None and text not in specials:
        return with_special_token(identity, text, token)
    text = _usual_bos(identity, specials) if asked is None else None
    text = text or special_named(asked or "", specials, identity.name, "--bos-token")
    if specials[text] == identity.eot_token:
        return identity
    return replace(identity, bos=text, bos_token=specials[text])


def bos_id_of(identity: EncodingId) -> int | None:
    """The id of the token that the model's own library puts before a text, if it is a single
    one."""
    if identity.bos is None or identity.bos_token is not None:
        return identity.bos_token
    return special_tokens_of(identity).get(identity.bos)


def usual_bos(own: str | None, specials: Mapping[str, int]) -> str | None:
    """The token that begins a document if the user does not say which: `own`, the one that the
    model's own library puts before a text, or one with a usual name."""
    return next((text for text in (own, *_USUAL_BOS) if text in specials), None)


def _usual_bos(identity: EncodingId, specials: Mapping[str, int]) -> str:
    usual = usual_bos(identity.bos, specials)
    if usual is None:
        known = ", ".join(list(specials)[:40]) or "none"
        raise ConfigError(
            f"{identity.name}: which special token begins a document? It has: {known}",
            hint="--bos-token TEXT; or --eot both, which puts EOT on both sides",
        )
    return usual
