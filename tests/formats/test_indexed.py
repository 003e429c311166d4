"""Formats with an index of documents beside the tokens: Megatron, datatrove, OLMo.

The bytes are spelled out here with `struct`, apart from our code. Whatever stands in a folder, a
shard is read as a slow and obvious reader would read it, or refused by name.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import resource
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tokenmill.errors import InputError, IntegrityError
from tokenmill.formats import Contents, Layout, chosen_dtype, get_format, mapped, megatron, olmo
from tokenmill.storage import disk
from tokenmill.storage.folder_files import FolderFiles
from tokenmill.storage.store import new_file

NAMES = ("megatron", "datatrove", "olmo")
DOCUMENTS = [[1, 2, 3, 9], [4, 9], [5, 6, 7, 8, 9]]  # 9 ends a document
SUFFIXES = {
    "megatron": (".idx",),
    "datatrove": (".ds.index", ".ds.metadata"),
    "olmo": (".csv.gz",),
}


def write(
    folder: Path,
    name: str,
    documents: list[list[int]],
    dtype: str = "uint16",
    encoding: str = "gpt2",
    split: str = "train",
    index: int = 0,
    first_document: int = 0,
) -> Path:
    """A shard as assembly writes it: the tokens first, then the format's own files."""
    found = get_format(name)
    stem = found.defaults.name or ""
    path = folder / found.shard_name(stem, split, index)
    path.parent.mkdir(parents=True, exist_ok=True)
    tokens = np.array([token for d in documents for token in d], np.dtype(dtype).newbyteorder("<"))
    path.write_bytes(found.header(len(tokens), dtype) + tokens.tobytes())
    lengths = np.array([len(document) for document in documents], "<u4")
    (folder / "lengths").write_bytes(lengths.tobytes())
    if len(lengths):
        lengths = np.memmap(folder / "lengths", "<u4", "r")
    layout = Layout(name, stem, dtype, None, 0, False, 9, encoding, True)
    contents = Contents(
        os.fspath(path.relative_to(folder)), split, tokens, lengths, first_document, layout
    )

    @contextlib.contextmanager
    def create(file_name: str):
        with new_file(os.path.join(folder, file_name)) as file:
            yield file
            file.commit()

    found.write(contents, create)
    (folder / "lengths").unlink()
    return path


def opened(path: Path, name: str, dtype: str | None = None):
    return get_format(name).open(FolderFiles(os.fspath(path.parent)), path.name, dtype)


def side_files(path: Path, name: str) -> list[Path]:
    return [path.with_name(path.stem + suffix) for suffix in SUFFIXES[name]]


# The bytes


IDX_HEAD = b"MMIDIDX\x00\x00" + struct.pack("<Q", 1)


@pytest.mark.parametrize(("dtype", "code", "size"), [("uint16", 8, 2), ("uint32", 4, 4)])
def test_bytes_of_megatron_are_the_specified_ones(tmp_path, dtype, code, size):
    path = write(tmp_path, "megatron", DOCUMENTS, dtype)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "text_train_00000_document.bin",
        "text_train_00000_document.idx",
    ]
    letter = {2: "H", 4: "i"}[size]
    assert path.read_bytes() == struct.pack(f"<11{letter}", 1, 2, 3, 9, 4, 9, 5, 6, 7, 8, 9)
    assert path.with_suffix(".idx").read_bytes() == b"".join(
        [
            IDX_HEAD,
            struct.pack("<B", code),
            struct.pack("<QQ", 3, 4),
            struct.pack("<3i", 4, 2, 5),
            struct.pack("<3q", 0, 4 * size, 6 * size),
            struct.pack("<4q", 0, 1, 2, 3),
        ]
    )


