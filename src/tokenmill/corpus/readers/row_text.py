"""A row's text in a table: one column, a list of strings, or a template of columns.

`RowText.of` returns one raw entry per row: bytes, a list of bytes, or a struct of the template's
columns. rows.py turns these into texts, a piece at a time.
"""

from __future__ import annotations

import pyarrow as pa

from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.readers.column import is_text, text_columns, text_field
from tokenmill.corpus.readers.rows import sound_binary
from tokenmill.where.fields import Field, column_of, field_named
from tokenmill.where.template import template_of


class RowText:
    """Raises ConfigError for a column that does not exist or holds no text."""

    def __init__(self, schema: pa.Schema, options: ReadOptions, path: str) -> None:
        self._is_template = options.template is not None
        if options.template is None:
            self.fields = [text_field(schema, options.text_column, path, options.lists)]
        else:
            self.fields = _template_fields(schema, options.template, path)

    @property
    def columns(self) -> list[str]:
        """The paths of the columns to read."""
        return list(dict.fromkeys(field.path for field in self.fields))

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Raises ArrowInvalid for a damaged column."""
        arrays = [sound_binary(_written(column_of(batch, field))) for field in self.fields]
        if not self._is_template:
            return arrays[0]
        return pa.StructArray.from_arrays(arrays, [str(i) for i in range(len(arrays))])


def _template_fields(schema: pa.Schema, text: str, path: str) -> list[Field]:
    template = template_of(text)
    found = []
    for slot in template.slots:
        field = field_named(schema, slot.name)
        if field is None:
            what = f"{path}: no column {slot.name!r}"
            raise template.mistake(what, slot, text_columns(schema))
        if not is_text(field.type) and not pa.types.is_integer(field.type):
            what = f"{path}: column {slot.name!r} is {field.type}, not text or a whole number"
            raise template.mistake(what, slot, text_columns(schema))
        found.append(field)
    return found


def _written(column: pa.Array) -> pa.Array:
    """The column as text: whole numbers in decimal digits."""
    return column.cast(pa.large_string()) if pa.types.is_integer(column.type) else column
