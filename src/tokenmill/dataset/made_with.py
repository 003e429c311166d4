"""The encoding that made a dataset's tokens, when a user names it again.

A manifest identifies the encoding by its sha256, the sha256 of its vocabulary file, pattern and EOT
token. It holds no path: paths differ between machines, and a manifest may come from anyone, so it
must not choose which file is read here. So the user names the vocabulary file again, by its path
alone, and it is compared. A model of the Hub is looked for in the Hub's cache by its name; no
server is asked.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenmill.encodings import Encoding, EncodingId, get_encoding
from tokenmill.encodings.lookup import cached_model
from tokenmill.errors import ConfigError


@dataclass(frozen=True, slots=True)
class NamedTokenizer:
    """A tokenizer as a user names it: --tokenizer, --pattern and --eot-token."""

    name: str
    pattern: str | None = None
    eot: str | None = None

    def encoding(self) -> Encoding:
        """The encoding, for shards that do not state their tokenizer. Raises ConfigError."""
        return get_encoding(self.name, pattern=self.pattern, eot=self.eot)

    def encoding_of(self, made_with: EncodingId) -> Encoding:
        """The encoding, if it is the one that made the tokens. An omitted pattern or EOT token is
        taken from the dataset. Raises ConfigError if it is another encoding."""
        pattern = self.pattern
        if pattern is None and os.path.isfile(self.name) and not self.name.endswith(".json"):
            pattern = made_with.pattern
        # A rank file has no EOT: the manifest has its text and id.
        eots = (made_with.eot_option, None) if self.eot is None else (self.eot,)
        candidates = []
        for eot in eots:
            try:
                bos = made_with.bos_option
                candidates.append(get_encoding(self.name, pattern=pattern, eot=eot, bos=bos))
            except ConfigError as error:
                refusal = error
                continue
            if is_same(candidates[-1].identity, made_with):
                return candidates[-1]
        if not candidates and pattern != self.pattern:
            with contextlib.suppress(ConfigError):  # a known file has a pattern of its own
                candidates.append(self.encoding())
        if not candidates:
            raise refusal
        raise _another(self.name, candidates[0].identity, made_with)


def made_with_of(encoding: Mapping[str, Any]) -> EncodingId:
    """The encoding that a manifest names. Raises IntegrityError if it is not a valid one."""
    return EncodingId.from_plain({**encoding, "source": None})


def model_in_cache(made_with: EncodingId) -> Encoding | None:
    """The encoding, if it is a model's on the Hub and its vocabulary is in the Hub's cache."""
    found = cached_model(made_with.name, pattern=None, eot=made_with.eot_option)
    return found if found is not None and is_same(found.identity, made_with) else None


def is_same(found: EncodingId, expected: EncodingId) -> bool:
    return (found.sha256, found.eot_token) == (expected.sha256, expected.eot_token)


def vocabulary_file(made_with: EncodingId) -> str:
    """A description of the needed file, for the user."""
    files = {
        "tiktoken": "a .tiktoken file",
        "tekken": "a tekken.json",
        "sentencepiece": "a SentencePiece model",
        "sentencepiece-library": "a SentencePiece model",
        "vocab-merges": "a vocab.json with its merges.txt",
    }
    file = files.get(made_with.kind, "a tokenizer.json")
    return f"{made_with.name}, {file} with sha256 {made_with.file_sha256[:12]}"


def require_same(found: EncodingId, made_with: EncodingId) -> None:
    if not is_same(found, made_with):
        raise _another(found.name, found, made_with)


def _another(name: str, found: EncodingId, made_with: EncodingId) -> ConfigError:
    if found.sha256 == made_with.sha256 or found.file_sha256 == made_with.file_sha256:
        return ConfigError(
            f"--tokenizer {name} is the right file, but with pattern {found.pattern} and EOT "
            f"{found.eot} ({found.eot_token}); the tokens were made with pattern "
            f"{made_with.pattern} and EOT {made_with.eot} ({made_with.eot_token})",
            hint="leave --pattern and --eot-token out: the manifest knows them",
        )
    return ConfigError(
        f"--tokenizer {name} has sha256 {found.sha256}, but the tokens were made with "
        f"{made_with.name}, sha256 {made_with.sha256}",
        hint=f"name the original file; its own sha256 is {made_with.file_sha256}",
    )
