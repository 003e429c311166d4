"""The text column of a table: found by name, refused with a list of what there is instead.

Only top-level columns are looked at. A column is text if its values are strings or bytes, in any of
Arrow's layouts (32-bit or 64-bit offsets, views, dictionary-encoded); bytes are checked row by row
later (rows.py), so a binary column of images shows itself as bad rows, not here.
"""

from __future__ import annotations

import difflib

import pyarrow as pa

from tokenmill.errors import ConfigError, InputError


def text_column_index(schema: pa.Schema, name: str, path: str) -> int:
    """The position of the text column among the top-level columns of the schema."""
    try:
        _ = schema.names
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: a column name is not UTF-8: {error.object!r}") from error
    indices = schema.get_all_field_indices(name)
    if not indices:
        near = difflib.get_close_matches(name, schema.names, n=1) or _text_columns(schema)[:1]
        raise ConfigError(
            f"{path}: no column {name!r}; it has {_listing(schema)}",
            hint=f"--text-column {near[0]}" if near else "--text-column NAME",
        )
    if len(indices) > 1:
        raise ConfigError(f"{path}: {len(indices)} columns are named {name!r}; rename one of them")
    if not is_text(schema.field(indices[0]).type):
        texts = _text_columns(schema)
        raise ConfigError(
            f"{path}: column {name!r} is {schema.field(indices[0]).type}, not text; "
            f"columns that are text: {', '.join(texts) or 'none'}",
            hint=f"--text-column {texts[0]}" if texts else None,
        )
    return int(indices[0])


def is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type) and not pa.types.is_dictionary(kind.value_type)
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
        )
    )


def _text_columns(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if is_text(field.type)]


def _listing(schema: pa.Schema) -> str:
    shown = [f"{field.name} ({field.type})" for field in list(schema)[:50]]
    more = len(schema) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "") or "no columns"
