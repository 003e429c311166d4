"""The builtin encodings: everything about them that is not in their vocabulary file.

Constants, so that naming an encoding reads no file. The special tokens and sizes are tiktoken's
(`tiktoken_ext/openai_public.py`); the files are OpenAI's, unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tokenmill.encodings.eot import special_named
from tokenmill.encodings.identity import EncodingId, identity_sha256
from tokenmill.encodings.patterns import PATTERNS
from tokenmill.errors import ConfigError


@dataclass(frozen=True, slots=True)
class BuiltinEncoding:
    file: str  # in vocab/
    file_sha256: str
    pattern: str
    special_tokens: Mapping[str, int]
    max_token_value: int


_EOT = "<|endoftext|>"

_R50K = BuiltinEncoding(
    "r50k_base.tiktoken",
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    "gpt2",
    {_EOT: 50256},
    50256,
)

_O200K = BuiltinEncoding(
    "o200k_base.tiktoken",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "o200k",
    {_EOT: 199999, "<|endofprompt|>": 200018},
    200018,
)
_HARMONY = {
    "<|startoftext|>": 199998,
    "<|return|>": 200002,
    "<|constrain|>": 200003,
    "<|channel|>": 200005,
    "<|start|>": 200006,
    "<|end|>": 200007,
    "<|message|>": 200008,
    "<|call|>": 200012,
}
_RESERVED = {f"<|reserved_{i}|>": i for i in (200000, 200001, 200004, *range(200009, 201088))}
del _RESERVED["<|reserved_200012|>"]

BUILTIN_ENCODINGS = {
    "gpt2": _R50K,
    "r50k_base": _R50K,
    "p50k_base": BuiltinEncoding(
        "p50k_base.tiktoken",
        "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
        "gpt2",
        {_EOT: 50256},
        50280,
    ),
    "cl100k_base": BuiltinEncoding(
        "cl100k_base.tiktoken",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        "cl100k",
        {
            _EOT: 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
        100276,
    ),
    "o200k_base": _O200K,
    "o200k_harmony": replace(
        _O200K,
        special_tokens={**_O200K.special_tokens, **_HARMONY, **_RESERVED},
        max_token_value=201087,
    ),
}

ENCODING_NAMES = tuple(BUILTIN_ENCODINGS)


def builtin_identity(name: str, pattern: str | None, eot: str | None) -> EncodingId:
    shipped = BUILTIN_ENCODINGS[name]
    if pattern not in (None, shipped.pattern):
        raise ConfigError(
            f"the encoding {name} has the pattern {shipped.pattern}, not {pattern}",
            hint="leave the pattern out, or give the path of a .tiktoken file",
        )
    eot = special_named(eot or _EOT, shipped.special_tokens, f"the encoding {name}")
    expression = PATTERNS[shipped.pattern].expression
    return EncodingId(
        name=name,
        kind="tiktoken",
        source=None,
        file_sha256=shipped.file_sha256,
        pattern=shipped.pattern,
        eot=eot,
        eot_token=shipped.special_tokens[eot],
        max_token_value=shipped.max_token_value,
        sha256=identity_sha256(shipped.file_sha256, expression, shipped.special_tokens),
    )
