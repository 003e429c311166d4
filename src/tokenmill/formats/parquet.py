"""Parquet, for `datasets` and anything that reads Arrow: `{split}-{index:05d}.parquet` with one
column, `input_ids`: each row is the list of tokens of a document or, with --seq-len, of a sample.

The type is list<uint16> (or uint32), which every reader knows, not large_list: a row group has 4 MB
of tokens, far below the 2^31 that list offsets can reach. It is written from the map of the tokens
with 75 MB of memory; groups of 16 MB take 170 and are no faster.

Parquet has no 16-bit numbers: a token takes 4 bytes before compression. Measured on GPT-2 and o200k
tokens of English and of multilingual text, one core:

                          bytes a token   write, read
                          gpt2   o200k    Mtokens/s
    none                  4.0    4.0      130   240
    snappy                1.5    1.8       75   125
    lz4                   1.35   1.8       75   190
    zstd 1                0.95   1.3       62   145
    zstd 3                0.9    1.2       50   140
    zstd 1, dictionary    1.2    1.3       53   140

zstd 1 without dictionaries has half the size of the uint16 themselves and reads faster than snappy.

The footer holds what a reader must know in advance under `tokenmill`: the tokens in each row group,
the dtype and seq_len. Foreign files are read too, with rows as documents. No footer is trusted: a
row group must hold what it announces. One case cannot be caught: a page can hold one row of up to
2^31 tokens in a few bytes, and pyarrow allocates room for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.errors import InputError
from tokenmill.formats.format import (
    DTYPE_BYTES,
    Contents,
    Create,
    Defaults,
    File,
    Files,
    Format,
    FoundShard,
    ShardReader,
    Traits,
)
from tokenmill.formats.mapped import document_runs, split_of
from tokenmill.formats.parquet_shard import COLUMN, KEY, ParquetShard, may_hold_tokens
from tokenmill.formats.parquet_sink import Sink

GROUP_BYTES = 4 << 20
_MAX_LENGTH = (1 << 31) - 1  # of a list

Lengths = npt.NDArray[np.int64]
Tokens = npt.NDArray[np.integer]


class ParquetFormat(Format):
    name = "parquet"
    trainers = "datasets, anything that reads Arrow"
    files = "train-00000.parquet ..."
    pattern = r"(train|val)-\d{5,}\.parquet"
    defaults = Defaults(eot="append", val="fraction", shard_tokens=100_000_000)
    traits = Traits(boundaries=True, samples=True, is_raw=False)

    def shard_name(self, name: str, split: str, index: int) -> str:
        return f"{split}-{index:05d}.parquet"

    def write(self, contents: Contents, create: Create) -> None:
        ends = _ends_of(contents)
        groups = list(document_runs(ends, GROUP_BYTES // DTYPE_BYTES[contents.layout.dtype]))
        bounds = [0, *(int(ends[last - 1]) for _, last in groups)]
        said = {
            "dtype": contents.layout.dtype,
            "group_tokens": np.diff(bounds).tolist(),
            "seq_len": contents.layout.seq_len,
        }
        schema = pa.schema([(COLUMN, pa.list_(pa.type_for_alias(contents.layout.dtype)))])
        with create(contents.name) as file, _writer(file, schema) as writer:
            writer.add_key_value_metadata({KEY: json.dumps(said, sort_keys=True).encode()})
            for number, (first, last) in enumerate(groups):
                start, stop = bounds[number : number + 2]
                rows = _rows(contents.tokens[start:stop], ends[first:last] - start, schema)
                writer.write_table(rows, row_group_size=last - first)

    def find(self, files: Files, names: Sequence[str]) -> list[FoundShard]:
        return [
            FoundShard(name, split_of(name, self.pattern))
            for name in names
            if name.endswith(".parquet") and may_hold_tokens(files, name)
        ]

    def open(self, files: Files, name: str, dtype: str | None) -> ShardReader:
        return ParquetShard(files, name)


# Writing


def _ends_of(contents: Contents) -> Lengths:
    """Where rows end, in tokens."""
    if contents.lengths is None:
        seq_len = contents.layout.seq_len
        return np.arange(seq_len, len(contents.tokens) + 1, seq_len)
    ends = np.cumsum(contents.lengths, dtype=np.int64)
    if len(ends) and int(contents.lengths.max()) > _MAX_LENGTH:
        raise InputError(
            f"a document of {contents.name} has {int(contents.lengths.max()):,} tokens, and a list "
            f"in parquet holds up to {_MAX_LENGTH:,}",
            hint="cut that document, or --seq-len 2048",
        )
    return ends


def _writer(file: File, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        Sink(file), schema, compression="zstd", compression_level=1, use_dictionary=False
    )


def _rows(tokens: Tokens, ends: Lengths, schema: pa.Schema) -> pa.Table:
    """A row group, without a copy of its tokens."""
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    kind = schema.field(0).type
    values = pa.Array.from_buffers(
        kind.value_type, len(tokens), [None, pa.py_buffer(np.ascontiguousarray(tokens))]
    )
    lists = pa.Array.from_buffers(kind, len(ends), [None, pa.py_buffer(offsets)], children=[values])
    return pa.Table.from_arrays([lists], schema=schema)
