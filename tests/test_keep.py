"""--keep: columns, file and row of every document, in the documents' final order, against a loop.

The oracle reads the shards and the sidecars with NumPy and pyarrow, cuts the tokens at EOT ids, and
knows each document by its tokens: every text ends with its number, so that each occurs once.
"""

from __future__ import annotations

import datetime
import decimal
import glob
import json
import random
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import oracle
import shard_oracle
import tokenmill
from corpora import made_texts, write_three_kinds
from tokenmill.assemble import sidecars
from tokenmill.cli import main
from tokenmill.config import Config, Partition
from tokenmill.dataset.manifest import MANIFEST_NAME, laid_out, manifest_sha256_of
from tokenmill.errors import ConfigError, ConflictError, TokenmillError
from tokenmill.formats import NAMES
from tokenmill.run import SilentWatch
from tokenmill.run.finish import finish
from tokenmill.run.partition import encode_partition
from tokenmill.runners.inline import InlineRunner

EOT = oracle.EOT["gpt2"]
COLUMNS = ["url", "n", "meta.lang"]
NUM_ROWS = 240


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    rng = random.Random(7)
    found = []
    for n, text in enumerate(made_texts(NUM_ROWS, seed=7)):
        text = rng.choice([None, "", text]) if n % 11 == 0 else text
        url = rng.choice([None, f"http://example.com/{n}"])
        found.append({"text": text, "url": url, "n": n, "meta": {"lang": rng.choice(["en", "de"])}})
    return found


@pytest.fixture(scope="module")
def sources(rows, tmp_path_factory) -> list[str]:
    return write_three_kinds(tmp_path_factory.mktemp("corpus"), rows, (120, 180))


@pytest.fixture
def small(monkeypatch):
    """Several sidecars, of several row groups."""
    monkeypatch.setattr(sidecars, "DOCUMENTS_PER_SIDECAR", 50)
    monkeypatch.setattr(sidecars, "GROUP_ROWS", 8)


def prepared(sources, out: Path, **options) -> tokenmill.Manifest:
    given = {"keep": COLUMNS, "slice_bytes": 6000, "num_proc": 1, "eot": "append", "empty": "drop"}
    return tokenmill.prepare(sources, out, **{**given, **options})


def expected_row(row: dict, sources: list[str], document: list[int]) -> dict:
    """What is kept of a row; where a JSON line is counted from is said by `_byte`."""
    n = row["n"]
    path, first = next((p, f) for p, f in zip(sources[::-1], (180, 120, 0), strict=True) if n >= f)
    if path.endswith(".jsonl"):
        return {"_file": path, "line": n - first, "_tokens": len(document), **_columns(row)}
    return {
        **{"_source": None, "_file": path, "_byte": 0, "_row": n - first},
        **{"_tokens": len(document), **_columns(row)},
    }


def _columns(row: dict) -> dict:
    return {"url": row["url"], "n": row["n"], "meta.lang": row["meta"]["lang"]}


def kept_rows(out: Path, split: str) -> list[dict]:
    """The rows of a split's sidecars. A row of a cut file is found by reading from its byte on."""
    found = []
    for path in sorted((out / "__kept__").glob(f"{split}-*.pq")):
        for row in pq.read_table(path).to_pylist():
            if row["_file"].endswith(".jsonl"):
                data = Path(row["_file"]).read_bytes()
                assert row.pop("_source") is None
                row["line"] = data[: row.pop("_byte")].count(b"\n") + row.pop("_row")
            found.append(row)
    return found


def documents_in(tokens: list[int]) -> list[list[int]]:
    """Tokens cut after each EOT id."""
    found: list[list[int]] = [[]]
    for token in tokens:
        found[-1].append(token)
        if token == EOT:
            found.append([])
    return found[:-1] if not found[-1] else found


def by_tokens(rows: list[dict]) -> dict[tuple[int, ...], dict]:
    own = [row for row in rows if row["text"]]
    return {tuple(d): r for r, d in zip(own, oracle.ids([r["text"] for r in own]), strict=True)}


