"""The corpus as plain data: inputs, the spans that readers cut them into, slices of spans.

An `Input` is one file with its identity. A `Span` is a piece of it that can be read on its own:
whole parquet row groups, arrow batches, or a byte range cut at document ends. A `Slice` is a
sequence of spans with about 32 MB of text, the unit of work, retry and resume; it may cross file
boundaries, so that a million small files do not become a million parts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

HUB_SCHEME = "hf://"  # of sources on the Hugging Face Hub
TAG = "tag:"  # begins the digest of an object
EDGE_BYTES = 64 << 10  # of each end of a local file, which its digest covers


def known_ns(found: os.stat_result) -> int:
    """When a file was modified. Of a file from an image or archive without times, 0 is 1 here,
    because 0 stands for an unknown time."""
    return found.st_mtime_ns or 1


@dataclass(frozen=True, slots=True)
class Input:
    """One file of the corpus, with its identity."""

    path: str  # where readers open it: a file's path, or an object's URL
    kind: str  # the reader's name: parquet, arrow, jsonl, csv, tsv, text
    compression: str | None  # of the file as a whole (not parquet and arrow): gzip, zstd, ...
    num_bytes: int
    mtime_ns: int  # 0: unknown, as for a remote file, whose digest covers all bytes
    # sha256 of the first and last EDGE_BYTES; for a remote file, of all bytes; for an object, its
    # store's tag ("tag:...").
    digest: str
    origin: str | None = None  # its source, if that differs from `path`
    source: str = ""  # the named source that it belongs to

    def to_plain(self) -> tuple[Any, ...]:
        fields = tuple(getattr(self, name) for name in self.__slots__)
        return fields if self.source else fields[:-1]  # as in plans made before sources had names

    @property
    def name(self) -> str:
        """The file's name in plans, manifests and messages."""
        return self.origin or self.path

    @property
    def label(self) -> str:
        """Its name with that of its source: a file may belong to two sources."""
        return f"{self.source}={self.name}" if self.source else self.name

    @property
    def has_tag(self) -> bool:
        """Whether its store gave it a tag, which changes with the content."""
        return self.digest.startswith(TAG)

    @property
    def has_unknown_middle(self) -> bool:
        """Whether `digest` covers the ends of the file alone. Other digests name their hash."""
        return self.num_bytes > 2 * EDGE_BYTES and ":" not in self.digest


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of one input. `start` and `stop` are in the reader's own unit (row groups, bytes)."""

    input: Input
    start: int
    stop: int
    text_bytes: int  # an estimate: for progress, for slices of even size
    first_row: int = 0  # number of the span's first row in its file, if known
    num_rows: int | None = None  # rows in the span, if the file states them
    max_rows: int | None = None  # read no further than this (--limit-docs)

    @property
    def is_ruled_out(self) -> bool:
        """Whether nothing is read: `num_rows` rows that --where leaves out, by the file's own
        statistics."""
        return self.start == self.stop and self.input.num_bytes > 0


@dataclass(frozen=True, slots=True)
class Slice:
    index: int
    spans: tuple[Span, ...]
    max_tokens: int | None = None  # it ends with the document that reaches this (--limit-tokens)
    # If it is made from a slice of the plan: that slice's index, and which of its documents are
    # copies of earlier ones, to be left out (--dedup; encode/pruning.py).
    original: int | None = None
    copies: str = ""

    @property
    def text_bytes(self) -> int:
        return sum(span.text_bytes for span in self.spans)

    @property
    def source(self) -> str:
        """The named source of the whole slice; "" if sources have no names."""
        return self.spans[0].input.source

    @property
    def is_pruning(self) -> bool:
        """Whether a part is written again without copies, and nothing is read from inputs."""
        return bool(self.copies) and self.max_tokens is None

    @property
    def inputs_read(self) -> list[Input]:
        """The inputs whose content is needed, each once."""
        return list(dict.fromkeys(span.input for span in self.spans if not span.is_ruled_out))

    def read_from(self, moved: Mapping[str, str]) -> Slice:
        """The same slice, with new paths for inputs that have moved; `moved` has them by name."""
        if not moved:
            return self
        spans = (
            replace(span, input=replace(span.input, path=moved[span.input.name]))
            if span.input.name in moved
            else span
            for span in self.spans
        )
        return replace(self, spans=tuple(spans))

    def to_plain(self) -> dict[str, Any]:
        """JSON-ready data; each input appears once, and spans refer to it by position."""
        inputs = list(dict.fromkeys(span.input for span in self.spans))
        position = {source: i for i, source in enumerate(inputs)}
        return {
            "index": self.index,
            "max_tokens": self.max_tokens,
            "original": self.original,
            "copies": self.copies,
            "inputs": [source.to_plain() for source in inputs],
            "spans": [
                [
                    position[s.input],
                    s.start,
                    s.stop,
                    s.text_bytes,
                    s.first_row,
                    s.num_rows,
                    s.max_rows,
                ]
                for s in self.spans
            ],
        }

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Slice:
        inputs = [Input(*fields) for fields in plain["inputs"]]
        spans = tuple(Span(inputs[i], *rest) for i, *rest in plain["spans"])
        rest = ("max_tokens", "original", "copies")
        return Slice(plain["index"], spans, *(plain[name] for name in rest))