@pytest.mark.parametrize(("dtype", "size"), [("uint16", 2), ("uint32", 4)])
def test_bytes_of_datatrove_are_the_specified_ones(tmp_path, dtype, size):
    path = write(tmp_path, "datatrove", DOCUMENTS, dtype)
    assert {os.fspath(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.*")} == {
        "train/00000_tokens.ds",
        "train/00000_tokens.ds.index",
        "train/00000_tokens.ds.metadata",
    }
    letter = {2: "H", 4: "I"}[size]
    assert path.read_bytes() == struct.pack(f"<11{letter}", 1, 2, 3, 9, 4, 9, 5, 6, 7, 8, 9)
    index, metadata = side_files(path, "datatrove")
    assert index.read_bytes() == struct.pack("<3Q", 4, 6, 11)
    assert metadata.read_bytes() == b"gpt2|%d\n11\n11.0 T" % size


def test_bytes_of_olmo_are_the_specified_ones(tmp_path):
    path = write(tmp_path, "olmo", DOCUMENTS, index=2, first_document=70)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "part-train-00002.csv.gz",
        "part-train-00002.npy",
    ]
    assert path.read_bytes() == struct.pack("<11H", 1, 2, 3, 9, 4, 9, 5, 6, 7, 8, 9)
    [csv] = side_files(path, "olmo")
    assert gzip.decompress(csv.read_bytes()) == (
        b"0,4,70,part-train-00002,1\n4,6,71,part-train-00002,2\n6,11,72,part-train-00002,3\n"
    )
    flags, modified = struct.unpack("<BI", csv.read_bytes()[3:8])
    assert flags == 0 and modified == 0  # no name, no time: the same bytes every time


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0.00 T"),
        (7, "7.00 T"),
        (999, "999 T"),
        (1_000, "1.00 kT"),
        (12_345, "12.3 kT"),
        (999_999, "1.00 MT"),
        (1_254_000_000, "1.25 GT"),
        (3 * 10**12, "3.00 TT"),
    ],
)
def test_metadata_of_datatrove_names_the_count_as_humanize_does(count, text):
    from tokenmill.formats.datatrove import _humanized

    assert _humanized(count) == text


@pytest.mark.parametrize("encoding", ["a|b", "|", "a\nb|", "path/to|9"])
def test_metadata_of_datatrove_has_one_bar_whatever_the_tokenizers_name(tmp_path, encoding):
    path = write(tmp_path, "datatrove", DOCUMENTS, "uint32", encoding)
    first, count, _ = side_files(path, "datatrove")[1].read_text().split("\n")
    assert first.split("|")[1:] == ["4"] and count == "11"
    assert opened(path, "datatrove").dtype == "uint32"


def test_rows_of_olmo_stay_whole_whatever_the_shards_name(tmp_path):
    found = get_format("olmo")
    name = found.shard_name('a,b"c\nd', "train", 0)
    (tmp_path / name).write_bytes(struct.pack("<2H", 1, 9))
    lengths = np.array([2], "<u4")
    layout = Layout("olmo", 'a,b"c\nd', "uint16", None, 0, False, 9, "gpt2", True)

    @contextlib.contextmanager
    def create(file_name: str):
        with open(tmp_path / file_name, "wb") as file:
            yield file

    tokens = np.array([1, 9], "<u2")
    found.write(Contents(name, "train", tokens, lengths, 0, layout), create)
    csv = tmp_path / name.replace(".npy", ".csv.gz")
    assert gzip.decompress(csv.read_bytes()) == b"0,2,0,a_b_c_d-train-00000,1\n"
    assert opened(tmp_path / name, "olmo").ends().tolist() == [2]


def test_dtype_of_megatron_is_uint16_for_vocabularies_below_65500():
    found = get_format("megatron")
    assert chosen_dtype("auto", 65_499 - 1, "x", found) == "uint16"  # a vocabulary of 65,499
    assert chosen_dtype("auto", 65_500 - 1, "x", found) == "uint32"


def test_write_of_megatron_when_a_document_is_too_long_for_an_int32_is_refused(tmp_path):
    lengths = np.array([5, 1 << 31], "<u4")
    layout = Layout("megatron", "text", "uint16", None, 0, False, 9, "gpt2", True)
    tokens = np.empty(0, "<u2")

    @contextlib.contextmanager
    def create(file_name: str):
        with open(tmp_path / file_name, "wb") as file:
            yield file

    with pytest.raises(InputError, match=r"2,147,483,648 tokens"):
        get_format("megatron").write(Contents("x.bin", "train", tokens, lengths, 0, layout), create)


