"""JSON lines against json.loads per line, whatever the spans and blocks."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokenmill
from tests.corpus.readers.test_contract import rows_read, source_of
from tokenmill.corpus.columns import schema_text
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.corpus.rows import documents
from tokenmill.corpus.spans import Span
from tokenmill.errors import ConfigError, InputError
from tokenmill.testing.reader_contract import LARGE, SMALL, TINY

BAD = object()
GOOD = b'{"text": "good"}\n'


def oracle(content: bytes, replace_bad: bool = False) -> tuple[list[str | None], set[int], int]:
    """(texts, bad rows, rows with replacements), slowly."""
    texts: list[str | None] = []
    bad: set[int] = set()
    num_replaced = 0
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if not line.strip(b" \t\r\n"):
            continue
        text, was_replaced = _oracle_line(line, replace_bad)
        if text is BAD:
            bad.add(len(texts))
        texts.append(None if text is BAD else text)
        num_replaced += was_replaced
    return texts, bad, num_replaced


def _oracle_line(line: bytes, replace_bad: bool) -> tuple[object, bool]:
    was_replaced = False
    try:
        decoded = line.decode()
    except UnicodeDecodeError:
        if not replace_bad:
            return BAD, False
        decoded, was_replaced = line.decode(errors="replace"), True
    try:
        value = json.loads(decoded)
    except ValueError:
        return BAD, False
    text = value.get("text") if isinstance(value, dict) else BAD
    if text is None:
        return None, was_replaced
    if not isinstance(text, str):
        return BAD, False
    mended = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return mended, was_replaced or mended != text


def _read(path, content: bytes, options: ReadOptions):
    path.write_bytes(content)
    texts, bad, num_replaced = rows_read(path, options)
    return texts, set(bad), num_replaced


ODD_LINES = [
    b'{"text": "a"}',
    b'{"text": "\xc3\xa9 \xf0\x9f\x99\x82"}',
    b'{"text": null}',
    b'{"other": 1}',
    b"{}",
    b'{"text": ""}',
    b"",
    b"   \t",
    b' {"text": "padded"} ',
    b'{"text": 5}',
    b'{"text": true}',
    b'{"text": ["a"]}',
    b'{"text": {"text": "inner"}}',
    b'{"text": "twice", "text": "last"}',
    b'{"text": "twice", "text": null}',
    b'{"text": 1, "text": "x"}',
    b'{"text": "a"} {"text": "b"}',
    b'{"text": "a"} trailing',
    b'{"text": "a"',
    b'"text": "a"}',
    b'{"text": "}',
    b'{"text":',
    b'"a"}',
    b"[1, 2]",
    b'"string"',
    b"17",
    b"null",
    b"{'text': 'a'}",
    b'{"text": "a",}',
    b'{"text": "lone \\ud83d"}',
    b'{"text": "lone \\udc00 low"}',
    b'{"text": "pair \\ud83d\\ude00"}',
    b'{"text": "ok", "key": "\\ud83d"}',
    b'{"te\\u0078t": "escaped key"}',
    b'{"text": "nul \\u0000"}',
    b'{"text": "raw nul \x00"}',
    b'{"text": "a"}\x00}',
    b'{"text": "tab\tinside"}',
    b'{"text": "bad \xff"}',
    b'{"text": "ok", "url": "bad \xff"}',
    b'{"text": "\xed\xa0\x80"}',
    b'{"text": "x", "n": NaN, "m": -Infinity}',
    b'{"text": "x", "n": 1e999}',
    b'{"text": "x", "n": 01}',
    b'{"text": "x"}\r',
    b'\xef\xbb\xbf{"text": "mark inside the file"}',
]


@pytest.mark.parametrize("line", ODD_LINES, ids=lambda line: repr(line)[2:40])
@pytest.mark.parametrize("replace_bad", [False, True])
def test_jsonl_when_one_line_is_odd_then_it_alone_is_as_json_loads_says(
    tmp_path, line, replace_bad
):
    content = GOOD * 3 + line + b"\n" + GOOD * 2
    for options in (TINY, SMALL, LARGE):
        options = replace(options, replace_bad_text=replace_bad)
        assert _read(tmp_path / "a.jsonl", content, options) == oracle(content, replace_bad)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    lines=st.lists(
        st.sampled_from([*ODD_LINES, GOOD.strip()])
        | st.text(max_size=20).map(lambda text: json.dumps({"text": text}).encode())
        | st.binary(max_size=12).map(lambda raw: b'{"text": "' + raw + b'"}'),
        max_size=12,
    ),
    end=st.sampled_from([b"\n", b"\r\n"]),
    has_last_end=st.booleans(),
    sizes=st.tuples(st.integers(1, 200), st.integers(1, 200)),
    replace_bad=st.booleans(),
)
def test_jsonl_when_lines_are_any_bytes_then_rows_do_not_depend_on_cuts(
    tmp_path, lines, end, has_last_end, sizes, replace_bad
):
    content = GOOD + end.join(lines) + (end if has_last_end else b"")
    options = ReadOptions(span_bytes=sizes[0], batch_bytes=sizes[1], replace_bad_text=replace_bad)
    assert _read(tmp_path / "a.jsonl", content, options) == oracle(content, replace_bad)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "a" "b"}', "not JSON: Expecting ',' delimiter at column 14"),
        (b'{"text": 5}', "field 'text' is a number, not a string"),
        (b'{"text": ["a"]}', "field 'text' is an array, not a string"),
        (b"[1]", "an array, not an object"),
        (b"null", "null, not an object"),
        (b'{"text": "\xff"}', "invalid UTF-8 at byte 10 of the line"),
        (b'{"a":' * 100_000, "not JSON: nested too deeply"),
    ],
)
def test_jsonl_when_line_is_bad_then_reason_says_why(tmp_path, line, reason):
    (tmp_path / "a.jsonl").write_bytes(GOOD + line + b"\n" + GOOD)
    assert rows_read(tmp_path / "a.jsonl", LARGE) == (["good", None, "good"], {1: reason}, 0)


@pytest.mark.parametrize("neighbour", [GOOD, b"broken\n"])
def test_jsonl_when_nested_deeply_then_row_does_not_depend_on_neighbours(tmp_path, neighbour):
    deep = b'{"text": "deep", "x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}\n"
    (tmp_path / "a.jsonl").write_bytes(GOOD + deep + neighbour)
    assert rows_read(tmp_path / "a.jsonl", LARGE)[0][:2] == ["good", "deep"]


@pytest.mark.parametrize("neighbour", [GOOD, b"broken\n"])
@pytest.mark.parametrize("value", [b"9" * 5000, b"Inf"])
def test_jsonl_when_number_is_odd_then_row_does_not_depend_on_neighbours(
    tmp_path, neighbour, value
):
    (tmp_path / "a.jsonl").write_bytes(GOOD + b'{"text": "n", "x": %s}\n' % value + neighbour)
    assert rows_read(tmp_path / "a.jsonl", LARGE)[0][:2] == ["good", "n"]


NUMBERS = ["1", "-0", "-0.0", "2.5", "0", "9007199254740991", "9007199254740993", "1e3", "null"]
NUMBERS += ["123456789012345678901", "1e999", "NaN", "true", '"3"', '"\\ud83d"', "[1]", '{"a": 1}']


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    values=st.lists(st.sampled_from(NUMBERS[:9]) | st.sampled_from(NUMBERS), max_size=6),
    kind=st.sampled_from([pa.float64(), pa.int64(), pa.large_string(), pa.bool_()]),
    where=st.sampled_from([None, "n >= 1", "n == 9007199254740993", "n is null", "n", "n != '3'"]),
)
def test_jsonl_when_columns_are_asked_for_then_a_row_does_not_depend_on_neighbours(
    tmp_path, values, kind, where
):
    types = schema_text(pa.schema([("n", kind)]))
    options = ReadOptions(where=where, keep=("n",), kept_types=types)
    lines = [f'{{"text": "t", "n": {value}, "m": [{{"n": 1}}]}}' for value in values]
    whole, alone = [], []
    for rows in ([*lines, "broken"], *([line] for line in lines)):
        path = tmp_path / "a.jsonl"
        path.write_text("".join(f"{row}\n" for row in rows))
        reader, source = reader_for("jsonl", options), source_of(path)
        span = Span(source, 0, source.num_bytes, source.num_bytes)
        found = whole if rows[-1] == "broken" else alone
        [part] = documents(reader, span, options)
        first = 0 if found is whole else len(alone)
        of_row = dict(zip(part.numbers.tolist(), part.batch.to_pylist(), strict=True))
        for at in range(len(rows)):
            one = of_row.get(at)
            found.append((repr(one and {**one, "row": first + at}), part.rejected.get(at)))
    assert whole[:-1] == alone


def test_jsonl_when_file_starts_with_utf8_mark_then_it_is_dropped(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + GOOD * 20)
    for options in (TINY, LARGE, replace(TINY, batch_bytes=1)):
        assert rows_read(tmp_path / "a.jsonl", options) == (["good"] * 20, {}, 0)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_jsonl_when_encoded_otherwise_then_error_says_iconv(tmp_path, encoding):
    (tmp_path / "a.jsonl").write_bytes(GOOD.decode().encode(encoding))
    with pytest.raises(InputError, match=r"not UTF-8") as info:
        rows_read(tmp_path / "a.jsonl", LARGE)
    assert info.value.hint == f"convert it first: iconv -f {encoding.upper()} -t UTF-8"


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({"text": "a", "b": 1}, indent=2),
        '{"text": "a",\n "b": 1}\n{"text": "b",\n "b": 1}\n',
    ],
)
def test_jsonl_when_an_object_is_over_several_lines_then_error_says_jq(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(InputError, match="not one JSON object per line") as info:
        rows_read(tmp_path / "a.json", LARGE)
    assert info.value.hint.startswith("jq -c .")


def test_jsonl_when_field_is_in_no_line_then_error_lists_those_seen(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": 1, "content": "a"}\n{"id": 2, "texts": "b"}\n')
    with pytest.raises(ConfigError, match=r"no field 'text'.*id, content, texts") as info:
        rows_read(tmp_path / "a.jsonl", LARGE)
    assert info.value.hint == "--text-column texts"


def test_jsonl_when_line_is_longer_than_limit_then_error_names_its_offset(tmp_path, monkeypatch):
    monkeypatch.setattr("tokenmill.corpus.readers.jsonl.MAX_DOCUMENT_BYTES", 1000)
    (tmp_path / "a.jsonl").write_bytes(GOOD * 3 + b'{"text": "' + b"x" * 5000)
    with pytest.raises(InputError, match=f"the line at byte {len(GOOD) * 3} is longer"):
        rows_read(tmp_path / "a.jsonl", replace(LARGE, batch_bytes=100))
    blank = b"\n" * 250  # more than two blocks
    (tmp_path / "b.jsonl").write_bytes(blank + GOOD + b'{"text": "' + b"x" * 5000)
    with pytest.raises(InputError, match=f"the line at byte {len(blank + GOOD)} is longer"):
        rows_read(tmp_path / "b.jsonl", replace(LARGE, batch_bytes=100))


def test_jsonl_when_line_spans_many_blocks_then_is_one_row(tmp_path):
    texts = ["a", "x" * 100_000, "b"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    assert rows_read(tmp_path / "a.jsonl", TINY) == (texts, {}, 0)


def test_place_when_lines_are_blank_then_counts_them(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\n\n" + GOOD + b"\n" + GOOD * 20)
    source = source_of(tmp_path / "a.jsonl")
    for options in (TINY, LARGE):
        reader = reader_for("jsonl", options)
        spans = reader.spans(source)
        assert reader.place(spans[0], 0) == "line 3"
        number_of_rows = [sum(len(r) for r in documents(reader, s, options)) for s in spans]
        assert reader.place(spans[-1], number_of_rows[-1] - 1) == "line 24"


def test_jsonl_when_file_shrinks_after_planning_then_input_error(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(GOOD * 20)
    reader = reader_for("jsonl", LARGE)
    [span] = reader.spans(source_of(tmp_path / "a.jsonl"))
    (tmp_path / "a.jsonl").write_bytes(GOOD * 5)
    with pytest.raises(InputError, match="ends at byte 85, before byte 340"):
        list(reader.rows(span))


def test_line_when_nested_deeply_then_what_becomes_of_it_does_not_depend_on_the_caller(tmp_path):
    """Python's decoder takes as many levels as its caller's stack leaves it."""
    lists = ["[" * depth + "]" * depth for depth in (390, 700)]
    nested = [f'{{"text": "d", "meta": {{"a": 1}}, "x": {one}}}' for one in lists]
    text = '{"text": "' + "[{" * 900 + '", "meta": {"a": 1}}'
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([*nested, text]) + "\n")

    def counts(depth: int) -> tuple[int, int]:
        if depth:
            return counts(depth - 1)
        made = tokenmill.prepare(
            path, tmp_path / "out", keep="meta.a", num_proc=1, max_bad_fraction=1, overwrite=True
        )
        return made.counts.num_written, made.counts.num_quarantined

    assert counts(0) == counts(400) == (2, 1)
