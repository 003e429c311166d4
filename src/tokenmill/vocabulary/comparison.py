"""Several tokenizers on the same text: bytes per token, file by file, and tokens never used.

Files are what a corpus is divided into where there is no better name: one per language, per source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.config import Config
from tokenmill.corpus.inputs import found_inputs
from tokenmill.corpus.planning import make_plan
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.corpus.spans import Span
from tokenmill.encodings import Encoding
from tokenmill.errors import InputError

BYTES_PER_FILE = 8 << 20


@dataclass
class Usage:
    """How one tokenizer does on some text."""

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
    """A file, or all of them: its text, and each tokenizer's tokens of it."""

    name: str
    text_bytes: int = 0
    num_documents: int = 0
    usage: dict[str, Usage] = field(default_factory=dict)

    def bytes_per_token(self, tokenizer: str) -> float:
        return self.text_bytes / max(1, self.usage[tokenizer].num_tokens)


def compare(
    encodings: Mapping[str, Encoding], config: Config, bytes_per_file: int = BYTES_PER_FILE
) -> list[Compared]:
    """Each file of the corpus, as far as its first `bytes_per_file` go, and then all together; for
    tokenizers by what the table calls them, because two files may have one name."""
    plan = make_plan({}, found_inputs(config).inputs, config)
    files: dict[str, Compared] = {}
    spans = (span for slice_ in plan.slices for span in slice_.spans)
    for span in spans:
        found = files.setdefault(span.input.name, Compared(span.input.name))
        for texts in _texts(span, config):
            if found.text_bytes >= bytes_per_file:
                break
            _add(found, encodings, texts)
    if not any(one.num_documents for one in files.values()):
        raise InputError(f"no document in {', '.join(config.sources)} has text")
    return [*files.values(), _total(files.values(), encodings)]


def _texts(span: Span, config: Config) -> Iterable[pa.LargeStringArray]:
    for batch in reader_for(span.input.kind, ReadOptions.of(config)).batches(span):
        yield batch.texts.drop_null()


def _add(found: Compared, encodings: Mapping[str, Encoding], texts: pa.LargeStringArray) -> None:
    found.num_documents += len(texts)
    found.text_bytes += int(pc.sum(pc.binary_length(texts)).as_py() or 0)
    for name, encoding in encodings.items():
        usage = found.usage.setdefault(name, Usage())
        usage.add(encoding.encode_array(texts).ids, encoding.n_vocab)


def _total(files: Iterable[Compared], names: Iterable[str]) -> Compared:
    files = list(files)
    total = Compared(
        "all", sum(one.text_bytes for one in files), sum(one.num_documents for one in files)
    )
    for name in names:
        used = [one.usage[name] for one in files if name in one.usage]
        total.usage[name] = Usage(
            sum(usage.num_tokens for usage in used),
            np.sum([usage.counts for usage in used], axis=0, dtype=np.int64),
        )
    return total
