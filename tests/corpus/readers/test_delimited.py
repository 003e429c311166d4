"""CSV and TSV against Python's csv module, whatever the spans and blocks."""

from __future__ import annotations

import csv
import io
import itertools
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokenmill
from tests.corpus.readers.test_contract import csv_bytes, rows_read, source_of
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.corpus.readers.records import RecordBlocks
from tokenmill.corpus.rows import documents
from tokenmill.errors import ConfigError, InputError
from tokenmill.testing.reader_contract import LARGE, SIZES, TEXTS, TINY, read_rows

HEAD = "id,text,n\n1,first,1\n"
PIECES = ['"', '""', ",", "\n", "\r\n", "\r", "a", "b c", "é", ' "', 'x"', "\0", '"q, ""w""\n"']


def oracle(data: bytes, delimiter: str = ",") -> list[tuple[int, str | None]]:
    """(line, text) of each record after the header; the text of a bad one is None. csv.Error ends
    it where a quote is never closed. A record with a carriage return outside of quotes ends where
    it does without it."""
    text = data.removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape")
    lines = text.split("\n")
    found: list[tuple[int, str | None]] = []
    header: list[str] | None = None
    first = 0
    while True:
        rest = "\n".join(lines[first:])
        line = first + 1
        try:
            reader = csv.reader(io.StringIO(rest, newline="\n"), delimiter=delimiter)
            fields = next(reader)
        except StopIteration:
            return found
        except csv.Error:
            rest = rest.replace("\r\n", "\n").replace("\r", " ")
            reader = csv.reader(io.StringIO(rest, newline="\n"), delimiter=delimiter)
            next(reader)
            first += reader.line_num
            found.append((line, None))
            continue
        first += reader.line_num
        if header is None:
            header = fields
        elif fields:
            is_whole = len(fields) == len(header)
            found.append((line, fields[header.index("text")] if is_whole else None))


def is_closed(data: bytes) -> bool:
    """Whether another record follows what comes after the file."""
    return oracle(data + b"\n1,mark,1\n")[-1][1] == "mark"


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=20),
    has_mark=st.booleans(),
    sizes=st.tuples(st.integers(1, 60), st.integers(1, 60)),
)
def test_csv_when_it_is_any_text_then_rows_are_those_of_pythons_module(
    tmp_path, pieces, has_mark, sizes
):
    data = (b"\xef\xbb\xbf" if has_mark else b"") + (HEAD + "".join(pieces)).encode()
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    for options in (LARGE, ReadOptions(span_bytes=sizes[0], batch_bytes=sizes[1])):
        try:
            texts, bad, _ = rows_read(path, options)
        except InputError as error:
            assert "is never closed" in error.message and not is_closed(data)
            continue
        expected = [text for _, text in oracle(data)]
        assert is_closed(data) and texts == expected
        assert set(bad) == {row for row, text in enumerate(expected) if text is None}


def test_csv_when_a_record_cannot_be_parsed_then_the_next_one_is_whole(tmp_path):
    path = tmp_path / "a.csv"
    rows = ['1,first,"x"', '2,b\rc,"two\nlines\n"', '3,"third",x', '4,d\r"e,x', "5,fifth,x"]
    path.write_bytes("\n".join(["id,text,n", *rows, ""]).encode())
    for options in SIZES:
        texts, bad, _ = rows_read(path, options)
        assert texts == ["first", None, "third", None, "fifth"] and set(bad) == {1, 3}


