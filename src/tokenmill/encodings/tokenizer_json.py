"""What an identity needs from a Hugging Face `tokenizer.json`, read with `json` alone.

Naming an encoding must not load the `tokenizers` library; encoding does (huggingface.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenmill.encodings.eot import eot_named
from tokenmill.encodings.identity import EncodingId, identity_sha256
from tokenmill.encodings.patterns import refuse_pattern
from tokenmill.encodings.vocabulary_file import json_beside, vocabulary_bytes
from tokenmill.errors import ConfigError

# Tried in this order if the user names none; each is the token between documents in its family's
# training data.
USUAL_EOT = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|im_end|>",
    "<｜end▁of▁sentence｜>",
    "<|eos|>",
    "<EOS>",
    "[EOS]",
    "<|end|>",
)
# Tried if the tokenizer_config.json names none either: Command R's eos_token ends a turn, and its
# tokenizer.json has that as a token of text.
_LAST_EOT = ("<EOS_TOKEN>",)
_MAX_ID = 1 << 24


def tokenizer_json_identity(path: Path, pattern: str | None, eot: str | None) -> EncodingId:
    refuse_pattern(pattern, path, "a tokenizer.json has its own pattern")
    data = vocabulary_bytes(path)
    plain = parsed_tokenizer_json(data, str(path))
    specials = special_added_tokens(plain, str(path))
    text = eot_named(eot or _usual_eot(path, specials), specials, str(path))
    file_sha256 = hashlib.sha256(data).hexdigest()
    return EncodingId(
        name=path.parent.name if path.name == "tokenizer.json" else path.stem,
        kind="huggingface",
        source=str(path),
        file_sha256=file_sha256,
        pattern=None,
        eot=text,
        eot_token=specials[text],
        max_token_value=max(*_vocabulary_ids(plain, str(path)), *specials.values()),
        sha256=identity_sha256(file_sha256, None, specials),
        bos=template_bos(plain.get("post_processor")),
    )


def parsed_tokenizer_json(data: bytes, where: str) -> dict[str, Any]:
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not a tokenizer.json: {error}") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("model"), dict):
        raise ConfigError(
            f"{where}: not a tokenizer.json: it has no model",
            hint="name the file that tokenizers' Tokenizer.save wrote",
        )
    if not isinstance(plain.get("added_tokens") or [], list):
        raise ConfigError(f"{where}: not a tokenizer.json: its added_tokens are not a list")
    return plain


def special_added_tokens(plain: Mapping[str, Any], where: str) -> dict[str, int]:
    """Text -> id of the special tokens, in the file's order."""
    specials = {}
    for token in plain.get("added_tokens") or []:
        if not (
            isinstance(token, dict)
            and isinstance(token.get("content"), str)
            and type(token.get("id")) is int
            and 0 <= token["id"] < _MAX_ID
        ):
            raise ConfigError(f"{where}: not a tokenizer.json: added token {str(token)[:80]}")
        if token.get("special"):
            specials[token["content"]] = token["id"]
    return specials


def template_bos(post_processor: Any) -> str | None:
    """The special tokens that a post-processor puts before a single text, separated by spaces; None
    if there are none. It understands the four kinds of post-processor that can do this."""
    return next(filter(None, map(_prefix, _steps(post_processor))), None)


def _steps(post_processor: Any) -> list[Any]:
    steps = post_processor.get("processors") if isinstance(post_processor, dict) else None
    return steps if isinstance(steps, list) else [post_processor]


def _prefix(post_processor: Any) -> str | None:
    if not isinstance(post_processor, dict):
        return None
    if isinstance(cls := post_processor.get("cls"), list):  # BertProcessing, RobertaProcessing
        return cls[0] if cls and isinstance(cls[0], str) else None
    pieces, found = post_processor.get("single"), list[str]()
    for piece in pieces if isinstance(pieces, list) else []:
        token = piece.get("SpecialToken") if isinstance(piece, dict) else None
        if not isinstance(token, dict) or not isinstance(token.get("id"), str):
            break  # the text
        found.append(token["id"])
    else:
        return None  # without a text there is nothing before it
    return " ".join(found) or None


def _vocabulary_ids(plain: Mapping[str, Any], where: str) -> list[int]:
    vocab = plain["model"].get("vocab")
    if isinstance(vocab, list):  # Unigram: pieces with scores, in the order of their ids
        ids: list[Any] = [len(vocab) - 1]
    else:
        ids = list(vocab.values()) if isinstance(vocab, dict) else []
    ids += [token["id"] for token in plain.get("added_tokens") or []]
    if not ids or not all(type(i) is int and 0 <= i < _MAX_ID for i in ids):
        raise ConfigError(f"{where}: not a tokenizer.json: its vocabulary is empty or has bad ids")
    return ids


def _usual_eot(path: Path, specials: Mapping[str, int]) -> str | None:
    """A special token with a usual name, or the eos_token of the tokenizer_config.json beside the
    file. In this order, because the eos_token of a chat model ends a turn, not a document."""
    usual = next((text for text in USUAL_EOT if text in specials), None)
    usual = usual or _configured_eos(path, specials)
    return usual or next((text for text in _LAST_EOT if text in specials), None)


def _configured_eos(path: Path, specials: Mapping[str, int]) -> str | None:
    eos = json_beside(path, "tokenizer_config.json", hint="--eot-token TEXT").get("eos_token")
    text = eos.get("content") if isinstance(eos, dict) else eos  # as a string, or an added token
    return text if isinstance(text, str) and text in specials else None
