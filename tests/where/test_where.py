"""--where against Python's own evaluation of rows, for every kind of file; and its mistakes."""

from __future__ import annotations

import functools
import itertools
import json
import operator
import random
import subprocess
import sys
import tempfile
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.corpus.readers.test_contract import source_of
from tests.where.expressions import expressions, rows
from tokenmill.config import Config
from tokenmill.corpus.input_spans import cut
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.corpus.rows import documents
from tokenmill.errors import ConfigError
from tokenmill.where.evaluation import Truth
from tokenmill.where.parser import MAX_DEPTH, parsed

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("count", pa.int64()),
        ("score", pa.float64()),
        ("word", pa.string()),
        ("flag", pa.bool_()),
        ("meta", pa.struct([("n", pa.int16())])),
        ("tags", pa.list_(pa.string())),
    ]
)


def written(folder: Path, table_rows: list[dict]) -> list[Path]:
    """The rows as parquet, in small row groups with statistics and without, Arrow and JSON."""
    table = pa.Table.from_pylist(table_rows, SCHEMA)
    paths = [folder / name for name in ("a.parquet", "b.parquet", "c.arrow", "d.jsonl")]
    pq.write_table(table, paths[0], row_group_size=2)
    pq.write_table(table, paths[1], write_statistics=False)
    with pa.OSFile(str(paths[2]), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(table, max_chunksize=3)
    paths[3].write_text("".join(json.dumps(row) + "\n" for row in table_rows))
    return paths


def rows_in(path: Path, options: ReadOptions) -> list[int]:
    """The numbers of the rows that go in; every other row must be covered, too."""
    source = source_of(path)
    reader = reader_for(source.kind, options)
    found: list[int] = []
    num_rows = 0
    for span in cut(source, options).spans:
        first_row = num_rows
        for some in documents(reader, span, options):
            assert not some.rejected and len(some.texts) == len(some) <= some.num_covered
            found += (first_row + some.numbers).tolist()
            num_rows += some.num_covered
    return [*found, -num_rows]


# The first row, so that JSON has all fields: one that no line has is taken for a misspelling.
FULL = {
    "text": "x",
    "count": 1,
    "score": 0.5,
    "word": "a",
    "flag": True,
    "tags": [],
    "meta": {"n": 1},
}


@given(st.lists(rows, max_size=7), expressions, st.sampled_from([1, 40, 1 << 20]))
@settings(max_examples=60, deadline=None, database=None)
def test_where_when_rows_and_expression_are_any_then_python_agrees(table_rows, expression, size):
    text, meaning = expression
    table_rows = [FULL, *table_rows]
    expected = [number for number, row in enumerate(table_rows) if meaning(row) is True]
    with tempfile.TemporaryDirectory() as folder:
        for path in written(Path(folder), table_rows):
            options = ReadOptions(where=text, span_bytes=size, batch_bytes=size)
            assert rows_in(path, options) == [*expected, -len(table_rows)], (text, path.name)


def test_where_when_statistics_rule_out_a_row_group_then_it_is_not_opened(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": ["x"] * 40, "score": sorted([1, 2, 3, 4] * 10)})
    pq.write_table(table, path, row_group_size=10)
    options = ReadOptions(where="score >= 3 or score in (7, 9)", span_bytes=1)
    spans = cut(source_of(path), options).spans
    assert [(s.start, s.stop, s.first_row, s.num_rows) for s in spans] == [
        (0, 0, 0, 20),
        (2, 3, 20, 10),
        (3, 4, 30, 10),
    ]
    path.unlink()
    [found] = documents(reader_for("parquet", options), spans[0], options)
    assert len(found) == 0 and found.num_covered == 20


def test_where_when_fields_of_a_struct_are_null_then_the_struct_is_not_ruled_out(tmp_path):
    path = tmp_path / "a.parquet"
    table = {"text": ["x"] * 2, "meta": [{"n": None}] * 2, "tags": [[], []]}
    pq.write_table(pa.table(table, _schema_of("text", "meta", "tags")), path)
    for where in ("meta is not null", "tags is not null", "meta.n is null", "len(tags) == 0"):
        assert rows_in(path, ReadOptions(where=where)) == [0, 1, -2], where


def _schema_of(*names: str) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in names])