# Reading back what was written


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("lengths", [[3], [0, 2, 0, 0, 5, 0], [1] * 40, [7, 300, 1, 0, 12, 2, 2]])
def test_open_gives_what_was_written(tmp_path, monkeypatch, name, dtype, lengths):
    monkeypatch.setattr(mapped, "PIECE_DOCUMENTS", 3)
    monkeypatch.setattr(megatron, "PIECE_DOCUMENTS", 3)  # so that there are many pieces
    rng = random.Random(1)
    documents = [[rng.randrange(50_000) for _ in range(length)] for length in lengths]
    path = write(tmp_path, name, documents, dtype)
    reader = opened(path, name, dtype)
    assert reader.num_tokens == sum(lengths)
    assert np.dtype(reader.dtype).itemsize == np.dtype(dtype).itemsize
    flat = [token for document in documents for token in document]
    assert reader.tokens(0, reader.num_tokens).tolist() == flat
    assert reader.tokens(1, 3).tolist() == flat[1:3]
    assert reader.ends().tolist() == np.cumsum(lengths).tolist()
    assert reader.ends().dtype == np.int64


@pytest.mark.parametrize("name", NAMES)
def test_write_gives_the_same_bytes_again(tmp_path, name):
    written = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        path = write(folder, name, DOCUMENTS)
        written.append([file.read_bytes() for file in (path, *side_files(path, name))])
    assert written[0] == written[1]


def test_ends_of_many_rows_are_those_of_a_slow_reader(tmp_path, monkeypatch):
    monkeypatch.setattr(olmo, "_BLOCK_BYTES", 1000)  # rows lie across blocks
    rng = random.Random(2)
    path = write(tmp_path, "olmo", [[1] * rng.choice([0, 1, 9, 1000]) for _ in range(5000)])
    assert opened(path, "olmo").ends().tolist() == slow_olmo_ends(path)


@pytest.mark.parametrize(("name", "dtype"), [("datatrove", "uint32"), ("olmo", "uint32")])
def test_open_without_side_files_takes_the_dtype_it_is_told_and_knows_no_ends(
    tmp_path, name, dtype
):
    path = write(tmp_path, name, DOCUMENTS, dtype)
    for file in side_files(path, name):
        file.unlink()
    reader = opened(path, name, dtype)
    assert reader.dtype == dtype and reader.num_tokens == 11 and reader.ends() is None
    assert opened(path, name).dtype == "uint16"


def test_open_of_datatrove_believes_the_metadata_rather_than_what_it_is_told(tmp_path):
    path = write(tmp_path, "datatrove", DOCUMENTS, "uint32")
    assert opened(path, "datatrove", "uint16").dtype == "uint32"


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        (b"gpt2\n11\n11.0 T", "uint16"),  # an older datatrove
        (b"Unknown Tokenizer|2|2\n11\n11.0 T", "uint16"),
        (b"gpt2|2\r\n11\r\n11.0 T\r\n", "uint16"),
        (b"\xff\xfe|2\n11", "uint16"),
    ],
)
def test_open_of_datatrove_reads_other_peoples_metadata(tmp_path, text, dtype):
    path = write(tmp_path, "datatrove", DOCUMENTS)
    side_files(path, "datatrove")[1].write_bytes(text)
    reader = opened(path, "datatrove")
    assert reader.dtype == dtype and reader.ends().tolist() == [4, 6, 11]


@pytest.mark.parametrize(
    "text",
    [
        "0,4\n4,6\n6,11\n",  # olmo-core's own writer
        "0,4\n4,6\n6,11",
        "0,4\r\n4,6\r\n6,11\r\n",
        "0,4,id,src,1\r\n4,6,id,src,2\r\n6,11,id,src,3\r\n",  # dolma's
        '0,4,"a ""b"", c",src,1\n4,6,a,b,c,d,e,f\n6,11,,,\n',
        "00,04,é\n04,006,\n6,11\n",
    ],
)
def test_ends_of_olmo_reads_other_peoples_rows(tmp_path, text):
    path = write(tmp_path, "olmo", DOCUMENTS)
    side_files(path, "olmo")[0].write_bytes(gzip.compress(text.encode()))
    assert opened(path, "olmo").ends().tolist() == [4, 6, 11] == slow_olmo_ends(path)


def idx(code: int, lengths, pointers, firsts, tail: bytes = b"") -> bytes:
    return b"".join(
        [
            IDX_HEAD,
            struct.pack("<BQQ", code, len(lengths), len(firsts)),
            struct.pack(f"<{len(lengths)}i", *lengths),
            struct.pack(f"<{len(pointers)}q", *pointers),
            struct.pack(f"<{len(firsts)}q", *firsts),
            tail,
        ]
    )