def assert_kept(out: Path, format_name: str, rows: list[dict], sources: list[str]) -> list[int]:
    """Every document of the shards has its row; returns the numbers of documents."""
    known, numbers = by_tokens(rows), []
    opened = tokenmill.open(out)
    for split, tokens in shard_oracle.tokens(out, format_name).items():
        found, documents = kept_rows(out, split), documents_in(tokens)
        if documents[-1][-1] != EOT:
            documents.pop()  # its end is in the tail of a split that is cut into samples
        expected = [expected_row(known[tuple(d)], sources, d) for d in documents]
        assert found[: len(expected)] == expected
        assert len(found) == opened.manifest.splits[split].num_documents
        numbers += [row["n"] for row in found]
        for at in {0, len(documents) // 2, len(documents) - 1}:
            own = opened[split].kept(at)
            assert {name: own[name] for name in COLUMNS} == _columns(known[tuple(documents[at])])
    return numbers


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
@pytest.mark.parametrize("format_name", NAMES)
def test_every_format_has_a_row_for_each_document_in_its_order(
    format_name, shuffle, rows, sources, small, tmp_path
):
    options = {"seq_len": 64} if format_name == "mds" else {}
    prepared(sources, tmp_path, format=format_name, shuffle=shuffle, val_fraction=0.2, **options)
    numbers = assert_kept(tmp_path, format_name, rows, sources)
    assert sorted(numbers) == [row["n"] for row in rows if row["text"]]
    assert len(list((tmp_path / "__kept__").iterdir())) > 3
    assert tokenmill.verify(tmp_path, full=True).is_whole


@pytest.mark.parametrize("num_proc", [1, 2, 4])
def test_with_rows_chosen_and_any_number_of_workers_the_same_rows(
    num_proc, rows, sources, tmp_path
):
    where = 'meta.lang == "en" or len(text) < 300'
    options = {"where": where, "sample": 0.7, "limit_tokens": 9000, "shuffle": True, "val": "none"}
    manifest = prepared(sources, tmp_path / "a", num_proc=num_proc, **options)
    numbers = assert_kept(tmp_path / "a", "nanogpt", rows, sources)
    assert 20 < len(numbers) < 200 and manifest.counts.num_filtered
    assert tokenmill.verify(tmp_path / "a", full=True).is_whole
    prepared(sources, tmp_path / "b", **options)
    names = [file.name for file in manifest.files]
    assert any(name.startswith("__kept__/") for name in names)
    for name in [*names, MANIFEST_NAME]:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
@pytest.mark.parametrize(
    ("format_name", "options"),
    [("npy", {"shard_tokens": 3001}), ("nanogpt", {"val_fraction": 1e-9})],
    ids=["first shard", "last tokens"],
)
def test_document_that_two_splits_share_has_a_row_in_both(
    format_name, options, shuffle, rows, sources, tmp_path
):
    manifest = prepared(sources, tmp_path, format=format_name, shuffle=shuffle, **options)
    known = by_tokens(rows)
    tokens = shard_oracle.tokens(tmp_path, format_name)
    first, second = manifest.one_stream
    whole = [known[tuple(d)]["n"] for d in documents_in(tokens[first] + tokens[second])]
    num_begun = len(documents_in(tokens[first]))
    is_cut = tokens[first][-1] != EOT
    own = {split: [row["n"] for row in kept_rows(tmp_path, split)] for split in tokens}
    assert own == {first: whole[:num_begun], second: whole[num_begun - is_cut :]}
    assert tokenmill.verify(tmp_path, full=True).is_whole
    converted = tmp_path / "converted"
    tokenmill.convert(tmp_path, converted, format="megatron")
    assert {split: [row["n"] for row in kept_rows(converted, split)] for split in tokens} == own
    assert tokenmill.verify(converted).is_whole


def test_partitions_keep_the_same_rows(rows, sources, tmp_path):
    given = {"keep": "url,n,meta.lang", "slice_bytes": 6000, "val": "none", "shuffle": True}
    for number in (2, 1, 3):
        config = Config(sources=tuple(sources), out=str(tmp_path), num_proc=1, **given)
        encode_partition(config, Partition(number, 3), InlineRunner(), SilentWatch())
    finish(str(tmp_path), num_proc=1)
    assert_kept(tmp_path, "nanogpt", rows, sources)


def test_kept_rows_that_are_lost_or_damaged_are_made_again(rows, sources, tmp_path, monkeypatch):
    """An attempt that dies before its sidecars; then one kept file is gone and one is damaged."""
    with monkeypatch.context() as patch:
        patch.setattr(sidecars, "write_sidecar", None)
        patch.setattr("tokenmill.assemble.writing.write_sidecar", None)
        with pytest.raises(TypeError):
            prepared(sources, tmp_path, val="none")
    gone, damaged, *_ = sorted(tmp_path.glob(".tokenmill/*/parts/*.kept"))
    gone.unlink()
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"x" + damaged.read_bytes()[-8:])
    prepared(sources, tmp_path, val="none")
    assert_kept(tmp_path, "nanogpt", rows, sources)


# What a run without the option has


def test_without_the_option_manifest_and_plan_do_not_mention_it(sources, tmp_path, monkeypatch):
    prepared(sources[0], tmp_path / "a", keep=None)
    text = (tmp_path / "a" / MANIFEST_NAME).read_text()
    assert "keep" not in json.loads(text)["identity"]["options"] and "kept" not in text
    assert "kept" not in {check.name for check in tokenmill.verify(tmp_path / "a").checks}
    with pytest.raises(ConflictError, match=r"options\.keep: was None, now 'url'"):
        prepared(sources[0], tmp_path / "a", keep="url")
    with pytest.raises(ConfigError, match="nothing is kept of its documents"):
        tokenmill.open(tmp_path / "a")["train"].kept(0)


