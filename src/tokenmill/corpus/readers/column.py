"""Finds the text column of a table by name; the error for a wrong name lists the columns.

Only top-level columns are considered. A column is text if its values are strings or bytes, in any
of Arrow's layouts (32-bit or 64-bit offsets, views, dictionary-encoded); bytes are checked row by
row later (rows.py), so a binary column of images gives bad rows, not an error here.
"""

from __future__ import annotations

import difflib
import shlex

import pyarrow as pa

from tokenmill.errors import ConfigError, InputError

# Usual names of a column of documents.
_USUAL = ("text", "content", "raw_content", "body", "document", "article")


def text_column_index(schema: pa.Schema, name: str, path: str) -> int:
    """The position of the text column among the top-level columns of the schema."""
    try:
        _ = schema.names
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: a column name is not UTF-8: {error.object!r}") from error
    indices = schema.get_all_field_indices(name)
    if not indices:
        raise ConfigError(
            f"{path}: no column {name!r}; it has {_listing(schema)}",
            hint=_way_out(schema, name, path),
        )
    if len(indices) > 1:
        raise ConfigError(f"{path}: {len(indices)} columns are named {name!r}; rename one of them")
    if not is_text(schema.field(indices[0]).type):
        texts = _text_columns(schema)
        raise ConfigError(
            f"{path}: column {name!r} is {schema.field(indices[0]).type}, not text; "
            f"columns that are text: {', '.join(texts) or 'none'}",
            hint=_way_out(schema, name, path),
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


def _way_out(schema: pa.Schema, name: str, path: str) -> str:
    """What to type: a text column, the likeliest first, or how to extract one from a struct.

    A field inside a struct has no column of its own; flattening the table gives it one. That is
    suggested if the user named such a field, or if it is the only text.
    """
    texts, nested = _text_columns(schema), _nested_texts(schema)
    known = [*texts, *nested, *(field.partition(".")[0] for field in nested)]
    usual = [column for column in (*_USUAL, *texts[: len(texts) == 1]) if column in texts]
    near = [name] if name in known else difflib.get_close_matches(name, known, n=1)
    for likely in (*near, *usual, *nested[: not texts]):
        if likely in texts:
            return f"--text-column {shlex.quote(likely)}"
        inside = (field for field in nested if field == likely or field.startswith(f"{likely}."))
        return _flattening(path, next(inside))
    if texts:
        return f"--text-column NAME, one of: {', '.join(texts[:10])}"
    return "these files hold no text: name others"


def _flattening(path: str, field: str) -> str:
    if "://" in path or not path.lower().endswith((".parquet", ".pq")):
        return f"write the table again with pyarrow's Table.flatten(), then: --text-column {field}"
    table = "parquet.read_table(sys.argv[1])" + ".flatten()" * field.count(".")
    code = f"import sys; from pyarrow import parquet; parquet.write_table({table}, sys.argv[2])"
    return (
        f"python -c '{code}' {shlex.quote(path)} flat.parquet, then give flat.parquet as SOURCE "
        f"with --text-column {shlex.quote(field)}"
    )


def _nested_texts(schema: pa.Schema) -> list[str]:
    """Text fields of structs, by the paths that flattening gives them."""
    found: list[str] = []
    structs = [(field.name, field.type) for field in schema if pa.types.is_struct(field.type)]
    while structs:
        name, kind = structs.pop(0)
        fields = [(f"{name}.{field.name}", field.type) for field in kind]
        found += [path for path, inner in fields if is_text(inner)]
        structs += [(path, inner) for path, inner in fields if pa.types.is_struct(inner)]
    return found


def _text_columns(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if is_text(field.type)]


def _listing(schema: pa.Schema) -> str:
    shown = [f"{field.name} ({field.type})" for field in list(schema)[:50]]
    more = len(schema) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "") or "no columns"