@pytest.mark.parametrize(
    ("code", "dtype"), [(1, "uint8"), (3, "int16"), (4, "int32"), (5, "int64"), (8, "uint16")]
)
def test_open_of_megatron_reads_every_dtype_that_tokens_have(tmp_path, code, dtype):
    path = tmp_path / "other.bin"
    path.write_bytes(np.arange(6, dtype=dtype).tobytes())
    size = np.dtype(dtype).itemsize
    path.with_suffix(".idx").write_bytes(idx(code, [2, 4], [0, 2 * size], [0, 1, 2]))
    reader = opened(path, "megatron", "uint32")
    assert reader.dtype == dtype and reader.tokens(0, 6).tolist() == list(range(6))
    assert reader.ends().tolist() == [2, 6]


@pytest.mark.parametrize(
    ("firsts", "tail", "ends"),
    [
        ([0, 1, 4], b"", [2, 11]),  # several sequences a document
        ([0, 0, 1, 4, 4], b"", [0, 2, 11, 11]),  # empty documents
        ([0, 4], b"", [11]),
        ([0, 1, 2, 3, 4], b"\0\1\0\1", [2, 5, 5, 11]),  # multimodal
    ],
)
def test_ends_of_megatron_are_those_of_documents(tmp_path, firsts, tail, ends):
    path = tmp_path / "other.bin"
    path.write_bytes(np.arange(11, dtype="<u2").tobytes())
    path.with_suffix(".idx").write_bytes(idx(8, [2, 3, 0, 6], [0, 4, 10, 10], firsts, tail))
    assert opened(path, "megatron").ends().tolist() == ends


