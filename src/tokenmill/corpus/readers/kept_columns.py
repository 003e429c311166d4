"""Columns that are kept beside the tokens (--keep): found and typed when the plan is made, read
with the text.

The plan has one schema for all files, of types that every parquet reader knows: text and bytes as
large_string and large_binary, lists as large_list, no dictionaries, views or extensions. If types
differ between files, the wider one is taken (int32 and int64, null and anything); columns without a
common type are refused. JSON fields have the types of the first lines; a field that holds objects,
lists or several types is kept as JSON text (json_kept.py). Fields of CSV are text.

A row with a value that is not valid UTF-8, or that its column's type does not hold, is quarantined.
"""

from __future__ import annotations

import base64
import difflib
import functools
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tokenmill.config.kinds import comma_separated
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.readers.rows import Raw, checked_rows, sound_binary
from tokenmill.corpus.spans import Input
from tokenmill.errors import ConfigError
from tokenmill.where.fields import Field, column_of, field_at, paths_in
from tokenmill.wording.name_list import name_list

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """The kept columns of some rows, as one array of structs; `bad` rows will be quarantined."""

    array: pa.StructArray
    bad: dict[int, str]


def raw_of(texts: pa.Array, kept: Kept | None) -> Raw:
    """All rows of a text column, with what is kept of them."""
    return Raw(texts) if kept is None else Raw(texts, bad=kept.bad, kept=kept.array)


# Schemas as text, for plans and options


def schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


@functools.lru_cache(maxsize=64)
def schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))


def kept_types_of(reader: Any, source: Input) -> str:
    """The types of an input's kept columns. The reader must support --keep."""
    found: pa.Schema = reader.kept_schema(source)
    return schema_text(found)


class KeptSchema:
    """Collects the common schema of all inputs, file by file."""

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._name = ""  # of the first file
        self._seen: str | None = None

    def add(self, text: str, name: str) -> None:
        """Add a file's schema. Raises ConfigError if a column has no common type with the earlier
        files."""
        if text == self._seen:
            return
        self._seen = text
        found = schema_of(text)
        if self._schema is None:
            self._schema, self._name = found, name
            return
        fields = [
            self._joined(mine, other, name) for mine, other in zip(self._schema, found, strict=True)
        ]
        self._schema = pa.schema(fields)

    @property
    def text(self) -> str | None:
        """The schema as text; None if no input was added."""
        if self._schema is None:
            return None
        return schema_text(pa.schema((f.name, _known_type(f.type)) for f in self._schema))

    def _joined(self, mine: pa.Field, other: pa.Field, name: str) -> pa.Field:
        if mine.type == other.type:
            return mine
        try:
            pair = [pa.schema([mine]), pa.schema([other])]
            common = pa.unify_schemas(pair, promote_options="permissive").field(0)
            for one in (mine, other):  # no int64 fits decimal128(20, 2), pyarrow's proposal
                pa.nulls(1, one.type).cast(common.type)
                if pa.types.is_decimal(one.type) and pa.types.is_floating(common.type):
                    raise pa.ArrowTypeError("a float holds other decimals than were read")
            return common
        except pa.ArrowException:
            raise ConfigError(
                f"--keep: column {mine.name!r} is {shown(mine.type)} in {self._name}, and "
                f"{shown(other.type)} in {name}",
                hint="leave it out, or give it one type in all files",
            ) from None


def shown(type_: pa.DataType) -> str:
    return str(type_).replace("large_", "")


# Tables


def table_schema(schema: pa.Schema, columns: Names, path: str) -> pa.Schema:
    """The kept columns of a table. Raises ConfigError for a column that does not exist, or that
    parquet cannot hold."""
    fields = []
    for column in columns:
        type_ = lasting_type(field_of(schema, column, path, columns).type)
        if not _is_holdable(type_):
            raise ConfigError(
                f"--keep: {path}: column {column!r} is {type_}, which parquet cannot hold",
                hint="leave it out",
            )
        fields.append(pa.field(column, type_))
    return pa.schema(fields)


def field_of(schema: pa.Schema, column: str, path: str, columns: Names) -> Field:
    """One of the kept columns, or a field of a struct. Raises ConfigError if there is none."""
    for names in dict.fromkeys(((column,), tuple(column.split(".")))):
        if len(found := schema.get_all_field_indices(names[0])) > 1:
            raise ConfigError(
                f"--keep: {path}: {len(found)} columns are named {names[0]!r}",
                hint="rename one of them",
            )
        if field := field_at(schema, names):
            return field
    raise misspelled(column, f"{path}: no column {column!r}", paths_in(schema), columns)


def lasting_type(type_: pa.DataType) -> pa.DataType:
    """The type in which a column's values are kept."""
    types = pa.types
    while isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return lasting_type(type_.value_type)
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return pa.large_string()
    if types.is_binary(type_) or types.is_large_binary(type_) or types.is_binary_view(type_):
        return pa.large_binary()
    return _lasting_nested_type(type_)


