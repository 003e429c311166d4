"""The columns that options ask for: whether an input has them, and their values of a table.

A dotted name is a column of exactly that name, or else a field of a struct. Names and types are
checked when the plan is made, before anything is read. A type that is a union stands for any of its
members: a field of JSON has those of the first lines, one of CSV is text that may be read as a
number or a truth value; a test is refused only if no member fits.

Text is strings or bytes, in any of Arrow's layouts (32-bit or 64-bit offsets, views, dictionaries).
Bytes are checked row by row later, so a binary column of images gives bad rows, not an error here.

The plan has one schema of the kept columns (--keep) for all files, of types that every parquet
reader knows: text and bytes as large_string and large_binary, lists as large_list, no dictionaries,
views or extensions. If types differ between files, the wider one is taken (int32 and int64, null
and anything); columns without a common type are refused. A field of JSON that holds objects, lists
or several types is kept as JSON text. A row with a value that is not valid UTF-8, or that its
column's type does not hold, is quarantined.
"""

from __future__ import annotations

import base64
import difflib
import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from tokenmill.config.kinds import comma_separated
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.text_arrays import checked_texts, sound_binary
from tokenmill.errors import ConfigError, InputError
from tokenmill.where.template import template_of
from tokenmill.where.tree import (
    Column,
    Expression,
    Flag,
    IsNull,
    Match,
    Membership,
    Relation,
    Test,
    Value,
)
from tokenmill.wording.name_list import name_list

Names = tuple[str, ...]

# Usual names of a column of documents.
_USUAL = ("text", "content", "raw_content", "body", "document", "article")
# Usual names of a column of conversations, and usual fields of their turns.
CHAT_NAMES = ("messages", "conversations", "conversation")
CHAT_TURNS = ({"role", "content"}, {"from", "value"})


class AskedColumn(NamedTuple):
    """A column that an option asks for."""

    role: str  # text, template, where or keep
    names: Names
    # Of "where": what it is tested as, in words ("a number"); empty: only whether it is null.
    kinds: tuple[str, ...] = ()
    type: pa.DataType | None = None  # of "keep": the plan's

    @property
    def name(self) -> str:
        return ".".join(self.names)

    @property
    def key(self) -> str:
        """Its name in a batch of rows."""
        return self.role if self.role == "text" else f"{self.role}:{self.name}"


@functools.lru_cache(maxsize=64)
def asked(options: ReadOptions) -> tuple[AskedColumn, ...]:
    """All columns that the options ask for. Kept ones only with the plan's types."""
    if options.template is None:
        found = [AskedColumn("text", _split(options.text_column))]
    else:
        slots = template_of(options.template).slots
        found = [AskedColumn("template", _split(slot.name)) for slot in slots]
    if options.where is not None:
        from tokenmill.where.parser import parsed  # only for --where

        tested = _kinds_tested(parsed(options.where))
        found += [AskedColumn("where", names, kinds or ()) for names, kinds in tested.items()]
    if options.keep and options.kept_types is not None:
        types = schema_of(options.kept_types).types
        found += [
            AskedColumn("keep", _split(name), type=type_)
            for name, type_ in zip(options.keep, types, strict=True)
        ]
    return tuple(found)


def _split(name: str) -> Names:
    return tuple(name.split("."))


class SourceSchema(NamedTuple):
    """The columns of an input."""

    schema: pa.Schema
    seen: str = ""  # of JSON: what its fields are known from, such as "its first 100 lines"

    def missing(self, name: str) -> str:
        return f"no field {name!r} in {self.seen}" if self.seen else f"no column {name!r}"

    def num_named(self, name: str) -> int:
        return len(self.schema.get_all_field_indices(name))

    def types_in(self, type_: pa.DataType) -> list[pa.DataType]:
        """The types that values of a column may have, as far as these are known."""
        types = _members(type_)
        return [one for one in types if not pa.types.is_null(one)] if self.seen else types


class Field(NamedTuple):
    """A column of a table: the names that lead to it from the top, and its type."""

    names: Names
    type: pa.DataType

    @property
    def path(self) -> str:
        return ".".join(self.names)


def field_named(schema: pa.Schema, names: Names) -> Field | None:
    """A column of exactly that dotted name, or else a field of a struct."""
    return _field_at(schema, (".".join(names),)) or _field_at(schema, names)


