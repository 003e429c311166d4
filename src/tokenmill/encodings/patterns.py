"""The patterns that cut text into pieces before byte-pair merges, by name.

The expressions are tiktoken 0.14's (`tiktoken_ext/openai_public.py`) and, for `qwen`, dashscope
2.0's, letter for letter: they are part of every encoding's sha256, so rewriting one, even to an
equivalent form, changes identities. gigatoken implements them by hand and knows them by its own
names. A user's own expression is its own name, and only tiktoken runs it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tokenmill.errors import ConfigError, unknown_name


@dataclass(frozen=True, slots=True)
class Pattern:
    name: str
    expression: str
    gigatoken_name: str | None  # None: the user's own expression
    is_nfc: bool = False  # text is normalized to NFC first
    # tiktoken's first form of it, which other libraries can run: new vocabularies are trained with
    # it.
    portable: str | None = None
    split: str | None = None  # the expression by which gigatoken knows it in a tokenizer.json

    @property
    def rule(self) -> str:
        """What an encoding's sha256 covers."""
        return f"NFC, then {self.expression}" if self.is_nfc else self.expression

    @property
    def in_any_library(self) -> str:
        """The expression in a form that Oniguruma, in `tokenizers`, also runs correctly."""
        return self.portable or self.expression


_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"

_GPT2_SPLIT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)

# Oniguruma reads `{1,3}+` as a repetition. The two forms differ on a document that ends in a line
# break and other white space, but never in OpenAI's tokens.
_CL100K_PORTABLE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_O200K = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        + _CONTRACTION,
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        + _CONTRACTION,
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

PATTERNS = {
    "gpt2": Pattern("gpt2", _GPT2, "gpt2", split=_GPT2_SPLIT),
    "cl100k": Pattern("cl100k", _CL100K, "cl100k", portable=_CL100K_PORTABLE, split=f"{_CL100K}+"),
    "o200k": Pattern("o200k", _O200K, "o200k", split=_O200K),
    "qwen": Pattern("qwen", _QWEN, "qwen2", is_nfc=True, split=_QWEN),
}

# tekken's: o200k's without the contractions, and each digit by itself.
_TEKKEN = _O200K.replace(_CONTRACTION, "").replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN = Pattern(_TEKKEN, _TEKKEN, "nemotron", split=_TEKKEN)

_ALIASES = {"r50k": "gpt2", "p50k": "gpt2"}

PATTERN_NAMES = (*PATTERNS, *_ALIASES)


def refuse_pattern(pattern: str | None, path: Path, why: str) -> None:
    """Raise ConfigError if a pattern is given for a file that needs none."""
    if pattern is not None:
        raise ConfigError(
            f"{path}: {why}; the pattern {pattern} is for .tiktoken files",
            hint="leave the pattern out",
        )


def pattern_named(name: str | None, needed_by: str) -> Pattern:
    """The pattern of that name, or the one with that expression. `needed_by` is the file that does
    not state its own pattern."""
    if name is None:
        raise ConfigError(
            f"{needed_by} holds ranks only, and the wrong pattern would give wrong tokens; "
            f"name its pattern, one of: {', '.join(PATTERN_NAMES)}",
            hint="--pattern cl100k (or get_encoding(path, pattern='cl100k')), or the regular "
            "expression itself",
        )
    known = PATTERNS.get(_ALIASES.get(name, name))
    if known is None and re.fullmatch(r"[\w.-]*", name):
        raise unknown_name("pattern", name, PATTERN_NAMES)
    return known or Pattern(name, name, None)