def test_no_column_named_keeps_file_and_row_also_of_plain_text(tmp_path):
    texts = [text.replace("@", "") for text in made_texts(30)]
    (tmp_path / "a.txt").write_text("@".join(texts))
    options = {"separator": "@", "val": "none", "slice_bytes": 2000}
    prepared(tmp_path / "a.txt", tmp_path / "out", keep="", **options)
    [path] = (tmp_path / "out" / "__kept__").iterdir()
    data = (tmp_path / "a.txt").read_bytes()
    for text, row in zip(texts, pq.read_table(path).to_pylist(), strict=True):
        assert list(row) == ["_source", "_file", "_byte", "_row", "_tokens"]
        assert data[row["_byte"] :].split(b"@")[row["_row"]].decode() == text
    with pytest.raises(ConfigError, match=r"a\.txt: plain text has no columns.*") as refused:
        prepared(tmp_path / "a.txt", tmp_path / "no", keep="url", **options)
    assert refused.value.hint.startswith("--keep ''")


# Columns and types


def test_columns_of_any_type_come_back_as_they_are(tmp_path):
    moment = datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.UTC)
    columns = {
        "text": pa.array(["one", "two", "three"]),
        "flag": pa.array([True, None, False]),
        "small": pa.array([1, None, 3], pa.int8()),
        "score": pa.array([0.5, None, 1.5], pa.float32()),
        "when": pa.array([moment, None, moment], pa.timestamp("us", "UTC")),
        "day": pa.array([moment.date(), None, None], pa.date32()),
        "price": pa.array([decimal.Decimal("1.50"), None, None], pa.decimal128(9, 2)),
        "raw": pa.array([b"\xff\0", None, b""], pa.binary()),
        "kind": pa.array(["a", None, "a"]).dictionary_encode(),
        "view": pa.array(["x", None, "a longer text than twelve"], pa.string_view()),
        "tags": pa.array([["a", None], None, []], pa.list_(pa.string())),
        "pair": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
        "meta": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}]),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "nothing": pa.nulls(3),
        "my, column": pa.array(["p", "q", None]),
    }
    table = pa.table(columns)
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table)
    names = [*columns, "meta.b"]
    prepared(tmp_path / "a.arrow", tmp_path / "out", keep=names, val="none")
    found = pq.read_table(tmp_path / "out" / "__kept__" / "train-00000.pq").select(names)
    meta_b = [None if row is None else row["b"] for row in columns["meta"].to_pylist()]
    for name in names:
        expected = meta_b if name == "meta.b" else columns[name].to_pylist()
        assert found.column(name).to_pylist() == expected, name
    assert tokenmill.verify(tmp_path / "out", full=True).is_whole
    main(["inspect", str(tmp_path / "out"), "--doc", "0", "--json"])


@pytest.mark.parametrize("has_pandas", [False, True])
def test_keep_when_a_time_has_nanoseconds_then_it_is_shown_to_the_last_digit(
    has_pandas, tmp_path, monkeypatch, capsys
):
    if not has_pandas:
        monkeypatch.setitem(sys.modules, "pandas", None)
    digits, whole = 1_600_000_000_123_456_789, 1_600_000_000_123_456_000

    def of(type_: pa.DataType, *values: int) -> pa.Array:
        return pa.array(values, pa.int64()).view(type_)

    times = of(pa.timestamp("ns"), digits, whole)
    columns = {
        "plain": times,
        "zoned": of(pa.timestamp("ns", "UTC"), digits, whole),
        "clock": of(pa.time64("ns"), 123_456_789, 123_456_000),
        "span": of(pa.duration("ns"), digits, whole),
        "far": of(pa.timestamp("us"), 253_402_300_800_000_000, 0),
        "deep": pa.StructArray.from_arrays(
            [pa.LargeListArray.from_arrays([0, 1, 2], times)], ["times"]
        ),
        "map": pa.MapArray.from_arrays([0, 1, 2], pa.array(["a", "b"]), times),
    }
    pq.write_table(pa.table({"text": ["one", "two"], **columns}), tmp_path / "a.parquet")
    out = tmp_path / "out"
    prepared(tmp_path / "a.parquet", out, keep=list(columns), val="none")
    moment = datetime.datetime(2020, 9, 13, 12, 26, 40, 123456)
    text = "2020-09-13 12:26:40.123456789"
    expected = [
        {
            **{"plain": text, "zoned": f"{text}Z", "clock": "00:00:00.123456789"},
            **{"span": "1600000000123456789 ns", "far": "10000-01-01 00:00:00.000000"},
            **{"deep": {"times": [text]}, "map": [("a", text)]},
        },
        {
            **{"plain": moment, "zoned": moment.replace(tzinfo=datetime.UTC)},
            **{"clock": datetime.time(0, 0, 0, 123456), "far": datetime.datetime(1970, 1, 1)},
            "span": datetime.timedelta(seconds=1_600_000_000, microseconds=123456),
            **{"deep": {"times": [moment]}, "map": [("b", moment)]},
        },
    ]
    split = tokenmill.open(out)["train"]
    for number in range(2):
        found = split.kept(number)
        assert {name: found[name] for name in columns} == expected[found["_row"]]
    assert tokenmill.verify(out, full=True).is_whole
    capsys.readouterr()
    for look in (["--doc", "0"], ["--grep", "one"]):
        assert main(["inspect", str(out), *look]) == 0
        assert text in "".join(capsys.readouterr())


