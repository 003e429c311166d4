"""One split of an open dataset: tokens by position, documents by number, texts.

    split.tokens(0, 1024)        a view of the mapped file if one shard holds them all
    split.document(41)           found by the index (document_bounds.py)
    split.kept(41)               its url, file and row, if they were kept (kept_rows.py)
    for tokens in split: ...     documents in order, without an index

Arrays are read-only and stay valid after the dataset is closed: a view keeps its map.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tokenmill.dataset.content import Content, document_content, token_content
from tokenmill.dataset.document_bounds import DocumentBounds
from tokenmill.dataset.index_cache import IndexCache
from tokenmill.dataset.kept_rows import KeptRows, kept_rows_of
from tokenmill.dataset.open_shards import OpenShards
from tokenmill.dataset.stream import READ_TOKENS, Stream, Tokens
from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.formats import Files
from tokenmill.wording.plural import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.dataset.inspect.folder import LookedInto


class Split:
    """A split of `looked`; `key` returns what identifies its content in the cache."""

    def __init__(
        self, looked: LookedInto, name: str, key: Callable[[], Any], cache: IndexCache | None
    ) -> None:
        self.name = name
        self._looked = looked
        self._key = key
        self._cache = cache
        self._stream: Stream = looked.dataset.streams[name]
        self.shards = OpenShards(looked.dataset.files, self._stream)

    # What it holds

    @property
    def num_tokens(self) -> int:
        return self._stream.num_tokens

    @functools.cached_property
    def num_documents(self) -> int:
        return len(self.bounds)

    def __len__(self) -> int:
        return self.num_documents

    @functools.cached_property
    def dtype(self) -> np.dtype[Any]:
        """Of its tokens; opens a shard."""
        return np.dtype(self._looked.dataset.dtype)

    @property
    def stream(self) -> Stream:
        return self._stream

    @property
    def files(self) -> Files:
        return self._looked.dataset.files

    @functools.cached_property
    def bounds(self) -> DocumentBounds:
        """Where documents begin and end. Raises ConfigError if nothing says so."""
        return DocumentBounds(self._stream, self.shards, self._cache, self._key())

    @functools.cached_property
    def token_content(self) -> str:
        """Identifies its tokens; 64 places of them are read."""
        return token_content(self, self._looked.dataset.manifest)

    @functools.cached_property
    def content(self) -> Content:
        """Identifies its tokens and its documents."""
        documents = document_content(self, self._looked.dataset.manifest)
        return Content(self.token_content, documents)

    @functools.cached_property
    def _kept(self) -> KeptRows | None:
        dataset = self._looked.dataset
        return kept_rows_of(dataset.files, dataset.manifest, self.name)

    # Tokens and documents

    def tokens(self, start: int = 0, stop: int | None = None) -> Tokens:
        """Tokens `start` to `stop`, as in a slice; a view if one shard holds them all."""
        start, stop, _ = slice(start, stop).indices(self.num_tokens)
        pieces = list(self._pieces(start, stop))
        if not pieces:
            return np.empty(0, self.dtype)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def document(self, number: int, specials: bool = True) -> Tokens:
        """The tokens of a document, with or without its EOT and BOS ids. Raises IndexError; -1 is
        the last one."""
        ids = self.tokens(*self.span(number))
        if specials:
            return ids
        dataset = self._looked.dataset
        is_text: npt.NDArray[np.bool_] = (ids != dataset.eot_id) & (ids != dataset.bos_id)
        return np.asarray(ids[is_text])

    def span(self, number: int) -> tuple[int, int]:
        """The first token of a document, and its end."""
        found = operator.index(number)
        if not -len(self) <= found < len(self):
            raise IndexError(
                f"{self.name} has {counted(len(self), 'document')}, there is no number {found:,}"
            )
        return self.bounds.bounds(found % len(self))

    def document_at(self, token: int) -> int:
        """The number of the document that holds a token of the split."""
        if not 0 <= token < self.num_tokens:
            raise IndexError(f"{self.name} has {counted(self.num_tokens, 'token')}")
        return int(self.bounds.numbers_at(np.array([token]))[0])

    def kept(self, number: int) -> dict[str, Any]:
        """What `prepare --keep` kept of a document: the columns named, and where it comes from
        (`_source`, `_file`, `_row`). Raises IndexError; ConfigError if nothing was kept."""
        if self._kept is None:
            raise ConfigError(
                f"{self.files.label}: nothing is kept of its documents",
                hint="prepare it with keep='id,url'",
            )
        found = operator.index(number)
        row = self._kept.row(found + len(self) if found < 0 else found)
        if row is None:
            raise IndexError(
                f"{self.name} has {counted(self._kept.num_rows, 'document')}, there is no number "
                f"{found:,}"
            )
        return row

    def __getitem__(self, number: int) -> Tokens:
        return self.document(number)

    def __iter__(self) -> Iterator[Tokens]:
        """The documents in order."""
        for group in self._groups():
            yield from np.split(group[0], group[1][:-1])

    def blocks(self, num_tokens: int = 1 << 20) -> Iterator[Tokens]:
        """All tokens in order, in arrays of `num_tokens`; the last one may be shorter."""
        if num_tokens < 1:
            raise ConfigError(f"a block has at least one token, got {num_tokens}")
        return (
            self.tokens(start, start + num_tokens)
            for start in range(0, self.num_tokens, num_tokens)
        )

    # Texts and tables

    def text(self, number: int) -> str:
        """A document as text, without EOT and BOS ids. Bytes that are not UTF-8 become U+FFFD."""
        encoding = self._looked.encoding
        if encoding is None:
            why = (self._looked.missing or "").replace("--tokenizer ", "tokenizer=")
            raise ConfigError(
                f"{self.files.label}: no text without the tokenizer, {why}",
                hint="tokenmill.open(path, tokenizer='FILE or name')",
            )
        try:
            return encoding.decode(self.document(number, specials=False).tolist())
        except KeyError as error:
            raise IntegrityError(
                f"document {number} of {self.name} has an id that {encoding.name} does not know: "
                f"{error}",
                hint="is it the tokenizer that made these tokens?",
            ) from None

    def to_arrow(self) -> pa.RecordBatchReader:
        """The documents as Arrow record batches with a column `input_ids`, made on demand:
        `.to_arrow().read_all()` is the table."""
        import pyarrow as pa

        schema = pa.schema({"input_ids": pa.large_list(pa.from_numpy_dtype(self.dtype))})

        def batches() -> Iterator[pa.RecordBatch]:
            for tokens, ends in self._groups():
                offsets = pa.array(np.concatenate([[0], ends]))
                values = pa.array(np.ascontiguousarray(tokens))
                lists = pa.LargeListArray.from_arrays(offsets, values)
                yield pa.record_batch([lists], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def to_datasets(self) -> Any:
        """The documents as an `IterableDataset` of Hugging Face's `datasets`, which must be
        installed; nothing is copied to its cache."""
        try:
            from datasets import IterableDataset
        except ImportError:
            raise ConfigError(
                "to_datasets() needs the package datasets", hint="pip install datasets"
            ) from None
        return IterableDataset.from_generator(_rows_of, gen_kwargs={"split": self})

    def __repr__(self) -> str:
        return (
            f"<Split {self.name}: {counted(self.num_tokens, 'token')} in "
            f"{counted(len(self._stream.shards), 'shard')} of {self.files.label}>"
        )

    def _groups(self) -> Iterator[tuple[Tokens, npt.NDArray[np.int64]]]:
        """Groups of documents: their tokens, and where each ends among these."""
        _ = self.bounds  # raises an error if there are no documents
        stream = self._stream.with_shards(self._stream.shards)
        for documents in stream.documents(READ_TOKENS):
            assert documents.lengths is not None, "its bounds are known"
            tokens = np.asarray(documents.tokens)
            yield tokens, np.cumsum(documents.lengths, dtype=np.int64)

    def _pieces(self, start: int, stop: int) -> Iterator[Tokens]:
        """The tokens from `start` to `stop`, shard by shard."""
        position = self._stream.position_of(start)
        while start < stop:
            at = self._stream.start_of(position)
            end = min(stop, self._stream.start_of(position + 1))
            if start < end:
                yield self.shards.tokens(position, start - at, end - at)
                start = end
            position += 1


def _rows_of(split: Split) -> Iterator[dict[str, Tokens]]:
    for tokens in split:
        yield {"input_ids": tokens}
