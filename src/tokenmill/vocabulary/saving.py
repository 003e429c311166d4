"""A trained vocabulary as files: a tokenizer.json, and a rank file for tiktoken.

Both have the same ids: bytes and merges first, then special tokens, as in tiktoken.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from tokenmill.encodings.byte_level import byte_level_alphabet
from tokenmill.encodings.patterns import Pattern

_LETTER_OF_BYTE = {byte[0]: letter for letter, byte in byte_level_alphabet().items()}
# By the letters that stand for bytes, as in `tokenizers`, or by value.
BYTE_ORDERS = {
    "tokenizers": [byte[0] for _, byte in sorted(byte_level_alphabet().items())],
    "bytes": list(range(256)),
}


def rank_file(tokens: Sequence[bytes]) -> bytes:
    return b"".join(b"%s %d\n" % (base64.b64encode(t), rank) for rank, t in enumerate(tokens))


def tokenizer_json(
    tokens: Sequence[bytes],
    merges: Sequence[tuple[bytes, bytes]],
    pattern: Pattern,
    special_tokens: Sequence[str],
) -> bytes:
    plain = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": len(tokens) + i,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i, text in enumerate(special_tokens)
        ],
        "normalizer": {"type": "NFC"} if pattern.is_nfc else None,
        "pre_tokenizer": _pre_tokenizer(pattern),
        "post_processor": None,
        "decoder": _byte_level(has_pattern=False),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {spelled(token): i for i, token in enumerate(tokens)},
            "merges": [[spelled(left), spelled(right)] for left, right in merges],
        },
    }
    return json.dumps(plain, ensure_ascii=False, indent=1).encode() + b"\n"


def _pre_tokenizer(pattern: Pattern) -> dict[str, Any]:
    """In the form of published files, which other libraries recognise."""
    if pattern.name == "gpt2":
        return _byte_level(has_pattern=True)
    rule = {"Regex": pattern.in_any_library}
    split = {"type": "Split", "pattern": rule, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _byte_level(has_pattern=False)]}


def _byte_level(*, has_pattern: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": has_pattern,
    }


def spelled(token: bytes) -> str:
    """As a tokenizer.json has it."""
    return "".join(map(_LETTER_OF_BYTE.__getitem__, token))
