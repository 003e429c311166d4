"""SentencePiece's `.model` files: recognised, so that none is taken for ranks. Not read.

The file is a protobuf message whose first field is a list of pieces. Its models cannot be built
exactly from `tokenizers` in every case (normalizer tables, user-defined symbols), and a published
model has a `tokenizer.json` beside it.
"""

from __future__ import annotations

from tokenmill.encodings.tokenizer_json import TO_TOKENIZER_JSON
from tokenmill.errors import ConfigError

_PIECE, _TEXT = 0x0A, 0x0A  # field 1, of variable length: of the message, and of a piece


def refuse_sentencepiece(data: bytes, where: str) -> None:
    # A piece: its tag, its length (under 128), the tag of its text, the text's length, the text.
    if len(data) < 5 or data[0] != _PIECE or data[2] != _TEXT or data[1] < data[3]:
        return
    raise ConfigError(
        f"{where}: a SentencePiece model, which is not read",
        hint=TO_TOKENIZER_JSON,
    )
