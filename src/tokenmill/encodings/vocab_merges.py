"""A vocab.json with its merges.txt: how GPT-2 and RoBERTa publish a byte-level BPE.

The two become a tokenizer.json with GPT-2's pre-tokenizer. The files do not state the
pre-tokenizer: a tokenizer_config.json beside them does, by the class that it names, and other
classes than GPT-2's are refused. Special tokens are those that the files beside name, or tokens
with a usual name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenmill.encodings.byte_level import byte_level_alphabet
from tokenmill.encodings.eot import eot_named, parsed_special
from tokenmill.encodings.identity import EncodingId, identity_sha256
from tokenmill.encodings.patterns import refuse_pattern
from tokenmill.encodings.tokenizer_json import USUAL_EOT, special_added_tokens
from tokenmill.encodings.vocabulary_file import json_beside, vocabulary_bytes
from tokenmill.errors import ConfigError, IntegrityError

KIND = "vocab-merges"
_PAIRS = {"vocab.json": "merges.txt", "encoder.json": "vocab.bpe"}  # transformers', OpenAI's
BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
# transformers' classes that cut text as GPT-2 does.
_CLASSES = ("GPT2", "Roberta", "Longformer", "LED", "Bart", "Blenderbot", "Deberta", "CodeGen")
_USUAL_SPECIAL = (*USUAL_EOT, "<s>", "<pad>", "<unk>", "<mask>")
_SIDES = ("single_word", "lstrip", "rstrip", "normalized")
_MAX_ID = 1 << 24
_Added = dict[str, tuple[int, Mapping[str, Any]]]  # text -> id, and its AddedToken's fields


def is_vocab(plain: Any) -> bool:
    """Whether a JSON file's content maps texts to ids."""
    return isinstance(plain, dict) and bool(plain) and all(type(i) is int for i in plain.values())


def vocab_of(path: Path) -> Path | None:
    """The vocab.json of this merges.txt; None if the name is not that of a merges.txt."""
    for vocab, merges in _PAIRS.items():
        if path.name.endswith(merges):
            return path.with_name(path.name.removesuffix(merges) + vocab)
    return None


def vocab_merges_identity(path: Path, pattern: str | None, eot: str | None) -> EncodingId:
    """`path` is the vocab.json."""
    refuse_pattern(pattern, path, "a vocab.json with a merges.txt is cut with GPT-2's pattern")
    plain = _tokenizer_json(path, None if eot is None else _token_named(path, eot))
    specials = special_added_tokens(plain, str(path))
    usual = _configured_eos(path, specials)
    text = eot_named(eot or usual, specials, str(path))
    sha256 = _sha256(plain)
    ids = [*plain["model"]["vocab"].values(), *(token["id"] for token in plain["added_tokens"])]
    return EncodingId(
        name=path.parent.name,
        kind=KIND,
        source=str(path),
        file_sha256=sha256,
        pattern=None,
        eot=text,
        eot_token=specials[text],
        max_token_value=max(ids),
        sha256=identity_sha256(sha256, None, specials),
    )


def tokenizer_json_of_pair(identity: EncodingId) -> dict[str, Any]:
    """The content of the tokenizer.json that the identity was made from."""
    assert identity.source is not None
    plain = _tokenizer_json(Path(identity.source), identity.eot)
    if _sha256(plain) != identity.file_sha256:
        raise IntegrityError(
            f"{identity.source}: it, its merges or the special tokens beside it have changed",
            hint="restore the files, or start over with the new ones in a new output folder",
        )
    return plain