def _field_at(schema: pa.Schema, names: Names) -> Field | None:
    at = schema.get_field_index(names[0])
    if at < 0:
        return None
    type_ = schema.field(at).type
    for name in names[1:]:
        inner = [one for one in _members(type_) if pa.types.is_struct(one)]
        at = inner[0].get_field_index(name) if inner else -1
        if at < 0:
            return None
        type_ = inner[0].field(at).type
    return Field(names, type_)


def _members(type_: pa.DataType) -> list[pa.DataType]:
    """The types that a column's values may have."""
    if not pa.types.is_union(type_):
        return [type_]
    return [type_.field(at).type for at in range(type_.num_fields)]


def column_of(batch: pa.RecordBatch, field: Field) -> pa.Array:
    """The field's values; null where a struct around it is null."""
    import pyarrow.compute as pc

    array = batch.column(batch.schema.get_field_index(field.names[0]))
    array.validate()
    for name in field.names[1:]:
        array = pc.struct_field(array, [array.type.get_field_index(name)])
    return array


# Whether an input has the columns


def require_columns(found: SourceSchema | None, options: ReadOptions, path: str) -> None:
    """Raise ConfigError for a column that is missing, or of a type that does not fit what is asked
    of it. None is plain text."""
    if found is None:
        if options.where is not None:
            raise ConfigError(
                f"{path}: plain text has no columns, so --where has nothing to test",
                hint="leave --where out, or give the text as .jsonl or .parquet",
            )
        return
    try:
        _ = found.schema.names
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: a column name is not UTF-8: {error.object!r}") from error
    if found.seen and not len(found.schema):
        return  # nothing is known
    if options.template is None:
        _require_text(found, options, path)
    else:
        _require_slots(found, options.template, path)
    if options.where is not None:
        from tokenmill.where.parser import parsed

        _require_tests(found, parsed(options.where), path)
    if options.keep:
        for name in options.keep:
            _kept_field(found, name, path, options.keep)


def required_fields(found: SourceSchema, options: ReadOptions, path: str) -> dict[str, Field]:
    """The field of each column that is asked for, by its key. Raises as `require_columns`."""
    require_columns(found, options, path)
    fields = ((column.key, field_named(found.schema, column.names)) for column in asked(options))
    return {key: field for key, field in fields if field is not None}


def _require_text(found: SourceSchema, options: ReadOptions, path: str) -> None:
    schema, name = found.schema, options.text_column
    what = f"{path}: {'field' if found.seen else 'column'}"
    if (num_named := found.num_named(name)) > 1:
        raise ConfigError(f"{path}: {num_named} columns are named {name!r}; rename one of them")
    field = field_named(schema, _split(name))
    if field is None:
        chats = [one.name for one in schema if _are_chats(one.name, one.type)]
        if chats and not text_columns(schema):
            raise _chat_refusal(f"{what} {chats[0]!r}")
        there = f"; it has {_listing(schema)}"
        if found.seen:
            there = f": there are {name_list(paths_in(schema))}"
        what = f"{path}: {found.missing(name)}{there}"
        raise ConfigError(what, hint=_text_column_hint(schema, name))
    if _are_chats(field.names[-1], field.type):
        raise _chat_refusal(f"{what} {name!r}")
    if options.lists is None and all(
        is_list(one) if found.seen else is_text_list(one) for one in _members(field.type)
    ):
        raise ConfigError(
            f"{what} {name!r} is a list of strings, not text",
            hint="--lists join makes one document of each list, --lists documents one of each "
            "string",
        )
    if not found.seen and not is_text_list(field.type) and not is_text(field.type):
        raise ConfigError(
            f"{path}: column {name!r} is {field.type}, not text; "
            f"columns that are text: {name_list(text_columns(schema))}",
            hint=_text_column_hint(schema, name),
        )


def _chat_refusal(what: str) -> ConfigError:
    """The error for a column or field of conversations."""
    return ConfigError(
        f"{what} holds conversations: training on them needs the model's chat template and a loss "
        "mask, which tokenmill does not make",
        hint="prepare them with your trainer's own tool; for a column of text: --text-column NAME",
    )