def test_csv_when_rows_are_bad_then_each_is_named_with_its_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(
        b'id,text,n\n1,"two\nlines",1\n2,few\n\n3,"a ""b""",1,2\n4,\xff,1\n5,6" disk,1\n6,a\rb,1\n'
    )
    for options in SIZES:
        reader = reader_for("csv", options)
        spans = reader.spans(source_of(path))
        found = [
            (reader.place(span, row), reason)
            for span in spans
            for rows in documents(reader, span, options)
            for row, reason in sorted(rows.rejected.items())
        ]
        assert found == [
            ("line 4", "2 fields where the header has 3"),
            ("line 6", "4 fields where the header has 3"),
            ("line 7", "invalid UTF-8 at byte 0 (0xff)"),
            ("line 9", "new-line character seen in unquoted field"),
        ]
        assert rows_read(path, options)[0][:1] == ["two\nlines"]


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_spans_when_quotes_are_in_place_then_the_file_is_cut_else_not(tmp_path, delimiter):
    kind = "csv" if delimiter == "," else "tsv"
    path = tmp_path / f"a.{kind}"
    path.write_bytes(csv_bytes(TEXTS, delimiter))
    assert len(reader_for(kind, TINY).spans(source_of(path))) > 10
    path.write_bytes(path.read_bytes() + f'9{delimiter}5" disk{delimiter}u\n'.encode())
    assert len(reader_for(kind, TINY).spans(source_of(path))) == 1
    assert read_rows(reader_for(kind, TINY), source_of(path))[0] == [*TEXTS, '5" disk']


ROWS = [
    *(("1", "3", "en", "true"), ("2", "2.5", "de", "FALSE"), ("3", "", "", "")),
    *(("4", "many", "en", "yes"), ("5", " 40 ", "fr", "True"), ("6", "3.0", "en", "false")),
]


@pytest.mark.parametrize(
    ("where", "ids", "bad"),
    [
        ("score >= 3", ["1", "5", "6"], {"4": "field 'score' is a string, and is tested as a num"}),
        ("score == 3", ["1", "6"], {"4": "a number"}),
        ('score == "3"', ["1"], {}),
        ('lang == "en" and score < 3', [], {"4": "a number"}),
        ("score is null", ["3"], {}),
        ('lang != "en"', ["2", "5"], {}),
        ("flag", ["1", "5"], {"4": "field 'flag' is a string, and is tested as a boolean"}),
        ("len(lang) == 2 and not flag", ["2", "6"], {"4": "a boolean"}),
        ('score matches "^[0-9]+$"', ["1"], {}),
    ],
)
def test_where_when_a_field_is_tested_then_it_is_read_as_what_it_is_compared_with(
    tmp_path, where, ids, bad
):
    path = tmp_path / "a.csv"
    lines = ["text,score,lang,flag", *(",".join(row) for row in ROWS)]
    path.write_text("\n".join(lines) + "\n")
    for options in SIZES:
        options = replace(options, where=where)
        reader = reader_for("csv", options)
        texts, reasons, num_rows = [], {}, 0
        for span in reader.spans(source_of(path)):
            first_row = num_rows
            for rows in documents(reader, span, options):
                reasons |= {ROWS[first_row + at][0]: why for at, why in rows.rejected.items()}
                texts += [text for text in rows.texts.to_pylist() if text is not None]
                num_rows += rows.num_covered
        assert (texts, num_rows) == (ids, len(ROWS))
        assert reasons.keys() == bad.keys()
        assert all(why in reasons[row] for row, why in bad.items())


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (b"a,b\n1,2\n", {}, ["no column 'text'; it has a (string), b (string)"]),
        (b"body;id\nx;1\n", {}, ["no column 'text'; it has body (string), id (string)"]),
        (b"id|text\n1|x\n", {}, ["no comma, but bars: 'id|text'", "with commas first"]),
        ("text,id\nx,1\n".encode("utf-16"), {}, ["UTF-16LE", "iconv -f UTF-16 -t"]),
        ("text,id\nx,1\n".encode("utf-16-le"), {}, ["NUL bytes", "iconv -f UTF-16LE"]),
        (b"text,text\n1,2\n", {}, ["2 columns are named 'text'"]),
        (b'text\n"open\n', {}, ["a quote in the record at line 2 is never closed"]),
        (b'"text\n', {}, ["a quote in the record at line 1 is never closed"]),
        (b"te\rxt\n", {}, ["line 1: new-line character seen in unquoted field"]),
        (b"text\nx\n", {"where": "n > 1"}, ["--where: ", "no column 'n'", "^"]),
        (b"text,n\nx,1\n", {"where": "n > 1 and n matches 'a'"}, ["tested as two", "^"]),
        (b"text\nx\n", {"lists": "join"}, ["--lists is for columns of lists"]),
        (b"text\nx\n", {"template": "{title}: {text}"}, ["no column 'title'", "^^^^^^^"]),
        (b"x" * (2 << 20), {}, ["the first record, which names the columns, is longer than"]),
    ],
)
def test_mistakes_when_read_then_each_is_named(tmp_path, content, options, said):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises((InputError, ConfigError)) as caught:
        rows_read(path, replace(LARGE, **options))
    assert all(part in str(caught.value) for part in said), caught.value


