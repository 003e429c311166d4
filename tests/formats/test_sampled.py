"""MDS, litdata and parquet: bytes written by hand from their specifications, round trips, what
other people write, and what no honest writer would."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.errors import ConfigError, IntegrityError, OutputError
from tokenmill.formats import Contents, Layout, Shard, ShardReader, get_format, parquet_shard
from tokenmill.formats import parquet as parquet_module
from tokenmill.storage.folder_files import FolderFiles
from tokenmill.storage.new_file import NewFile
from tokenmill.storage.store import new_file

DOCUMENTS = [[1, 2, 3, 9], [4, 9], [5, 6, 7, 8, 9]]
NAMES = ("mds", "litdata", "parquet")


# A small driver in place of shards.py


def layout_of(name: str, dtype: str = "uint16", seq_len: int = 0) -> Layout:
    has_boundaries = get_format(name).traits.boundaries and not seq_len
    return Layout(name, "stem", dtype, 1000, seq_len, False, 9, "gpt2", has_boundaries)


def creator(folder: Path) -> Callable[[str], Any]:
    @contextlib.contextmanager
    def create(name: str) -> Iterator[NewFile]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(os.fspath(path)) as file:
            yield file
            file.commit()

    return create


def write_shards(
    folder: Path, shards: Sequence[Sequence[Sequence[int]]], layout: Layout, split: str = "train"
) -> list[str]:
    """Shards of documents, and their index; the names of the shards in order."""
    format_, kind = get_format(layout.format), np.dtype(layout.dtype).newbyteorder("<")
    made = []
    for number, documents in enumerate(shards):
        name = format_.shard_name("stem", split, number)
        tokens = np.array([token for document in documents for token in document], kind)
        lengths = np.array([len(document) for document in documents], "<u4")
        if not layout.has_boundaries:
            lengths = None  # type: ignore[assignment]
        contents = Contents(name, split, tokens, lengths, 0, layout)
        if format_.traits.is_raw:
            with creator(folder)(name) as file:
                file.write(format_.header(len(tokens), layout.dtype) + tokens.tobytes())
        format_.write(contents, creator(folder))
        data = (folder / name).read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        count = len(documents) if layout.has_boundaries else None
        made.append(Shard(name, split, len(tokens), 0, count, len(data), sha256))
    for name, data in format_.index(split, made, layout).items():
        (folder / name).write_bytes(data)
    return [shard.name for shard in made]


def names_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))


def found_in(name: str, folder: Path) -> list[tuple[str, str]]:
    found = get_format(name).find(FolderFiles(os.fspath(folder)), names_in(folder))
    return [(shard.name, shard.split) for shard in found]


def opened(name: str, path: Path, dtype: str | None = None) -> ShardReader:
    return get_format(name).open(FolderFiles(os.fspath(path.parent)), path.name, dtype)


def documents_of(reader: ShardReader) -> list[list[int]]:
    ends = reader.ends()
    assert ends is not None
    tokens = reader.tokens(0, reader.num_tokens)
    return [piece.tolist() for piece in np.split(tokens, ends)[: len(ends)]]


# Bytes, from the specifications


def mds_config(encoding: str, size: int | None, **more: Any) -> dict[str, Any]:
    return {
        "column_encodings": [encoding],
        "column_names": ["tokens"],
        "column_sizes": [size],
        "compression": None,
        "format": "mds",
        "hashes": ["sha256"],
        "size_limit": None,
        "version": 2,
        **more,
    }


def mds_shard(samples: Sequence[bytes], config: Any) -> bytes:
    text = config if isinstance(config, bytes) else json.dumps(config, sort_keys=True).encode()
    offsets = [4 + 4 * (len(samples) + 1) + len(text)]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    head = struct.pack(f"<{1 + len(offsets)}I", len(samples), *offsets)
    return head + text + b"".join(samples)


def dynamic(tokens: Sequence[int], code: str = "H") -> bytes:
    """A sample of one column of 1-D arrays of any length."""
    length = len(tokens)
    shape = (
        struct.pack("<BB", 4, length)
        if length < 256
        else struct.pack("<BH", 5, length)
        if length < 65536
        else struct.pack("<BI", 6, length)
    )
    value = shape + struct.pack(f"<{length}{code}", *tokens)
    return struct.pack("<I", len(value)) + value


@pytest.mark.parametrize(("dtype", "code"), [("uint16", "H"), ("uint32", "I")])
def test_mds_of_samples_when_written_has_the_bytes_of_the_specification(dtype, code, tmp_path):
    write_shards(tmp_path, [[[1, 2, 3, 9], [4, 9, 5, 6]]], layout_of("mds", dtype, seq_len=4))
    size = 4 * struct.calcsize(code)
    config = mds_config(f"ndarray:{dtype}:4", size)
    samples = [struct.pack(f"<4{code}", 1, 2, 3, 9), struct.pack(f"<4{code}", 4, 9, 5, 6)]
    shard = mds_shard(samples, config)
    assert (tmp_path / "train/shard.00000.mds").read_bytes() == shard
    raw_data = {
        "basename": "shard.00000.mds",
        "bytes": len(shard),
        "hashes": {"sha256": hashlib.sha256(shard).hexdigest()},
    }
    listed = {**config, "raw_data": raw_data, "samples": 2, "zip_data": None}
    index = json.dumps({"shards": [listed], "version": 2}, sort_keys=True)
    assert (tmp_path / "train/index.json").read_text() == index


@pytest.mark.parametrize(("dtype", "code"), [("uint16", "H"), ("uint32", "I")])
def test_mds_of_documents_when_written_has_the_bytes_of_the_specification(dtype, code, tmp_path):
    lengths = [4, 1, 255, 256, 3, 65535, 65536, 140_000, 2]
    documents = [[(7 * n + i) % 60000 for i in range(length)] for n, length in enumerate(lengths)]
    write_shards(tmp_path, [documents], layout_of("mds", dtype))
    config = mds_config(f"ndarray:{dtype}", None, tokenmill="documents")
    shard = mds_shard([dynamic(document, code) for document in documents], config)
    assert (tmp_path / "train/shard.00000.mds").read_bytes() == shard
    [listed] = json.loads((tmp_path / "train/index.json").read_bytes())["shards"]
    assert listed["samples"] == len(documents)
    assert listed["column_encodings"] == [f"ndarray:{dtype}"] and listed["column_sizes"] == [None]
    assert "tokenmill" not in listed  # the library takes these keys as arguments


@pytest.mark.parametrize(
    ("dtype", "code", "data_format"),
    [("uint16", "H", "no_header_tensor:20"), ("uint32", "I", "no_header_tensor:16")],
)
def test_litdata_when_written_has_the_bytes_of_the_specification(
    dtype, code, data_format, tmp_path
):
    write_shards(tmp_path, [DOCUMENTS], layout_of("litdata", dtype))
    tokens = struct.pack(f"<11{code}", 1, 2, 3, 9, 4, 9, 5, 6, 7, 8, 9)
    chunk = struct.pack("<III", 1, 12, 12 + len(tokens)) + tokens
    assert (tmp_path / "train/chunk-0-0.bin").read_bytes() == chunk
    sha256 = hashlib.sha256(chunk).hexdigest()
    index = {
        "chunks": [
            {"chunk_bytes": len(chunk), "chunk_size": 1, "dim": 11, "filename": "chunk-0-0.bin"}
        ],
        "config": {
            "chunk_bytes": None,
            "chunk_size": None,
            "compression": None,
            "data_format": [data_format],
            "data_spec": '[1, {"type": null, "context": null, "children_spec": []}]',
            "encryption": None,
            "item_loader": "TokensLoader",
        },
        "updated_at": hashlib.sha256(sha256.encode()).hexdigest()[:16],
    }
    assert (tmp_path / "train/index.json").read_text() == json.dumps(index, sort_keys=True)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_parquet_when_written_is_one_column_of_lists_in_small_row_groups(
    dtype, tmp_path, monkeypatch
):
    monkeypatch.setattr(parquet_module, "GROUP_BYTES", 6 * np.dtype(dtype).itemsize)
    write_shards(tmp_path, [DOCUMENTS], layout_of("parquet", dtype))
    path = tmp_path / "train-00000.parquet"
    file = pq.ParquetFile(path)
    assert file.schema_arrow.names == ["input_ids"]
    assert file.schema_arrow.field("input_ids").type == pa.list_(pa.type_for_alias(dtype))
    assert [file.metadata.row_group(g).num_rows for g in range(2)] == [2, 1]
    assert file.read().column("input_ids").to_pylist() == DOCUMENTS
    chunk = file.metadata.row_group(0).column(0)
    assert chunk.compression == "ZSTD" and "RLE_DICTIONARY" not in chunk.encodings
    said = json.loads(file.metadata.metadata[b"tokenmill"])
    assert said == {"dtype": dtype, "group_tokens": [6, 5], "seq_len": 0}
    before = path.read_bytes()
    write_shards(tmp_path, [DOCUMENTS], layout_of("parquet", dtype))
    assert path.read_bytes() == before


# Round trips


def made_documents(seed: int, count: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 60000, rng.integers(1, 400)).tolist() for _ in range(count)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("seq_len", [0, 16])
def test_tokens_and_ends_when_read_back_are_what_was_written(
    name, dtype, seq_len, tmp_path, monkeypatch
):
    monkeypatch.setattr(parquet_module, "GROUP_BYTES", 3000)
    documents = made_documents(1, 100)
    if seq_len:
        flat = [token for document in documents for token in document]
        documents = [flat[i : i + 16] for i in range(0, len(flat) - 15, 16)]
    layout = layout_of(name, dtype, seq_len)
    [shard_name] = write_shards(tmp_path, [documents], layout)
    reader = opened(name, tmp_path / shard_name)
    tokens = np.array([token for document in documents for token in document])
    # litdata has no torch.uint32: ids are the same as int32.
    assert reader.dtype == ("int32" if (name, dtype) == ("litdata", "uint32") else dtype)
    assert opened(name, tmp_path / shard_name, dtype).dtype == dtype
    assert reader.num_tokens == len(tokens)
    rng = random.Random(2)
    bounds = [(0, len(tokens)), (0, 0), (len(tokens) - 1, len(tokens)), (5, 10**9)]
    bounds += [sorted(rng.choices(range(len(tokens)), k=2)) for _ in range(100)]
    for start, stop in bounds:
        found = reader.tokens(start, stop)
        assert found.dtype == np.dtype(reader.dtype)
        assert found.tolist() == tokens[start:stop].tolist()
    if layout.has_boundaries:
        assert documents_of(reader) == documents
    else:
        assert reader.ends() is None


@pytest.mark.parametrize("name", NAMES)
def test_find_when_there_are_many_shards_gives_them_by_number(name, tmp_path):
    layout = layout_of(name)
    train = write_shards(tmp_path, [[[number, 9]] for number in range(12)], layout)
    val = write_shards(tmp_path, [DOCUMENTS], layout, "val")
    expected = [(shard, "train") for shard in train] + [(shard, "val") for shard in val]
    assert found_in(name, tmp_path) == expected
    for other in ("megatron", "datatrove", *NAMES, "npy", "llmc"):
        assert bool(found_in(other, tmp_path)) == (other == name)
    if name != "parquet":  # a folder of one split
        assert [shard for shard, _ in found_in(name, tmp_path / "val")] == [Path(val[0]).name]


@pytest.mark.parametrize("name", ["mds", "parquet"])
def test_documents_of_equal_length_when_written_by_us_stay_documents(name, tmp_path):
    [shard_name] = write_shards(tmp_path, [[[1, 2], [3, 4], [5, 6]]], layout_of(name))
    assert documents_of(opened(name, tmp_path / shard_name)) == [[1, 2], [3, 4], [5, 6]]


def test_mds_when_a_document_has_no_tokens_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"document 1 of train has no tokens(.|\n)*--empty drop"):
        write_shards(tmp_path, [[[1], [], [2]]], layout_of("mds"))
    assert names_in(tmp_path) == []


def test_parquet_when_documents_have_no_tokens_keeps_them(tmp_path):
    documents = [[], [1, 2], [], [], [3], []]
    [name] = write_shards(tmp_path, [documents], layout_of("parquet"))
    assert documents_of(opened("parquet", tmp_path / name)) == documents


@pytest.mark.parametrize("name", ["mds", "parquet"])
def test_write_when_the_storage_fails_raises_its_error(name, tmp_path):
    class FullDisk:
        num_bytes = 0

        def write(self, data: Any) -> None:
            self.num_bytes += memoryview(data).nbytes
            if self.num_bytes > 2000:
                raise OutputError("no space left")

    tokens = np.random.default_rng(0).integers(0, 60000, 4000).astype("<u2")
    contents = Contents("x", "train", tokens, np.array([2500, 1500], "<u4"), 0, layout_of(name))
    with pytest.raises(OutputError, match="no space left"):
        get_format(name).write(contents, lambda _: contextlib.nullcontext(FullDisk()))


@pytest.mark.parametrize(
    ("name", "dtype", "seq_len", "most"),
    [
        ("mds", "uint16", 0, 357_800_000),
        ("mds", "uint32", 0, 306_700_000),
        ("mds", "uint16", 2048, 2_144_800_000),
        ("litdata", "uint16", 0, 2_147_483_641),
        ("litdata", "uint32", 0, 1_073_741_820),
    ],
)
def test_check_when_offsets_would_not_fit_is_refused(name, dtype, seq_len, most):
    layout = layout_of(name, dtype, seq_len)
    values = {field: getattr(layout, field) for field in layout.__slots__}
    get_format(name).check(Layout(**{**values, "shard_tokens": most}))
    with pytest.raises(ConfigError, match="less than 4 GiB"):
        get_format(name).check(Layout(**{**values, "shard_tokens": most + most // 1000}))


# What others write


def put(folder: Path, files: dict[str, bytes | str]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())


def mds_index(*basenames: Any, **more: Any) -> str:
    entry = {**mds_config("ndarray:int32", None), "samples": 3, "zip_data": None, **more}
    shards = [{**entry, "raw_data": {"basename": name, "bytes": 1}} for name in basenames]
    return json.dumps({"shards": shards, "version": 2})


@pytest.mark.parametrize(
    ("encoding", "code", "dtype"),
    [
        ("ndarray:int32", "i", "int32"),
        ("ndarray:uint16", "H", "uint16"),
        ("ndarray:int64", "q", "int64"),
        ("ndarray:uint8", "B", "uint8"),
    ],
)
def test_mds_when_others_wrote_it_gives_documents(encoding, code, dtype, tmp_path):
    path = tmp_path / "shard.00000.mds"
    samples = [dynamic(document, code) for document in DOCUMENTS]
    path.write_bytes(mds_shard(samples, mds_config(encoding, None)))
    reader = opened("mds", path)
    assert reader.dtype == dtype and documents_of(reader) == DOCUMENTS


@pytest.mark.parametrize(
    ("samples", "config"),
    [
        ([struct.pack("<3H", 1, 2, 3), b"\4\0\5\0\6\0"], mds_config("ndarray:uint16:3", 6)),
        ([struct.pack("<6H", 1, 2, 3, 4, 5, 6)], mds_config("ndarray:uint16:2,3", 12)),
    ],
)
def test_mds_when_the_header_states_a_length_has_no_documents(samples, config, tmp_path):
    path = tmp_path / "shard.00000.mds"
    path.write_bytes(mds_shard(samples, config))
    reader = opened("mds", path)
    assert reader.tokens(0, 9).tolist() == [1, 2, 3, 4, 5, 6]
    assert reader.ends() is None


def test_mds_of_bytes_when_no_dtype_is_given_is_int64(tmp_path):
    path = tmp_path / "shard.00000.mds"
    samples = [struct.pack("<I2q", 16, 70000, 2), struct.pack("<Iq", 8, 3)]
    path.write_bytes(mds_shard(samples, mds_config("bytes", None)))
    assert documents_of(opened("mds", path)) == [[70000, 2], [3]]
    assert opened("mds", path, "uint16").num_tokens == 12


def test_mds_when_tokens_are_one_of_many_columns_finds_them(tmp_path):
    config = mds_config("ndarray:uint16", None)
    config["column_names"] = ["id", "input_ids", "score", "uid"]
    config["column_encodings"] = ["int", "ndarray:uint16", "float64", "str"]
    config["column_sizes"] = [8, None, 8, None]
    samples = []
    for number, document in enumerate(DOCUMENTS):
        value, uid = dynamic(document)[4:], b"u" * number
        sizes = struct.pack("<II", len(value), len(uid))
        samples.append(sizes + struct.pack("<q", number) + value + struct.pack("<d", 0.5) + uid)
    path = tmp_path / "shard.00000.mds"
    path.write_bytes(mds_shard(samples, config))
    assert documents_of(opened("mds", path)) == DOCUMENTS


def test_find_when_an_index_was_merged_from_those_of_subfolders_gives_each_shard_once(tmp_path):
    put(tmp_path, {"1/shard.00000.mds": b"", "0/shard.00000.mds": b"", "val.txt": b""})
    put(tmp_path, {"0/index.json": mds_index("shard.00000.mds")})
    put(tmp_path, {"index.json": mds_index("1/shard.00000.mds", "0/shard.00000.mds")})
    expected = [("1/shard.00000.mds", "train"), ("0/shard.00000.mds", "train")]
    assert found_in("mds", tmp_path) == expected


def litdata_index(chunks: Any = None, **config: Any) -> str:
    if chunks is None:
        chunks = [{"chunk_bytes": 1, "chunk_size": 3, "dim": 11, "filename": "chunk-0-0.bin"}]
    known = {"compression": None, "data_format": ["no_header_tensor:16"], "encryption": None}
    return json.dumps({"chunks": chunks, "config": {**known, **config}})


def litdata_chunk(code: str = "i") -> bytes:
    items = [struct.pack(f"<{len(document)}{code}", *document) for document in DOCUMENTS]
    offsets = np.cumsum([20, *map(len, items)]).tolist()
    return struct.pack("<5I", 3, *offsets) + b"".join(items)


@pytest.mark.parametrize(
    ("data_format", "code", "dtype"),
    [
        ("no_header_tensor:16", "i", "int32"),
        ("no_header_tensor:18", "q", "int64"),
        ("no_header_tensor:20", "H", "uint16"),
        ("no_header_numpy:5", "H", "uint16"),
        ("no_header_numpy:6", "I", "uint32"),
    ],
)
def test_litdata_when_others_wrote_it_gives_all_items_as_one_run(
    data_format, code, dtype, tmp_path
):
    index = litdata_index(data_format=[data_format], item_loader="TokensLoader")
    put(tmp_path, {"chunk-0-0.bin": litdata_chunk(code), "index.json": index})
    assert found_in("litdata", tmp_path) == [("chunk-0-0.bin", "train")]
    reader = opened("litdata", tmp_path / "chunk-0-0.bin")
    assert reader.dtype == dtype and reader.ends() is None
    assert reader.tokens(0, 99).tolist() == [1, 2, 3, 9, 4, 9, 5, 6, 7, 8, 9]


def test_litdata_when_there_is_no_index_needs_the_dtype(tmp_path):
    put(tmp_path, {"chunk-0-0.bin": litdata_chunk("H")})
    with pytest.raises(IntegrityError, match=r"chunk-0-0\.bin: no index\.json(.|\n)*--dtype"):
        opened("litdata", tmp_path / "chunk-0-0.bin")
    assert opened("litdata", tmp_path / "chunk-0-0.bin", "uint16").num_tokens == 11


def lists(kind: pa.DataType | None = None, rows: Any = DOCUMENTS) -> pa.Array:
    return pa.array(rows, pa.list_(kind or pa.int64()))


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        ({"input_ids": lists(pa.int32())}, "int32"),
        ({"text": ["a", "b", "c"], "tokens": lists(pa.uint16())}, "uint16"),
        ({"ids": lists(), "labels": lists(pa.int8())}, "int64"),
        ({"anything": lists(pa.uint32()), "vector": lists(pa.float32())}, "uint32"),
        ({"input_ids": pa.array(DOCUMENTS, pa.large_list(pa.int64()))}, "int64"),
        ({"attention_mask": lists(), "input_ids": lists(pa.int32()), "labels": lists()}, "int32"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"write_statistics": False}, {"row_group_size": 2}])
def test_parquet_when_others_wrote_it_gives_rows_as_documents(columns, dtype, options, tmp_path):
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table(columns), path, **options)
    assert found_in("parquet", tmp_path) == [("data.parquet", "train")]
    reader = opened("parquet", path)
    assert reader.dtype == dtype and reader.num_tokens == 11
    assert documents_of(reader) == DOCUMENTS


@pytest.mark.parametrize("options", [{}, {"write_statistics": False}])
def test_parquet_when_others_wrote_rows_without_tokens_counts_right(options, tmp_path):
    rows = [[], [1, 2], [], [3], [], []]
    pq.write_table(pa.table({"input_ids": lists(rows=rows)}), tmp_path / "a.parquet", **options)
    reader = opened("parquet", tmp_path / "a.parquet")
    assert reader.num_tokens == 3 and documents_of(reader) == rows


def test_parquet_when_a_row_group_is_large_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_shard, "_PIECE_TOKENS", 500)
    documents = made_documents(3, 200)
    pq.write_table(pa.table({"input_ids": lists(rows=documents)}), tmp_path / "a.parquet")
    reader = opened("parquet", tmp_path / "a.parquet")
    tokens = [token for document in documents for token in document]
    assert reader.tokens(0, len(tokens)).tolist() == tokens
    for start in (30_000, 100, 25_000, 25_100, 25_050, 0):
        assert reader.tokens(start, start + 50).tolist() == tokens[start : start + 50]
    assert documents_of(reader) == documents


# What no honest writer writes


def fault(name: str, folder: Path) -> str:
    """Reads all that is found; the message of the IntegrityError that this must end in."""
    with pytest.raises(IntegrityError) as caught:
        for shard, _ in found_in(name, folder):
            reader = opened(name, folder / shard)
            reader.tokens(0, reader.num_tokens)
            reader.ends()
    return str(caught.value)


SOUND = mds_shard([dynamic(document) for document in DOCUMENTS], mds_config("ndarray:uint16", None))
HEAD_BYTES = 4 + 4 * 4


def with_offsets(*offsets: int) -> bytes:
    return struct.pack("<5I", 3, *offsets) + SOUND[HEAD_BYTES:]


FIRST = struct.unpack_from("<I", SOUND, 4)[0]
FOUR = struct.pack("<I", 4)


def one(sample: bytes) -> bytes:
    return mds_shard([sample], mds_config("ndarray:uint16", None))


@pytest.mark.parametrize(
    ("shard", "message"),
    [
        (b"", "begins with"),
        (b"\1\0\0\0", "begins with"),
        (SOUND[:10], "begins with"),
        (SOUND[:-1], "its offsets promise"),
        (SOUND + b"x", "its offsets promise"),
        (b"\xff\xff\xff\xff" + SOUND[4:], "4,294,967,295 samples"),
        (with_offsets(FIRST, FIRST + 99, FIRST + 24, len(SOUND)), "do not ascend"),
        (with_offsets(0, FIRST, FIRST, len(SOUND)), "do not ascend"),
        (with_offsets(FIRST, FIRST, FIRST, len(SOUND)), "sample 0 is too short"),
        (with_offsets(FIRST, FIRST + 13, FIRST + 24, len(SOUND)), "sample 0 is not as long"),
        (mds_shard([], b"{}"), "not that of an MDS shard"),
        (mds_shard([], b"[1"), "is not valid JSON"),
        (mds_shard([], b"\xff\xfe\x00"), "is not valid JSON"),
        (mds_shard([], b"[" * 200_000), "is not valid JSON"),
        (mds_shard([], b'{"a": ' + b"9" * 9999 + b"}"), "is not valid JSON"),
        (mds_shard([], b" " * (2 << 20)), "bytes of JSON"),
        (mds_shard([], {"format": "mds"}), "does not describe its columns"),
        (mds_shard([], mds_config("ndarray:uint16", -1)), "impossible columns"),
        (mds_shard([], mds_config("ndarray:uint16", 1 << 70)), "impossible columns"),
        (mds_shard([], mds_config("ndarray:uint16", None, column_sizes=[])), "impossible columns"),
        (mds_shard([], mds_config("str", None, column_names=["text"])), r"columns \['text'\]"),
        (mds_shard([], mds_config("pkl", None)), "encoded as 'pkl'"),
        (mds_shard([], mds_config("ndarray:float32", None)), "encoded as"),
        (mds_shard([], mds_config("ndarray", None)), "encoded as"),
        (mds_shard([], mds_config([[]], None)), r"encoded as \[\]"),  # type: ignore[arg-type]
        (mds_shard([], mds_config("ndarray:uint16:0", None)), "cannot have 0 bytes"),
        (mds_shard([], mds_config("ndarray:uint16:4", 9)), "cannot have 9 bytes"),
        (mds_shard([], mds_config("ndarray:uint16:" + "9" * 5000, 8)), "encoded as"),
        (mds_shard([b"12345"], mds_config("ndarray:uint16:2", 4)), "is not as long"),
        (mds_shard([b"123"], mds_config("ndarray:uint16:2", 4)), "is too short"),
        (one(b"\0\0\0\0"), "has no shape"),
        (one(FOUR + b"\x04\1\1"), "is not as long"),
        (one(FOUR + b"\x08\1\1\1"), "one-dimensional"),
        (one(FOUR + b"\x06\1\0\0"), "one-dimensional"),
        (one(FOUR + b"\x04\2\1\1"), "as its shape says"),
        (one(b"\3\0\0\0\x04\1\1"), "whole uint16"),
        # 2^63 tokens of 2 bytes are no bytes, in 64 bits
        (one(b"\x09\0\0\0\x07" + struct.pack("<Q", 1 << 63)), "as its shape says"),
        (one(b"\xff\xff\xff\xff\x04\1\1"), "as long"),
        (mds_shard([b"\5\0\0\0abcde"], mds_config("bytes", None)), "whole int64"),
    ],
)
def test_mds_when_the_shard_is_broken_names_it(shard, message, tmp_path):
    put(tmp_path, {"shard.00000.mds": shard, "index.json": mds_index("shard.00000.mds")})
    with pytest.raises(IntegrityError, match=message) as caught:
        reader = opened("mds", tmp_path / "shard.00000.mds")
        reader.tokens(0, reader.num_tokens)
    assert str(tmp_path / "shard.00000.mds") in str(caught.value)


OUTSIDE = ["../secret.mds", "/etc/passwd", "..", ".", "", "x\0y", "\ud800", "a/../shard.00000.mds"]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        *[(mds_index(name), "not in the folder") for name in OUTSIDE],
        (mds_index("gone.mds"), "lists 'gone.mds', which is not in the folder"),
        (mds_index("shard.00000.mds", "shard.00000.mds"), "twice"),
        (mds_index(7), "file name is not a string"),
        (mds_index("shard.00000.mds", format="csv"), "its format is not mds"),
        ('{"shards": [1]}', "names no file"),
        ('{"shards": [{}]}', "names no file"),
        ('{"shards": 1}', "does not list any shards"),
        ("[]", "does not list any shards"),
        ("", "is not valid JSON"),
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        (b"\xff\xff", "is not valid JSON"),
        (None, "is missing"),
    ],
)
def test_mds_when_the_index_is_broken_names_it_and_reads_nothing_outside(index, message, tmp_path):
    put(tmp_path, {"secret.mds": SOUND, "data/shard.00000.mds": SOUND})
    if index is not None:
        put(tmp_path, {"data/index.json": index})
    with pytest.raises(IntegrityError, match=message) as caught:
        found_in("mds", tmp_path / "data")
    assert str(tmp_path / "data" / "index.json") in str(caught.value)


def test_mds_when_shards_are_compressed_says_how_to_unpack_them(tmp_path):
    index = mds_index("shard.00000.mds", compression="zstd")
    put(tmp_path, {"train/shard.00000.mds.zstd": b"x", "train/index.json": index})
    message = fault("mds", tmp_path)
    assert "train/shard.00000.mds, which exists only compressed" in message
    assert "hint: " in message and "zstd -d train/shard.00000.mds.zstd" in message


def test_find_when_an_index_is_a_link_out_of_the_folder_does_not_follow_it(tmp_path):
    put(tmp_path, {"index.json": mds_index("shard.00000.mds"), "data/shard.00000.mds": SOUND})
    (tmp_path / "data/index.json").symlink_to(tmp_path / "index.json")
    with pytest.raises(IntegrityError, match="leads out of the folder"):
        found_in("mds", tmp_path / "data")


def test_find_when_an_index_is_too_large_does_not_read_it(tmp_path):
    put(tmp_path, {"shard.00000.mds": SOUND, "index.json": b""})
    os.truncate(tmp_path / "index.json", 1 << 40)
    with pytest.raises(IntegrityError, match="has over"):
        found_in("mds", tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_find_when_the_folder_is_somebody_elses_gives_nothing(name, tmp_path):
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "text.parquet")
    put(tmp_path, {"train.bin": b"1234", "index.json": "not json", "a/index.json": '{"a": []}'})
    put(tmp_path, {"b/index.json": "[[[[", "c/index.json": '{"shards": [], "chunks": []}'})
    assert found_in(name, tmp_path) == []


@pytest.mark.parametrize("name", NAMES)
def test_open_when_the_file_is_a_pipe_does_not_wait(name, tmp_path):
    for file_name in ("shard.parquet", "index.json", "chunk-0-0.bin", "shard.mds"):
        os.mkfifo(tmp_path / file_name)
    for file_name in ("shard.parquet", "chunk-0-0.bin", "shard.mds", "absent"):
        with pytest.raises(IntegrityError):
            opened(name, tmp_path / file_name)


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        (b"", "begins with"),
        (b"\3\0\0\0", "begins with"),
        (litdata_chunk()[:-1], "its offsets promise"),
        (litdata_chunk() + b"x", "its offsets promise"),
        (b"\xff\xff\xff\xff" + litdata_chunk()[4:], "4,294,967,295 items"),
        (struct.pack("<5I", 3, 20, 60, 40, 64) + litdata_chunk()[20:], "do not ascend"),
        (struct.pack("<5I", 3, 16, 36, 40, 64) + litdata_chunk()[20:], "do not ascend"),
        (struct.pack("<5I", 3, 20, 37, 44, 64) + litdata_chunk()[20:], "not whole tokens"),
        (struct.pack("<4I", 2, 16, 16, 60) + litdata_chunk()[20:], "should have 3 items"),
        (struct.pack("<5I", 3, 20, 20, 20, 20), "should have 3 items, 11 int32 tokens"),
    ],
)
def test_litdata_when_the_chunk_is_broken_names_it(chunk, message, tmp_path):
    put(tmp_path, {"chunk-0-0.bin": chunk, "index.json": litdata_index()})
    with pytest.raises(IntegrityError, match=message) as caught:
        opened("litdata", tmp_path / "chunk-0-0.bin")
    assert "chunk-0-0.bin" in str(caught.value)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (litdata_index([{"filename": "../chunk-0-0.bin"}]), "not in the folder"),
        (litdata_index([{"filename": "/etc/passwd"}]), "not in the folder"),
        (litdata_index([{"name": "x"}]), "names no file"),
        (litdata_index([{"filename": "chunk-0-0.bin"}]), "not an index of litdata chunks"),
        (
            litdata_index([{"filename": "chunk-0-0.bin", "chunk_size": "3", "dim": None}]),
            "must be whole numbers",
        ),
        (litdata_index("chunks"), "does not list any chunks"),
        (litdata_index(compression="zstd"), "have compression, which tokenmill cannot read"),
        (litdata_index(encryption={"algorithm": "x"}), "have encryption"),
        (litdata_index(item_loader="PyTreeLoader"), "not tokens for TokensLoader"),
        (litdata_index(data_format=["jpeg", "int"]), r"hold \['jpeg', 'int'\]"),
        (litdata_index(data_format=["no_header_tensor:99"]), "not tokens"),
        (litdata_index(data_format=[[]]), "not an index"),
        (litdata_index(data_format=5), "not an index"),
        ('{"chunks": [{"filename": "chunk-0-0.bin"}]}', "not an index"),
        ('{"chunks": [{"filename": "chunk-0-0.bin"}], "config": []}', "not an index"),
        ("[" * 100_000, "is not valid JSON"),
        (None, "is missing"),
    ],
)
def test_litdata_when_the_index_is_broken_names_it(index, message, tmp_path):
    put(tmp_path, {"chunk-0-0.bin": litdata_chunk()})
    if index is not None:
        put(tmp_path, {"index.json": index})
    with pytest.raises(IntegrityError, match=message) as caught:
        for name, _ in found_in("litdata", tmp_path):
            opened("litdata", tmp_path / name)
    assert str(tmp_path / "index.json") in str(caught.value)


def test_litdata_when_the_index_lists_another_file_says_so(tmp_path):
    put(tmp_path, {"chunk-0-1.bin": litdata_chunk(), "index.json": litdata_index()})
    with pytest.raises(IntegrityError, match=r"does not list chunk-0-1\.bin"):
        opened("litdata", tmp_path / "chunk-0-1.bin")


def said(group_tokens: Any) -> bytes:
    return json.dumps({"dtype": "uint16", "group_tokens": group_tokens, "seq_len": 0}).encode()


@pytest.mark.parametrize(
    ("columns", "key", "message"),
    [
        ({"text": ["a", "b", "c"]}, None, "no column holds tokens.*text \\(string\\)"),
        ({"a": lists(), "b": lists()}, None, "no column holds tokens"),
        ({"input_ids": pa.array([[[1]], [[2]]])}, None, "no column holds tokens"),
        ({"input_ids": lists(pa.float64())}, None, "no column holds tokens"),
        ({"input_ids": ["1 2 3"]}, None, "no column holds tokens"),
        ({"input_ids": lists(rows=[[1], None, [2]])}, None, "rows that are null"),
        ({"input_ids": lists(rows=[[1], [None], [2]])}, None, "tokens that are null"),
        ({"input_ids": lists(), "input_ids.list": lists()}, None, "several columns"),
        ({"input_ids": lists()}, said([10]), "announces 10 tokens and has more"),
        ({"input_ids": lists()}, said([12]), "announces 12 tokens and has 11"),
        ({"input_ids": lists()}, said([1 << 40]), "impossible size"),
        ({"input_ids": lists()}, said([-1]), "impossible size"),
        ({"input_ids": lists()}, said([True]), "impossible size"),
        ({"input_ids": lists()}, said([11, 0]), "does not state the tokens"),
        ({"input_ids": lists()}, said("11"), "does not state the tokens"),
        ({"input_ids": lists()}, b"[]", "does not state the tokens"),
        ({"input_ids": lists()}, b"{", "is not valid JSON"),
        ({"input_ids": lists()}, b"[" * 100_000, "is not valid JSON"),
        ({"input_ids": lists()}, b"\xff", "is not valid JSON"),
    ],
)
def test_parquet_when_the_file_lies_names_it(columns, key, message, tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table(columns)
    with pq.ParquetWriter(path, table.schema, use_dictionary=False) as writer:
        if key is not None:
            writer.add_key_value_metadata({b"tokenmill": key})
        writer.write_table(table)
    with pytest.raises(IntegrityError, match=message) as caught:
        reader = opened("parquet", path)
        reader.tokens(0, reader.num_tokens)
    assert str(path) in str(caught.value)


def test_parquet_when_ids_are_negative_gives_them_as_they_are(tmp_path):
    pq.write_table(pa.table({"input_ids": lists(rows=[[-1, 5]])}), tmp_path / "a.parquet")
    assert opened("parquet", tmp_path / "a.parquet").tokens(0, 2).tolist() == [-1, 5]


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1PAR1", b"x" * 1000, b"\0" * 16 + b"PAR1"])
def test_parquet_when_it_is_none_is_found_and_named(data, tmp_path):
    put(tmp_path, {"a.parquet": data})
    assert found_in("parquet", tmp_path) == [("a.parquet", "train")]
    assert str(tmp_path / "a.parquet") in fault("parquet", tmp_path)


# Mutations


def mutated(data: bytes, rng: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        size = len(found)
        near = min(size, 400)  # heads and footers more often than what lies between
        at = rng.choice([rng.randrange(near), size - 1 - rng.randrange(near), rng.randrange(size)])
        change = rng.randrange(6)
        if change == 0:
            found[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            found[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif change == 2:
            del found[at : at + rng.choice([1, 2, 8, 100])]
        elif change == 3:
            found[at:at] = rng.randbytes(rng.choice([1, 4, 16]))
        elif change == 4:
            found[at : at + 4] = struct.pack("<I", rng.choice([0, 1, 1 << 31, (1 << 32) - 1, size]))
        else:
            del found[at:]
        if not found:
            break
    return bytes(found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seq_len", [0, 8])
def test_any_mutation_when_read_is_refused_or_gives_what_it_announces(
    name, seq_len, tmp_path, monkeypatch
):
    monkeypatch.setattr(parquet_module, "GROUP_BYTES", 400)
    documents = [document[:40] for document in made_documents(4, 40)]
    if seq_len:
        documents = [document[:8] for document in documents if len(document) >= 8]
    write_shards(tmp_path, [documents], layout_of(name, seq_len=seq_len))
    files = {file: (tmp_path / file).read_bytes() for file in names_in(tmp_path)}
    peak_before = pa.default_memory_pool().max_memory()
    outcomes = {"refused": 0, "read": 0, "not found": 0}
    for seed in range(600):
        rng = random.Random(seed)
        victim = rng.choice(sorted(files))
        (tmp_path / victim).write_bytes(mutated(files[victim], rng))
        try:
            found = found_in(name, tmp_path)
            for shard, _ in found:
                reader = opened(name, tmp_path / shard)
                assert 0 <= reader.num_tokens <= 1 << 20
                tokens = reader.tokens(0, reader.num_tokens)
                assert tokens.shape == (reader.num_tokens,) and tokens.dtype.kind in "iu"
                ends = reader.ends()
                if ends is not None and len(ends):
                    assert ends[-1] == reader.num_tokens and (np.diff(ends, prepend=0) >= 0).all()
            outcomes["read" if found else "not found"] += 1
        except IntegrityError as error:
            assert str(tmp_path) in str(error)
            outcomes["refused"] += 1
        (tmp_path / victim).write_bytes(files[victim])
    assert outcomes["refused"] > 100 and outcomes["read"] > 50, outcomes
    assert pa.default_memory_pool().max_memory() <= max(peak_before, 64 << 20)
