"""`tokenmill.open`: every format, ours and strangers', against documents that are a list."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import pickle
import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill
from corpora import made_texts
from oracle import ids
from tokenmill.dataset import document_bounds, index_cache, open_shards
from tokenmill.dataset.index_cache import IndexCache
from tokenmill.dataset.manifest import manifest_sha256_of
from tokenmill.dataset.stream import Stream, StreamShard
from tokenmill.errors import ConfigError, ConflictError, IntegrityError
from tokenmill.formats import NAMES
from tokenmill.formats.llmc import LlmcFormat

EOT = 50256
TEXTS = made_texts(60)
IDS = ids(TEXTS)


def flat_of(lists: list[list[int]]) -> list[int]:
    return [token for tokens in lists for token in tokens]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> dict[str, str]:
    """A dataset in each format, as its own trainer expects it."""
    folder = tmp_path_factory.mktemp("open")
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    made = {}
    for name in NAMES:
        options = {"shard_tokens": 1000} if name in ("npy", "llmc") else {}
        options |= {"seq_len": "document"} if name == "mds" else {}
        made[name] = str(folder / name)
        tokenmill.prepare(corpus, made[name], format=name, runner="inline", **options)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_dataset_when_opened_then_tokens_documents_and_texts_are_those_that_went_in(prepared, name):
    found: list[list[int]] = []
    with tokenmill.open(prepared[name]) as data:
        assert data.manifest is not None and name in repr(data) and "gpt2" in repr(data)
        assert data.num_tokens == data.manifest.num_tokens
        for split in data.manifest.one_stream or data.splits:
            part = data[split]
            documents = [tokens.tolist() for tokens in part]
            assert documents == [part.document(i).tolist() for i in range(len(part))]
            flat = flat_of(documents)
            assert flat == part.tokens().tolist() and part.num_tokens == len(flat)
            assert flat == np.concatenate(list(part.blocks(77))).tolist()
            assert (
                part.tokens(5, 12).tolist() == flat[5:12] and not part.tokens(3, 9).flags.writeable
            )
            assert part.to_arrow().read_all()["input_ids"].to_pylist() == documents
            places = random.Random(0).sample(range(len(flat)), 20)
            for place in places:
                start, stop = part.span(part.document_at(place))
                assert start <= place < stop
            with pytest.raises(IndexError, match="there is no number"):
                part.document(len(part))
            assert np.array_equal(part[-1], documents[-1])
            found += documents
            if data.manifest.one_stream is None:
                assert {part.text(i) for i in range(len(part))} <= set(TEXTS)
    if data.manifest.one_stream is None:  # otherwise a document is cut between the splits
        assert sorted(found) == sorted(IDS)
    else:
        assert flat_of(found) == flat_of(ids(TEXTS, data.manifest.identity["options"]["eot"]))


def test_tokens_of_a_mapped_shard_are_views_that_outlive_the_dataset(prepared):
    with tokenmill.open(prepared["nanogpt"]) as data:
        view = data["train"].document(3)
        expected = view.tolist()
        assert view.base is not None and type(view) is np.ndarray
    assert view.tolist() == expected
    with pytest.raises(ConfigError, match="was closed"):
        data["train"].document(3)


def test_shards_that_are_too_many_to_be_open_at_once_are_opened_again(prepared, monkeypatch):
    monkeypatch.setattr(open_shards, "MAX_OPEN", 2)
    part = tokenmill.open(prepared["npy"])["train"]
    expected = part.tokens().tolist()
    assert len(part.stream.shards) > 5
    for start in random.Random(0).sample(range(len(expected) - 1500), 30):
        assert part.tokens(start, start + 1500).tolist() == expected[start : start + 1500]
        assert len(part.shards._open) <= 2


def test_datasets_gets_the_documents_lazily(prepared):
    pytest.importorskip("datasets")
    part = tokenmill.open(prepared["megatron"])["train"]
    rows = part.to_datasets().take(3)
    assert [row["input_ids"].tolist() for row in rows] == IDS[:3]


def test_mistakes_when_opening_say_what_to_type(prepared, tmp_path):
    data = tokenmill.open(prepared["nanogpt"])
    with pytest.raises(ConfigError, match=r"(?s)unknown split .* 'trian'.*did you mean 'train'"):
        data["trian"]
    with pytest.raises(ConfigError, match="splits by name, and 0 is none") as caught:
        data[0]
    assert caught.value.hint == "documents are in a split: data['train'][0]"
    with pytest.raises(ConfigError, match="splits by name"):
        data[0:2]
    with pytest.raises(ConfigError, match="is not a folder"):
        tokenmill.open(tmp_path / "nope")
    with pytest.raises(ConfigError, match="not a dataset on the Hub"):
        tokenmill.open("hf://data")
    with pytest.raises(TypeError, match="did you mean 'format'"):
        tokenmill.open(tmp_path, fromat="npy")
    with pytest.raises(ConfigError, match=r"holds 9 datasets: datatrove, .* and 1 more") as caught:
        tokenmill.open(Path(prepared["npy"]).parent)
    assert caught.value.hint == f"name one of them: {prepared['datatrove']}"
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "train.bin")
    foreign = tokenmill.open(tmp_path, dtype="uint16")
    assert "no manifest" in repr(foreign) and foreign["train"].tokens(1, 3).tolist() == [1, 2]
    with pytest.raises(ConfigError, match="name the tokenizer"):
        len(foreign["train"])
    with pytest.raises(ConfigError, match="no text without the tokenizer"):
        foreign["train"].text(0)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32", ">u2", "auto", "nonsense"])
def test_open_when_the_dtype_is_not_one_of_token_files_then_it_is_refused(dtype, tmp_path):
    np.arange(96, dtype=np.uint16).tofile(tmp_path / "train.bin")
    said = f"unknown dtype '{dtype}'; known: uint16, uint32"
    for read in (tokenmill.open, tokenmill.verify):
        with pytest.raises(ConfigError, match=said):
            read(tmp_path, dtype=dtype)
    with pytest.raises(ConfigError, match=said):
        tokenmill.convert(
            tmp_path, tmp_path / "out", format="llmc", tokenizer="gpt2", from_dtype=dtype
        )


def test_file_that_is_cut_off_while_it_is_open_is_an_error_and_not_a_dead_process(
    prepared, tmp_path, monkeypatch
):
    (tmp_path / "train.bin").write_bytes(Path(prepared["nanogpt"], "train.bin").read_bytes())
    part = tokenmill.open(tmp_path, tokenizer="gpt2", dtype="uint16")["train"]
    part.tokens(0, 10)
    os.truncate(tmp_path / "train.bin", 64)
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)  # a second later
    with pytest.raises(IntegrityError, match="was changed while it was read"):
        part.tokens(1000, 1010)


def test_open_when_the_dataset_is_replaced_then_no_token_of_the_new_one_is_read(tmp_path):
    """Shards of npy are equally large, and are opened when they are needed."""
    for name in ("a", "b"):
        rows = [json.dumps({"text": f"{name} {n} " * 20}) for n in range(200)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    options = {"format": "npy", "shard_tokens": 2000, "num_proc": 1, "val": "none"}
    tokenmill.prepare(tmp_path / "a.jsonl", tmp_path / "out", **options)
    data = tokenmill.open(tmp_path / "out")
    copied = pickle.dumps(data)
    assert data["train"].text(0).startswith("a 0")
    tokenmill.prepare(tmp_path / "b.jsonl", tmp_path / "out", overwrite=True, **options)
    with pytest.raises(IntegrityError, match="was changed while it was read"):
        data["train"].text(-1)
    with pytest.raises(ConflictError, match="was replaced since it was opened"):
        pickle.loads(copied)  # noqa: S301


def joined(documents: list[list[int]], eot: str) -> list[list[int]]:
    before, after = eot in ("prepend", "both"), eot in ("append", "both")
    return [[EOT] * before + document + [EOT] * after for document in documents]


@settings(max_examples=60, deadline=None)
@given(
    documents=st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=20),
    eot=st.sampled_from(["append", "prepend", "both"]),
    cuts=st.lists(st.integers(0, 120), max_size=4),
    is_cached=st.booleans(),
)
def test_strangers_shards_cut_anywhere_when_opened_then_documents_are_the_list(
    tmp_path_factory, documents, eot, cuts, is_cached
):
    """Documents that span shards, shards without an end, empty documents, units of 5 tokens."""
    if eot == "both" and not documents[0]:
        documents[0] = [1]  # otherwise two EOT ids at the start could also end a cut document
    expected = joined(documents, eot)
    tokens = np.array(flat_of(expected), np.uint16)
    folder = tmp_path_factory.mktemp("foreign")
    bounds = sorted({0, len(tokens), *(cut for cut in cuts if cut < len(tokens))})
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        header = LlmcFormat().header(stop - start, "uint16")
        name = f"fineweb_train_{number:06d}.bin"
        (folder / name).write_bytes(header + tokens[start:stop].tobytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_bounds, "UNIT_TOKENS", 5)
        patch.setattr(document_bounds, "MIN_CACHED_TOKENS", 1)
        patch.setattr(index_cache, "cache_folder", lambda: str(folder / "cache"))
        for _ in range(1 + is_cached):
            part = tokenmill.open(folder, tokenizer="gpt2", eot=eot)["train"]
            assert [part.document(i).tolist() for i in range(len(part))] == expected
            ends = np.cumsum([len(document) for document in expected])
            numbers = part.bounds.numbers_at(np.arange(len(tokens)))
            assert (
                numbers.tolist() == np.searchsorted(ends, np.arange(len(tokens)), "right").tolist()
            )
            for start, stop in ((0, len(tokens)), (3, 9), (len(tokens) - 1, len(tokens))):
                own = ends if eot != "prepend" else ends[:-1]
                assert part.bounds.ends_between(start, stop).tolist() == [
                    end for end in own.tolist() if start < end <= stop
                ]


def test_index_is_found_again_and_made_again_when_the_files_change(tmp_path, monkeypatch):
    monkeypatch.setattr(document_bounds, "MIN_CACHED_TOKENS", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scans = []
    found = document_bounds.DocumentBounds._found
    monkeypatch.setattr(
        document_bounds.DocumentBounds, "_found", lambda *a: scans.append(1) or found(*a)
    )
    folder = tmp_path / "data"
    folder.mkdir()

    def lengths(tokens: list[int]) -> list[int]:
        np.array(tokens, np.uint16).tofile(folder / "train.bin")
        os.utime(folder / "train.bin", ns=(0, len(scans)))
        part = tokenmill.open(folder, tokenizer="gpt2", dtype="uint16", eot="append")["train"]
        return [len(tokens) for tokens in map(part.document, range(len(part)))]

    def again() -> list[int]:
        part = tokenmill.open(folder, tokenizer="gpt2", dtype="uint16", eot="append")["train"]
        return [len(tokens) for tokens in map(part.document, range(len(part)))]

    assert lengths([1, EOT, 2, 3, EOT]) == [2, 3] == again() and len(scans) == 1
    [entry] = (tmp_path / "cache" / "tokenmill" / "index").iterdir()
    entry.write_bytes(entry.read_bytes()[:-3])  # half an entry is none
    assert again() == [2, 3] and len(scans) == 2
    assert lengths([1, 2, 3, EOT, EOT]) == [4, 1] and len(scans) == 3
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert again() == [4, 1]


def test_cache_is_bounded_and_the_oldest_entries_go_first(tmp_path):
    cache = IndexCache(str(tmp_path), max_bytes=250)
    for number in range(5):
        cache.put(number, np.arange(10) + number)
        os.utime(cache._entries._path(number), ns=(number, number))
    assert [cache.get(number) is not None for number in range(5)] == [False] * 3 + [True] * 2
    assert cache.get(4).tolist() == list(range(4, 14)) and cache.get("other") is None


def test_manifest_that_miscounts_documents_is_found_out(prepared, tmp_path):
    part = tokenmill.open(prepared["nanogpt"])["train"]
    tokens = np.array(part.tokens())
    tokens[np.flatnonzero(tokens == EOT)[2]] = 5
    for name in ("train.bin", "val.bin", "tokenmill.json"):
        (tmp_path / name).write_bytes(Path(prepared["nanogpt"], name).read_bytes())
    tokens.tofile(tmp_path / "train.bin")
    with pytest.raises(IntegrityError, match="EOT ids, but should hold"):
        tokenmill.open(tmp_path)["train"].document(0)


def test_sha256_of_a_manifest_made_in_pieces_is_that_of_the_whole(prepared):
    plain = json.loads(Path(prepared["megatron"], "tokenmill.json").read_bytes())
    for one in (plain, {**plain, "inputs": [], "splits": {}}, {"b": (1, "ü"), "a": None}, {}):
        rest = {name: value for name, value in one.items() if name != "sha256"}
        whole = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
        assert manifest_sha256_of(one) == whole
    assert plain["sha256"] == manifest_sha256_of(plain)


def test_stream_read_by_several_threads_gives_each_its_own_shard():
    class Numbered:
        num_tokens = 1

        def __init__(self, number: int) -> None:
            self._number = number

        def __del__(self) -> None:
            time.sleep(0)  # another thread's turn, as when a map is closed

        def tokens(self, start: int, stop: int) -> np.ndarray:
            return np.full(stop - start, self._number, np.uint16)

    shards = [StreamShard(f"{n}.bin", functools.partial(Numbered, n), 1) for n in range(4)]
    stream = Stream("train", shards, has_boundaries=False, eot=None, eot_id=None)
    wrong = []

    def read(number: int) -> None:
        for _ in range(300):
            if stream.tokens(number, number + 1)[0] != number:
                wrong.append(number)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