@pytest.mark.parametrize("name", NAMES)
def test_find_lists_shards_in_order_with_their_splits(tmp_path, name):
    paths = [
        write(tmp_path, name, DOCUMENTS, split=split, index=index)
        for split, index in (("val", 0), ("train", 10), ("train", 2))
    ]
    (tmp_path / "tokenmill.json").write_text("{}")
    names = [os.fspath(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()]
    found = get_format(name).find(FolderFiles(os.fspath(tmp_path)), names)
    assert [(shard.name, shard.split) for shard in found] == [
        (os.fspath(paths[2].relative_to(tmp_path)), "train"),
        (os.fspath(paths[1].relative_to(tmp_path)), "train"),
        (os.fspath(paths[0].relative_to(tmp_path)), "val"),
    ]


def test_find_leaves_out_what_is_another_formats(tmp_path):
    np.save(tmp_path / "real.npy", np.arange(3))
    (tmp_path / "lone.bin").write_bytes(b"\0\0")
    (tmp_path / "lone.idx").write_bytes(b"MMIDIDX\0\0")
    (tmp_path / "other.bin").write_bytes(b"\0\0")
    (tmp_path / "other.idx").write_bytes(b"TNTIDX\0\0")
    (tmp_path / "x.ds.index").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.npy")
    os.mkfifo(tmp_path / "pipe.idx")
    (tmp_path / "pipe.bin").write_bytes(b"")
    names = [path.name for path in tmp_path.iterdir() if path.name != "lone.bin"]
    for name in NAMES:
        assert get_format(name).find(FolderFiles(os.fspath(tmp_path)), names) == []
    assert (
        get_format("megatron").find(FolderFiles(os.fspath(tmp_path)), ["lone.bin", "gone.idx"])
        == []
    )


def faults() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_minflt + used.ru_majflt


def test_open_of_a_large_shard_reads_nothing_but_heads_and_sizes(tmp_path):
    for name, size in (("a.bin", 1 << 40), ("a.ds", 1 << 40), ("a.npy", 1 << 40)):
        disk.write_sparse_file(os.fspath(tmp_path / name), size, {})
    count = 1 << 30
    head = IDX_HEAD + struct.pack("<BQQ", 8, count, count + 1)
    disk.write_sparse_file(os.fspath(tmp_path / "a.idx"), 42 + 20 * count, {0: head})
    disk.write_sparse_file(os.fspath(tmp_path / "a.ds.index"), 8 * count, {})
    (tmp_path / "a.csv.gz").write_bytes(b"not looked at")
    before = faults()
    for name, file in zip(NAMES, ("a.bin", "a.ds", "a.npy"), strict=True):
        assert opened(tmp_path / file, name).num_tokens == 1 << 39
    assert faults() - before < 10_000, "pages that were read or mapped"


# Hostile files


def slow_olmo_ends(path: Path) -> list[int]:
    """As olmo-core reads them, and each where the one before ended."""
    ends = [0]
    with gzip.open(path.with_suffix(".csv.gz"), "rt", encoding="latin-1", newline="\n") as file:
        for line in file:
            start, end, *_ = line.split(",")
            assert int(start) == ends[-1]
            ends.append(int(end))
    return ends[1:]


def slow_megatron_ends(path: Path) -> list[int]:
    data = path.with_suffix(".idx").read_bytes()
    num_sequences, num_entries = struct.unpack_from("<QQ", data, 18)
    lengths = struct.unpack_from(f"<{num_sequences}i", data, 34)
    firsts = struct.unpack_from(f"<{num_entries}q", data, 34 + 12 * num_sequences)
    return [sum(lengths[:first]) for first in firsts[1:]]


def slow_datatrove_ends(path: Path) -> list[int]:
    return [end for (end,) in struct.iter_unpack("<Q", Path(f"{path}.index").read_bytes())]


SLOW_ENDS: dict[str, Callable[[Path], list[int]]] = {
    "megatron": slow_megatron_ends,
    "datatrove": slow_datatrove_ends,
    "olmo": slow_olmo_ends,
}


def require_read_or_refused(path: Path, name: str) -> bool:
    """Whether it was read; either is fine, anything else is not."""
    try:
        reader = opened(path, name)
        ends = reader.ends()
    except IntegrityError as error:
        assert os.fspath(path.with_suffix("")) in error.message
        return False
    tokens = reader.tokens(0, reader.num_tokens)
    assert len(tokens) == reader.num_tokens
    assert tokens.nbytes == path.stat().st_size
    int(tokens.astype(np.int64).sum())  # every token can be touched
    if ends is not None:
        assert ends.tolist() == SLOW_ENDS[name](path)
        assert ends.tolist() == sorted(ends.tolist())
        assert (ends[-1] if len(ends) else 0) == reader.num_tokens
    return True


TOKENS = struct.pack("<11H", *range(11))
BIG = 1 << 60
HOSTILE_IDX = {
    "empty": b"",
    "short": IDX_HEAD,
    "magic": b"TNTIDX\0\0" + idx(8, [11], [0], [0, 1])[8:],
    "version": b"MMIDIDX\0\0" + struct.pack("<Q", 2) + idx(8, [11], [0], [0, 1])[17:],
    "code 0": idx(0, [11], [0], [0, 1]),
    "int8": idx(2, [22], [0], [0, 1]),
    "float64": idx(6, [2], [0], [0, 1]),
    "float32": idx(7, [5], [0], [0, 1]),
    "code 255": idx(255, [11], [0], [0, 1]),
    "odd size": idx(4, [5], [0], [0, 1]),
    "2^60 sequences": IDX_HEAD + struct.pack("<BQQ", 8, BIG, BIG + 1) + b"\0" * 100,
    "2^60 documents": IDX_HEAD + struct.pack("<BQQ", 8, 0, BIG) + b"\0" * 100,
    "2^64-1 of both": IDX_HEAD + struct.pack("<BQQ", 8, 2**64 - 1, 2**64 - 1) + b"\0" * 100,
    "no document indices": idx(8, [], [], []),
    "no documents": idx(8, [], [], [0]),
    "truncated": idx(8, [11], [0], [0, 1])[:-1],
    "longer": idx(8, [11], [0], [0, 1]) + b"\0\0",
    "past the end": idx(8, [11, 1], [0, 22], [0, 1, 2]),
    "too few": idx(8, [10], [0], [0, 1]),
    "negative length": idx(8, [12, -1], [0, 24], [0, 1, 2]),
    "huge lengths": idx(8, [2**31 - 1] * 50, [0] * 50, [0, 50]),
    "pointer past the end": idx(8, [11], [22], [0, 1]),
    "negative pointer": idx(8, [11], [-2], [0, 1]),
    "pointer at a half": idx(8, [5, 6], [0, 11], [0, 1, 2]),
    "overlap": idx(8, [5, 6], [0, 8], [0, 1, 2]),
    "descending": idx(8, [5, 6], [12, 0], [0, 1, 2]),
    "gap": idx(8, [5, 5], [0, 12], [0, 1, 2]),
    "documents descend": idx(8, [5, 6], [0, 10], [0, 2, 1, 2]),
    "documents past the end": idx(8, [5, 6], [0, 10], [0, 1, 3]),
    "documents before the start": idx(8, [5, 6], [0, 10], [-1, 1, 2]),
    "documents begin late": idx(8, [5, 6], [0, 10], [1, 2]),
    "documents end early": idx(8, [5, 6], [0, 10], [0, 1]),
    "documents far away": idx(8, [5, 6], [0, 10], [0, 2**63 - 1, -(2**63) + 1, 0, 2]),
}


@pytest.mark.parametrize("what", HOSTILE_IDX)
def test_open_of_megatron_refuses(tmp_path, what):
    path = tmp_path / "x.bin"
    path.write_bytes(TOKENS)
    path.with_suffix(".idx").write_bytes(HOSTILE_IDX[what])
    assert not require_read_or_refused(path, "megatron")


def ends_file(*ends: int) -> bytes:
    return struct.pack(f"<{len(ends)}Q", *ends)


HOSTILE_DS = {
    "half an entry": (ends_file(11)[:-1], None),
    "no entry": (b"", None),
    "past the end": (ends_file(5, 12), None),
    "2^60": (ends_file(5, BIG, 11), None),
    "2^64-1": (ends_file(5, 2**64 - 1, 11), None),
    "differences overflow": (ends_file(2, 2**63 + 1, 0, 11), None),
    "descending": (ends_file(5, 4, 11), None),
    "too few": (ends_file(5, 10), None),
    "width": (ends_file(11), b"gpt2|3\n11\n11.0 T"),
    "width of 4": (ends_file(11), b"gpt2|4\n11\n11.0 T"),
    "no width": (ends_file(11), b"gpt2|\n11\n11.0 T"),
    "long width": (ends_file(11), b"gpt2|" + b"2" * 100_000),
    "count": (ends_file(11), b"gpt2|2\n12\n12.0 T"),
    "count of 2^60": (ends_file(11), b"gpt2|2\n%d\n" % BIG),
    "long count": (ends_file(11), b"gpt2|2\n" + b"1" * 5000),
    "no count": (ends_file(11), b"gpt2|2"),
    "negative count": (ends_file(11), b"gpt2|2\n-11\n"),
    "other digits": (ends_file(11), "gpt2|2\n١١\n".encode()),
    "empty metadata": (ends_file(11), b""),
    "binary metadata": (ends_file(11), bytes(range(256))),
}


@pytest.mark.parametrize("what", HOSTILE_DS)
def test_open_of_datatrove_refuses(tmp_path, what):
    path = tmp_path / "x.ds"
    path.write_bytes(TOKENS)
    index, metadata = HOSTILE_DS[what]
    Path(f"{path}.index").write_bytes(index)
    if metadata is not None:
        Path(f"{path}.metadata").write_bytes(metadata)
    assert not require_read_or_refused(path, "datatrove")


HOSTILE_CSV = {
    "header": gzip.compress(b"start,end\n0,11\n", mtime=0),
    "no rows": gzip.compress(b"", mtime=0),
    "empty row": gzip.compress(b"0,5\n\n5,11\n", mtime=0),
    "one field": gzip.compress(b"0,5\n5\n", mtime=0),
    "words": gzip.compress(b"0,5\n5,eleven\n", mtime=0),
    "signs": gzip.compress(b"0,5\n+5,11\n", mtime=0),
    "negative": gzip.compress(b"0,5\n5,-11\n", mtime=0),
    "spaces": gzip.compress(b"0, 11\n", mtime=0),
    "quoted": gzip.compress(b'"0","11"\n', mtime=0),
    "fractions": gzip.compress(b"0,11.0\n", mtime=0),
    "semicolons": gzip.compress(b"0;11;a;b;1\n", mtime=0),
    "2^63": gzip.compress(b"0,9223372036854775808\n", mtime=0),
    "5000 digits": gzip.compress(b"0," + b"9" * 5000 + b"\n", mtime=0),
    "past the end": gzip.compress(b"0,12\n", mtime=0),
    "too few": gzip.compress(b"0,10\n", mtime=0),
    "overlap": gzip.compress(b"0,5\n4,11\n", mtime=0),
    "gap": gzip.compress(b"0,5\n6,11\n", mtime=0),
    "late": gzip.compress(b"1,11\n", mtime=0),
    "descending": gzip.compress(b"0,5\n5,4\n4,11\n", mtime=0),
    "newline in an id": gzip.compress(b'0,5,"a\nb",s,1\n5,11,c,s,2\n', mtime=0),
    "zeros": gzip.compress(bytes(1000)),
    "not gzip": b"0,11,a,b,1\n",
    "truncated": gzip.compress(b"0,11,a,b,1\n", mtime=0)[:-9],
    "without its checksum": gzip.compress(b"0,11,a,b,1\n", mtime=0)[:-8],
    "garbage after it": gzip.compress(b"0,11\n", mtime=0) + b"garbage",
    "a bomb of rows": gzip.compress(b"0,0\n" * (1 << 21)),
    "a bomb of one row": gzip.compress(b"0" * (64 << 20)),
    "a bomb in an id": gzip.compress(b"0,11," + b"a" * (64 << 20) + b"\n"),
}


@pytest.mark.parametrize("what", HOSTILE_CSV)
def test_ends_of_olmo_refuses(tmp_path, what):
    path = tmp_path / "x.npy"
    path.write_bytes(TOKENS)
    path.with_suffix(".csv.gz").write_bytes(HOSTILE_CSV[what])
    tracemalloc.start()
    try:
        assert not require_read_or_refused(path, "olmo")
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


def test_ends_of_olmo_refuses_more_text_than_the_tokens_can_need(tmp_path, monkeypatch):
    monkeypatch.setattr(olmo, "_ROW_BYTES", 4)
    path = tmp_path / "x.npy"
    path.write_bytes(TOKENS)
    rows = b"0,0," + b"a" * 1_000_000 + b"\n"
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(rows * 10 + b"0,11\n"))
    with pytest.raises(IntegrityError, match="unpacks to more"):
        opened(path, "olmo").ends()


