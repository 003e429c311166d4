"""The command that shows a place in a dataset, for the user to paste."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tokenmill.dataset.inspect import LookedInto
from tokenmill.look.report.figures import Place

# In foreign splits, documents are counted up to this many tokens.
COUNTED_TOKENS = 1 << 24


class Commands:
    """`options` are those that the folder does not state: --tokenizer gpt2."""

    def __init__(self, looked: LookedInto, options: Sequence[str] = ()) -> None:
        self._looked = looked
        self._options = list(options)

    def inspect(self, split: str | None = None, *arguments: str) -> str:
        named = [] if split in (None, self.usual_split) else ["--split", str(split)]
        words = ["tokenmill", "inspect", self._looked.dataset.name, *named, *arguments]
        return shlex.join([*words, *self._options])

    def verify(self) -> str:
        options = self._options
        if self._looked.dataset.manifest is None and "--format" not in options:
            options = ["--format", self._looked.dataset.format.name, *options]
        return shlex.join(["tokenmill", "verify", self._looked.dataset.name, *options])

    @property
    def usual_split(self) -> str | None:
        """The split that `inspect` shows by default."""
        streams = self._looked.dataset.streams
        return self._looked.stream(None).split if streams else None

    def place(self, split: str, start: int, num_tokens: int, number: int | None = None) -> Place:
        """A document by its number, if that is known or found quickly, else by its first token."""
        if number is None and num_tokens:
            number = self._number(split, start)
        if number is not None:
            command = self.inspect(split, "--doc", str(number))
            return Place(split, start, num_tokens, number, command)
        last = self._looked.dataset.streams[split].num_tokens - 1
        return Place(split, start, num_tokens, None, self.at(split, min(start, last)))

    def at(self, split: str, token: int) -> str:
        return self.inspect(split, "--token-offset", str(token))

    def _number(self, split: str, start: int) -> int | None:
        dataset = self._looked.dataset
        stream = dataset.streams[split]
        if not dataset.files.is_local or stream.has_boundaries or stream.eot == "both":
            is_quick = stream.num_tokens <= COUNTED_TOKENS and dataset.files.is_local
        else:
            is_quick = dataset.manifest is not None or start <= COUNTED_TOKENS
        return stream.document_at(start) if is_quick else None