def _require_slots(found: SourceSchema, text: str, path: str) -> None:
    template, schema = template_of(text), found.schema
    for slot in template.slots:
        field = field_named(schema, _split(slot.name))
        if field is None:
            raise template.mistake(
                f"{path}: {found.missing(slot.name)}", slot, text_columns(schema)
            )
        given = found.types_in(field.type)
        if given and not any(is_text(one) or pa.types.is_integer(one) for one in given):
            own = f"field {slot.name!r} is {_word_of(given[0])}"
            if not found.seen:
                own = f"column {slot.name!r} is {field.type}"
            what = f"{path}: {own}, not text or a whole number"
            raise template.mistake(what, slot, text_columns(schema))


def _are_chats(name: str, kind: pa.DataType) -> bool:
    """Whether a column holds conversations: a list of turns, under a usual name or with usual
    fields."""
    for one in _members(kind):
        if not is_list(one) or not pa.types.is_struct(one.value_type):
            return False
        fields = {field.name for field in one.value_type}
        if name not in CHAT_NAMES and not any(turn <= fields for turn in CHAT_TURNS):
            return False
    return True


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def is_text_list(kind: pa.DataType) -> bool:
    """A list of strings; not of views or dictionary entries, which may repeat one endlessly."""
    values = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return is_list(kind) and kind.value_type in values


def is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(one in (*_STRINGS, *_BYTES) for one in _members(kind))


_STRINGS = (pa.string(), pa.large_string(), pa.string_view())
_BYTES = (pa.binary(), pa.large_binary(), pa.binary_view())


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
    return [path for path, type_ in _all_fields(schema) if "." in path and is_text(type_)]


def text_columns(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if is_text(field.type)]


def paths_in(schema: pa.Schema) -> list[str]:
    """The names of all columns and fields of structs."""
    return [path for path, _ in _all_fields(schema)]


