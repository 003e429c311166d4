"""What the page asks for, as plain values: a place in a split, a page of tokens, a strip, hits.

A document is shown in pages of PAGE_TOKENS, counted from its start, so that one of 200 million
tokens is no different from a short one. If documents are unknown, the split is shown as one
document.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import shlex
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tokenmill import __version__
from tokenmill.config.kinds import OWN_COLUMNS
from tokenmill.dataset.inspect import (
    Hit,
    LookedInto,
    Searched,
    TextPiece,
    TokenBytes,
    View,
    document,
    pieces,
    random_document,
    search_ids,
    search_text,
    token_offset,
)
from tokenmill.dataset.inspect.token_bytes import NO_TEXT
from tokenmill.dataset.manifest import manifest_sha256_of
from tokenmill.dataset.stream import Stream
from tokenmill.dataset.verify.source_corpus import NotAtHand
from tokenmill.dataset.verify.source_row import Document, DocumentSources, RowComparison, SourceRow
from tokenmill.encodings import Encoding
from tokenmill.errors import ConfigError, TokenmillError
from tokenmill.look.report.places import Commands
from tokenmill.look.view.steps import LoaderSteps, ShardAfterShard, StepRow, Steps, loader_steps
from tokenmill.look.web import text_runs
from tokenmill.wording.escapes import printable

PAGE_TOKENS = 1024
MAX_HITS = 200
MAX_NEEDLE = 1000
# The strip: bytes per token, of some tokens in each of some equal stretches.
_NUM_STRETCHES = 128
_STRETCH_TOKENS = 512
_MAX_KEPT = 1 << 15
_MAX_CHARACTER = 4  # bytes, and so tokens, of a character in UTF-8
# Rows of a step shown at a time, and first tokens of each.
STEP_ROWS = 64
_ROW_TOKENS = 32
# First characters of a source row that are shown.
_ROW_CHARACTERS = 2000

Plain = dict[str, Any]


class DatasetView:
    """`commands` are those that show the same place in a terminal, `other` is a tokenizer to
    compare with, `run` a Loader whose steps to show, `sources` where the inputs are, if they moved.
    Thread-safe."""

    def __init__(
        self,
        looked: LookedInto,
        commands: Commands,
        other: Encoding | None = None,
        run: LoaderSteps | None = None,
        sources: Sequence[str] = (),
    ) -> None:
        self._run = run
        self._other = other
        self.looked = looked
        self._commands = commands
        self._reading = threading.Lock()  # readers of some formats decode, one thread at a time
        self._searching = threading.Lock()
        self._num_searches = 0
        self._plain_pieces: dict[TextPiece, Plain] = {}
        self._sources = DocumentSources(looked.dataset, sources)
        self._tracing = threading.Lock()

    @functools.cached_property
    def mark(self) -> str:
        """Identifies the dataset that a link belongs to: a hash of the manifest, or of file
        sizes."""
        manifest = self.looked.dataset.manifest
        if manifest is not None:
            return manifest_sha256_of(manifest.to_plain())[:12]
        files = self.looked.dataset.files
        sizes = [[name, files.size(name)] for name in sorted(files.names())]
        return hashlib.sha256(json.dumps(sizes).encode()).hexdigest()[:12]

    @functools.cached_property
    def dataset(self) -> Plain:
        looked, made_with = self.looked, self.looked.made_with
        with self._reading:
            splits = [
                {
                    "name": name,
                    "num_tokens": stream.num_tokens,
                    "num_documents": looked.num_documents(name),
                    "knows_documents": stream.knows_documents,
                }
                for name, stream in looked.dataset.streams.items()
            ]
        return {
            "name": printable(looked.dataset.name),
            "mark": self.mark,
            "has_manifest": looked.dataset.manifest is not None,
            "format": looked.dataset.format.name,
            "tokenizer": None if made_with is None else printable(made_with.name),
            "other": None if self._other is None else printable(self._other.name),
            "run": None if self._run is None else _plain_run(self._run),
            "missing": None if looked.missing is None else printable(looked.missing),
            "splits": splits,
            "split": self._commands.usual_split,
            "version": __version__,
        }

    # Places

    def document(self, split: str, number: int) -> Plain:
        with self._reading:
            return self._place(document(self.looked, split, number, 0))

    def token(self, split: str, token: int) -> Plain:
        """The document that holds a token, and the page of it that does."""
        with self._reading:
            stream = self.looked.stream(split)
            view = token_offset(self.looked, split, token, 0, 2)
            if not stream.knows_documents:
                view = dataclasses.replace(view, start=0, stop=stream.num_tokens, num_bytes=None)
            return self._place(view)

    def random(self, split: str) -> Plain:
        with self._reading:
            return self._place(random_document(self.looked, split, None, 0))

    def page(self, split: str, start: int, stop: int) -> Plain:
        """Tokens `start` to `stop` of a split, as pieces of text; at most PAGE_TOKENS."""
        with self._reading:
            return self._page(self.looked.stream(split), start, stop)

    def _place(self, view: View) -> Plain:
        stream = self.looked.stream(view.split)
        token = view.start if view.token_offset is None else view.token_offset
        first = view.start + (token - view.start) // PAGE_TOKENS * PAGE_TOKENS
        return {
            "split": view.split,
            "document": view.document,
            "is_document": view.is_document,
            "start": view.start,
            "stop": view.stop,
            "num_bytes": view.num_bytes,
            "token": view.token_offset,
            "shard": printable(view.shard),
            "shard_start": view.shard_start,
            "page_tokens": PAGE_TOKENS,
            "command": self._command(view, token),
            "page": self._page(stream, first, view.stop),
        }

    def _command(self, view: View, token: int) -> str:
        if view.document is None:
            return self._commands.at(view.split, token)
        return self._commands.inspect(view.split, "--doc", str(view.document))

    def _page(self, stream: Stream, start: int, stop: int) -> Plain:
        ids = stream.tokens(start, min(stop, start + PAGE_TOKENS)).tolist()
        return {"start": start, "stop": start + len(ids), "pieces": self._pieces(ids)}

    def _pieces(self, ids: list[int]) -> list[Plain]:
        table = self.looked.token_bytes
        if table is None:
            return [
                {"kind": "id", "ids": [token], "bytes": [""], "runs": [str(token)]} for token in ids
            ]
        return [self._known(table, piece) for piece in pieces(table, ids)]

    def _known(self, table: TokenBytes, piece: TextPiece) -> Plain:
        """A piece as plain values, cached: tokens repeat, and making these is half the time of a
        page."""
        if piece not in self._plain_pieces:
            if len(self._plain_pieces) >= _MAX_KEPT:
                self._plain_pieces.clear()
            self._plain_pieces[piece] = _plain_piece(table, piece)
        return self._plain_pieces[piece]

    def compared(self, split: str, start: int, stop: int) -> Plain:
        """The text of a page in the tokens of the other tokenizer, from the first character that
        begins there to the end of the last. `skipped` are the bytes before it. Raises ConfigError
        if the other tokens do not decode to the same bytes."""
        table = self.looked.token_bytes
        if self._other is None or self._other_bytes is None or table is None:
            raise ConfigError("there is no second tokenizer: tokenmill view OUT --compare NAME")
        with self._reading:
            stream, stop = self.looked.stream(split), min(stop, start + PAGE_TOKENS)
            data, skipped = _whole_characters(
                table.joined(stream.tokens(max(0, start - _MAX_CHARACTER), start)),
                table.joined(stream.tokens(start, stop)),
                table.joined(stream.tokens(stop, stop + _MAX_CHARACTER)),
            )
            try:
                texts = [run.decode() for run in data.split(NO_TEXT) if run]
            except UnicodeDecodeError:
                raise ConfigError("bytes of this page are no text: it is not compared") from None
            ids = [token for text in texts for token in self._other.encode_ordinary(text)]
        table = self._other_bytes
        if b"".join(table.row(token) or b"" for token in ids) != data.replace(NO_TEXT, b""):
            raise ConfigError(f"{self._other.name} changes this text: it is not compared")
        found = [_plain_piece(table, piece) for piece in pieces(table, ids)]
        return {"pieces": found, "skipped": skipped}

    @functools.cached_property
    def _other_bytes(self) -> TokenBytes | None:
        return None if self._other is None else TokenBytes.of(self._other)

    # The source

    def source(self, split: str, number: int) -> Plain:
        """The row that a document was made from, read again and compared. If it cannot be found,
        the answer says why, with a hint."""
        with self._reading:
            view = document(self.looked, split, number, 0)
        one = Document(split, number, view.start, view.stop, view.kept)
        columns = [
            [printable(name), text_runs(_shown(value))]
            for name, value in (view.kept or {}).items()
            if name not in OWN_COLUMNS or name in ("_file", "_row")
        ]
        told: Plain = {"split": split, "document": number, "columns": columns}
        try:
            with self._tracing:
                row = self._sources.row(one)
                with self._reading:
                    identity = None if self.looked.encoding is None else self.looked.made_with
                    compared = self._sources.compared(one, row, identity)
        except NotAtHand as reason:
            return {**told, "verdict": "not found", **_reason(str(reason), reason.hint)}
        except TokenmillError as error:
            return {**told, "verdict": "not found", **_reason(error.message, error.hint)}
        return {**told, **_plain_row(row, compared)}

    # Steps

    def steps(self, split: str, reader: str, options: Plain) -> Steps:
        """The steps of a run over this split. `options` are those of `tokenmill.Loader`, or of the
        loop over shards."""
        if reader == "run":
            if self._run is None:
                raise ConfigError("there is no run: tokenmill view OUT --loader run.json")
            return self._run
        if reader == "shards":
            sizes = [shard.num_tokens for shard in self.looked.stream(split).shards]
            return ShardAfterShard(split, sizes, **options)
        name = options.pop("name", "data")
        return loader_steps(self.looked, name, {"split": split, **options})

    def step(self, steps: Steps, step: int, first: int) -> Plain:
        """Up to STEP_ROWS rows of a step, with the beginning of each."""
        with self._reading:
            rows = steps.rows(step, first, first + STEP_ROWS)
            return {
                "step": step,
                "split": steps.split,
                "first": first,
                "num_rows": steps.num_rows(),
                "seq_len": steps.seq_len,
                "rows": [self._step_row(steps, row) for row in rows],
            }

    def _step_row(self, steps: Steps, row: StepRow) -> Plain:
        looked = self.looked
        if isinstance(steps, LoaderSteps):
            looked = steps.datasets[row.source].looked
        stream = looked.stream(steps.split)
        shown = stream.tokens(row.start, row.start + min(_ROW_TOKENS, steps.seq_len)).tolist()
        table, place = looked.token_bytes, f"{steps.split}/token/{row.start}"
        text = " ".join(map(str, shown))
        if table is not None:
            text = "".join(piece.text for piece in pieces(table, shown))
        here, there = (os.path.realpath(one.dataset.name) for one in (self.looked, looked))
        return {
            **dataclasses.asdict(row),
            "stop": row.start + steps.seq_len,
            "shard": printable(stream.shard_at(row.start)[0].name),
            "is_here": here == there,
            "command": shlex.join(["tokenmill", "view", looked.dataset.name, "--at", place]),
            "text": text_runs(text),
        }

    # The whole split

    def strip(self, split: str) -> Plain:
        """Bytes per token along a split, at regular places. Nothing over a network, where each
        place is a request."""
        table, stream = self.looked.token_bytes, self.looked.stream(split)
        if table is None or not self.looked.dataset.files.is_local or not stream.num_tokens:
            return {"split": split, "bytes_per_token": []}
        count = max(1, min(_NUM_STRETCHES, stream.num_tokens // _STRETCH_TOKENS))
        starts = [stream.num_tokens * number // count for number in range(count)]
        with self._reading:
            found = [stream.tokens(start, start + _STRETCH_TOKENS) for start in starts]
            ratios = [table.num_bytes(tokens) / len(tokens) for tokens in found]
        return {"split": split, "bytes_per_token": [round(ratio, 3) for ratio in ratios]}

    # Search

    def search(self, split: str, text: str | None, ids: list[int]) -> Iterator[Plain]:
        """Hits and progress as they come. A new search ends a running one."""
        if len(text or "") > MAX_NEEDLE or len(ids) > MAX_NEEDLE:
            raise ConfigError(f"a search takes up to {MAX_NEEDLE:,} characters or ids")
        looked, stream = self._own_readers, self.looked.stream(split)
        if text is not None:
            found = search_text(looked, [split], text, MAX_HITS)
        else:
            found = search_ids(looked, [split], ids, MAX_HITS)
        self._num_searches += 1
        return self._searched(found, self._num_searches, stream.num_tokens)

    def _searched(self, found: Iterator[Searched], number: int, num_tokens: int) -> Iterator[Plain]:
        num_hits = num_read = 0
        with self._searching:
            for searched in found:
                if self._num_searches != number:
                    return
                num_hits, num_read = num_hits + len(searched.hits), searched.num_tokens
                hits = [_hit(hit) for hit in searched.hits]
                yield {"hits": hits, "num_read": num_read, "num_tokens": num_tokens}
        yield {"end": True, "is_complete": num_hits < MAX_HITS, "num_read": num_read}

    @functools.cached_property
    def _own_readers(self) -> LookedInto:
        """The same dataset with its own open shards, so that a search and a jump do not
        interfere."""
        dataset = self.looked.dataset
        streams = {name: one.with_shards(one.shards) for name, one in dataset.streams.items()}
        own = dataclasses.replace(
            self.looked, dataset=dataclasses.replace(dataset, streams=streams)
        )
        vars(own)["token_bytes"] = self.looked.token_bytes  # made once, and read-only
        return own


def _whole_characters(before: bytes, data: bytes, after: bytes) -> tuple[bytes, int]:
    """The characters that begin in `data`, and how many of its bytes are of one that begins before.
    Bytes that are no text stay as they are."""
    whole, start = before + data + after, len(before)
    first, end = (_character_end(whole, at) for at in (start, start + len(data)))
    return whole[first:end], min(first, start + len(data)) - start


def _character_end(data: bytes, at: int) -> int:
    """The end of the character that goes on at a place; the place itself if none does."""
    for begin in range(max(0, at - _MAX_CHARACTER + 1), at):
        for end in range(at + 1, begin + _MAX_CHARACTER + 1):
            with contextlib.suppress(UnicodeDecodeError):
                if len(data[begin:end].decode()) == 1:
                    return end
    return at


def _plain_piece(table: TokenBytes, piece: TextPiece) -> Plain:
    return {
        "kind": piece.kind,
        "ids": list(piece.ids),
        "bytes": [(table.row(token) or b"").hex() for token in piece.ids],
        "runs": text_runs(piece.text) if piece.kind == "text" else [piece.text],
    }


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _reason(why: str, hint: str | None) -> Plain:
    """As runs of text, because it may contain file names."""
    return {"why": text_runs(why), "hint": text_runs(hint or "")}


def _plain_run(run: LoaderSteps) -> Plain:
    options = run.loader.options
    return {
        "step": run.loader.step,
        "split": options.split,
        "batch": options.batch_size,
        "seq_len": options.seq_len,
        "world": options.world_size,
        "seed": options.seed,
        "shuffle": options.shuffle or "none",
        "sources": list(run.datasets),
    }


def _plain_row(row: SourceRow, compared: RowComparison) -> Plain:
    text = row.texts[compared.text] if compared.text < len(row.texts) else ""
    return {
        "verdict": compared.verdict,
        **_reason(compared.why, None),
        "source": text_runs(row.source),
        "file": text_runs(row.file),
        "place": row.place,
        "num_characters": len(text),
        "text": text_runs(text[:_ROW_CHARACTERS]),
        "is_whole": len(text) <= _ROW_CHARACTERS,
    }


def _hit(hit: Hit) -> Plain:
    return {
        "split": hit.split,
        "document": hit.document,
        "token": hit.token,
        "num_ids": len(hit.ids),
        "num_times": hit.num_times,
        "before": text_runs(hit.before),
        "match": text_runs(hit.match),
        "after": text_runs(hit.after),
    }
