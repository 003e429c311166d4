"""One JSON array, streamed, against json.loads of the whole."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.corpus.readers.test_contract import rows_read, source_of
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.corpus.readers.json_array import element_blocks
from tokenmill.errors import InputError
from tokenmill.testing.reader_contract import SIZES

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
elements = st.fixed_dictionaries({"text": st.none() | st.text(max_size=20)}, optional={"x": values})


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@given(
    found=st.lists(elements | values, max_size=8),
    indent=st.sampled_from([None, 0, 3]),
    is_ascii=st.booleans(),
    batch_bytes=st.integers(1, 50),
)
def test_array_when_elements_are_any_then_objects_are_rows_and_others_bad(
    tmp_path, found, indent, is_ascii, batch_bytes
):
    found = [{"text": "first"}, *found]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(found, indent=indent, ensure_ascii=is_ascii), errors="replace")
    found = json.loads(path.read_text())
    texts = [one.get("text") if isinstance(one, dict) else None for one in found]
    texts = [text if isinstance(text, str) else None for text in texts]
    bad = {
        row
        for row, one in enumerate(found)
        if not isinstance(one, dict) or not isinstance(one.get("text"), (str, type(None)))
    }
    options = ReadOptions(batch_bytes=batch_bytes)
    got, reasons, _ = rows_read(path, options)
    expected = [
        t and t.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for t in texts
    ]
    assert (got, set(reasons)) == (expected, bad)


def test_array_when_an_element_is_bad_then_it_alone_is_quarantined(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"text": "a"},\n 5, {"text": "\xff"}, {"text": 1}, {"text": "b"}]\n')
    for options in SIZES:
        reader = reader_for("jsonl", options)
        [span] = reader.spans(source_of(path))
        texts, bad, _ = rows_read(path, options)
        assert texts == ["a", None, None, None, "b"]
        assert bad[1] == "a number, not an object" and "UTF-8" in bad[2]
        assert reader.place(span, 2) == "element 3"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'[{"text": "a"},\n{"text": "b"}', "line 2: expected ], got the end of the file"),
        (b'[{"text": "a"}\n{"text": "b"}]', "line 2: expected ], got '{', in element 2"),
        (b'[{"text": "a"},]', "line 1: not JSON: Expecting value, in element 2"),
        (b'[{"text": "a"},\n\n{"text" "b"}]', "line 3: not JSON: Expecting ':' delimiter"),
        (b'[{"text": "a"}, {"text": "never', "not JSON: Unterminated string"),
        (b'[{"text": "a"}]\n{"text": "b"}', "line 2: text after the end of the array"),
        (b'[{"text": "a"}, ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_array_when_broken_then_the_error_names_file_and_line(tmp_path, content, said):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    for options in SIZES:
        with pytest.raises(InputError) as caught:
            rows_read(path, options)
        assert str(path) in caught.value.message and said in caught.value.message


def test_array_when_cut_at_any_byte_then_it_is_never_a_shorter_corpus(tmp_path):
    whole = json.dumps([{"text": "a\\u00e9 \\" * 3, "n": [1, 2.5]}, {"text": "b"}]).encode()
    for size in range(1, len(whole)):
        path = tmp_path / ("a.json" if size % 2 else "a.json.gz")
        path.write_bytes(whole[:size] if size % 2 else gzip.compress(whole[:size]))
        with pytest.raises(InputError):
            rows_read(path, SIZES[size % 3])


@pytest.mark.parametrize("size", range(1, 9))
def test_array_when_a_number_is_cut_by_a_block_then_it_is_one_element(size, tmp_path):
    data = b'[{"text": "a"}, 1234567890123, -1.5e3, {"text": "b"}]'
    (tmp_path / "a.json").write_bytes(data)
    chunks = (data[at : at + size] for at in range(0, len(data), size))
    blocks = element_blocks(chunks, source_of(tmp_path / "a.json"), 100)
    found = [json.loads(element) for block in blocks for element in block]
    assert found == json.loads(data)


def test_array_when_blank_lines_are_before_it_then_its_lines_are_still_counted(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("\n" * 50 + '[{"text": "a"},\n{"text": }]')
    for options in (*SIZES, ReadOptions(batch_bytes=7)):
        with pytest.raises(InputError, match="line 52: not JSON"):
            rows_read(path, options)
    path.write_text("\n" * 50 + '[{"text": "a"}]')
    assert rows_read(path, ReadOptions(batch_bytes=7))[0] == ["a"]
