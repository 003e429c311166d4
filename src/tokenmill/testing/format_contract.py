"""What every format promises, as tests to inherit: it reads back what it wrote, and refuses other
files with an error that names the file.

Shards are written by the same code as in a run (assemble/), so `prepare` and `convert` can use
every format that passes. It does not test whether the trainer's own loader accepts the bytes.
"""

from __future__ import annotations

import dataclasses
import os
import random
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.arrays import binary_array_of
from tokenmill.assemble.books import Assembly, Output
from tokenmill.assemble.fitting import FittingOptions
from tokenmill.assemble.writing import carry_out
from tokenmill.encode.part import TOKENS, PartWriter
from tokenmill.encode.record import SPLITS, Counts
from tokenmill.errors import IntegrityError
from tokenmill.formats import (
    DTYPE_BYTES,
    Files,
    Format,
    FoundShard,
    Layout,
    Shard,
    registered,
)
from tokenmill.storage.folder_files import FolderFiles
from tokenmill.storage.local import Stat
from tokenmill.storage.object_files import ObjectFiles
from tokenmill.testing.damage import mutated

EOT = 7
NUM_MUTATIONS = 150


@dataclass(frozen=True)
class Written:
    """A dataset that was written for a test."""

    files: Files
    layout: Layout
    output: Output
    format: Format

    def shards(self, split: str) -> list[Shard]:
        return [shard for shard in self.output.shards if shard.split == split]

    def tokens(self, split: str) -> list[int]:
        """The split's tokens, read back."""
        found: list[int] = []
        for shard in self.shards(split):
            reader = self.format.open(self.files, shard.name, self.layout.dtype)
            found += reader.tokens(0, reader.num_tokens).tolist()
        return found

    def documents(self, split: str) -> list[list[int]] | None:
        """The split's documents, read back; None if the format stores no boundaries."""
        found: list[list[int]] = []
        for shard in self.shards(split):
            reader = self.format.open(self.files, shard.name, self.layout.dtype)
            ends = reader.ends()
            if ends is None:
                return None
            starts = [0, *ends.tolist()[:-1]]
            found += [
                reader.tokens(start, end).tolist()
                for start, end in zip(starts, ends.tolist(), strict=True)
            ]
        return found


def write_documents(
    folder: str,
    format_: Format,
    documents: dict[str, list[list[int]]],
    *,
    dtype: str = "uint16",
    shard_tokens: int | None = None,
    seq_len: int = 0,
) -> Written:
    """Write documents, by split, as in a run."""
    if format_.traits.one_file:
        shard_tokens = None
    layout = Layout(
        format=format_.name,
        name=format_.defaults.name or "",
        dtype=dtype,
        shard_tokens=shard_tokens,
        seq_len=seq_len,
        first_shard_is_val=False,
        eot_id=EOT,
        encoding="gpt2",
        has_boundaries=format_.traits.boundaries and not seq_len,
    )
    with registered(format_), tempfile.TemporaryDirectory(dir=folder) as work:
        for name in ("parts", "records"):
            os.mkdir(os.path.join(work, name))
        assembly = Assembly(work, "contract", layout, FittingOptions(), 1, 0)
        writer = PartWriter(work, 0, dtype, 0, 0)
        for number, split in enumerate(SPLITS):
            for document in documents.get(split, []):
                writer.append(
                    number, pa.RecordBatch.from_arrays([_as_binary(document, dtype)], [TOKENS])
                )
        assembly.add(writer.commit("contract", Counts(), ()))
        for task in assembly.tasks():
            assert task is not None
            assembly.done(carry_out(task))
        output = assembly.finished()
        for path in Path(assembly.folder).rglob("*"):
            if path.is_file():
                target = Path(folder, path.relative_to(assembly.folder))
                target.parent.mkdir(exist_ok=True)
                path.rename(target)
    return Written(FolderFiles(folder), layout, output, format_)