def _all_fields(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    found: list[tuple[str, pa.DataType]] = []
    waiting = [(field.name, field.type) for field in schema]
    while waiting:
        name, type_ = waiting.pop(0)
        found.append((name, type_))
        for one in _members(type_):
            if pa.types.is_struct(one):
                waiting += [(f"{name}.{inner.name}", inner.type) for inner in one]
    return found


def _listing(schema: pa.Schema) -> str:
    shown_fields = [
        f"{name_list([field.name])} ({_members(field.type)[0]})" for field in list(schema)[:50]
    ]
    more = len(schema) - len(shown_fields)
    return ", ".join(shown_fields) + (f" and {more} more" if more > 0 else "") or "no columns"


# --where


def _require_tests(found: SourceSchema, expression: Expression, path: str) -> None:
    tested = _kinds_tested(expression)
    for test in expression.tests:
        column = test.column
        type_ = _tested_field(found, expression, column, path).type
        if (found.seen or pa.types.is_union(type_)) and tested[column.names] == ():
            raise expression.mistake(f"{column} is tested as two different types", column)
        kinds, given = _kinds_for(test), found.types_in(type_)
        if kinds and given and not any(kind_of(one) in kinds for one in given):
            if found.seen:
                what = unfit(column, _word_of(given[0]), tested[column.names] or ())
                raise expression.mistake(f"{path}: {what}", column)
            own = "its length" if getattr(test, "of_length", False) else "it"
            what = f"{path}: {column} is {type_}, and {own} is tested as {kinds[-1]}"
            raise expression.mistake(what, column, _way_out(test, kind_of(type_)))
        if kind_of(type_) == "a time":
            _require_times(test, expression, type_, path)
    _require_patterns(expression)


def _require_times(test: Test, expression: Expression, type_: pa.DataType, path: str) -> None:
    from tokenmill.where.evaluation import moment_of  # 35 ms, only for --where

    for value in _values(test):
        try:
            moment_of(str(value), type_)
        except ValueError as error:
            what = f"{path}: {test.column} is {type_}: {error}"
            raise expression.mistake(what, test.column, _way_out(test, "a time")) from None


def _require_patterns(expression: Expression) -> None:
    """Raise ConfigError for a regular expression that RE2 does not accept."""
    import pyarrow.compute as pc

    for test in expression.tests:
        if isinstance(test, Match):
            try:
                pc.match_substring_regex(pa.nulls(1, pa.large_string()), test.pattern)
            except pa.ArrowException as error:
                hint = "the syntax is RE2's: github.com/google/re2/wiki/Syntax"
                raise expression.mistake(f"{error}", test.column, hint) from None


def unfit(column: object, word: str, kinds: Sequence[str]) -> str:
    """What is wrong with a value, described by `word`, of a field that is tested as `kinds`."""
    return f"field {str(column)!r} is {word}, and is tested as {' or '.join(kinds)}"


def _kinds_tested(expression: Expression) -> dict[Names, tuple[str, ...] | None]:
    """What each column is tested as; None: only whether it is null. Times are left out, which
    tables alone have: their types are checked test by test."""
    found: dict[Names, tuple[str, ...] | None] = {}
    for test in expression.tests:
        names = test.column.names
        before = found.setdefault(names, None)
        if not isinstance(test, IsNull):
            own = tuple(kind for kind in _kinds_for(test) if kind in TESTED)
            found[names] = own if before is None else tuple(one for one in before if one in own)
    return found


TESTED = ("a boolean", "a number", "text", "a list")


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
    if is_list(type_):
        return "a list"
    return "text" if is_text(type_) else "something else"


def _word_of(type_: pa.DataType) -> str:
    """What a value of JSON is, in words."""
    own = {"text": "a string", "a list": "an array", "something else": "an object"}
    return own.get(kind_of(type_), kind_of(type_))


def _kinds_for(test: Test) -> tuple[str, ...]:
    """The kinds of columns that a test applies to; empty: all."""
    if isinstance(test, IsNull):
        return ()
    if isinstance(test, Flag):
        return ("a boolean",)
    if isinstance(test, Match):
        return ("text",)
    if test.of_length:
        return ("text", "a list")
    first, *others = [_kinds_of_value(value) for value in _values(test)]
    common = tuple(kind for kind in first if all(kind in other for other in others))
    return common or ("values of one kind",)


def _tested_field(found: SourceSchema, expression: Expression, column: Column, path: str) -> Field:
    schema = found.schema
    for name in (str(column), column.names[0]):
        if (num_named := found.num_named(name)) > 1:
            raise expression.mistake(f"{path}: {num_named} columns have this name", column)
    if field := field_named(schema, column.names):
        return field
    known = paths_in(schema)
    near = difflib.get_close_matches(str(column), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {name_list(known)}"
    raise expression.mistake(f"{path}: {found.missing(column.shown)}", column, hint)


def _way_out(test: Test, kind: str) -> str | None:
    values = _values(test)
    if kind == "text" and values:
        return f'text in quotes: "{values[0]}"'
    if kind == "a number" and values:
        return f"a number without quotes: {values[0]}"
    return {
        "a time": '"2024-01-31" or "2024-01-31T12:00:00"',
        "a boolean": f"{test.column} or not {test.column}",
        "a list": f"len({test.column}) > 0",
        "something else": f"{test.column} is not null",
    }.get(kind)


def _values(test: Test) -> tuple[Value, ...]:
    if isinstance(test, Relation):
        return (test.value,)
    return test.values if isinstance(test, Membership) else ()


def _kinds_of_value(value: Value) -> tuple[str, ...]:
    if isinstance(value, bool):
        return ("a boolean",)
    return ("a time", "text") if isinstance(value, str) else ("a number",)


# --keep


def schema_text(schema: pa.Schema) -> str:
    """A schema as text, for plans and options."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


@functools.lru_cache(maxsize=64)
def schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))


def kept_types_of(found: SourceSchema | None, columns: Names, path: str) -> str:
    """The types of an input's kept columns. Raises ConfigError for a column that does not exist, or
    that parquet cannot hold."""
    if found is None:
        raise ConfigError(
            f"{path}: plain text has no columns, so --keep has nothing to keep",
            hint="--keep '' keeps the file and row of each document",
        )
    fields = []
    for column in columns:
        field = _kept_field(found, column, path, columns)
        type_ = lasting_type(field.type)
        if found.seen or pa.types.is_union(field.type):
            type_ = _json_type(field.type)
        elif not _is_holdable(type_):
            raise ConfigError(
                f"--keep: {path}: column {column!r} is {type_}, which parquet cannot hold",
                hint="leave it out",
            )
        fields.append(pa.field(column, type_))
    return schema_text(pa.schema(fields))


def _kept_field(found: SourceSchema, column: str, path: str, columns: Names) -> Field:
    schema = found.schema
    for name in (column, _split(column)[0]):
        if (num_named := found.num_named(name)) > 1:
            raise ConfigError(
                f"--keep: {path}: {num_named} columns are named {name!r}",
                hint="rename one of them",
            )
    if field := field_named(schema, _split(column)):
        return field
    if found.seen and not len(schema):
        return Field((column,), pa.null())
    known = paths_in(schema)
    near = difflib.get_close_matches(column, known, n=1)
    hint = f"there are {name_list(known)}"
    if near:
        meant = comma_separated(near[0] if name == column else name for name in columns)
        hint = f"did you mean --keep {shlex.quote(meant)}?"
    raise ConfigError(f"--keep: {path}: {found.missing(column)}", hint=hint)


def _json_type(type_: pa.DataType) -> pa.DataType:
    """How a field of JSON or CSV is kept."""
    types = _members(type_)
    if types == [pa.int64(), pa.float64()] or types == [pa.float64(), pa.int64()]:
        return pa.float64()
    plain = (pa.null(), pa.bool_(), pa.int64(), pa.float64())
    return types[0] if len(types) == 1 and types[0] in plain else pa.large_string()


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


def kept_values(
    array: pa.Array, column: AskedColumn, replace: bool
) -> tuple[pa.Array, Mapping[int, str]]:
    """A table's column in the plan's type; why rows are bad, by position. Raises ArrowInvalid for a
    damaged column."""
    assert column.type is not None
    lasting = lasting_type(array.type)
    is_untyped = lasting == pa.large_binary() and column.type == pa.large_string()  # of CSV
    if lasting == pa.large_string() or is_untyped:
        texts, bad, _ = checked_texts(sound_binary(array), replace)
        return texts.cast(column.type), {
            row: f"column {column.name!r}: {why}" for row, why in bad.items()
        }
    array.validate(full=True)
    array = _plain(array)
    try:
        return array.cast(column.type), {}
    except pa.ArrowInvalid:  # int64 and double have double in common, which not every int64 is
        return _fitting(array, column)


def _fitting(array: pa.Array, column: AskedColumn) -> tuple[pa.Array, dict[int, str]]:
    """The values that the common type of all files holds; the other rows are bad."""
    rows, bad = [], {}
    for row in range(len(array)):
        try:
            rows.append(array.slice(row, 1).cast(column.type))
        except pa.ArrowInvalid:
            why = f"does not fit {shown(column.type)}, the type that all files have in common"
            bad[row] = f"column {column.name!r}: its value, {shown(array.type)}, {why}"
            rows.append(pa.nulls(1, column.type))
    return pa.concat_arrays(rows), bad


def lasting_type(type_: pa.DataType) -> pa.DataType:
    """The type in which a column's values are kept."""
    types = pa.types
    while isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return lasting_type(type_.value_type)
    if type_ in _STRINGS:
        return pa.large_string()
    return pa.large_binary() if type_ in _BYTES else _nested(type_, lasting_type)


def _known_type(type_: pa.DataType) -> pa.DataType:
    """The type with text in place of null, at any depth: another file may have values there, and
    pyarrow cannot cast slices of lists of nulls."""
    return pa.large_string() if pa.types.is_null(type_) else _nested(type_, _known_type)


def _nested(type_: pa.DataType, of: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with `of` applied to those within it."""
    if pa.types.is_map(type_):
        return pa.map_(of(type_.key_type), of(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, of(field.type)) for field in type_])
    is_any_list = is_list(type_) or pa.types.is_fixed_size_list(type_) or _is_list_view(type_)
    return pa.large_list(of(type_.value_type)) if is_any_list else type_


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
    is_view = type_ in (pa.string_view(), pa.binary_view()) or _is_list_view(type_)
    if is_view or types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        return True
    if isinstance(type_, pa.BaseExtensionType):
        return True
    return any(_is_odd(type_.field(at).type) for at in range(type_.num_fields))


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