def test_hostile_names_and_values_come_back_as_they_are(tmp_path, small):
    """120 rows: several sidecars and row groups, so that nested columns are cut."""
    deep = [{"x": [{"y": None}]}, None, {"x": None}]
    values = {
        "a\0b": ["x\0y", "", None],
        "__kept__": [1, 2, None],
        "\u202e--keep\x1b[31m": ["\x1b[31m", "\u202e", "\ud7ff"],
        "a..b": [1 << 62, -(1 << 63), 0],
        "meta.lang": ["its own", "not the field", None],
        "huge": ["x" * 300_000, None, "y"],
        "nulls": [[None], [], [None, None]],
        "deep": deep,
        "_key": ["as a column of the shuffle", None, ""],
    }
    columns = {name: pa.array(found * 40) for name, found in values.items()}
    texts = pa.array([f"text {n}" for n in range(120)])
    meta = pa.array([{"lang": "en"}] * 120)
    table = pa.table({"text": texts, "meta": meta, **columns})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=50)
    prepared(tmp_path / "a.parquet", tmp_path / "out", keep=[*columns], val="none")
    paths = sorted((tmp_path / "out" / "__kept__").glob("*.pq"))
    found = pa.concat_tables(map(pq.read_table, paths))
    assert len(paths) == 3
    for name, column in columns.items():
        assert found.column(name).to_pylist() == column.to_pylist(), name
    assert tokenmill.verify(tmp_path / "out", full=True).is_whole
    assert main(["inspect", str(tmp_path / "out"), "--doc", "0"]) == 0
    prepared(tmp_path / "a.parquet", tmp_path / "mixed", keep="_key", val="none", shuffle=True)
    mixed = pa.concat_tables(map(pq.read_table, (tmp_path / "mixed" / "__kept__").glob("*.pq")))
    assert {row["_row"]: row["_key"] for row in mixed.to_pylist()} == dict(
        enumerate(columns["_key"].to_pylist())
    )
    with pytest.raises(ConfigError, match="is not valid Unicode"):
        prepared(tmp_path / "a.parquet", tmp_path / "no", keep=["\udcff"])


def write_rows(path: Path, column: pa.Array, name: str = "id") -> str:
    texts = [f"text {n}" for n in range(len(column))]
    pq.write_table(pa.table({"text": texts, name: column}), path)
    return str(path)


def test_types_that_differ_between_files_are_widened_or_refused(tmp_path):
    narrow = write_rows(tmp_path / "a.parquet", pa.array([1, 2], pa.int32()))
    wide = write_rows(tmp_path / "b.parquet", pa.array([1 << 40], pa.int64()))
    null = write_rows(tmp_path / "c.parquet", pa.nulls(1))
    prepared([narrow, wide, null], tmp_path / "out", keep="id", val="none")
    found = pq.read_table(tmp_path / "out" / "__kept__" / "train-00000.pq").column("id")
    assert found.to_pylist() == [1, 2, 1 << 40, None] and found.type == pa.int64()
    text = write_rows(tmp_path / "d.parquet", pa.array(["x"]))
    said = rf"column 'id' is int32 in {re.escape(narrow)}, and string in {re.escape(text)}"
    with pytest.raises(ConfigError, match=said):
        prepared([narrow, text], tmp_path / "no", keep="id")
    exact = write_rows(tmp_path / "e.parquet", pa.array(["1.25"]).cast(pa.decimal128(5, 2)))
    with pytest.raises(ConfigError, match=r"column 'id' is int64 in .*, and decimal128\(5, 2\) in"):
        prepared([wide, exact], tmp_path / "no", keep="id")
    rounded = write_rows(tmp_path / "f.parquet", pa.array([0.5]))
    with pytest.raises(ConfigError, match=r"is decimal128\(5, 2\) in .*, and double in"):
        prepared([exact, rounded], tmp_path / "no", keep="id")


FAR = datetime.datetime(3000, 1, 1)
NEAR = datetime.datetime(2000, 1, 1)


@pytest.mark.parametrize(
    ("one", "other", "kept"),
    [
        (pa.array([2**53 + 1, 5], pa.int64()), pa.array([1.5, None]), [5, 1.5, None]),
        (pa.array([2**63 + 5, 1], pa.uint64()), pa.array([1, -2], pa.int64()), [1, 1, -2]),
        (pa.array([FAR, NEAR], "timestamp[s]"), pa.array([NEAR], "timestamp[ns]"), [NEAR] * 2),
        (pa.array([[2**53 + 1], [5]]), pa.array([[1.5]]), [[5], [1.5]]),
    ],
    ids=["double", "uint64", "time", "list"],
)
def test_keep_when_a_value_does_not_fit_the_common_type_then_its_row_is_quarantined(
    one, other, kept, tmp_path
):
    files = [write_rows(tmp_path / f"{n}.parquet", column) for n, column in enumerate((one, other))]
    manifest = prepared(files, tmp_path / "out", keep="id", val="none", max_bad_fraction=1.0)
    assert manifest.counts.num_quarantined == 1
    found = pq.read_table(tmp_path / "out" / "__kept__" / "train-00000.pq").column("id")
    assert [
        getattr(one, "to_pydatetime", lambda one=one: one)() for one in found.to_pylist()
    ] == kept
    [line] = (tmp_path / "out" / "tokenmill-quarantine.jsonl").read_text().splitlines()
    assert "the type that all files have in common" in json.loads(line)["reason"]
    assert tokenmill.verify(tmp_path / "out", full=True).is_whole