def _as_binary(document: Sequence[int], dtype: str) -> pa.LargeBinaryArray:
    data = np.array(document, np.dtype(dtype).newbyteorder("<")).tobytes()
    return binary_array_of([data])


def _as_objects(files: Files) -> ObjectFiles:
    """The same files as objects of a store, held in memory."""
    whole = {}
    for name in files.names():
        with files.open(name) as file:
            whole[name] = file.read()
    infos = {name: Stat(len(data), "") for name, data in whole.items()}
    return ObjectFiles("memory://contract", infos, whole)


class FormatContract:
    """Inherit and set `format`. Every test gets pytest's `tmp_path`."""

    format: Format

    def documents(self, count: int = 60, most: int = 1 << 16) -> dict[str, list[list[int]]]:
        """Made-up documents of 1 to 40 tokens, each ending with EOT."""
        rng = random.Random(count)
        made = [
            [*(rng.randrange(8, most) for _ in range(rng.randrange(40))), EOT] for _ in range(count)
        ]
        return {"train": made[count // 4 :], "val": made[: count // 4]}

    def written(self, folder: Path, **options: Any) -> Written:
        most = 1 << 31 if options.get("dtype") == "uint32" else 1 << 16
        folder.mkdir(exist_ok=True)
        return write_documents(str(folder), self.format, self.documents(most=most), **options)

    def variants(self) -> Iterator[dict[str, Any]]:
        for dtype in DTYPE_BYTES:
            for shard_tokens in (None, 100, 64 * 8):
                yield {"dtype": dtype, "shard_tokens": shard_tokens}
                if self.format.traits.samples and shard_tokens != 100:
                    yield {"dtype": dtype, "shard_tokens": shard_tokens, "seq_len": 64}

    def test_tokens_are_read_back_as_written(self, tmp_path: Path) -> None:
        for number, options in enumerate(self.variants()):
            written = self.written(tmp_path / str(number), **options)
            most = 1 << 31 if options["dtype"] == "uint32" else 1 << 16
            for split, documents in self.documents(most=most).items():
                expected = [token for document in documents for token in document]
                tail = written.output.tails[split].num_tokens
                found = written.tokens(split)
                assert found == expected[: len(expected) - tail], (options, split)
                assert tail < max(1, options.get("seq_len", 0))

    def test_documents_are_read_back_where_the_format_keeps_them_apart(
        self, tmp_path: Path
    ) -> None:
        for shard_tokens in (None, 100):
            written = self.written(tmp_path / str(shard_tokens), shard_tokens=shard_tokens)
            for split, documents in self.documents().items():
                expected = documents if self.format.traits.boundaries else None
                assert written.documents(split) == expected

    def test_any_range_of_tokens_can_be_read(self, tmp_path: Path) -> None:
        written = self.written(tmp_path / "out")
        [shard] = written.shards("train")
        reader = self.format.open(written.files, shard.name, "uint16")
        all_tokens = written.tokens("train")
        assert reader.num_tokens == len(all_tokens)
        for start, stop in ((0, 0), (0, 1), (5, 90), (len(all_tokens) - 3, len(all_tokens))):
            assert reader.tokens(start, stop).tolist() == all_tokens[start:stop]

    def test_objects_are_read_as_files_are(self, tmp_path: Path) -> None:
        """A format that opens paths instead of using `Files` fails here."""
        written = self.written(tmp_path / "out", shard_tokens=100)
        remote = dataclasses.replace(written, files=_as_objects(written.files))
        names = written.files.names()
        found = self.format.find(remote.files, names)
        assert found == self.format.find(written.files, names)
        for split in SPLITS:
            assert remote.tokens(split) == written.tokens(split)
            assert remote.documents(split) == written.documents(split)

    def test_the_trainers_order_is_the_order_of_writing(self, tmp_path: Path) -> None:
        written = self.written(tmp_path / "out", shard_tokens=100)
        names = written.files.names()
        names = [name for name in names if not name.endswith((".tokens", ".lengths"))]
        found = self.format.find(written.files, names)
        for split in SPLITS:
            expected = [FoundShard(shard.name, split) for shard in written.shards(split)]
            assert [one for one in found if one.split == split] == expected

    def test_every_file_has_a_name_that_the_pattern_knows(self, tmp_path: Path) -> None:
        written = self.written(tmp_path / "out", shard_tokens=100)
        stem = re.escape(self.format.defaults.name or "")
        for name in written.output.sizes:
            assert re.fullmatch(self.format.pattern.replace("{name}", stem), name), name
            assert os.path.getsize(tmp_path / "out" / name) == written.output.sizes[name]

    def test_the_bytes_are_a_function_of_the_documents(self, tmp_path: Path) -> None:
        first = self.written(tmp_path / "first", shard_tokens=100)
        second = self.written(tmp_path / "second", shard_tokens=100)
        assert first.output == second.output

    def test_nothing_is_found_in_a_folder_of_other_things(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("nothing")
        assert self.format.find(FolderFiles(str(tmp_path)), ["notes.txt"]) == []

    def test_the_defaults_can_be_held(self) -> None:
        for dtype in DTYPE_BYTES:
            self.format.check(self._layout(dtype))

    def test_a_header_is_as_long_for_one_token_as_for_a_full_shard(self) -> None:
        full = self.format.defaults.shard_tokens or 10**9
        for dtype in DTYPE_BYTES:
            lengths = {len(self.format.header(count, dtype)) for count in (1, 99, full)}
            assert len(lengths) == 1

    def test_a_shard_cut_short_is_refused_or_read_shorter(self, tmp_path: Path) -> None:
        """Only a file that does not state its length may be read, if whole tokens are left."""
        written = self.written(tmp_path / "out")
        [shard] = written.shards("train")
        for num_bytes in (shard.num_bytes - 1, shard.num_bytes - 2, shard.num_bytes // 2, 1):
            os.truncate(tmp_path / "out" / shard.name, num_bytes)
            self._opens_or_refuses(written.files, shard.name)
            assert self._num_tokens_or_none(written.files, shard.name) != shard.num_tokens

    def test_damage_is_refused_by_name_or_read_within_bounds(self, tmp_path: Path) -> None:
        """For any bytes: IntegrityError naming the file, or tokens; no other exception."""
        written = self.written(tmp_path / "out", shard_tokens=100)
        rng = random.Random(0)
        names = sorted(written.output.sizes)
        for _ in range(NUM_MUTATIONS):
            path = tmp_path / "out" / rng.choice(names)
            original = path.read_bytes()
            path.write_bytes(mutated(original, rng))
            for shard in written.output.shards[:4]:
                self._opens_or_refuses(written.files, shard.name)
            path.write_bytes(original)

    def _opens_or_refuses(self, files: Files, name: str) -> None:
        try:
            reader = self.format.open(files, name, "uint16")
            tokens = reader.tokens(0, reader.num_tokens)
            ends = reader.ends()
        except IntegrityError as error:
            stem = os.path.basename(name).split(".")[0]
            assert stem in error.message or "index.json" in error.message, error.message
            return
        assert len(tokens) == reader.num_tokens
        if ends is not None:
            assert not len(ends) or (ends[-1] == len(tokens) and (np.diff(ends) >= 0).all())

    def _num_tokens_or_none(self, files: Files, name: str) -> int | None:
        try:
            reader = self.format.open(files, name, "uint16")
            reader.ends()
            return reader.num_tokens
        except IntegrityError:
            return None

    def _layout(self, dtype: str) -> Layout:
        defaults, traits = self.format.defaults, self.format.traits
        return Layout(
            format=self.format.name,
            name=defaults.name or "",
            dtype=dtype,
            shard_tokens=defaults.shard_tokens,
            seq_len=defaults.seq_len,
            first_shard_is_val=False,
            eot_id=EOT,
            encoding="gpt2",
            has_boundaries=traits.boundaries and not defaults.seq_len,
        )