def _lasting_nested_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_map(type_):
        return pa.map_(lasting_type(type_.key_type), lasting_type(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, lasting_type(field.type)) for field in type_])
    return pa.large_list(lasting_type(type_.value_type)) if _is_list(type_) else type_


def _known_type(type_: pa.DataType) -> pa.DataType:
    """The type with text in place of null, at any depth: another file may have values there, and
    pyarrow cannot cast slices of lists of nulls."""
    types = pa.types
    if types.is_null(type_):
        return pa.large_string()
    if types.is_map(type_):
        return pa.map_(_known_type(type_.key_type), _known_type(type_.item_type))
    if types.is_struct(type_):
        return pa.struct([(field.name, _known_type(field.type)) for field in type_])
    return pa.large_list(_known_type(type_.value_type)) if _is_list(type_) else type_


class KeptColumns:
    """Extracts the kept columns from a table's batches."""

    def __init__(self, schema: pa.Schema, columns: Names, text: str, replace: bool, path: str):
        self._target = schema_of(text)
        self._fields = [field_of(schema, column, path, columns) for column in columns]
        self._replace = replace

    @property
    def paths(self) -> list[str]:
        return [field.path for field in self._fields]

    def of(self, batch: pa.RecordBatch) -> Kept:
        """Raises ArrowInvalid for a damaged column."""
        bad: dict[int, str] = {}
        arrays = [
            self._values(column_of(batch, own), field, bad)
            for own, field in zip(self._fields, self._target, strict=True)
        ]
        return Kept(struct_of(arrays, self._target), bad)

    def _values(self, array: pa.Array, field: pa.Field, bad: dict[int, str]) -> pa.Array:
        lasting = lasting_type(array.type)
        is_untyped = lasting == pa.large_binary() and field.type == pa.large_string()  # of CSV
        if lasting == pa.large_string() or is_untyped:
            rows = checked_rows(sound_binary(array), self._replace)
            bad.update((row, f"column {field.name!r}: {why}") for row, why in rows.bad.items())
            return rows.texts.cast(field.type)
        array.validate(full=True)
        array = _plain(array)
        try:
            return array.cast(field.type)
        except pa.ArrowInvalid:  # int64 and double have double in common, which not every int64 is
            return _fitting(array, field, bad)


def kept_columns(schema: pa.Schema, options: ReadOptions, path: str) -> KeptColumns | None:
    """What extracts them; None if no column is kept."""
    if not options.keep or options.kept_types is None:
        return None
    return KeptColumns(schema, options.keep, options.kept_types, options.replace_bad_text, path)


def _fitting(array: pa.Array, field: pa.Field, bad: dict[int, str]) -> pa.Array:
    """The values that the common type of all files holds; the other rows are bad."""
    rows = []
    for row in range(len(array)):
        try:
            rows.append(array.slice(row, 1).cast(field.type))
        except pa.ArrowInvalid:
            why = f"does not fit {shown(field.type)}, the type that all files have in common"
            bad.setdefault(row, f"column {field.name!r}: its value, {shown(array.type)}, {why}")
            rows.append(pa.nulls(1, field.type))
    return pa.concat_arrays(rows)


def _plain(array: pa.Array) -> pa.Array:
    """The array without dictionaries, views and extensions."""
    type_ = array.type
    if pa.types.is_dictionary(type_):
        return _plain(array.dictionary.take(array.indices))
    if _is_odd(type_):  # no cast is both safe and in every version of pyarrow
        return pa.array(array.to_pylist(), lasting_type(type_))
    return array


def _is_odd(type_: pa.DataType) -> bool:
    types = pa.types
    is_view = types.is_string_view(type_) or types.is_binary_view(type_)
    if is_view or types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return True
    if isinstance(type_, pa.BaseExtensionType) or _is_list_view(type_):
        return True
    return any(_is_odd(type_.field(at).type) for at in range(type_.num_fields))


def _is_list(type_: pa.DataType) -> bool:
    types = pa.types
    is_list = types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)
    return is_list or _is_list_view(type_)


def _is_list_view(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_))


def _is_holdable(type_: pa.DataType) -> bool:
    import pyarrow.parquet as pq

    schema = pa.schema([("column", pa.large_string() if pa.types.is_null(type_) else type_)])
    try:
        pq.write_table(pa.Table.from_batches([], schema), pa.BufferOutputStream())
    except pa.ArrowException:
        return False
    return True


def struct_of(arrays: Sequence[pa.Array], schema: pa.Schema) -> pa.StructArray:
    return pa.StructArray.from_arrays(arrays, fields=list(schema))


def misspelled(column: str, what: str, known: Iterable[str], columns: Names) -> ConfigError:
    """The error for one of the kept columns; its hint has the others, too."""
    known = list(known)
    near = difflib.get_close_matches(column, known, n=1)
    hint = f"there are {name_list(known)}"
    if near:
        meant = comma_separated(near[0] if name == column else name for name in columns)
        hint = f"did you mean --keep {shlex.quote(meant)}?"
    return ConfigError(f"--keep: {what}", hint=hint)