@pytest.mark.parametrize(
    ("keep", "said", "hint"),
    [
        (
            "id, _row,x y",
            "--keep _row: .* writes a column",
            "--keep 'id,x y'; to keep a column _row ",
        ),
        (["_file"], "--keep _file: .* writes a column", "--keep ''; "),
        (["a,b", "_row"], "--keep _row: .* writes a column", """--keep '"a,b"'; """),
        ("id,", "a column name is empty", "--keep id,url; "),
        (["id", ""], "a column name is empty", "a column without a name cannot be kept"),
    ],
)
def test_names_of_our_own_columns_and_no_name_are_refused(keep, said, hint, tmp_path):
    with pytest.raises(ConfigError, match=said) as refused:
        Config(sources="a.parquet", out=str(tmp_path), keep=keep)
    assert hint in str(refused.value.hint)
    assert Config(sources="a.parquet", out=str(tmp_path), keep=" ").kept_columns == ()


def test_column_that_is_not_there_is_refused_by_the_plan(sources, tmp_path):
    for source, what in [(sources[0], "no column 'ur'"), (sources[2], "no field 'ur'")]:
        with pytest.raises(ConfigError, match=f"--keep: {re.escape(source)}: {what}") as refused:
            prepared(source, tmp_path, keep="n,ur")
        assert refused.value.hint == "did you mean --keep n,url?"
    for name, shown in [("id", "id"), ("", "''")]:
        path = write_rows(tmp_path / "a.parquet", pa.array([1, 2]), name)
        with pytest.raises(ConfigError, match="no column 'zzz'") as refused:
            prepared(path, tmp_path / "out", keep="zzz")
        assert refused.value.hint == f"there are text, {shown}"