@pytest.mark.parametrize(
    ("type_", "where", "expected"),
    [
        (pa.date32(), 'when >= "2024-01-02"', [1, 2]),
        (pa.date64(), 'when == "2024-01-02"', [1]),
        (pa.timestamp("s"), 'when < "2024-01-02T00:00:00.5"', [0, 1]),
        (pa.timestamp("ns", "UTC"), 'when in ("2024-01-03", "2024-01-02T01:00:00+01:00")', [1, 2]),
        (pa.timestamp("us"), 'not when == "2024-01-02"', [0, 2]),
    ],
    ids=str,
)
def test_where_when_column_is_a_time_then_quotes_hold_a_date(tmp_path, type_, where, expected):
    days = pa.array([19723, 19724, 19725], pa.int32()).cast(pa.date32()).cast(type_)
    pq.write_table(pa.table({"text": ["x"] * 3, "when": days}), tmp_path / "a.parquet")
    assert rows_in(tmp_path / "a.parquet", ReadOptions(where=where)) == [*expected, -3]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.uint64(), [0, 3, 2**63 + 1]),
        (pa.int8(), [0, 3, 127]),
        (pa.float32(), [0, 3, 99]),
        (pa.decimal128(9, 2), [0, 3, 99]),
        (pa.dictionary(pa.int8(), pa.int64()), [0, 3, 99]),
    ],
    ids=str,
)
def test_where_when_number_does_not_fit_the_type_then_it_still_compares(tmp_path, type_, values):
    path = tmp_path / "a.parquet"
    is_dictionary = pa.types.is_dictionary(type_)
    column = pa.array(values, pa.int64() if is_dictionary else type_)
    column = column.dictionary_encode() if is_dictionary else column
    pq.write_table(pa.table({"text": ["x"] * 3, "n": column}), path)
    for where, expected in [
        ("n < 1e300 and n > -99999999999999999999", [0, 1, 2]),
        ("n == 3.5 or n != -1 and n >= 2.5", [1, 2]),
        ("not n > 3", [0, 1]),
    ]:
        assert rows_in(path, ReadOptions(where=where)) == [*expected, -3], where


def test_where_when_a_path_is_that_of_two_columns_then_each_has_its_own_statistics(tmp_path):
    """A column named `a.b` beside a struct a with a field b, and a list named so."""
    structs = [{"b": 7}, {"b": 8}, {"b": 5}, {"b": 5}]
    for own, cases in [
        ([4, 5, 6, 7], [("`a.b` >= 6", [2, 3]), ("a.b <= 4", [0]), ("`a.b` in (4, 7)", [0, 3])]),
        ([None, 5, None, None], [("a.b is null", [0, 2, 3]), ("a.b is not null", [1])]),
        ([[1], [], None, [2]], [("a.b is null", [2]), ("len(a.b) > 0", [0, 3])]),
    ]:
        for names in (("a.b", "a"), ("a", "a.b")):
            columns = {"text": list("wxyz"), "a.b": own, "a": structs}
            table = pa.table({"text": columns["text"], **{name: columns[name] for name in names}})
            pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
            for where, expected in cases:
                found = rows_in(tmp_path / "a.parquet", ReadOptions(where=where))
                assert found == [*expected, -4], (where, names)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ('when == "2001-09-09T01:46:40.123456789"', [1]),
        ('when < "2001-09-09T01:46:40.123456789Z"', [0]),
        ('when <= "2001-09-09T01:46:40,123456789"', [0, 1]),
        ('when > "2001-09-09T01:46:40.1234567891"', [2]),
        ('when in ("2001-09-09T02:46:40.123456790+01:00", "2001-09-09")', [2]),
    ],
)
def test_where_when_a_time_has_nanoseconds_then_no_digit_is_lost(where, expected, tmp_path):
    values = [10**18 + 123_456_000, 10**18 + 123_456_789, 10**18 + 123_456_790]
    for size in (1, 3):
        when = pa.array(values, pa.timestamp("ns", "UTC"))
        path = tmp_path / f"{size}.parquet"
        pq.write_table(pa.table({"text": ["x"] * 3, "when": when}), path, row_group_size=size)
        assert rows_in(path, ReadOptions(where=where)) == [*expected, -3]


