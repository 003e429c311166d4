"""Rank files that models were published with, by their sha256.

A rank file states neither its pattern nor the ids of its special tokens, and neither can be
guessed: the first id after Llama 3's ranks is `<|begin_of_text|>`. So published rank files are
recognised. Other files say all that is needed; the checked ones are in whole_files.py.

Every file here was compared with the library in `checked`, which also gave its special tokens.
tests/encodings/test_families.py repeats that, except where `checked` has a date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokenmill.encodings.builtin import BUILTIN_ENCODINGS


@dataclass(frozen=True, slots=True)
class RankFamily:
    name: str
    models: str
    file: str  # as it is published
    file_sha256: str
    pattern: str
    special_tokens: Mapping[str, int]
    eot: str
    bos: str | None
    n_vocab: int
    checked: str
    # gigatoken's own loader does not read it: it has tokens that no merge reaches, or a hole in its
    # ids (rank_engine.py).
    needs_all_merges: bool = False


def _numbered(texts: list[str], start: int) -> dict[str, int]:
    return {text: start + i for i, text in enumerate(texts)}


def _reserved(kind: str, start: int, stop: int) -> list[str]:
    return [f"<|{kind}reserved_special_token_{i}|>" for i in range(start, stop)]


_LLAMA3_SPECIAL = [
    "<|begin_of_text|>",
    "<|end_of_text|>",
    *_reserved("", 0, 2),
    "<|finetune_right_pad_id|>",
    "<|step_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
    "<|image|>",
    *_reserved("", 2, 246),
]

_LLAMA4_SPECIAL = [
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|header_start|>",
    "<|header_end|>",
    "<|eom|>",
    "<|eot|>",
    "<|step|>",
    *_reserved("text_post_train_", 0, 6),
    "<|python_start|>",
    "<|python_end|>",
    "<|finetune_right_pad|>",
    *_reserved("text_post_train_", 8, 69),
    "<|image_start|>",
    "<|image_end|>",
    *_reserved("vision_", 0, 2),
    "<|tile_x_separator|>",
    "<|tile_y_separator|>",
    *_reserved("vision_", 2, 6),
    "<|image|>",
    *_reserved("vision_", 6, 7),
    "<|patch|>",
    *_reserved("vision_", 7, 1048),
    *_reserved("reasoning_", 0, 8),
    "<|reasoning_thinking_start|>",
    "<|reasoning_thinking_end|>",
    *_reserved("", 0, 904),
]

_QWEN_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

FAMILIES = (
    RankFamily(
        "llama3",
        "Llama 3, 3.1, 3.2, 3.3",
        "tokenizer.model",
        "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
        "cl100k",  # Llama 3's own expression is an older form of it, with the same pieces
        _numbered(_LLAMA3_SPECIAL, 128_000),
        "<|end_of_text|>",
        "<|begin_of_text|>",
        128_256,
        "llama-models 0.3.0",
        needs_all_merges=True,
    ),
    RankFamily(
        "llama4",
        "Llama 4",
        "tokenizer.model",
        "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed",
        "o200k",
        _numbered(_LLAMA4_SPECIAL, 200_000),
        "<|end_of_text|>",
        "<|begin_of_text|>",
        202_048,
        "llama-models 0.3.0",
    ),
    RankFamily(
        "qwen",
        "Qwen 1",
        "qwen.tiktoken",
        "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
        "qwen",
        _numbered([*_QWEN_SPECIAL, *(f"<|extra_{i}|>" for i in range(205))], 151_643),
        "<|endoftext|>",
        None,
        151_851,
        "dashscope 2.0.2",
    ),
)

OPENAI = tuple(
    RankFamily(
        name,
        name,
        known.file,
        known.file_sha256,
        known.pattern,
        known.special_tokens,
        "<|endoftext|>",
        None,
        known.max_token_value + 1,
        "tiktoken",
        needs_all_merges=name == "p50k_base",
    )
    for name, known in BUILTIN_ENCODINGS.items()
)


def family_of(file_sha256: str) -> RankFamily | None:
    """The family of a rank file; if it has two names, the first."""
    known = (family for family in (*OPENAI, *FAMILIES) if family.file_sha256 == file_sha256)
    return next(known, None)