def test_json_fields_have_the_type_of_the_first_lines(tmp_path):
    lines = [
        {"text": f"t{n}", "i": n, "f": n / 2, "b": True, "o": {"k": [n]}, "m": n} for n in range(9)
    ]
    lines[3]["m"] = "text"
    lines[4] = {"text": "t4"}
    lines += [{"text": "later", "i": 10, "f": 1, "b": None, "o": None, "m": {"x": "é"}}] * 100
    lines += [{"text": "bad", "i": "no number", "f": 1}, {"text": "last", "i": 1 << 60}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    manifest = prepared(path, tmp_path / "out", keep="i,f,b,o,m", val="none", max_bad_fraction=0.1)
    found = pq.read_table(tmp_path / "out" / "__kept__" / "train-00000.pq")
    types = [str(found.schema.field(name).type) for name in "ifbom"]
    assert types == ["int64", "double", "bool", "large_string", "large_string"]
    assert manifest.counts.num_quarantined == 1
    listed = (tmp_path / "out" / "tokenmill-quarantine.jsonl").read_text()
    assert "field 'i' is \\\"no number\\\", and is kept as int64" in listed
    rows = found.select(list("ifbom")).to_pylist()
    assert rows[2] == {"i": 2, "f": 1.0, "b": True, "o": '{"k": [2]}', "m": "2"}
    assert rows[3]["m"] == "text" and set(rows[4].values()) == {None}
    assert json.loads(rows[50]["m"]) == {"x": "é"} and rows[-1]["i"] == 1 << 60


@pytest.mark.parametrize(
    ("usual", "odd"),
    [
        ("7", "4.7"),
        ("7", "true"),
        ("7", '"7"'),
        ("0.5", "true"),
        ("0.5", "1e400"),
        ("0.5", "9" * 401),
        ('"a"', "1e400"),
        ('"a"', f"[{'9' * 401}]"),
        ("true", "1"),
    ],
)
def test_keep_when_a_value_of_json_would_change_in_its_column_then_its_row_is_quarantined(
    usual, odd, tmp_path
):
    """Arrow makes 4 of 4.7, and 1.0 of true."""
    lines = [f'{{"text": "t", "n": {n}}}' for n in [usual] * 120 + [odd, usual]]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    manifest = prepared(tmp_path / "a.jsonl", tmp_path / "out", keep="n", max_bad_fraction=1.0)
    assert (manifest.counts.num_written, manifest.counts.num_quarantined) == (121, 1)
    assert tokenmill.verify(tmp_path / "out", full=True).is_whole


def test_text_that_is_no_utf8_is_quarantined_with_its_column(tmp_path):
    column = pa.array([b"fine", b"\xff", None]).view(pa.string())
    path = write_rows(tmp_path / "a.parquet", column, "url")
    manifest = prepared(path, tmp_path / "out", keep="url", val="none", max_bad_fraction=0.5)
    assert manifest.counts.num_quarantined == 1 and manifest.counts.num_written == 2
    listed = (tmp_path / "out" / "tokenmill-quarantine.jsonl").read_text()
    assert "row 1" in listed and "column 'url': invalid UTF-8 at byte 0 (0xff)" in listed
    found = pq.read_table(tmp_path / "out" / "__kept__" / "train-00000.pq")
    assert found.select(["_row", "url"]).to_pylist() == [
        {"_row": 0, "url": "fine"},
        {"_row": 2, "url": None},
    ]


# Readers of the dataset


def test_no_reader_of_parquet_takes_a_sidecar_for_a_shard(sources, tmp_path):
    import pyarrow.dataset as ds

    manifest = prepared(sources, tmp_path, format="parquet", val_fraction=0.3)
    shards = {str(tmp_path / file.name) for file in manifest.shards}
    assert set(glob.glob(f"{tmp_path}/**/*.parquet", recursive=True)) == shards
    assert set(ds.dataset(tmp_path, exclude_invalid_files=True).files) == shards
    data_files = pytest.importorskip("datasets.data_files")
    patterns = data_files.get_data_patterns(str(tmp_path))
    found = data_files.DataFilesPatternsDict.from_patterns(patterns).resolve(str(tmp_path))
    assert {path for some in found.values() for path in some} == shards


def test_inspect_shows_what_is_kept(sources, rows, tmp_path, capsys):
    prepared(sources, tmp_path, val="none")
    row = next(row for row in rows if row["text"] and row["url"] and row["n"] > 100)
    number = [r["n"] for r in rows if r["text"]].index(row["n"])
    main(["inspect", str(tmp_path), "--doc", str(number)])
    said = capsys.readouterr().err
    assert re.search(rf"^    url +{row['url']}$", said, re.M) and "_file " in said
    needle = row["text"].split()[-1]
    main(["inspect", str(tmp_path), "--grep", needle])
    assert f"url={row['url']}" in capsys.readouterr().out
    main(["inspect", str(tmp_path), "--grep", needle, "--json"])
    kept = [hit["kept"] for hit in json.loads(capsys.readouterr().out)["hits"]]
    assert row["url"] in [one["url"] for one in kept]


def rewritten(out: Path, change) -> None:
    """Change a sidecar's table, and the manifest so that size and hash agree with it."""
    import hashlib

    path = out / "__kept__" / "train-00000.pq"
    pq.write_table(change(pq.read_table(path)), path)
    plain = json.loads((out / MANIFEST_NAME).read_bytes())
    [listed] = [file for file in plain["files"] if file["name"] == "__kept__/train-00000.pq"]
    data = path.read_bytes()
    listed.update(num_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    listed["num_documents"] = pq.read_metadata(path).num_rows
    plain["sha256"] = manifest_sha256_of(plain)
    (out / MANIFEST_NAME).write_bytes(laid_out(plain))


def swapped(table: pa.Table) -> pa.Table:
    return table.take([1, 0, *range(2, len(table))])


def with_url(table: pa.Table) -> pa.Table:
    urls = pa.array(["http://other"] * len(table), table.schema.field("url").type)
    return table.set_column(table.schema.get_field_index("url"), "url", urls)


def with_file(table: pa.Table) -> pa.Table:
    return table.set_column(1, "_file", pa.array(["other"] * len(table), pa.large_string()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (swapped, r"document 0: train: \d+ tokens in the shards, \d+ in its kept row"),
        (lambda table: table.slice(1), r"train has \d+ documents, but \d+ are kept"),
        (lambda table: table.drop_columns(["n"]), "has the columns _source"),
        (with_file, "names other, which is not an input"),
    ],
)
def test_verify_finds_kept_rows_that_do_not_fit(change, said, sources, tmp_path):
    prepared(sources, tmp_path, val="none")
    rewritten(tmp_path, change)
    report = tokenmill.verify(tmp_path)
    [check] = [check for check in report.checks if check.status == "failed"]
    assert check.name == "kept" and re.search(said, check.detail), check


def test_verify_compares_kept_values_with_the_sources(sources, tmp_path):
    prepared(sources, tmp_path / "out", val="none", shuffle=True)
    rewritten(tmp_path / "out", with_url)
    assert tokenmill.verify(tmp_path / "out").is_whole
    report = tokenmill.verify(tmp_path / "out", sample=5)
    assert re.search("its kept row has url 'http://other', and its source", str(report.failures))


def test_verify_finds_a_sidecar_that_is_missing_added_or_damaged(sources, tmp_path):
    prepared(sources, tmp_path, val="none")
    path = tmp_path / "__kept__" / "train-00000.pq"
    data = path.read_bytes()
    (tmp_path / "__kept__" / "train-00001.pq").write_bytes(data)
    assert "is not of this dataset" in str(tokenmill.verify(tmp_path).failures)
    (tmp_path / "__kept__" / "train-00001.pq").unlink()
    path.write_bytes(data[:-20] + b"garbage" + data[-13:])
    assert not tokenmill.verify(tmp_path).is_whole
    with pytest.raises(TokenmillError, match=r"train-00000\.pq: not a readable sidecar"):
        tokenmill.open(tmp_path)["train"].kept(0)
    path.unlink()
    assert not tokenmill.verify(tmp_path).is_whole


# Together with other options


def table_rows(num_rows: int) -> list[dict]:
    texts = made_texts(num_rows, seed=3)
    return [
        {"id": f"r{n}", "title": f'no. {n}, "quoted"', "body": text, "meta": {"text": text, "n": n}}
        for n, text in enumerate(texts)
    ]


def write_kind(kind: str, folder: Path, rows: list[dict]) -> Path:
    import csv

    path = folder / f"corpus.{kind}"
    table = pa.Table.from_pylist(rows)
    if kind in ("csv", "tsv"):
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter="," if kind == "csv" else "\t")
            writer.writerow(["id", "title", "body", "meta.text", "meta.n"])
            for row in rows:
                meta = row["meta"]
                writer.writerow([row["id"], row["title"], row["body"], meta["text"], meta["n"]])
    elif kind == "json":
        path.write_text(json.dumps(rows, indent=1))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
    else:
        pq.write_table(table, path, row_group_size=7)
    return path


KINDS = ["parquet", "arrow", "jsonl", "json", "csv", "tsv"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [{"template": "{title}\n{meta.text}"}, {"text_column": "meta.text", "where": "meta.n >= 5"}],
    ids=["template", "nested"],
)
def test_every_kind_of_file_keeps_its_columns(kind, options, tmp_path):
    rows = table_rows(40)
    path = write_kind(kind, tmp_path, rows)
    given = {"slice_bytes": 3000, "val": "none", "keep": "meta.n,id,title", **options}
    prepared(path, tmp_path / "out", **given)
    own = [row for row in rows if "where" not in options or row["meta"]["n"] >= 5]
    texts = [
        f"{row['title']}\n{row['body']}" if "template" in options else row["body"] for row in own
    ]
    assert shard_oracle.tokens(tmp_path / "out", "nanogpt")["train"] == [
        token for document in oracle.ids(texts) for token in document
    ]
    number = str if kind in ("csv", "tsv") else int
    found = pq.read_table(tmp_path / "out" / "__kept__" / "train-00000.pq").to_pylist()
    assert [(row["meta.n"], row["id"], row["title"]) for row in found] == [
        (number(row["meta"]["n"]), row["id"], row["title"]) for row in own
    ]
    assert tokenmill.verify(tmp_path / "out", full=True).is_whole


def test_csv_fields_that_are_empty_bad_or_missing(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,text\n,one\nb\xff,two\nc,three,too many\nd,four\n")
    manifest = prepared(path, tmp_path / "out", keep="id", val="none", max_bad_fraction=0.9)
    found = pq.read_table(tmp_path / "out" / "__kept__" / "train-00000.pq").to_pylist()
    assert [(row["_row"], row["id"]) for row in found] == [(0, ""), (3, "d")]
    assert manifest.counts.num_quarantined == 2
    listed = (tmp_path / "out" / "tokenmill-quarantine.jsonl").read_text()
    assert "column 'id': invalid UTF-8" in listed and "3 fields where" in listed
    with pytest.raises(ConfigError, match="no column 'ids'"):
        prepared(path, tmp_path / "no", keep="ids")


@pytest.mark.parametrize("keep", ["id", ""], ids=["a column", "no column"])
@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl", "json"])
def test_documents_of_a_list_have_the_values_of_their_row(kind, keep, tmp_path):
    texts = made_texts(90, seed=5)
    rows = [{"id": f"r{n}", "n": n, "text": texts[3 * n : 3 * n + n % 4]} for n in range(30)]
    path = write_kind(kind, tmp_path, rows)
    given = {"lists": "documents", "where": "n != 7", "sample": 0.8, "slice_bytes": 2000}
    prepared(path, tmp_path / "out", keep=keep, val="none", **given)
    found = pq.read_table(tmp_path / "out" / "__kept__" / "train-00000.pq").to_pylist()
    tokens = shard_oracle.tokens(tmp_path / "out", "nanogpt")["train"]
    row_of = {tuple(d): n for n, row in enumerate(rows) for d in oracle.ids(row["text"])}
    expected = [row_of[tuple(document)] for document in documents_in(tokens)]
    data = path.read_bytes()
    lines_before = [data[: row["_byte"]].count(b"\n") for row in found]
    numbers = [row["_row"] + before for row, before in zip(found, lines_before, strict=True)]
    assert numbers == expected and len(set(expected)) > 10 and 7 not in expected
    if keep:
        assert [row["id"] for row in found] == [f"r{n}" for n in expected]
    assert tokenmill.verify(tmp_path / "out", full=True).is_whole


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
def test_named_sources_without_copies_keep_the_rows_of_the_first(shuffle, tmp_path, capsys):
    """Sources of two kinds, with options of their own; every third text of one is in both."""
    web, code = table_rows(60), table_rows(90)[30:]
    for n, row in enumerate(code):
        row["id"], row["meta"]["n"] = f"c{n}", n
        if n % 3 and n >= 30:
            row["body"] = f"{row['body']} {n}"
    paths = [write_kind("parquet", tmp_path, web), write_kind("jsonl", tmp_path, code)]
    sources = {
        "web": {"paths": str(paths[0]), "text_column": "meta.text"},
        "code": {"paths": str(paths[1]), "text_column": "body", "where": "meta.n != 40"},
    }
    given = {"dedup": "exact", "shuffle": shuffle, "keep": "id", "val_fraction": 0.2}
    given |= {"slice_bytes": 3000, "tokenizer": "cl100k_base", "bos_token": "<|endofprompt|>"}
    manifest = prepared(sources, tmp_path / "out", num_proc=2, **given)
    first: dict[str, tuple[str, str]] = {}
    for name, rows in (("web", web), ("code", code)):
        for row in rows:
            if name == "web" or row["meta"]["n"] != 40:
                first.setdefault(row["body"], (name, row["id"]))
    assert manifest.counts.num_duplicates == 60 + 59 - len(first) > 20
    found = {}
    opened = tokenmill.open(tmp_path / "out")
    for split in ("train", "val"):
        for at in range(len(opened[split])):
            row = opened[split].kept(at)
            found[opened[split].text(at)] = (row["_source"], row["id"])
    assert found == first
    assert tokenmill.verify(tmp_path / "out", full=True).is_whole
    prepared(sources, tmp_path / "inline", **given)
    for file in manifest.files:
        assert (tmp_path / "out" / file.name).read_bytes() == (
            tmp_path / "inline" / file.name
        ).read_bytes()
    (tmp_path / "again.toml").write_text(_config_of(tmp_path / "out", capsys))
    again = ["prepare", "--config", str(tmp_path / "again.toml"), "-o", str(tmp_path / "again")]
    assert main([*again, "--num-proc", "1", "-q"]) == 0
    assert tokenmill.Manifest.load(str(tmp_path / "again")).files == manifest.files


def _config_of(out: Path, capsys) -> str:
    capsys.readouterr()
    main(["inspect", str(out), "--config"])
    text = capsys.readouterr().out
    assert 'keep = "id"' in text
    return text


def test_partitions_without_copies_keep_the_same_rows(tmp_path):
    rows = table_rows(30) + table_rows(60)
    path = write_kind("parquet", tmp_path, [{**row, "id": f"r{n}"} for n, row in enumerate(rows)])
    given = {"keep": "id", "slice_bytes": 3000, "val": "none", "dedup": "exact"}
    given |= {"text_column": "body", "limit_tokens": 12000}
    for number in (2, 1):
        config = Config(sources=(str(path),), out=str(tmp_path / "a"), num_proc=1, **given)
        encode_partition(config, Partition(number, 2), InlineRunner(), SilentWatch())
    parted = finish(str(tmp_path / "a"), num_proc=1)
    assert parted.files == prepared(path, tmp_path / "b", **given).files
    found = pq.read_table(tmp_path / "a" / "__kept__" / "train-00000.pq").column("id").to_pylist()
    expected = [f"r{n}" for n in range(30)] + [f"r{n}" for n in range(60, 90)]
    assert found == expected[: len(found)] and 31 < len(found) < 60


def test_types_that_differ_between_sources_are_widened_or_refused(tmp_path):
    a = write_rows(tmp_path / "a.parquet", pa.array([1, 2], pa.int32()))
    (tmp_path / "b.jsonl").write_text('{"text": "b", "id": 1.5}\n')
    (tmp_path / "c.csv").write_text("text,id\nc,7\n")
    prepared({"a": a, "b": str(tmp_path / "b.jsonl")}, tmp_path / "out", keep="id", val="none")
    found = pq.read_table(tmp_path / "out" / "__kept__" / "train-00000.pq")
    assert found.select(["_source", "id"]).to_pylist() == [
        {"_source": "a", "id": 1.0},
        {"_source": "a", "id": 2.0},
        {"_source": "b", "id": 1.5},
    ]
    with pytest.raises(ConfigError, match=r"source c: --keep: column 'id' is int32 in .*, and str"):
        prepared({"a": a, "c": str(tmp_path / "c.csv")}, tmp_path / "no", keep="id")


def test_commands_that_read_datasets_pass_over_sidecars(sources, tmp_path, capsys):
    prepared(sources, tmp_path / "out", format="megatron", val="none")
    prepared(sources, tmp_path / "plain", format="megatron", val="none", keep=None)
    figures = []
    for name in ("out", "plain"):
        assert main(["report", str(tmp_path / name), "--json"]) == 0
        figures.append(json.loads(capsys.readouterr().out))
    assert figures[0]["splits"] == figures[1]["splits"]
    written = tmp_path / "packed"
    pack = ["pack", str(tmp_path / "out"), "--seq-len", "64", "--write", str(written), "-q"]
    assert main(pack) == 0
    assert tokenmill.verify(written).is_whole and not (written / "__kept__").exists()
    tokenmill.convert(tmp_path / "out", tmp_path / "llmc", format="llmc")
    own, other = (tokenmill.open(tmp_path / name)["train"] for name in ("out", "llmc"))
    assert own.kept(11) == other.kept(11)