def _sha256(plain: Mapping[str, Any]) -> str:
    """Covers both files and all special tokens, which are in several files."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _tokenizer_json(path: Path, eot: str | None) -> dict[str, Any]:
    config = json_beside(path, "tokenizer_config.json")
    _require_gpt2(path, config)
    vocab = _vocab(path)
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    prefix = config.get("add_prefix_space") is True
    return {
        "added_tokens": _added_tokens(path, vocab, eot),
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "add_prefix_space": prefix},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": [*_merges(path, vocab)]},
    }


def _require_gpt2(path: Path, config: Mapping[str, Any]) -> None:
    made_for = config.get("tokenizer_class")
    if isinstance(made_for, str) and not made_for.removesuffix("Fast").removesuffix(
        "Tokenizer"
    ).startswith(_CLASSES):
        raise ConfigError(
            f"{path}: made for {made_for}, which does not cut text as GPT-2 does",
            hint="name the tokenizer.json of the same model",
        )


def _vocab(path: Path) -> dict[str, int]:
    try:
        vocab = json.loads(vocabulary_bytes(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not a vocab.json: {error}") from None
    if not is_vocab(vocab):
        raise ConfigError(f"{path}: not a vocab.json: it does not map texts to ids")
    ids = {*vocab.values()}
    if len(ids) != len(vocab) or min(ids) < 0 or max(ids) >= _MAX_ID:
        raise ConfigError(f"{path}: not a vocab.json: an id is repeated, negative or too large")
    missing = [letter for letter in byte_level_alphabet() if letter not in vocab]
    if missing:
        raise ConfigError(
            f"{path}: not a byte-level vocabulary: it has no token for {len(missing)} of 256 bytes",
            hint="name the tokenizer.json of the same model",
        )
    return dict(vocab)


def _merges(path: Path, vocab: Mapping[str, int]) -> Iterator[list[str]]:
    merges = _merges_of(path)
    try:
        lines = vocabulary_bytes(merges).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{merges}: not a merges.txt: {error}") from None
    for number, line in enumerate(lines, 1):
        pair = line.removesuffix("\r").split(" ")
        if number == 1 and line.startswith("#version"):
            continue
        if len(pair) != 2 or not all(pair):
            raise ConfigError(f"{merges}: not a merges.txt: line {number} is {line[:60]!r}")
        unknown = next((text for text in (*pair, "".join(pair)) if text not in vocab), None)
        if unknown is not None:
            raise ConfigError(
                f"{merges}: line {number} has {unknown[:60]!r}, which is not in {path.name}: they "
                "belong to different models"
            )
        yield pair


def _merges_of(path: Path) -> Path:
    names = (
        path.name.removesuffix(vocab) + merges
        for vocab, merges in _PAIRS.items()
        if path.name.endswith(vocab)
    )
    merges = path.with_name(next(names, "merges.txt"))
    if not merges.is_file():
        raise ConfigError(
            f"{path}: a vocab.json needs its merges, and there is no {merges.name} beside it",
            hint=f"put the model's {merges.name} there, or name its tokenizer.json",
        )
    return merges


def _added_tokens(path: Path, vocab: Mapping[str, int], eot: str | None) -> list[dict[str, Any]]:
    """The added tokens in the order of their ids; `eot` is special if it is a token at all."""
    config = json_beside(path, "tokenizer_config.json")
    added = _listed(path, config)
    named = {*_named_special(config), *_named_special(json_beside(path, BESIDE[1]))}
    named = named or {*_USUAL_SPECIAL} & {*vocab}
    for text in sorted(named | ({eot} if eot is not None else set())):
        token, said = added.get(text, (vocab.get(text), {}))
        if token is not None:
            added[text] = token, {**said, "special": True}
    _require_ids(path, {text: token for text, (token, _) in added.items()}, vocab)
    return [
        {
            "id": token,
            "content": text,
            **{side: said.get(side) is True for side in _SIDES},
            "special": said.get("special") is True,
        }
        for text, (token, said) in sorted(added.items(), key=lambda one: one[1][0])
    ]


def _require_ids(path: Path, added: Mapping[str, int], vocab: Mapping[str, int]) -> None:
    """tokenizers numbers added tokens itself: as in the model's vocabulary, or after its end."""
    new = sorted((token, text) for text, token in added.items() if text not in vocab)
    expected = dict(zip((text for _, text in new), range(len(vocab), 1 << 30), strict=False))
    for text, token in added.items():
        right = vocab.get(text, expected.get(text))
        if token != right:
            raise ConfigError(
                f"{path}: the added token {text[:60]!r} has the id {token}, not {right}",
                hint="name the tokenizer.json of the same model",
            )


def _listed(path: Path, config: Mapping[str, Any]) -> _Added:
    """The tokens that added_tokens.json and the configuration give an id."""
    found: _Added = {}
    for text, token in json_beside(path, "added_tokens.json").items():
        found[text] = _checked_id(path, text, token), {"normalized": True}
    decoder = config.get("added_tokens_decoder")
    for token, said in decoder.items() if isinstance(decoder, dict) else ():
        if isinstance(said, dict) and isinstance(said.get("content"), str) and token.isdecimal():
            found[said["content"]] = _checked_id(path, said["content"], int(token)), said
    return found


def _checked_id(path: Path, text: str, token: Any) -> int:
    if type(token) is not int or not 0 <= token < _MAX_ID:
        raise ConfigError(f"{path}: the token {text[:60]!r} beside it has the id {str(token)[:20]}")
    return token


def _named_special(plain: Mapping[str, Any]) -> Iterator[str]:
    """The values of eos_token and the like, and of additional_special_tokens."""
    for name, value in plain.items():
        if name.endswith(("_token", "_special_tokens")) and not name.startswith("add_"):
            for one in value if isinstance(value, list) else [value]:
                text = one.get("content") if isinstance(one, dict) else one
                if isinstance(text, str) and text:
                    yield text


def _token_named(path: Path, asked: str) -> str | None:
    """The text of the token that was asked for by text or id; None if there is no such id."""
    text, token = parsed_special(asked)
    of_id = (known for known, its_id in _vocab(path).items() if its_id == token)
    return next(of_id, None) if text is None else text


def _configured_eos(path: Path, specials: Mapping[str, int]) -> str | None:
    """A special token with a usual name, or else the configured eos_token."""
    beside = (json_beside(path, name).get("eos_token") for name in BESIDE[:2])
    texts = (eos.get("content") if isinstance(eos, dict) else eos for eos in beside)
    return next((text for text in (*USUAL_EOT, *texts) if text in specials), None)