@pytest.mark.parametrize("type_", [pa.decimal128(12, 4), pa.decimal256(40, 20)], ids=str)
def test_where_when_a_column_is_decimal_then_numbers_compare_exactly(type_, tmp_path):
    random_ = random.Random(17)
    step = Fraction(10) ** -type_.scale
    units = sorted(random_.sample(range(-(10**6), 10**6), 60))
    values = [Decimal(unit).scaleb(-type_.scale) for unit in units]
    path = tmp_path / "a.arrow"
    table = pa.table({"text": ["x"] * 60, "n": pa.array([*values[:-1], None], type_)})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    compare = {"==": operator.eq, "<": operator.lt, ">=": operator.ge, "!=": operator.ne}
    for unit in random_.sample(units, 10):
        for between in (0, 1):
            limit = unit * step + between * step / 2
            shown = f"{Decimal(limit.numerator) / Decimal(limit.denominator):f}"
            assert Fraction(shown) == limit
            for sign, is_so in compare.items():
                expected = [at for at in range(59) if is_so(units[at] * step, limit)]
                found = rows_in(path, ReadOptions(where=f"n {sign} {shown}"))
                assert found == [*expected, -60], (sign, shown)
    everything = ReadOptions(
        where="n < 1e300 and n > -99999999999999999999999999999999999999999999"
    )
    assert rows_in(path, everything) == [*range(59), -60]


MISTAKES = [
    ("int_scor >= 3", "no column 'int_scor'", "^^^^^^^^", "did you mean int_score?"),
    ('int_score >= "3"', "int_score is int64, and it is tested as text", "^^^^^^^^^", "quotes: 3"),
    ("lang == 3", "lang is string, and it is tested as a number", "^^^^", 'quotes: "3"'),
    ("len(int_score) > 3", "its length is tested", "^^^^^^^^^", None),
    ("lang", "tested as a boolean", "^^^^", None),
    ("meta == 3", "meta is struct", "^^^^", "meta is not null"),
    ("meta.no is null", "no column 'meta.no'", "^^^^^^^", "meta.n?"),
    ('lang matches "("', "missing )", "^^^^", "RE2"),
    ("lang in (1, 'a')", "values of one kind", "^^^^", None),
    ("day >= 'soon'", "'soon' is not a date", "^^^", "2024-01-31"),
]


