"""Find the code points at which gigatoken and the reference libraries disagree, by trying them all.

    python tools/unicode_gap.py            # about 7 minutes on one core

Every code point (surrogates apart) is put into a document made of many short contexts, and the
document is encoded by both sides. Prints the ranges as `src/tokenmill/encodings/unicode_gap.py` has
them; run it again whenever gigatoken, tiktoken or tokenizers gets a new ceiling in pyproject.toml.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

import gigatoken
import tiktoken
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from tokenmill.encodings.patterns import PATTERNS, TEKKEN
from tokenmill.encodings.ranks import parsed_ranks
from tokenmill.encodings.vocabulary_file import VOCAB_FOLDER

CONTEXTS = (
    *("{c}", "{c}{c}", "a{c}b", "1{c}1", " {c}", "{c}'s", "\n{c}\n", "!{c}!", "A{c}B", "Ab{c}"),
    *("aB{c}c", " {c}a", "  {c}", "a'{c}", "'{c}s", "{c}1", "1{c}", "\t{c}x", "{c}\n\n", "/{c}/"),
    *("12{c}34", "'S{c}'LL", " A{c}a", "{c} ", "{c}  a", "x {c}{c} y", "é{c}é", "中{c}中"),
)
# Canonical order and composition: marks of different combining classes, before and after.
_MARKS = "\u0301\u0307\u0323\u0327\u0334\u0338\u0345\u05b0\u3099"
NFC_CONTEXTS = (
    *CONTEXTS,
    *(f"e{{c}}{mark}" for mark in _MARKS),
    *(f"e{mark}{{c}}" for mark in _MARKS),
    *("e\u0301{c}\u0323", "e{c}\u0323\u0301", "か{c}\u3099", "{c}か\u3099"),
)
BLOCK = 4096
# Asks for symbols and punctuation.
DEEPSEEK = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)

Encode = Callable[[list[str]], Iterable[list[int]]]


def differing(ours: Callable[[], Encode], theirs: Encode, contexts: tuple[str, ...]) -> set[int]:
    everything = [c for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
    found = set()
    for start in range(0, len(everything), BLOCK):
        if start % (BLOCK * 32) == 0:
            encode = ours()  # a fresh engine: its word cache grows with every new word
        block = everything[start : start + BLOCK]
        # NUL ends one context and begins the next.
        texts = ["\0".join(contexts).replace("{c}", chr(c)) for c in block]
        pairs = zip(block, encode(texts), theirs(texts), strict=True)
        found |= {c for c, mine, reference in pairs if mine != reference}
    return found


def against_tiktoken() -> Iterator[set[int]]:
    files = {"gpt2": "r50k_base", "cl100k": "cl100k_base", "o200k": "o200k_base"}
    for name, file in {**files, "tekken": "o200k_base"}.items():
        path, pattern = VOCAB_FOLDER / f"{file}.tiktoken", PATTERNS.get(name, TEKKEN)
        ranks = parsed_ranks(path.read_bytes(), str(path))
        reference = tiktoken.Encoding(
            name, pat_str=pattern.expression, mergeable_ranks=ranks, special_tokens={}
        )

        def ours(path: Path = path, scheme: str = pattern.gigatoken_name) -> Encode:
            return _batch(gigatoken.Tokenizer.from_tiktoken(path, scheme, {}))

        def theirs(
            texts: list[str], reference: tiktoken.Encoding = reference
        ) -> Iterator[list[int]]:
            return map(reference.encode_ordinary, texts)

        yield _reported(f"tiktoken, {name}", differing(ours, theirs, CONTEXTS))


def against_tokenizers(names: tuple[str, ...]) -> Iterator[set[int]]:
    for name, tokenizer in _byte_level_tokenizers(names):
        contexts = NFC_CONTEXTS if tokenizer.normalizer else CONTEXTS

        def ours(data: str = tokenizer.to_str()) -> Encode:
            return _batch(gigatoken.Tokenizer.from_json(data))

        def theirs(
            texts: list[str], tokenizer: tokenizers.Tokenizer = tokenizer
        ) -> Iterator[list[int]]:
            return (tokenizer.encode(text, add_special_tokens=False).ids for text in texts)

        yield _reported(f"tokenizers, {name}", differing(ours, theirs, contexts))


def _batch(tokenizer: gigatoken.Tokenizer) -> Encode:
    return lambda texts: tokenizer.encode_batch_list(texts, parallel=False)


def _byte_level_tokenizers(
    names: tuple[str, ...],
) -> Iterator[tuple[str, tokenizers.Tokenizer]]:
    """Tokenizers without merges: the pieces, not the merges, are what Unicode tables decide."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    # Two more tokens for pairs that stand across a piece's end would hide nothing: a merge of
    # every pair of bytes shows where each piece begins.
    vocab = {letter: i for i, letter in enumerate(alphabet)}
    merges = []
    for left in alphabet:
        for right in alphabet:
            vocab[left + right] = len(vocab)
            merges.append((left, right))
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    o200k = Regex(PATTERNS["o200k"].expression)
    llama3 = Regex(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    cuts = {
        "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
        "llama3": pre_tokenizers.Sequence([pre_tokenizers.Split(llama3, "isolated"), plain]),
        "o200k": pre_tokenizers.Sequence([pre_tokenizers.Split(o200k, "isolated"), plain]),
        "deepseek": pre_tokenizers.Sequence(
            [*(pre_tokenizers.Split(Regex(each), "isolated") for each in DEEPSEEK), plain]
        ),
    }
    for name in names:
        tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
        tokenizer.pre_tokenizer = cuts[name.removesuffix(" NFC")]
        tokenizer.decoder = decoders.ByteLevel()
        if name.endswith(" NFC"):
            tokenizer.normalizer = normalizers.NFC()
        yield name, tokenizer


def _reported(name: str, found: set[int]) -> set[int]:
    print(f"{name}: {len(found)} code points", file=sys.stderr, flush=True)
    return found


def ranges(code_points: Iterable[int]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for c in sorted(code_points):
        if out and out[-1][1] == c - 1:
            out[-1] = (out[-1][0], c)
        else:
            out.append((c, c))
    return out


def main() -> None:
    print({name: version(name) for name in ("gigatoken", "tiktoken", "tokenizers")})
    _show("TIKTOKEN_GAP", set().union(*against_tiktoken()))
    letters = set().union(*against_tokenizers(("gpt2", "llama3", "o200k", "gpt2 NFC")))
    _show("TOKENIZERS_GAP", letters)
    _show("_SYMBOLS", set().union(*against_tokenizers(("deepseek",))) - letters)


def _show(name: str, found: set[int]) -> None:
    print(f"{name}: {len(found):,} code points")
    for start in range(0, len(all_ranges := ranges(found)), 4):
        shown = ", ".join(f"(0x{a:X}, 0x{b:X})" for a, b in all_ranges[start : start + 4])
        print(f"    *({shown}),")


if __name__ == "__main__":
    main()
