"""SentencePiece's `.model` files: how they are parsed, and converted to a tokenizer.json.

The file is a protobuf message, read here without a library. BPE with byte fallback, as in Llama 2
and Mistral, becomes a tokenizer.json: a merge for every way to make a piece from two others, in the
order of the pieces' scores. Compared with sentencepiece 0.2 on Mistral's files. Models for which
that is not exact (unigram, a normalization table, user-defined symbols, equal scores) are left to
the library itself (sentencepiece_library.py).
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenmill.encodings.eot import eot_named
from tokenmill.encodings.identity import EncodingId, identity_sha256
from tokenmill.encodings.patterns import refuse_pattern
from tokenmill.encodings.vocabulary_file import vocabulary_bytes
from tokenmill.errors import ConfigError

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_BPE = 2
_BOS_PIECE, _EOS_PIECE = 46, 47  # fields of the trainer's message
EXTRA = "sentencepiece"  # tokenmill[sentencepiece]
_MAX_RUN = 50
_MAX_PIECES, _MAX_PIECE_LETTERS = 1 << 20, 512
_BYTE_PIECES = {f"<0x{byte:02X}>" for byte in range(256)}


@dataclass(frozen=True, slots=True)
class ModelPiece:
    text: str
    score: float
    kind: int


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    pieces: list[ModelPiece]
    trainer: dict[int, Any]
    normalizer: dict[int, Any]

    @property
    def special_tokens(self) -> dict[str, int]:
        """Text -> id of the control pieces and the unknown piece."""
        return {
            piece.text: token
            for token, piece in enumerate(self.pieces)
            if piece.kind in (_UNKNOWN, _CONTROL)
        }

    def special_of(self, field: int, *usual: str) -> str | None:
        """The special token in this field of the trainer, or the first usual one that exists."""
        own = self.trainer.get(field)
        named = own.decode(errors="replace") if isinstance(own, bytes) else None
        specials = self.special_tokens
        return next((text for text in (named, *usual) if text in specials), None)


def is_sentencepiece(data: bytes) -> bool:
    """Whether it begins with a piece: its tag, its length, the tag and length of its text."""
    return len(data) > 4 and data[0] == 0x0A and data[2] == 0x0A and data[1] >= data[3]


def sentencepiece_identity(path: Path, pattern: str | None, eot: str | None) -> EncodingId:
    refuse_pattern(pattern, path, "a SentencePiece model has its own pattern")
    data = vocabulary_bytes(path)
    model = parsed_model(data, str(path))
    why = _inconvertible(model)
    if why is not None and importlib.util.find_spec("sentencepiece") is None:
        raise ConfigError(
            f"{path}: a SentencePiece model {why}, which needs the library sentencepiece",
            hint=f"pip install 'tokenmill[{EXTRA}]'; or name the model's tokenizer.json",
        )
    specials = model.special_tokens
    text = eot_named(eot or model.special_of(_EOS_PIECE, "</s>", "<eos>"), specials, str(path))
    file_sha256 = hashlib.sha256(data).hexdigest()
    return EncodingId(
        name=path.parent.name if path.name == "tokenizer.model" else path.name,
        kind="sentencepiece" if why is None else "sentencepiece-library",
        source=str(path),
        file_sha256=file_sha256,
        pattern=None,
        eot=text,
        eot_token=specials[text],
        max_token_value=len(model.pieces) - 1,
        sha256=identity_sha256(file_sha256, None, specials),
        bos=model.special_of(_BOS_PIECE, "<s>", "<bos>"),
    )


def parsed_model(data: bytes, where: str) -> SentencePieceModel:
    """The parsed file, which may be hostile. Raises ConfigError for what no library could use."""
    try:
        model = _parsed(data)
    except (ValueError, IndexError, struct.error) as error:
        raise ConfigError(f"{where}: a damaged SentencePiece model: {error}") from None
    pieces = model.pieces
    reasons = {
        "with very many or very long pieces": len(pieces) > _MAX_PIECES
        or max(len(piece.text) for piece in pieces) > _MAX_PIECE_LETTERS,
        "with a piece twice": len({piece.text for piece in pieces}) != len(pieces),
        "without exactly one unknown piece": [piece.kind for piece in pieces].count(_UNKNOWN) != 1,
    }
    why = next((reason for reason, is_true in reasons.items() if is_true), None)
    if why is not None:
        raise ConfigError(f"{where}: a SentencePiece model {why}, which is not supported")
    return model


def tokenizer_json_of_model(data: bytes, where: str) -> dict[str, Any]:
    """The content of a tokenizer.json that encodes like this model. The file may be hostile."""
    model = parsed_model(data, where)
    why = _inconvertible(model)
    if why is not None:
        raise ConfigError(f"{where}: a SentencePiece model {why} cannot become a tokenizer.json")
    pieces, normalizer = model.pieces, model.normalizer
    begins_with_space = normalizer.get(3, 1)
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prefix = [{"type": "Prepend", "prepend": "▁"}] if begins_with_space else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if begins_with_space else []
    return {
        "added_tokens": [_special(token, text) for text, token in model.special_tokens.items()],
        "normalizer": {"type": "Sequence", "normalizers": [*prefix, space]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *strip,
            ],
        },
        "model": {
            "type": "BPE",
            "unk_token": next(piece.text for piece in pieces if piece.kind == _UNKNOWN),
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {piece.text: token for token, piece in enumerate(pieces)},
            "merges": _merges(pieces),
        },
    }


def _special(token: int, text: str) -> dict[str, Any]:
    sides = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token, "content": text, **sides, "special": True}


def _merges(pieces: list[ModelPiece]) -> list[list[str]]:
    ids = {piece.text: token for token, piece in enumerate(pieces) if piece.kind == _NORMAL}
    merges = []
    for piece in sorted(pieces, key=lambda piece: -piece.score):
        text = piece.text
        cuts = range(1, len(text)) if piece.kind == _NORMAL else ()
        pairs = [(text[:cut], text[cut:]) for cut in cuts]
        pairs = [(left, right) for left, right in pairs if left in ids and right in ids]
        merges += [[*pair] for pair in sorted(pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]]))]
    return merges


def _runs_agree(pieces: list[ModelPiece]) -> bool:
    """Whether both libraries merge runs of spaces alike. Their pieces have equal scores:
    sentencepiece then merges the leftmost pair, tokenizers the first of its merges."""
    spaces = [piece for piece in pieces if piece.text and not piece.text.strip("▁")]
    pairs = [(len(left), len(right)) for left, right in _merges(spaces)]
    first = {pair: rank for rank, pair in reversed([*enumerate(pairs)])}
    equal = dict.fromkeys(first, 0)
    return all(_merged_run(num, first) == _merged_run(num, equal) for num in range(_MAX_RUN))


def _merged_run(num_spaces: int, ranks: dict[tuple[int, int], int]) -> list[int]:
    run = [1] * num_spaces
    while True:
        pairs = [(ranks[pair], at) for at, pair in enumerate(pairwise(run)) if pair in ranks]
        if not pairs:
            return run
        at = min(pairs)[1]
        run[at : at + 2] = [run[at] + run[at + 1]]


def _inconvertible(model: SentencePieceModel) -> str | None:
    """Why a tokenizer.json cannot encode exactly like the model; None if it can."""
    pieces, trainer, normalizer = model.pieces, model.trainer, model.normalizer
    kinds = {piece.kind for piece in pieces}
    merged = [piece for piece in pieces if piece.kind == _NORMAL and len(piece.text) > 1]
    words = [piece for piece in merged if piece.text.strip("▁")]
    reasons = {
        "of another kind than BPE (such as unigram)": trainer.get(3, 1) != _BPE,
        "without bytes for unknown letters": not trainer.get(35, 0)
        or not {piece.text for piece in pieces if piece.kind == _BYTE} >= _BYTE_PIECES,
        "with a table of normalizations": bool(normalizer.get(2)),
        "that removes or keeps spaces in an unusual way": bool(
            normalizer.get(4, 1) or not normalizer.get(5, 1) or trainer.get(24, 0)
        ),
        "with user-defined symbols": _USER_DEFINED in kinds,
        "with unused pieces": _UNUSED in kinds,
        "with equal scores": len({piece.score for piece in words}) != len(words),
        "with runs of spaces in words": any("▁▁" in piece.text for piece in words),
        "with unusual runs of spaces": not _runs_agree(pieces),
    }
    return next((reason for reason, is_true in reasons.items() if is_true), None)


def _parsed(data: bytes) -> SentencePieceModel:
    pieces, trainer, normalizer = [], dict[int, Any](), dict[int, Any]()
    for field, value in _fields(data):
        if field == 1:
            pieces.append(_piece(value))
        elif field == 2:
            trainer = dict(_fields(value))
        elif field == 3:
            normalizer = dict(_fields(value))
    return SentencePieceModel(pieces, trainer, normalizer)


def _piece(data: Any) -> ModelPiece:
    plain = dict(_fields(data))
    score, kind = plain.get(2, 0.0), plain.get(3, _NORMAL)
    if not isinstance(score, float) or math.isnan(score) or not isinstance(plain.get(1), bytes):
        raise ValueError("a piece has no text or no score")
    return ModelPiece(plain[1].decode(), score, kind)


def _fields(data: Any) -> Iterator[tuple[int, Any]]:
    """The numbers and values of a protobuf message's fields."""
    if not isinstance(data, bytes):
        raise ValueError("a field is not a message")
    position = 0
    while position < len(data):
        tag, position = _number(data, position)
        wire, size = tag & 7, {1: 8, 5: 4}.get(tag & 7, 0)
        if wire == 0:
            value, position = _number(data, position)
            yield tag >> 3, value
            continue
        if wire == 2:
            size, position = _number(data, position)
        if wire not in (1, 2, 5) or position + size > len(data):
            raise ValueError(f"at byte {position} of a message")
        field = data[position : position + size]
        yield tag >> 3, struct.unpack("<f", field)[0] if wire == 5 else field
        position += size


def _number(data: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        number, position = number | (byte & 0x7F) << shift, position + 1
        if byte < 0x80:
            return number, position
    raise ValueError(f"an endless number at byte {position}")