@pytest.mark.parametrize(("where", "what", "carets", "hint"), MISTAKES, ids=lambda case: case)
def test_where_when_column_or_type_is_wrong_then_plan_fails_with_a_caret(
    tmp_path, where, what, carets, hint
):
    columns = {
        "text": ["x"],
        "int_score": [3],
        "lang": ["en"],
        "meta": [{"n": 1}],
        "day": pa.array([0], pa.int32()).cast(pa.date32()),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(ConfigError) as caught:
        cut(source_of(tmp_path / "a.parquet"), ReadOptions(where=where))
    shown = str(caught.value).split("\n")
    assert what in shown[0] and (hint or "") in (caught.value.hint or "")
    assert shown[1].strip() == where
    assert shown[2].strip() == carets
    word = shown[1][shown[2].index("^") : shown[2].rindex("^") + 1]
    assert (where.find(word) >= 0 and word.isidentifier()) or "." in word


def test_where_when_json_field_is_unknown_or_of_another_type_then_plan_fails(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x", "int_score": 3, "m": {"lang": "en"}}\n' * 3)
    for where, what in [
        ("int_scor > 2", "no field 'int_scor' in its first 3 lines"),
        ("int_score == '3'", "field 'int_score' is a number, and is tested as text"),
        ("m.lang > 2", "'m.lang' is a string, and is tested as a number"),
        ("int_score > 2 and int_score == 'x'", "tested as two different types"),
    ]:
        with pytest.raises(ConfigError, match=r"(?s)--where: .*\^") as caught:
            cut(source_of(path), ReadOptions(where=where))
        assert what in caught.value.message


def test_where_when_json_type_changes_later_then_row_is_bad_if_it_decides(tmp_path):
    path = tmp_path / "a.jsonl"
    good = '{"text": "x", "n": 3, "ok": true}\n' * 100
    path.write_text(
        good + '{"text": "y", "ok": true, "n": "3"}\n{"text": "z", "ok": false, "n": []}\nbroken\n'
    )
    options = ReadOptions(where="ok != false and n > 2")
    reader = reader_for("jsonl", options)
    [span] = reader.spans(source_of(path))
    [found] = documents(reader, span, options)
    assert found.num_covered == 103 and found.numbers[100:].tolist() == [100, 102]
    assert found.rejected == {
        100: "field 'n' is a string, and is tested as a number",
        102: "not JSON: Expecting value at column 1",
    }


BAD_UTF8 = [b"en", b"\xff", None, b"de"]


@pytest.mark.parametrize(
    ("where", "replace", "expected", "bad"),
    [
        ("lang == 'en'", False, [0], []),
        ("lang != 'en'", False, [1, 3], []),
        ('lang < "\uffff"', False, [0, 3], []),
        ('lang < "\uffff"', True, [0, 3], []),
        ("lang in ('de', 'en') or lang is null", False, [0, 2, 3], []),
        ("lang is not null and lang > 'x'", False, [1], []),
        ("lang matches 'e'", False, [0, 1, 3], [1]),
        ("lang matches '\ufffd'", True, [1], []),
        ("len(lang) == 1 or lang is null", False, [1, 2], [1]),
        ("len(lang) == 2 and lang is null", False, [], []),
        ("n == 1 and lang matches '.'", False, [0, 3], []),
    ],
)
def test_where_when_other_column_is_not_utf8_then_bytes_compare_whatever_the_row_groups(
    where, replace, expected, bad, tmp_path
):
    lang = pa.array(BAD_UTF8).view(pa.string())
    table = pa.table({"text": list("abcd"), "lang": lang, "n": [1, 2, 2, 1]})
    paths = [tmp_path / f"{size}.parquet" for size in (1, 2, 4)]
    for path in paths:
        pq.write_table(table, path, row_group_size=int(path.stem))
    dictionary = tmp_path / "d.arrow"
    table = table.set_column(1, "lang", pa.array(BAD_UTF8).dictionary_encode())
    with pa.OSFile(str(dictionary), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    for path in (*paths, dictionary):
        found = verdicts(path, ReadOptions(where=where, replace_bad_text=replace))
        assert found == (expected, bad), path.name


def verdicts(path: Path, options: ReadOptions) -> tuple[list[int], list[int]]:
    """The rows that go in, and those of them that are quarantined."""
    source = source_of(path)
    found: list[int] = []
    bad: list[int] = []
    num_rows = 0
    for span in cut(source, options).spans:
        first_row = num_rows
        for some in documents(reader_for(source.kind, options), span, options):
            found += (first_row + some.numbers).tolist()
            bad += [first_row + row for row in some.rejected]
            num_rows += some.num_covered
    return found, bad


ODD_TYPES = [
    ("f is null", [1], []),
    ("f is not null", [0, 2, 3], []),
    ("f is null or f > 3", [0, 1, 2], [2]),
    ("f is not null and f > 3", [0, 2], [2]),
    ("not (f is null) or f > 3", [0, 2, 3], []),
    ("f > 3 and g == 'x'", [0], []),  # null and unreadable is never true
    ("not (f > 3 and g == 'x')", [2, 3], [2]),  # but this may be
    ("f > 3 or not f > 3", [0, 2, 3], [2]),
]


@pytest.mark.parametrize(("where", "expected", "bad"), ODD_TYPES)
@pytest.mark.parametrize("kind", ["csv", "jsonl", "json"])
def test_where_when_a_value_has_another_type_then_it_is_there_but_unreadable(
    kind, where, expected, bad, tmp_path
):
    table = [("t1", 5, "x"), ("t2", None, "x"), ("t3", "abc", None), ("t4", 1, "x")]
    lines = [json.dumps({"text": t, "f": f, "g": g}) for t, f, g in table]
    fields = [f"{t},{'' if f is None else f},{g or ''}" for t, f, g in table]
    written_as = {
        "csv": "\n".join(["text,f,g", *fields]),
        "jsonl": "\n".join(lines),
        "json": f"[{','.join(lines)}]",
    }
    path = tmp_path / f"a.{kind}"
    path.write_text(written_as[kind])
    assert verdicts(path, ReadOptions(where=where)) == (expected, bad)


@pytest.mark.parametrize(
    ("where", "replace", "expected", "bad"),
    [
        ('lang < "\uffff"', False, [0, 3], []),
        ('lang < "\uffff"', True, [0, 3], []),
        ("lang matches '\ufffd'", True, [1], []),
        ("lang matches 'e'", False, [0, 1, 3], [1]),
        ("lang > 3", False, [1], [1]),
        ("lang is null", False, [2], []),
    ],
)
def test_where_when_a_csv_field_is_not_utf8_then_as_in_a_table(
    where, replace, expected, bad, tmp_path
):
    lang = [
        b"1" if value and where == "lang > 3" and value[:1] != b"\xff" else value
        for value in BAD_UTF8
    ]
    lines = [b"text,lang", *(b"t," + (value or b"") for value in lang)]
    (tmp_path / "a.csv").write_bytes(b"\n".join(lines))
    options = ReadOptions(where=where, replace_bad_text=replace)
    assert verdicts(tmp_path / "a.csv", options) == (expected, bad)


def test_truth_when_tests_may_be_several_then_as_trying_out_all_of_them():
    """Against brute force: each test is one of some values, and each is tried."""
    values = {"true": True, "false": False, "null": None}

    def joined(found: list[bool | None]) -> bool | None:
        return False if False in found else None if None in found else True

    def tried(tree, own) -> set[bool | None]:
        kind, *inner = tree
        if kind == "test":
            return {values[name] for name in own[inner[0]]}
        each = [tried(one, own) for one in inner]
        if kind == "not":
            return {None if one is None else not one for one in each[0]}
        flips = {True: False, False: True, None: None}
        if kind == "or":
            each = [{flips[one] for one in some} for some in each]
        found = {joined(list(one)) for one in itertools.product(*each)}
        return {flips[one] for one in found} if kind == "or" else found

    def computed(tree, own) -> Truth:
        kind, *inner = tree
        if kind == "test":
            return Truth(*(name in own[inner[0]] for name in values))
        each = [computed(one, own) for one in inner]
        if kind == "not":
            return ~each[0]
        return functools.reduce(operator.and_ if kind == "and" else operator.or_, each)

    def drawn(depth: int, numbers) -> tuple:
        kind = random_.choice(["test", "not", "and", "or"]) if depth else "test"
        if kind == "test":
            return "test", next(numbers)
        return kind, *(drawn(depth - 1, numbers) for _ in range(1 if kind == "not" else 2))

    random_ = random.Random(27)
    certain = [("true",), ("false",), ("null",)]
    for _ in range(4000):
        tree = drawn(4, itertools.count())
        own = [random_.choice([*certain, tuple(values)]) for _ in range(16)]
        found = computed(tree, own)
        possible = {values[name] for name, may_be in zip(values, found, strict=True) if may_be}
        assert possible == tried(tree, own), (tree, own)


def test_where_when_source_is_plain_text_then_is_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("x")
    with pytest.raises(ConfigError, match="plain text has no columns"):
        cut(source_of(path), ReadOptions(where="a == 1"))


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("a = 1", "expected `and`, `or` or the end"),
        ("a == null", "nothing equals null"),
        ("a >= 1 < 5", "one comparison at a time"),
        ("a == b", "not with another column"),
        ("a == 'x", "the quote ' is not closed"),
        ("(a == 1", "expected `)`, got the end"),
        ("a in ()", "expected a column or a value"),
        ("a in (1,", "got the end"),
        ("a == 1 b", "got `b`"),
        ("and", "expected a column or a value, got `and`"),
        ("a ; b", "unexpected ';'"),
        ("a == \x00", "unexpected '\\x00'"),
        ("1 == 1", "two values"),
        ("len(a) == 'x'", "a length is compared with a number"),
        ("true < len(a)", "a length is compared with a number"),
        ("len(a) in (1, 'x')", "a length is compared with a number"),
        ("a matches 3", "in quotes"),
        ("a == 1e999", "too large"),
        ("a == " + "9" * 5000, "a number of 5,000 digits"),
        ("(" * 10_000, f"nested more than {MAX_DEPTH} deep"),
        ("not " * 10_000, f"nested more than {MAX_DEPTH} deep"),
        ("a == 1 or " * 10_000, "--where has 100,000 characters"),
        ('a == "\\ud800"', "half of a surrogate pair"),
        ("a == '\udcff'", "not valid Unicode"),
        ("", "--where is empty"),
        ("__import__('os').system('true')", "got `(`"),
    ],
    ids=lambda case: case[:20],
)
def test_where_when_expression_is_wrong_then_config_says_where(where, what):
    with pytest.raises(ConfigError) as caught:
        Config(sources=("a",), out="b", where=where)
    assert what in caught.value.message
    caught.value.message.encode()  # it can be printed
    assert max(map(len, caught.value.message.split("\n"))) < 200


def test_where_when_names_and_strings_are_odd_then_they_are_read(tmp_path):
    path = tmp_path / "a.parquet"
    table = {"text": ["x"] * 2, "my col": ["a\tb", "c"], "and": [1, 2], "größe": [3, 4]}
    pq.write_table(pa.table({**table, "a.b": [5, 6], "n": ["\0", "x"]}), path)
    for where in ["`my col` == 'a\\tb'", "`and` == 1", "größe < 4", "a.b == 5", 'n == "\\u0000"']:
        assert rows_in(path, ReadOptions(where=where)) == [0, -2], where
    catastrophic = ReadOptions(where="text matches '^(a+)+$' or `my col` matches '(x+x+)+y'")
    assert rows_in(path, catastrophic) == [-2]


@given(st.text(max_size=30) | st.text("()ab=<>'\"\\`.,1 -notrdi", max_size=40))
@settings(max_examples=300, deadline=None, database=None)
def test_where_when_text_is_any_then_it_is_parsed_or_refused(text):
    try:
        parsed(text)
    except ConfigError as error:
        assert error.message.startswith("--where")


def test_an_expression_imports_no_pandas_which_every_worker_would_pay() -> None:
    program = """
import sys
import pyarrow as pa
from tokenmill.where.evaluation import Values, outcome_of_rows
from tokenmill.where.parser import parsed
columns = {("n",): pa.nulls(2, pa.int64()), ("s",): pa.nulls(2, pa.large_binary())}
for text in ("n >= 4", "n > 3.5", "n < 1e30", 's == "a"', 's in ("a", "b")', "len(s) in (1, 2)"):
    found = outcome_of_rows(parsed(text), lambda test: Values(columns[test.column.names]))
    assert found.null.all() and not (found.true | found.false).any()
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
