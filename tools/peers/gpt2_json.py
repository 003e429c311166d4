"""gpt2 as a Hugging Face tokenizer.json, made from its ranks: `python gpt2_json.py TO`."""

from __future__ import annotations

import base64
import json
import os
import sys
from itertools import pairwise

SPECIAL = "<|endoftext|>"
VOCABULARY = os.path.join(
    os.path.dirname(__file__), "../../src/tokenmill/encodings/vocab/r50k_base.tiktoken"
)


def write_tokenizer_json(path: str) -> None:
    """gpt2 as a Hugging Face tokenizer: a merge is how the ranks below make a token."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    with open(VOCABULARY, "rb") as lines:
        ranks = {base64.b64decode(k): int(v) for k, v in (line.split() for line in lines)}
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in shown}
    hidden = [byte for byte in range(256) if byte not in letters]
    letters |= {byte: chr(256 + position) for position, byte in enumerate(hidden)}

    def written(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    def halves(token: bytes) -> list[bytes]:
        parts = [bytes([byte]) for byte in token]
        while len(parts) > 2:
            joined = [ranks.get(a + b, 1 << 30) for a, b in pairwise(parts)]
            at = joined.index(min(joined))
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return parts

    merges = [
        tuple(map(written, halves(token)))
        for token in sorted(ranks, key=ranks.__getitem__)
        if len(token) > 1
    ]
    vocabulary = {written(token): rank for token, rank in ranks.items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(SPECIAL, special=True)])
    plain = json.loads(tokenizer.to_str())
    plain["model"]["merges"] = [" ".join(merge) for merge in merges]  # as tokenizers 0.19 wants it
    with open(path, "w") as file:
        json.dump(plain, file)


if __name__ == "__main__":
    write_tokenizer_json(sys.argv[1])
