"""The columns of a table. A dotted name is a column of exactly that name, or else a field of a
struct."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a table: the names that lead to it from the top, and its type."""

    names: tuple[str, ...]
    type: pa.DataType

    @property
    def path(self) -> str:
        return ".".join(self.names)


Fields = Mapping[tuple[str, ...], Field]  # by the names in the expression


def field_named(schema: pa.Schema, name: str) -> Field | None:
    """A column of exactly that name, or else a field of a struct by its dotted name."""
    return field_at(schema, (name,)) or field_at(schema, tuple(name.split(".")))


def field_at(schema: pa.Schema, names: tuple[str, ...]) -> Field | None:
    at = schema.get_field_index(names[0])
    if at < 0:
        return None
    type_ = schema.field(at).type
    for name in names[1:]:
        at = type_.get_field_index(name) if pa.types.is_struct(type_) else -1
        if at < 0:
            return None
        type_ = type_.field(at).type
    return Field(names, type_)


def column_of(batch: pa.RecordBatch, field: Field) -> pa.Array:
    """The field's values; null where a struct around it is null."""
    import pyarrow.compute as pc

    array = batch.column(batch.schema.get_field_index(field.names[0]))
    array.validate()
    for name in field.names[1:]:
        array = pc.struct_field(array, [array.type.get_field_index(name)])
    return array


def paths_in(schema: pa.Schema) -> list[str]:
    """The names of all columns and fields of structs."""
    found: list[str] = []
    waiting = [(field.name, field.type) for field in schema]
    while waiting:
        name, type_ = waiting.pop(0)
        found.append(name)
        if pa.types.is_struct(type_):
            waiting += [(f"{name}.{inner.name}", inner.type) for inner in type_]
    return found


def kind_of(type_: pa.DataType) -> str:
    """What values of a type are tested as, in words."""
    types = pa.types
    if types.is_dictionary(type_):
        type_ = type_.value_type
    if types.is_boolean(type_):
        return "a boolean"
    if types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_):
        return "a number"
    if types.is_date(type_) or types.is_timestamp(type_):
        return "a time"
    if types.is_list(type_) or types.is_large_list(type_):
        return "a list"
    is_text = (
        *(types.is_string, types.is_large_string, types.is_string_view),
        *(types.is_binary, types.is_large_binary, types.is_binary_view),
    )
    return "text" if any(test(type_) for test in is_text) else "something else"
