"""A task that cuts inputs into spans in a worker, because parsing them may crash it.

Parsers of footers are native code, and files are hostile: a crafted footer aborts pyarrow 26. A
worker reports each input before it starts the next, so we know which file killed it. That file is
tried on a second worker, because anything may kill a process once; a second death is the file's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tokenmill.corpus.input_spans import Cut
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.spans import Input, Span
from tokenmill.errors import InputError, TokenmillError, error_from_plain
from tokenmill.runners.exit_diagnosis import Death, printable

CUT_INPUTS = 64  # per order: a round trip for each input would cost 0.1 ms


class InputCutting:
    """Some inputs and their results so far, in order; an error ends the list."""

    is_exclusive = False
    is_alone = False  # there are no shards to commit yet

    def __init__(
        self, sources: Sequence[Input], options: ReadOptions, max_rows: int | None
    ) -> None:
        self.found: list[Cut] = []
        self.error: TokenmillError | None = None
        self.is_begun = False  # by its current worker
        self._sources = sources
        self._options = options
        self._max_rows = max_rows
        self._died_at: int | None = None

    @property
    def is_done(self) -> bool:
        return self.error is not None or len(self.found) == len(self._sources)

    def order(self) -> dict[str, Any]:
        self.is_begun = False
        left = self._sources[len(self.found) :]
        return {
            "cut": [[getattr(source, name) for name in Input.__slots__] for source in left],
            "read": asdict(self._options),
            "max_rows": self._max_rows,
        }

    def on_message(self, kind: str, content: list[Any]) -> None:
        """Handle a worker's message about it: "cutting", "cut" or "uncut"."""
        self.is_begun = True
        if kind == "cut":
            spans, num_rows, kept_types = content
            source = self._sources[len(self.found)]
            found = tuple(Span(source, *rest) for rest in spans)
            self.found.append(Cut(found, num_rows, kept_types))
        elif kind == "uncut":
            self.error = error_from_plain(content[0])

    def failed(self, death: Death) -> str:
        if not self.is_begun:
            return "another worker takes its inputs"
        if self._died_at != len(self.found):
            self._died_at = len(self.found)
            return "it is tried again, to be sure"
        source = self._sources[len(self.found)]
        self.error = InputError(
            f"{printable(source.name)}: reading its {_what(source)} killed the process, twice "
            f"({death.cause}: {death.likely})",
            hint="the file is damaged or malicious: download it again, or leave it out",
        )
        return "the file is to blame"

    @property
    def doing(self) -> str:
        source = self._sources[len(self.found)]
        return f"reading the {_what(source)} of {printable(source.name)}"


def _what(source: Input) -> str:
    return "footer" if source.kind == "parquet" else "structure"