def test_open_of_olmo_refuses_a_file_with_numpys_header(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3, dtype="<u2"))
    with pytest.raises(IntegrityError, match="NumPy's header"):
        opened(tmp_path / "x.npy", "olmo")


@pytest.mark.parametrize("name", NAMES)
def test_open_when_the_tokens_are_missing_or_cut_short_is_refused(tmp_path, name):
    path = write(tmp_path, name, DOCUMENTS)
    data = path.read_bytes()
    for keep in (0, 1, 2, 21):
        path.write_bytes(data[:keep])
        assert not require_read_or_refused(path, name)
    path.unlink()
    assert not require_read_or_refused(path, name)


def test_open_of_megatron_without_its_index_is_refused(tmp_path):
    path = write(tmp_path, "megatron", DOCUMENTS)
    path.with_suffix(".idx").unlink()
    assert not require_read_or_refused(path, "megatron")


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to three small damages."""
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0:
            data = data[:at]
        elif kind == 1:
            data = data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]
        elif kind == 2:
            data = data[:at] + data[at + rng.randrange(1, 9) :]
        elif kind == 3:
            data = data[:at] + rng.choice([b"\0", b"\1", b"\x7f", b"\xff"]) * 8 + data[at + 8 :]
        elif kind == 4:
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        else:
            other = rng.randrange(len(data) + 1)
            data = data[:at] + data[other : other + 8] + data[at + 8 :]
    return data


@pytest.mark.parametrize("name", NAMES)
def test_open_of_damaged_files_reads_or_refuses_them(tmp_path, name):
    rng = random.Random(7)
    path = write(tmp_path, name, [[rng.randrange(99)] * rng.randrange(9) for _ in range(30)])
    files = [path, *side_files(path, name)]
    whole = {file: file.read_bytes() for file in files}
    num_read = 0
    tracemalloc.start()
    try:
        for _ in range(600):
            file = rng.choice(files)
            file.write_bytes(mutated(whole[file], rng))
            num_read += require_read_or_refused(path, name)
            file.write_bytes(whole[file])
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert 0 < num_read < 600
    assert require_read_or_refused(path, name)


def test_ends_of_damaged_rows_reads_or_refuses_them(tmp_path):
    rng = random.Random(8)
    path = write(tmp_path, "olmo", [[1] * rng.randrange(9) for _ in range(12)])
    [csv] = side_files(path, "olmo")
    rows = gzip.decompress(csv.read_bytes())
    num_read = 0
    for _ in range(2000):
        damaged = bytearray(rows)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.randrange(3)] = rng.choice(
                [b"", b",", b"\n", b"\r\n", b"0", b"9", b'"', b"-", b" ", b"\0", b"\xff"]
            )
        csv.write_bytes(gzip.compress(bytes(damaged), 1))
        num_read += require_read_or_refused(path, "olmo")
    assert 0 < num_read < 2000
