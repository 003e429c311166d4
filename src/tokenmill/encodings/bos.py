"""The special token that begins a document, and what a tokenizer's own template puts around a text.

A document gets no such token unless the user asks for it. It is the one that the user names (TEXT,
ID, or TEXT=ID), or the one that the model's own library puts before a text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenmill.encodings.eot import parsed_special, special_named
from tokenmill.encodings.identity import EncodingId
from tokenmill.encodings.loading import special_tokens_of
from tokenmill.encodings.tiktoken import with_special_token
from tokenmill.encodings.tokenizer_json import template_bos, template_eos
from tokenmill.encodings.vocabulary_file import json_beside, vocabulary_bytes
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


@dataclass(frozen=True, slots=True)
class OwnSpecials:
    """The special tokens before and after a text; None: there is none."""

    bos: str | None
    eos: str | None


def template_of(identity: EncodingId) -> OwnSpecials:
    """What the model's own library puts around a single text. In a tokenizer_config.json beside
    the file, `add_bos_token` and `add_eos_token` win over the post-processor, as in
    transformers."""
    if identity.kind != "huggingface" or identity.source is None:
        return OwnSpecials(identity.bos, None)
    path = Path(identity.source)
    processor = json.loads(vocabulary_bytes(path)).get("post_processor")
    config = json_beside(path, "tokenizer_config.json", hint="--bos-token TEXT")
    return OwnSpecials(
        _configured("bos", config, template_bos(processor)),
        _configured("eos", config, template_eos(processor)),
    )


def _configured(name: str, config: Mapping[str, Any], otherwise: str | None) -> str | None:
    is_added, text = config.get(f"add_{name}_token"), config.get(f"{name}_token")
    if not isinstance(is_added, bool):
        return otherwise
    text = text.get("content") if isinstance(text, dict) else text  # or an added token
    return (text if isinstance(text, str) else otherwise) if is_added else None


def templated(identity: EncodingId, has_eot: bool) -> EncodingId:
    """The encoding with the tokens of its template as BOS and EOT; `has_eot`: the user named
    EOT."""
    template, specials = template_of(identity), special_tokens_of(identity)
    if template.bos is None and template.eos is None:
        raise ConfigError(
            f"{identity.name}: its template puts no special token before or after a text",
            hint="leave --special-tokens out; --eot and --bos say what documents get",
        )
    for text in filter(None, (template.bos, template.eos)):
        if text not in specials:
            raise ConfigError(
                f"{identity.name}: its template puts {text} around a text, which is not a single "
                "special token",
                hint="--bos-token TEXT and --eot-token TEXT say which token to use",
            )
    if template.eos is not None and specials[template.eos] != identity.eot_token:
        if has_eot:
            raise ConfigError(
                f"{identity.name}: its template ends texts with {template.eos}, not with "
                f"{identity.eot}",
                hint="leave --eot-token out, or leave --special-tokens out",
            )
        identity = replace(identity, eot=template.eos, eot_token=specials[template.eos])
    return identity if template.bos is None else with_bos(identity, template.bos)
