"""Compares tokenizers on the same text: bytes per token, source by source, and tokens never used.

A corpus is divided by the names of its sources (`de=german/ fr=french/`), or else by its files,
which often stand for languages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.config import Config
from tokenmill.corpus.hub_names import hub_source
from tokenmill.corpus.inputs import found_inputs
from tokenmill.corpus.planning import make_plan
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.corpus.rows import documents
from tokenmill.corpus.spans import Input, Span
from tokenmill.encodings import Encoding
from tokenmill.errors import ConfigError, InputError

BYTES_PER_SOURCE = 8 << 20


@dataclass
class Usage:
    """The tokens of some text with one tokenizer."""

    num_tokens: int = 0
    counts: np.ndarray[tuple[int], np.dtype[np.int64]] = field(
        default_factory=lambda: np.zeros(0, np.int64), repr=False
    )

    def add(self, ids: np.ndarray[tuple[int], np.dtype[np.uint32]], n_vocab: int) -> None:
        self.num_tokens += len(ids)
        if not len(self.counts):
            self.counts = np.zeros(n_vocab, np.int64)
        self.counts += np.bincount(ids, minlength=n_vocab)

    @property
    def num_unused(self) -> int:
        return int(np.count_nonzero(self.counts == 0))


@dataclass
class Compared:
    """A source, a file, or all of them: its text, and each tokenizer's tokens."""

    name: str
    text_bytes: int = 0
    num_documents: int = 0
    usage: dict[str, Usage] = field(default_factory=dict)

    def bytes_per_token(self, tokenizer: str) -> float:
        return self.text_bytes / max(1, self.usage[tokenizer].num_tokens)


def compare(
    encodings: Mapping[str, Encoding],
    config: Config,
    bytes_per_source: int = BYTES_PER_SOURCE,
    max_files: int | None = None,
) -> list[Compared]:
    """Each source, about its first `bytes_per_source`, and then all together. Of files without a
    name, at most `max_files`, spread over the corpus. Encodings have any names."""
    _require_here(config)
    inputs = found_inputs(config).inputs
    if not config.named and max_files is not None and len(inputs) > max_files:
        inputs = tuple(inputs[len(inputs) * i // max_files] for i in range(max_files))
    plan = make_plan({}, inputs, config)
    options = ReadOptions.by_source(config)
    spans = (span for slice_ in plan.slices for span in slice_.spans)
    found = []
    for name, own in itertools.groupby(spans, lambda span: _name_of(span.input)):
        one = Compared(name)
        for texts in _texts(own, options):
            if one.text_bytes >= bytes_per_source:
                break
            _add(one, encodings, texts)
        found.append(one)
    if not any(one.num_documents for one in found):
        raise InputError(f"no document in {', '.join(config.sources)} has text")
    return [*found, _total(found, encodings)]


def are_here(config: Config) -> bool:
    return not any(map(hub_source, _paths(config)))


def _require_here(config: Config) -> None:
    """Raise ConfigError for datasets on the Hub: they are not downloaded for a small table."""
    for path in _paths(config):
        if (on_hub := hub_source(path)) is not None:
            raise ConfigError(
                f"{path} is on the Hub, and compare reads local files",
                hint=on_hub.download_command,
            )


def _paths(config: Config) -> Iterator[str]:
    return itertools.chain.from_iterable(own.sources for own in config.by_source().values())


def _name_of(source: Input) -> str:
    return source.source or source.name


def _texts(
    spans: Iterable[Span], options: Mapping[str, ReadOptions]
) -> Iterator[pa.LargeStringArray]:
    for span in spans:
        reader = reader_for(span.input.kind, options[span.input.source])
        for rows in documents(reader, span, options[span.input.source]):
            yield rows.texts.drop_null()


def _add(found: Compared, encodings: Mapping[str, Encoding], texts: pa.LargeStringArray) -> None:
    found.num_documents += len(texts)
    found.text_bytes += int(pc.sum(pc.binary_length(texts)).as_py() or 0)
    for name, encoding in encodings.items():
        usage = found.usage.setdefault(name, Usage())
        usage.add(encoding.encode_array(texts).ids, encoding.n_vocab)


def _total(found: Iterable[Compared], encodings: Mapping[str, Encoding]) -> Compared:
    found = list(found)
    total = Compared(
        "all", sum(one.text_bytes for one in found), sum(one.num_documents for one in found)
    )
    for name in encodings:
        used = [one.usage[name] for one in found if name in one.usage]
        total.usage[name] = Usage(
            sum(usage.num_tokens for usage in used),
            np.sum([usage.counts for usage in used], axis=0, dtype=np.int64),
        )
    return total
