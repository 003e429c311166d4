"""`Tokenize`: a function for `datasets.map`, instead of a closure over a tiktoken encoder.

    dataset.map(Tokenize("cl100k_base"), batched=True, num_proc=8, remove_columns=["text"])

It pickles to a few hundred bytes, an encoding's identity and two words, which do not depend on what
the process has encoded before. So workers start the same way under fork, forkserver and spawn, and
equal instances have the same fingerprint, by which `datasets` finds its cache. Each worker loads
its engine at its first row. Not for a whole corpus: `prepare` is faster and survives a crash.

The return type decides how long `datasets` takes to write it (5.2; a batch of 1,000 documents of
800 tokens, which took 20 ms to encode): lists of ints 37 ms, a list of NumPy arrays 6, an object
array of them 1.9, an Arrow table 0.9. A table replaces all other columns, so it is returned only
for a table. A batch's text is taken from the Arrow table behind it: no Python string is made.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.arrays import offsets_of
from tokenmill.config.arguments import suggesting
from tokenmill.config.options import OPTIONS
from tokenmill.corpus.columns import is_text
from tokenmill.corpus.text_arrays import checked_texts, sound_binary
from tokenmill.encode.documents import data_of, document_bytes
from tokenmill.encodings import Encoding, get_encoding
from tokenmill.encodings.encoding import without_surrogates
from tokenmill.errors import ConfigError, InputError, unknown_name

_ID = np.dtype("<i4")  # half as wide as Python's ints, and torch accepts it as an index
_MAX_BATCH_IDS = (1 << 31) - 1  # the limit of an Arrow list's 32-bit offsets


class Tokenize:
    """Rows or batches with a text column in, `ids` and `len` out, like nanoGPT's `process`.

    `tokenizer` is a name, the path of a vocabulary file, or an `Encoding`; `pattern` and
    `eot_token` are `get_encoding`'s. `eot` is where the end-of-text id goes: append, prepend, both
    or none. An empty text becomes that id alone; None raises InputError, and so does a text that
    cannot be encoded. Special tokens in a text are text.

    Python input gives Python output (lists of ints); Arrow, NumPy or pandas input gives int32
    arrays. `Dataset.map` passes Arrow: there `ids` is a column of int32 and `len` of int64. A
    dataset `with_format("arrow")` gets a table of these two columns.
    """

    __slots__ = ("_encoding", "_eot", "_text_column")

    @suggesting
    def __init__(
        self,
        tokenizer: str | os.PathLike[str] | Encoding,
        text_column: str = "text",
        eot: str = "append",
        *,
        pattern: str | None = None,
        eot_token: str | int | None = None,
    ) -> None:
        eot = OPTIONS["eot"].kind.checked("eot", eot)
        if not isinstance(tokenizer, Encoding):
            tokenizer = get_encoding(tokenizer, pattern=pattern, eot=eot_token)
        elif pattern is not None or eot_token is not None:
            raise ConfigError("an Encoding already has its pattern and eot_token")
        self._encoding = tokenizer
        self._text_column = text_column
        self._eot = eot

    @property
    def encoding(self) -> Encoding:
        return self._encoding

    def __call__(self, rows: Any) -> Any:
        """`{"ids": ..., "len": ...}` for a row or a batch; a `pa.Table` for a `pa.Table`."""
        texts = _column(rows, self._text_column)
        if texts is None or isinstance(texts, str):
            return self._row(texts, as_python=type(rows) is dict)
        ids, offsets = self._batch(_text_array(texts, self._text_column))
        if isinstance(rows, pa.Table):
            lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ids))
            return pa.table({"ids": lists, "len": np.diff(offsets)})
        documents = [ids[start:end] for start, end in itertools.pairwise(offsets.tolist())]
        if type(rows) is dict and isinstance(texts, list):
            return {"ids": [x.tolist() for x in documents], "len": [len(x) for x in documents]}
        return {"ids": _object_array(documents), "len": np.diff(offsets)}

    def _row(self, text: str | None, as_python: bool) -> dict[str, Any]:
        if text is None:
            raise _none(self._text_column, "")
        mark = [self._encoding.eot_token]
        before = mark if self._eot in ("prepend", "both") else []
        after = mark if self._eot in ("append", "both") else []
        ids = [*before, *self._encoding.encode_ordinary(text), *after]
        return {"ids": ids if as_python else np.array(ids, _ID), "len": len(ids)}

    def _batch(
        self, texts: pa.LargeStringArray
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """The concatenated ids of all documents, and where each begins and the last ends."""
        tokens = self._encoding.encode_array(texts)
        for row, reason in tokens.failed.items():
            raise InputError(
                f"column {self._text_column!r}, row {row} of the batch: {self._encoding.name} "
                f"cannot encode it: {reason}"
            )
        documents = document_bytes(tokens, _ID.name, self._encoding.eot_token, self._eot)
        ids = np.frombuffer(data_of(documents), _ID)
        if len(ids) > _MAX_BATCH_IDS:
            raise InputError(
                f"a batch of {len(ids):,} ids; datasets can store {_MAX_BATCH_IDS:,} at a time",
                hint="dataset.map(..., batch_size=1000)",
            )
        offsets = offsets_of(documents)
        return ids, (offsets - offsets[0]) // _ID.itemsize

    def __reduce__(self) -> tuple[type[Tokenize], tuple[Encoding, str, str]]:
        return type(self), (self._encoding, self._text_column, self._eot)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tokenize):
            return NotImplemented
        return self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash(self.__reduce__())

    def __repr__(self) -> str:
        name, column, eot = self._encoding.name, self._text_column, self._eot
        return f"Tokenize({name!r}, text_column={column!r}, eot={eot!r})"


def _column(rows: Any, name: str) -> Any:
    """The text of a row, or the texts of a batch in their original container."""
    if isinstance(rows, (str, list)):
        raise ConfigError(
            f"Tokenize takes rows or batches with a column {name!r}, got a {type(rows).__name__}",
            hint="leave input_columns out of map; Tokenize(..., text_column=NAME) names the column",
        )
    names = rows.column_names if isinstance(rows, pa.Table) else list(rows)
    if name not in names:
        error = unknown_name("column", name, names)
        raise ConfigError(
            error.message, hint=f"Tokenize(..., text_column={(names or ['NAME'])[0]!r})"
        )
    # The batch of datasets still has the column as Arrow, unless something has read it.
    if type(rows).__name__ == "LazyBatch" and name in getattr(rows, "keys_to_format", ()):
        return rows.pa_table[name]
    return rows[name]


def _text_array(texts: Any, name: str) -> pa.LargeStringArray:
    """The texts as Arrow strings, none of them null, all valid UTF-8."""
    if not isinstance(texts, (pa.Array, pa.ChunkedArray)):
        texts = _arrow_of(texts, name)
    if texts.null_count:
        raise _none(name, f", row {pc.index(texts.is_null(), True).as_py()} of the batch")
    if not is_text(texts.type):
        raise ConfigError(f"column {name!r} is {texts.type}, not text")
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    arrays, first_row = [], 0
    for chunk in chunks:
        found, bad, _ = checked_texts(sound_binary(chunk), replace=False)
        for row, reason in bad.items():
            raise InputError(f"column {name!r}, row {first_row + row} of the batch: {reason}")
        arrays.append(found)
        first_row += len(chunk)
    if len(arrays) == 1:
        return arrays[0]
    return pa.concat_arrays([pa.array([], pa.large_string()), *arrays])


def _arrow_of(texts: Any, name: str) -> pa.LargeStringArray:
    """Texts from a list, a NumPy array or a pandas Series."""
    try:
        return pa.array(texts, pa.large_string())
    except UnicodeEncodeError:
        return pa.array((text and without_surrogates(text) for text in texts), pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"column {name!r} is not text: {error}") from error


def _none(name: str, where: str) -> InputError:
    return InputError(
        f"column {name!r}{where} is None: there is no text to encode",
        hint=f"dataset = dataset.filter(lambda row: row[{name!r}] is not None)",
    )


def _object_array(documents: list[npt.NDArray[np.int32]]) -> npt.NDArray[np.object_]:
    """An array of arrays, even if all have the same length, of which NumPy would make a matrix."""
    found = np.empty(len(documents), object)
    for position, ids in enumerate(documents):
        found[position] = ids
    return found
