"""Checks that the fast engine agrees with the reference, before it is used for an unknown file.

The tests cover the encodings in the package. gigatoken may read parts of a user's tokenizer
differently (tokens that no merge reaches, an unusual normalizer), so it is tried on the probes
below and on the vocabulary's own tokens, unless the process knows the verdict already (verdict.py).
After a single difference only the reference is used: slower, but right. It takes 0.05 s for a small
vocabulary, 0.5 s for one of 50,000 tokens.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from tokenmill.encodings.reference import Engine, Reference, ReferenceEngine

_PROBES = (
    "",
    " ",
    "Hello, world! It's a test; they'll say we've DONE it, I'D bet. 'S 'LL x'Re",
    "def f(x):\n\treturn {'a': [1, 2.5e-3], \"b\": x**2}  # done\n\n\n    if (a != b) {}\r\n",
    "  two   three    four\t\ttabs\n\n\nlines\r\n\r\nend \u00a0\u2003\u3000 x\u200b ",
    "1 12 123 1234 12345 3.14159 1,000,000 2024-01-31T00:00:00Z 0xFF ½ Ⅷ ٣٤ १२ 一二三",
    "Größe naïve façade Übergröße İstanbul ǅ ß ſ ŉ",
    "Привет, мир! Ещё ёлка. Ελληνικά. עברית נקודות שָׁלוֹם. العربية مُحَمَّد",
    "你好,世界。今日は良い天気ですね。カタカナ がぎぐ 안녕하세요 세계",
    "ภาษาไทย हिन्दी தமிழ் မြန်မာ ខ្មែរ ქართული አማርኛ ᏣᎳᎩ",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ❤️ 😀😀😀 ☃ ™ © € → ∑ √ 𝔘𝔫𝔦 𐍈",
    "e\u0301 \u00e9 a\u0323\u0302 \u1ead \u212b \u00c5 \ufb01",
    "\u1100\u1161\u11a8 \uac01 q\u0307\u0323 \u0344 \u0958 \u2126 \uf900",
    "\x00\x01\x1b[0m\x7f\u0085\u2028\u2029\ufeff\ufffd\ufffe\u00ad",
    "<|endoftext|> <s> </s> <unk> <pad> [CLS] [SEP] <0x0A> ▁▁ Ġ ##ing <|im_start|>user<|im_end|>",
    "a" * 300 + " " * 70 + "!" * 300 + "\n" * 40 + "9" * 50 + "ab" * 200 + "中" * 100,
    "https://example.org/a/b?c=d&e=%20f#g user@example.com C:\\dir\\file.txt --flag=1 <div/>",
)
_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz",
    "ABCXYZ'’sStTdDmMlLrReEvV",
    "0123456789.,-",
    " \t\n\r\u00a0\u3000",
    "!?.,:;/\\()[]{}<>|@#$%^&*_+=~`\"'",
    "éèüßñçāęőЖжщыяαβγλωאבגדابتث",
    "的一是不了人我在有他あいうアイウ가나다라",
    "กขคงअआइईகஙச\u0301\u0300\u0323\u093f\u200d\ufe0f",
    "😀🎉👍🏽🇺🇸❤💻",
)
_NUM_RANDOM = 400


def probe_texts(special_tokens: Iterable[str]) -> list[str]:
    """Fixed texts, texts around each special token, and seeded random ones: always the same."""
    around = ("{}", " {} a", "b{}c")
    specials = [text.format(token) for token in special_tokens for text in around]
    source = random.Random(0)
    mixed = [
        "".join(
            "".join(source.choices(source.choice(_ALPHABETS), k=source.randint(1, 6)))
            for _ in range(source.randint(1, 40))
        )
        for _ in range(_NUM_RANDOM)
    ]
    return [*_PROBES, *specials[:600], *mixed]


def agree(engine: Engine, reference: Reference, texts: list[str]) -> bool:
    import numpy as np
    import pyarrow as pa

    from tokenmill.arrays import binary_array_of

    array = binary_array_of([text.encode() for text in texts]).view(pa.large_string())
    ours, theirs = engine.encode(array), ReferenceEngine(reference).encode(array)
    return bool(
        not theirs.failed
        and np.array_equal(ours.offsets, theirs.offsets)
        and np.array_equal(ours.ids, theirs.ids)
    )


def vocabulary_texts(tokens: Iterable[bytes]) -> list[str]:
    """The tokens that are valid text, as documents: they reveal tokens that no merge reaches."""
    texts = []
    for token in tokens:
        try:
            texts.append(token.decode())
        except UnicodeDecodeError:
            continue
    return texts
