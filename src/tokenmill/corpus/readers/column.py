"""Finds the text column of a table by name; the error for a wrong name lists the columns.

A dotted name is a column of exactly that name, or else a field of a struct. A column is text if its
values are strings or bytes, in any of Arrow's layouts (32-bit or 64-bit offsets, views,
dictionary-encoded). Bytes are checked row by row later (rows.py), so a binary column of images
gives bad rows, not an error here. A list of strings counts as text if --lists is given.
"""

from __future__ import annotations

import difflib
import shlex

import pyarrow as pa

from tokenmill.errors import ConfigError, InputError
from tokenmill.where.fields import Field, field_named
from tokenmill.wording.name_list import name_list

# Usual names of a column of documents.
_USUAL = ("text", "content", "raw_content", "body", "document", "article")
# Usual names of a column of conversations, and usual fields of their turns.
CHAT_NAMES = ("messages", "conversations", "conversation")
CHAT_TURNS = ({"role", "content"}, {"from", "value"})


def text_field(schema: pa.Schema, name: str, path: str, lists: str | None = None) -> Field:
    """The text column, or the field of a struct."""
    try:
        _ = schema.names
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: a column name is not UTF-8: {error.object!r}") from error
    num_named = len(schema.get_all_field_indices(name))
    if num_named > 1:
        raise ConfigError(f"{path}: {num_named} columns are named {name!r}; rename one of them")
    field = field_named(schema, name)
    if field is None:
        chats = [one.name for one in schema if is_chat(one.name, one.type)]
        if chats and not text_columns(schema):
            raise chat_refusal(f"{path}: column {chats[0]!r}")
        raise ConfigError(
            f"{path}: no column {name!r}; it has {_listing(schema)}",
            hint=_text_column_hint(schema, name),
        )
    if is_chat(field.names[-1], field.type):
        raise chat_refusal(f"{path}: column {name!r}")
    if is_text_list(field.type):
        if lists is None:
            raise list_refusal(f"{path}: column {name!r}")
    elif not is_text(field.type):
        texts = text_columns(schema)
        raise ConfigError(
            f"{path}: column {name!r} is {field.type}, not text; "
            f"columns that are text: {name_list(texts)}",
            hint=_text_column_hint(schema, name),
        )
    return field


def list_refusal(what: str) -> ConfigError:
    """The error for a list of strings without --lists."""
    return ConfigError(
        f"{what} is a list of strings, not text",
        hint="--lists join makes one document of each list, --lists documents one of each string",
    )


def chat_refusal(what: str) -> ConfigError:
    """The error for a column or field of conversations."""
    return ConfigError(
        f"{what} holds conversations: training on them needs the model's chat template and a loss "
        "mask, which tokenmill does not make",
        hint="prepare them with your trainer's own tool; for a column of text: --text-column NAME",
    )


def is_chat(name: str, kind: pa.DataType) -> bool:
    """Whether a column holds conversations: a list of turns, under a usual name or with usual
    fields."""
    if not is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    fields = {field.name for field in kind.value_type}
    return name in CHAT_NAMES or any(turn <= fields for turn in CHAT_TURNS)


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def is_text_list(kind: pa.DataType) -> bool:
    """A list of strings; not of views or dictionary entries, which may repeat one endlessly."""
    values = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return is_list(kind) and kind.value_type in values


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


def _text_column_hint(schema: pa.Schema, name: str) -> str:
    """What to type: the likeliest text column. A field of a struct is suggested if the user named
    one like it, or if it is the only text."""
    texts, nested = text_columns(schema), _nested_texts(schema)
    usual = [column for column in (*_USUAL, *texts[: len(texts) == 1]) if column in texts]
    known = [*texts, *nested, *(field.partition(".")[0] for field in nested)]
    near = [name] if name in known else difflib.get_close_matches(name, known, n=1)
    inside = [field for one in near for field in nested if field.startswith(f"{one}.")]
    near = [one for one in near if one in (*texts, *nested)]
    for likely in (*near, *inside, *usual, *nested[: not texts]):
        return f"--text-column {shlex.quote(likely)}"
    if texts:
        return f"--text-column NAME, one of: {name_list(texts, 10)}"
    if lists := [field.name for field in schema if is_text_list(field.type)]:
        return f"--text-column {shlex.quote(lists[0])} --lists join"
    return "these files hold no text: name others"


def _nested_texts(schema: pa.Schema) -> list[str]:
    """Text fields of structs, by their dotted names."""
    found: list[str] = []
    structs = [(field.name, field.type) for field in schema if pa.types.is_struct(field.type)]
    while structs:
        name, kind = structs.pop(0)
        fields = [(f"{name}.{field.name}", field.type) for field in kind]
        found += [path for path, inner in fields if is_text(inner)]
        structs += [(path, inner) for path, inner in fields if pa.types.is_struct(inner)]
    return found


def text_columns(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if is_text(field.type)]


def _listing(schema: pa.Schema) -> str:
    shown = [f"{name_list([field.name])} ({field.type})" for field in list(schema)[:50]]
    more = len(schema) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "") or "no columns"
