"""Nested fields, lists of strings and templates against a loop over the rows, for every kind of
file that has them, with and without a choice of rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.corpus.readers.test_contract import source_of
from tokenmill.config import Config
from tokenmill.corpus.input_spans import cut
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.corpus.rows import Rows, documents
from tokenmill.errors import ConfigError
from tokenmill.testing.reader_contract import SIZES, read_rows
from tokenmill.where.template import template_of

Row = dict[str, Any]
ROWS: list[Row] = [
    {
        "id": i,
        "title": None if i % 3 == 0 else f"Title {i} é",
        "text": None if i % 4 == 0 else "" if i % 5 == 0 else f"text {i}\n{{braces}}",
        "meta": None if i % 7 == 0 else {"text": f"nested {i}", "deep": {"er": f"deep {i}"}},
        "parts": None if i % 6 == 0 else [f"{i}a", None, "", f"{i}b"][: i % 5],
    }
    for i in range(40)
]
SCHEMA = pa.schema(
    [
        *(("id", pa.int64()), ("title", pa.string()), ("text", pa.large_string())),
        ("meta", pa.struct([("text", pa.string()), ("deep", pa.struct([("er", pa.string())]))])),
        ("parts", pa.list_(pa.string())),
    ]
)


def write_tables(folder: Path) -> list[Path]:
    paths = [folder / name for name in ("a.parquet", "f.arrow", "s.arrow", "a.jsonl", "a.json")]
    table = pa.Table.from_pylist(ROWS, SCHEMA)
    pq.write_table(table, paths[0], row_group_size=7)
    for path, new in ((paths[1], pa.ipc.new_file), (paths[2], pa.ipc.new_stream)):
        with pa.OSFile(str(path), "wb") as sink, new(sink, SCHEMA) as writer:
            writer.write_table(table, max_chunksize=7)
    paths[3].write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    paths[4].write_text(json.dumps(ROWS, indent=1))
    return paths


def templated(row: Row) -> list[str | None]:
    if row["title"] is None and row["text"] is None:
        return [None]
    return [f"{{{row['title'] or ''}}}: {row['text'] or ''}{row['title'] or ''}"]


def numbered(row: Row) -> list[str | None]:
    return [f"{row['id']}. {row['title'] or ''}"]


def nested(row: Row) -> list[str | None]:
    return [row["meta"] and row["meta"]["deep"]["er"]]


def joined(row: Row) -> list[str | None]:
    parts = row["parts"]
    return [None if parts is None else "|".join(part for part in parts if part is not None)]


def divided(row: Row) -> list[str | None]:
    return [None] if row["parts"] is None else row["parts"] or [""]


CASES: dict[str, tuple[dict[str, Any], Callable[[Row], list[str | None]]]] = {
    "nested": ({"text_column": "meta.deep.er"}, nested),
    "template": ({"template": "{{{title}}}: {text}{title}"}, templated),
    "numbers": ({"template": "{id}. {title}"}, numbered),
    "join": ({"text_column": "parts", "lists": "join", "separator": "|"}, joined),
    "documents": ({"text_column": "parts", "lists": "documents"}, divided),
}


def all_rows(path: Path, options: ReadOptions) -> list[Rows]:
    source = source_of(path)
    reader = reader_for(source.kind, options)
    spans = reader.spans(source)
    return [rows for span in spans for rows in documents(reader, span, options)]


def read(path: Path, options: ReadOptions, limit: int | None = None) -> tuple[list, int, int]:
    """(texts, rows, rows left out)."""
    source = source_of(path)
    reader = reader_for(source.kind, options)
    texts: list[str | None] = []
    num_rows = num_left_out = 0
    places = set()
    for span in cut(source, options, limit).spans:
        for rows in documents(reader, span, options):
            assert not rows.rejected
            rows.batch.validate(full=True)
            numbers = rows.numbers.tolist()
            assert sorted(set(numbers)) == numbers
            assert not numbers or rows.first_row <= numbers[0] <= numbers[-1] < rows.stop
            texts += rows.texts.to_pylist()
            num_rows += rows.num_covered
            num_left_out += rows.num_covered - len(rows)
            places |= {reader.place(span, row) for row in range(rows.first_row, rows.stop)}
    assert len(places) == num_rows
    return texts, num_rows, num_left_out


@pytest.mark.parametrize("case", CASES)
def test_text_when_made_of_columns_then_it_is_what_a_loop_makes(tmp_path, case):
    changed, of_row = CASES[case]
    expected = [text for row in ROWS for text in of_row(row)]
    chosen = [text for row in ROWS if row["id"] % 40 >= 9 for text in of_row(row)]
    for path in write_tables(tmp_path):
        for sizes in SIZES:
            options = replace(sizes, **{"separator": None, **changed})
            assert read(path, options) == (expected, len(expected), 0)
            where = replace(options, where="id >= 9")
            assert read(path, where) == (chosen, len(chosen) + 9, 9)
            assert read(path, options, limit=13)[0] == expected[:13]
            assert read(path, where, limit=13)[0] == chosen[:13]
            sampled = read(path, replace(options, sample=0.5))[0]
            assert 0 < len(sampled) < len(expected)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_text_when_rows_of_any_layout_are_chosen_then_they_are_those_of_a_loop(tmp_path, kind):
    texts = [None if i % 5 == 0 else "a text over twelve bytes " * (i % 3) for i in range(30)]
    column = pa.array(texts, pa.string())
    views = pa.types.is_string_view(kind)
    column = pa.array(texts, kind) if views else column.dictionary_encode().cast(kind)
    table = pa.table({"n": range(30), "text": column})
    path = tmp_path / "a.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=11)
    for options in SIZES:
        chosen = replace(options, where="n not in (3, 4, 25)")
        expected = [text for i, text in enumerate(texts) if i not in (3, 4, 25)]
        assert read(path, chosen) == (expected, 30, 3)
        made = [text if text is None else f"<{text}>" for text in expected]
        assert read(path, replace(chosen, template="<{text}>")) == (made, 30, 3)


def test_template_when_fields_of_a_csv_are_empty_then_they_are_null(tmp_path):
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "title", "text"])
        writer.writerows([row["id"], row["title"], row["text"]] for row in ROWS)
    empty = [{**row, "text": row["text"] or None} for row in ROWS]
    expected = [text for row in empty for text in templated(row)]
    for options in SIZES:
        found = read(path, replace(options, **CASES["template"][0]))
        assert found == (expected, len(expected), 0)


def test_text_column_when_its_whole_name_is_a_column_then_that_wins(tmp_path):
    rows = [{"meta": {"text": "inner"}, "meta.text": "outer"}] * 2
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("a.parquet", "a.jsonl"):
        assert read(tmp_path / name, ReadOptions(text_column="meta.text"))[0] == ["outer"] * 2
        made = ReadOptions(template="<{meta.text}>")
        assert read(tmp_path / name, made)[0] == ["<outer>"] * 2


def test_text_when_its_fields_are_odd_then_the_json_line_alone_is_bad(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = ['{"text": ["a", 5]}', '{"text": "plain"}', '{"text": 5}', '{"text": ["b", "c"]}']
    path.write_text("\n".join(lines) + "\n")
    [found] = all_rows(path, ReadOptions(lists="documents", where="text is not null"))
    assert found.texts.to_pylist() == [None, "plain", None, "b", "c"] and found.num_covered == 5
    assert found.rejected == {
        0: "element 2 of field 'text' is a number, not a string",
        2: "field 'text' is a number, not a string",
    }


def test_where_when_one_of_the_first_lines_has_an_odd_type_then_it_alone_is_quarantined(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": 5}\n{"text": "long enough"}\n{"text": "no"}\n')
    [found] = all_rows(path, ReadOptions(where="len(text) > 3"))
    assert found.texts.to_pylist() == [None, "long enough"] and list(found.rejected) == [0]


TURNS = [{"role": "user", "content": "hi"}]
SHARED = [{"from": "human", "value": "hi"}]


@pytest.mark.parametrize(
    ("row", "options", "said"),
    [
        ({"messages": TURNS}, {}, "conversations"),
        ({"conversations": SHARED, "n": 1}, {}, "conversations"),
        ({"dialog": TURNS, "text": "x"}, {"text_column": "dialog"}, "conversations"),
        ({"messages": TURNS, "id": "x"}, {}, "'text'"),
        ({"text": ["a"]}, {}, "--lists join"),
        ({"text": {"en": "a"}}, {"text_column": "text.fr"}, "--text-column text.en"),
        ({"text": "x"}, {"template": "{titel}{text}"}, "  {titel}{text}\n  ^^^^^^^\n"),
        ({"text": "x", "s": 0.1}, {"template": "{text} {s}"}, "not text or a whole number"),
    ],
)
def test_mistakes_when_planned_then_the_message_says_what_to_do(tmp_path, row, options, said):
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    for name in ("a.parquet", "a.jsonl"):
        source = source_of(tmp_path / name)
        with pytest.raises(ConfigError) as caught:
            reader_for(source.kind, ReadOptions(**options)).spans(source)
        assert said in str(caught.value) and name in str(caught.value)


def test_template_when_a_later_line_has_half_a_number_then_that_row_is_bad(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"n": n}) + "\n" for n in [1, "x", 0.5, None, 12]))
    texts, bad, _ = read_rows(reader_for("jsonl", ReadOptions(template="<{n}>")), source_of(path))
    assert texts == ["<1>", "<x>", None, None, "<12>"]
    assert list(bad) == [2] and "field 'n' is a number that is not whole" in bad[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{title", "a single {"),
        ("title}", "a single }"),
        ("{}: {text}", "empty braces"),
        ("{{text}}", "it names no column"),
        ("", "it names no column"),
    ],
)
def test_template_when_it_is_wrong_then_a_caret_shows_where(text, said):
    with pytest.raises(ConfigError, match="--template: ") as caught:
        template_of(text)
    assert said in caught.value.message and "^" in caught.value.message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"template": "{a}", "text_column": "b"}, "--text-column has no meaning"),
        ({"template": "{a}", "lists": "join"}, "--lists has no meaning"),
        ({"lists": "joined"}, "--lists is one of join, documents"),
    ],
)
def test_options_when_they_contradict_then_they_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        Config(sources=("a",), out="o", **options)