@pytest.mark.parametrize(("mark", "what"), [(",", "commas"), (";", "semicolons")])
def test_tsv_when_its_header_has_no_tab_then_the_hint_reads_it(tmp_path, mark, what):
    path = tmp_path / "a.tsv"
    path.write_text(f"id{mark}text\n1{mark}x\n")
    with pytest.raises(ConfigError, match=f"no tab, but {what}: 'id{mark}text'") as caught:
        tokenmill.prepare(str(path), tmp_path / "out", num_proc=1)
    assert caught.value.hint == "--input-format csv"
    made = tokenmill.prepare(str(path), tmp_path / "out", num_proc=1, input_format="csv")
    assert made.num_documents == 1
    whole = {"text_column": f"id{mark}text", "num_proc": 1}  # whoever means the whole line
    assert tokenmill.prepare(str(path), tmp_path / "lines", **whole).num_documents == 1


@pytest.mark.parametrize("mark", [";", "\t"])
def test_csv_when_its_header_has_no_comma_then_semicolons_or_tabs_separate(tmp_path, mark):
    path = tmp_path / "a.csv"
    rows = [("text", "id"), ("a, b", "1"), (f"in {mark} quotes\n", "2"), ("few",), ("end", "4")]
    sink = io.StringIO(newline="")
    csv.writer(sink, delimiter=mark, lineterminator="\n").writerows(rows)
    path.write_text(sink.getvalue())
    for options in SIZES:
        texts, bad, _ = rows_read(path, options)
        assert texts == ["a, b", f"in {mark} quotes\n", None, "end"]
        assert list(bad) == [2]
        assert (
            reader_for("csv", options).place(
                reader_for("csv", options).spans(source_of(path))[0], 0
            )
            == "line 2"
        )
    path.write_text("a;b\nx\n")  # one column of that name, if it is asked for
    assert rows_read(path, replace(LARGE, text_column="a;b"))[0] == ["x"]


@pytest.mark.parametrize("head", ["text\n", 'text\n5" disk\n'])
def test_csv_when_a_quote_is_open_for_too_long_then_its_line_is_named(tmp_path, monkeypatch, head):
    monkeypatch.setattr("tokenmill.corpus.readers.records.MAX_DOCUMENT_BYTES", 3000)
    path = tmp_path / "a.csv"
    path.write_text(head + "fine\n" * 100 + '"open\n' + "line\n" * 1000)
    line = head.count("\n") + 101
    for options in SIZES:
        with pytest.raises(
            InputError, match=f"a.csv: the record at line {line} is longer"
        ) as found:
            rows_read(path, options)
        assert f"look at line {line}: close the quote" in str(found.value)


def test_csv_when_a_quote_stays_open_then_little_beyond_the_limit_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("tokenmill.corpus.readers.records.MAX_DOCUMENT_BYTES", 3000)
    path = tmp_path / "a.csv"
    path.touch()
    num_read = itertools.count(1)
    chunks = (b'"' * (number == 1) + b"line\n" * 30 for number in num_read)
    with pytest.raises(InputError, match="the record at line 1 is longer"):
        list(RecordBlocks(chunks, b",", source_of(path)))
    assert next(num_read) * 150 < 3000 + 3 * 150


def test_csv_when_a_byte_order_mark_begins_a_block_then_it_is_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,id\n\ufeffa,1\n\ufeff\nb,2\n\ufeffc,3\n")
    for options in (*SIZES, ReadOptions(batch_bytes=8)):
        texts, bad, _ = rows_read(path, options)
        assert texts == ["\ufeffa", None, "b", "\ufeffc"] and list(bad) == [1]
