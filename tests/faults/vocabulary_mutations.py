"""Hostile vocabulary files, and JSON changed in one place: `tokenizer.json`, `.tiktoken`, plans.

The sound files are small, and made without a library, so that a mutation costs a millisecond.
"""

from __future__ import annotations

import base64
import copy
import functools
import json
import random
from typing import Any

from mutations import EXTREMES, bytes_mutated, cut_short

_HOSTILE_EXPRESSIONS = (
    "(",
    "(a+)+$",
    "(a|a)*b",
    "(?:a*)*c",
    "a{1000}{1000}",
    "(?<=a+)b",
    "\\p{Nonsense}",
    "(?R)",
    "[",
    "",
    "$^",
    "(?=x)",
    "." * 5000,
    "((((((((((a?)+)+)+)+)+)+)+)+)+)+$",
)
_ODD_VALUES: tuple[Any, ...] = (None, True, -1, 0, 0.5, "", "a", "\ud800", "\0", [], {}, 1 << 70)
_ODD_VALUES += (-(1 << 63), 1e308, ["a", 1], {"a": 1}, [[]], "x" * 5000, "<|endoftext|>", "é")


def json_mutated(plain: Any, rng: random.Random, odd: tuple[Any, ...] = _ODD_VALUES) -> Any:
    """One value of a JSON tree replaced, lost, doubled, or moved to another name."""
    plain = copy.deepcopy(plain)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = _places(plain)
        if not places:
            return copy.deepcopy(rng.choice(odd))
        holder, key = rng.choice(places)
        what = rng.random()
        if what < 0.12:
            del holder[key]
        elif what < 0.2 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif what < 0.2:
            holder[rng.choice(("", "x", str(key) + "x"))] = holder.pop(key)
        elif what < 0.3:
            other, other_key = rng.choice(places)
            if other_key in other if isinstance(other, dict) else other_key < len(other):
                holder[key] = copy.deepcopy(other[other_key])
        elif type(holder[key]) is int:
            near = (holder[key] + 1, holder[key] - 1, holder[key] * 10, -holder[key])
            holder[key] = rng.choice((*EXTREMES, *near, *near))
        else:
            holder[key] = copy.deepcopy(rng.choice(odd))
    return plain


def _places(plain: Any) -> list[tuple[Any, Any]]:
    """(holder, key or index) of every value. Of long lists and tables only some."""
    found: list[tuple[Any, Any]] = []
    if isinstance(plain, (dict, list)):
        keys = list(plain) if isinstance(plain, dict) else list(range(len(plain)))
        for key in keys if len(keys) < 20 else keys[:5] + keys[-5:]:
            found.append((plain, key))
            found += _places(plain[key])
    return found


def json_bytes(plain: Any) -> bytes:
    return json.dumps(plain).encode()


# tokenizer.json


@functools.cache
def _tokenizer(variant: int) -> Any:
    letters = _byte_level_letters()
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("Ġ", "m"), ("Ġm", "i")]
    words = letters + ["".join(pair) for pair in merges]
    special = {"id": len(words), "content": "<|endoftext|>", "special": True}
    added = {**special, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    byte_level["use_regex"] = True
    model: dict[str, Any] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {word: number for number, word in enumerate(words)},
        "merges": [" ".join(pair) for pair in merges],
    }
    plain: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    }
    if variant == 1:  # as Llama 3 and its like: an expression of the file's own
        expression = {"Regex": r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+|."}
        split = {"type": "Split", "pattern": expression, "behavior": "Isolated", "invert": False}
        no_regex = {**byte_level, "use_regex": False}
        plain["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, no_regex]}
    elif variant == 2:
        pieces = [["<unk>", 0.0], ["<|endoftext|>", 0.0], *([w, -5.0] for w in ["▁", *"etaoins"])]
        plain["model"] = {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False}
        plain["added_tokens"][0] = {**added, "id": 1}
        plain["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFKC"}]}
        plain["pre_tokenizer"] = plain["decoder"] = {
            "type": "Metaspace",
            "replacement": "▁",
            "prepend_scheme": "always",
            "split": True,
        }
    elif variant == 3:
        vocab = {w: n for n, w in enumerate(["[UNK]", "<|endoftext|>", "the", "mill", "##s", "a"])}
        plain["model"] = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab}
        plain["model"] |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
        plain["added_tokens"][0] = {**added, "id": 1}
        plain["normalizer"] = {"type": "BertNormalizer", "clean_text": True, "lowercase": True}
        plain["normalizer"] |= {"handle_chinese_chars": True, "strip_accents": None}
        plain["pre_tokenizer"] = {"type": "BertPreTokenizer"}
        plain["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    return plain


@functools.cache
def _byte_level_letters() -> list[str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(b) for b in printable] + [chr(0x100 + n) for n in range(256 - len(printable))]


def tokenizer_json(rng: random.Random) -> tuple[str, bytes]:
    plain = copy.deepcopy(_tokenizer(rng.randrange(4)))
    what = rng.random()
    if what < 0.12:
        pattern = {"Regex": rng.choice(_HOSTILE_EXPRESSIONS)}
        plain["pre_tokenizer"] = {"type": "Split", "pattern": pattern, "behavior": "Isolated"}
        plain["pre_tokenizer"]["invert"] = rng.random() < 0.5
    elif what < 0.85:
        plain = json_mutated(plain, rng)
    data = json_bytes(plain)
    if what >= 0.85:
        data = rng.choice((bytes_mutated, cut_short))(data, rng)
    elif what > 0.83:
        data = data[:-1] + b', "x": ' + b"[" * 900 + b"]" * 900 + b"}"
    return "a.json", data


# .tiktoken


def ranks(rng: random.Random) -> tuple[str, bytes]:
    merges = [b"th", b"the", b" the", b"in", b" m", b" mi", b"\xe6\x9d", b"\xe6\x9d\xb1"]
    tokens = [*(bytes([byte]) for byte in range(256)), *merges]
    lines = [base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(tokens)]
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        what = rng.random()
        if what < 0.15:
            del lines[at]
        elif what < 0.25:
            lines.insert(at, lines[rng.randrange(len(lines))])
        elif what < 0.5:
            token = lines[at].split(b" ")[0]
            number = rng.choice((*EXTREMES, at + 1, at - 1, 500, 263, 264))
            lines[at] = token + b" " + rng.choice((b"%d", b"%d ", b"+%d", b"0%d")) % number
        elif what < 0.75:
            token = rng.choice((b"", b"\0" * 4, rng.randbytes(3), b"<|endoftext|>", b"x" * 9999))
            lines[at] = base64.b64encode(token) + b" " + lines[at].split(b" ")[-1]
        else:
            lines[at] = bytes_mutated(lines[at], rng)
    data = rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\n\n")).join(lines)
    return "a.tiktoken", cut_short(data, rng) if rng.random() < 0.05 else data
