"""The whole mill, end to end, against the oracle: bytes on disk, not our own readers."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

import oracle
import tokenmill
from corpora import SEPARATOR, made_texts, write_corpus
from tokenmill.errors import ConfigError, ConflictError, InputError, IntegrityError

SMALL = 20_000  # slices of 20 kB, so that a small corpus has many

KINDS = (
    "parquet",
    "arrow",
    "feather",
    "jsonl",
    "jsonl.gz",
    "jsonl.zst",
    "txt",
    "txt.gz",
    "txt.zst",
)


def options_for(kind: str) -> dict[str, str]:
    return {"separator": SEPARATOR} if kind.startswith("txt") else {}


@pytest.mark.parametrize("kind", KINDS)
def test_prepare_any_input_kind_gives_the_oracles_bytes(kind, tmp_path, texts, read_files):
    source = write_corpus(kind, tmp_path, texts)
    tokenmill.prepare(
        source, tmp_path / "out", val="none", num_proc=1, slice_bytes=SMALL, **options_for(kind)
    )
    assert read_files(tmp_path / "out") == {"train.bin": oracle.stream(oracle.ids(texts))}


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl", "txt"])
def test_prepare_any_worker_count_gives_the_same_bytes_and_manifest(kind, tmp_path, texts):
    source = write_corpus(kind, tmp_path, texts)
    hashes = set()
    for num_proc in (1, 2, 4):
        out = tmp_path / f"out{num_proc}"
        tokenmill.prepare(
            source, out, val_fraction=0.1, num_proc=num_proc, slice_bytes=SMALL, **options_for(kind)
        )
        files = sorted(out.iterdir())
        assert [f.name for f in files] == ["tokenmill.json", "train.bin", "val.bin"]
        hashes.add(tuple(hashlib.sha256(f.read_bytes()).hexdigest() for f in files))
    assert len(hashes) == 1


@pytest.mark.parametrize("eot", ["append", "prepend", "both", "none"])
def test_prepare_eot_policy_puts_eot_where_it_says(eot, tmp_path, corpus, texts, read_files):
    tokenmill.prepare(corpus, tmp_path / "out", val="none", eot=eot, num_proc=1)
    assert read_files(tmp_path / "out") == {"train.bin": oracle.stream(oracle.ids(texts, eot))}


@pytest.mark.parametrize("shard_tokens", [1000, 7919, 10**7])
def test_prepare_npy_defaults_equal_build_nanogpts_files(
    shard_tokens, tmp_path, corpus, texts, read_files
):
    tokenmill.prepare(
        corpus,
        tmp_path / "out",
        format="npy",
        shard_tokens=shard_tokens,
        num_proc=1,
        slice_bytes=SMALL,
    )
    documents = oracle.ids(texts, "prepend")
    assert read_files(tmp_path / "out") == oracle.npy_files(documents, shard_tokens, "edufineweb")


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base"])
@pytest.mark.parametrize("shard_tokens", [1000, 10**7])
def test_prepare_llmc_defaults_equal_llmcs_files(
    name, shard_tokens, tmp_path, corpus, texts, read_files
):
    tokenmill.prepare(
        corpus,
        tmp_path / "out",
        format="llmc",
        tokenizer=name,
        shard_tokens=shard_tokens,
        num_proc=1,
        slice_bytes=SMALL,
    )
    documents = oracle.ids(texts, "prepend", name)
    expected = oracle.llmc_files(documents, shard_tokens, "fineweb", wide=name != "gpt2")
    assert read_files(tmp_path / "out") == expected


def test_prepare_document_longer_than_a_shard_is_cut_through(tmp_path, read_files):
    texts = ["short", "word " * 5000, "short"]
    source = write_corpus("jsonl", tmp_path, texts)
    tokenmill.prepare(source, tmp_path / "out", format="npy", shard_tokens=1000, num_proc=1)
    documents = oracle.ids(texts, "prepend")
    assert read_files(tmp_path / "out") == oracle.npy_files(documents, 1000, "edufineweb")


def test_prepare_shard_that_ends_on_a_document_has_no_empty_shard_after_it(tmp_path, read_files):
    texts = ["a", "b", "c", "d"]  # with EOT, two tokens each
    source = write_corpus("jsonl", tmp_path, texts)
    tokenmill.prepare(source, tmp_path / "out", format="llmc", shard_tokens=4, num_proc=1)
    files = read_files(tmp_path / "out")
    assert sorted(files) == ["fineweb_train_000001.bin", "fineweb_val_000000.bin"]
    assert all(len(data) == 1024 + 4 * 2 for data in files.values())


def test_prepare_empty_documents_in_npy_become_a_lone_eot_as_the_script_does(tmp_path, read_files):
    texts = ["one", "", "three"]
    source = write_corpus("jsonl", tmp_path, texts)
    given = {"format": "npy", "num_proc": 1, "shard_tokens": 10**8}
    manifest = tokenmill.prepare(source, tmp_path / "out", **given)
    documents = oracle.ids(texts, "prepend")
    assert read_files(tmp_path / "out") == oracle.npy_files(documents, 10**8, "edufineweb")
    assert (manifest.counts.num_written, manifest.counts.num_empty) == (3, 0)


def test_prepare_null_and_empty_rows_are_counted_and_left_out(tmp_path, read_files):
    source = write_corpus("parquet", tmp_path, ["one", None, "", "two", None])
    manifest = tokenmill.prepare(source, tmp_path / "out", val="none", num_proc=1)
    counts = manifest.counts
    assert (counts.num_rows, counts.num_written, counts.num_empty, counts.num_null) == (5, 2, 1, 2)
    assert read_files(tmp_path / "out")["train.bin"] == oracle.stream(oracle.ids(["one", "two"]))


def test_prepare_special_token_in_text_stays_ordinary_text(tmp_path, read_files):
    texts = ["before <|endoftext|> after", "<|endoftext|>"]
    source = write_corpus("jsonl", tmp_path, texts)
    tokenmill.prepare(source, tmp_path / "out", val="none", num_proc=1)
    ids = np.frombuffer(read_files(tmp_path / "out")["train.bin"], "<u2")
    assert np.count_nonzero(ids == 50256) == 2


def test_val_fraction_equal_texts_fall_on_the_same_side(tmp_path, read_files):
    texts = made_texts(60) * 3
    source = write_corpus("jsonl", tmp_path, texts)
    tokenmill.prepare(source, tmp_path / "out", val_fraction=0.3, num_proc=1, slice_bytes=SMALL)
    files = read_files(tmp_path / "out")
    sides = {name: documents_of(files[name]) for name in ("train.bin", "val.bin")}
    assert sides["val.bin"] and sides["train.bin"]
    assert not set(sides["train.bin"]) & set(sides["val.bin"])
    in_order = [tuple(d) for d in oracle.ids(texts)]
    for side in sides.values():
        assert side == [document for document in in_order if document in set(side)]


def test_val_fraction_another_seed_holds_out_other_documents(tmp_path, corpus, read_files):
    val = []
    for seed in (1, 2):
        out = tmp_path / f"out{seed}"
        tokenmill.prepare(corpus, out, val_fraction=0.2, seed=seed, num_proc=1)
        val.append(read_files(out)["val.bin"])
    assert val[0] != val[1]


def documents_of(data: bytes) -> list[tuple[int, ...]]:
    documents: list[tuple[int, ...]] = []
    current: list[int] = []
    for token in np.frombuffer(data, "<u2").tolist():
        current.append(token)
        if token == 50256:
            documents.append(tuple(current))
            current = []
    assert not current
    return documents


@pytest.mark.parametrize("num_proc", [1, 2])
def test_shuffle_is_a_permutation_of_documents_and_repeats_for_a_seed(
    num_proc, tmp_path, corpus, texts, read_files, monkeypatch
):
    monkeypatch.setattr("tokenmill.encode.buckets.BUCKET_BYTES", 10_000)  # several buckets
    runs = {}
    for seed in (0, 0, 7):
        out = tmp_path / f"out{len(os.listdir(tmp_path))}"
        options = {"val": "none", "shuffle": True, "seed": seed}
        tokenmill.prepare(corpus, out, num_proc=num_proc, slice_bytes=SMALL, **options)
        data = read_files(out)["train.bin"]
        assert runs.setdefault(seed, data) == data
    in_order = [tuple(document) for document in oracle.ids(texts)]
    for data in runs.values():
        assert documents_of(data) != in_order
        assert sorted(documents_of(data)) == sorted(in_order)
    assert runs[0] != runs[7]


def test_shuffle_mixes_documents_from_everywhere(tmp_path, read_files, monkeypatch):
    monkeypatch.setattr("tokenmill.encode.buckets.BUCKET_BYTES", 500)
    texts = [f"{number}" for number in range(2000)]
    source = write_corpus("jsonl", tmp_path, texts)
    tokenmill.prepare(
        source, tmp_path / "out", val="none", shuffle=True, num_proc=1, slice_bytes=2000
    )
    decode = oracle.reference().decode
    order = [
        int(decode(list(d[:-1]))) for d in documents_of(read_files(tmp_path / "out")["train.bin"])
    ]
    displacement = np.abs(np.array(order) - np.arange(2000)).mean()
    assert 550 < displacement < 780  # a uniform permutation of n moves a document by n/3


def test_limit_docs_takes_the_first_rows_of_the_corpus(tmp_path, texts, read_files):
    for kind in ("parquet", "arrow", "jsonl", "jsonl.gz", "txt"):
        source = write_corpus(kind, tmp_path, texts)
        out = tmp_path / f"out-{kind}"
        options = {"limit_docs": 123, "slice_bytes": SMALL, **options_for(kind)}
        manifest = tokenmill.prepare(source, out, val="none", num_proc=1, **options)
        assert manifest.counts.num_rows == 123
        assert read_files(out)["train.bin"] == oracle.stream(oracle.ids(texts[:123]))


def test_prepare_many_files_are_taken_in_order_of_their_names_bytes(tmp_path, read_files):
    names = ["b.txt", "a.txt", "B.txt", "ä.txt", "a/z.txt", "a-1.txt"]
    for name in names:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    tokenmill.prepare(tmp_path / "in", tmp_path / "out", val="none", num_proc=1)
    expected = sorted(names, key=lambda name: os.fsencode(name))
    assert read_files(tmp_path / "out")["train.bin"] == oracle.stream(oracle.ids(expected))


def test_prepare_again_says_complete_and_touches_nothing(tmp_path, corpus):
    out = tmp_path / "out"
    first = tokenmill.prepare(corpus, out, num_proc=1)
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert tokenmill.prepare(corpus, out, num_proc=2) == first
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"eot": "prepend"}, "options.eot: was 'append', now 'prepend'"),
        ({"tokenizer": "cl100k_base"}, "encoding.name: was 'gpt2', now 'cl100k_base'"),
        ({"seed": 5}, "options.seed: was 0, now 5"),
        ({"text_column": "other"}, "options.text_column: was 'text', now 'other'"),
    ],
)
def test_prepare_finished_with_another_config_is_a_conflict_with_a_difference(
    change, said, tmp_path, corpus, read_files
):
    out = tmp_path / "out"
    tokenmill.prepare(corpus, out, num_proc=1)
    before = read_files(out)
    with pytest.raises(ConflictError) as caught:
        tokenmill.prepare(corpus, out, num_proc=1, **change)
    assert said in caught.value.message
    assert read_files(out) == before


def test_prepare_finished_with_changed_inputs_is_a_conflict(tmp_path, texts):
    source = write_corpus("jsonl", tmp_path / "in", texts)
    tokenmill.prepare(tmp_path / "in", tmp_path / "out", num_proc=1)
    with open(source, "a") as file:
        file.write('{"text": "one more"}\n')
    with pytest.raises(ConflictError, match=r"input changed: .*corpus\.jsonl"):
        tokenmill.prepare(tmp_path / "in", tmp_path / "out", num_proc=1)
    write_corpus("jsonl", tmp_path / "in" / "more", texts)
    with pytest.raises(ConflictError, match="input added"):
        tokenmill.prepare(tmp_path / "in", tmp_path / "out", num_proc=1)


def test_overwrite_starts_anew_and_leaves_no_shard_of_the_old_run(
    tmp_path, corpus, texts, read_files
):
    out = tmp_path / "out"
    tokenmill.prepare(corpus, out, format="npy", shard_tokens=1000, num_proc=1)
    tokenmill.prepare(corpus, out, format="npy", shard_tokens=9000, num_proc=1, overwrite=True)
    documents = oracle.ids(texts, "prepend")
    assert read_files(out) == oracle.npy_files(documents, 9000, "edufineweb")


@pytest.mark.parametrize("overwrite", [False, True])
def test_prepare_when_another_recipes_meta_pkl_is_there_then_refused(tmp_path, overwrite):
    """nanoGPT's train.py would make a model of its few characters: index out of range."""
    out = tmp_path / "shakespeare_char"
    out.mkdir()
    (out / "meta.pkl").write_bytes(b"of 65 characters")
    corpus = write_corpus("jsonl", tmp_path, made_texts(20))
    with pytest.raises(ConflictError, match=r"holds a meta\.pkl of other tokens") as caught:
        tokenmill.prepare(corpus, out, runner="inline", overwrite=overwrite)
    assert "remove it" in caught.value.hint and os.listdir(out) == ["meta.pkl"]
    tokenmill.prepare(corpus, out, runner="inline", format="llmc")


def test_prepare_into_a_folder_with_foreign_shards_is_a_conflict(tmp_path, corpus):
    out = tmp_path / "out"
    out.mkdir()
    (out / "train.bin").write_bytes(b"precious")
    with pytest.raises(ConflictError, match=r"holds other files: train\.bin"):
        tokenmill.prepare(corpus, out, num_proc=1)
    assert [path.name for path in out.iterdir()] == ["train.bin"]
    assert (out / "train.bin").read_bytes() == b"precious"


def test_prepare_beside_other_peoples_files_leaves_them_alone(tmp_path, corpus):
    out = tmp_path / "out"
    out.mkdir()
    (out / "prepare.py").write_text("print()")
    tokenmill.prepare(corpus, out, val="none", num_proc=1)
    assert sorted(p.name for p in out.iterdir()) == ["prepare.py", "tokenmill.json", "train.bin"]


def test_manifest_names_every_file_with_its_size_and_hash(tmp_path, corpus):
    out = tmp_path / "out"
    manifest = tokenmill.prepare(corpus, out, format="llmc", shard_tokens=5000, num_proc=1)
    assert {f.name for f in manifest.files} == {p.name for p in out.iterdir()} - {"tokenmill.json"}
    for file in manifest.files:
        data = (out / file.name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file.num_bytes, file.sha256)
    assert manifest.num_tokens == sum(file.num_tokens for file in manifest.files)
    assert manifest == tokenmill.Manifest.load(os.fspath(out))


def test_manifest_load_of_an_unfinished_folder_says_it_is_no_dataset(tmp_path):
    with pytest.raises(IntegrityError, match="not a finished dataset"):
        tokenmill.Manifest.load(os.fspath(tmp_path))


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "a/b/c", "a/..", "..", "a\\b", "", "a\0b"]
)
def test_manifest_load_refuses_names_that_lead_out_of_the_folder(name, tmp_path, corpus):
    tokenmill.prepare(corpus, tmp_path / "out", num_proc=1)
    path = tmp_path / "out" / "tokenmill.json"
    plain = json.loads(path.read_text())
    plain["files"][0]["name"] = name
    path.write_text(json.dumps(plain))
    with pytest.raises(IntegrityError, match="leads out of the folder"):
        tokenmill.Manifest.load(os.fspath(tmp_path / "out"))


def test_uint16_that_cannot_hold_the_vocabulary_is_refused_before_work(tmp_path, corpus):
    with pytest.raises(ConfigError) as caught:
        tokenmill.prepare(corpus, tmp_path / "out", tokenizer="cl100k_base", dtype="uint16")
    assert "--dtype uint32" in caught.value.hint and "np.uint32" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_wide_vocabulary_in_nanogpt_is_written_as_uint32(tmp_path, corpus, texts, read_files):
    tokenmill.prepare(corpus, tmp_path / "out", tokenizer="cl100k_base", val="none", num_proc=1)
    expected = oracle.stream(oracle.ids(texts, "append", "cl100k_base"), "<u4")
    assert read_files(tmp_path / "out") == {"train.bin": expected}


def test_llmc_shard_beyond_two_gigabytes_is_refused_before_work(tmp_path, corpus):
    with pytest.raises(ConfigError, match="less than 2 GiB"):
        tokenmill.prepare(corpus, tmp_path / "out", format="llmc", shard_tokens=1_100_000_000)
    assert not (tmp_path / "out").exists()


def test_a_failing_plan_leaves_no_output_folder_behind(tmp_path, corpus):
    with pytest.raises(ConfigError, match="nope"):
        tokenmill.prepare(corpus, tmp_path / "out", text_column="nope", num_proc=1)
    assert not (tmp_path / "out").exists()


def test_too_many_bad_rows_stop_the_run_and_a_higher_bound_lets_it_finish(tmp_path, texts):
    path = Path(write_corpus("jsonl", tmp_path, texts))
    path.write_text(path.read_text() + "{broken\n")
    out = tmp_path / "out"
    with pytest.raises(InputError, match=r"1 of 401 rows is bad.*line 401"):
        tokenmill.prepare(path, out, val="none", num_proc=1)
    assert not (out / "tokenmill.json").exists() and not (out / "train.bin").exists()
    manifest = tokenmill.prepare(path, out, val="none", num_proc=1, max_bad_fraction=0.01)
    assert manifest.counts.num_quarantined == 1
    [line] = (out / "tokenmill-quarantine.jsonl").read_text().splitlines()
    assert json.loads(line)["place"] == "line 401"
    assert (out / "train.bin").read_bytes() == oracle.stream(oracle.ids(texts))


def test_overwrite_works_though_the_manifest_is_broken(tmp_path, corpus, texts, read_files):
    out = tmp_path / "out"
    tokenmill.prepare(corpus, out, val="none", num_proc=1)
    (out / "tokenmill.json").write_text("{broken")
    with pytest.raises(IntegrityError, match="not a manifest"):
        tokenmill.prepare(corpus, out, val="none", num_proc=1)
    tokenmill.prepare(corpus, out, val="none", num_proc=1, overwrite=True)
    assert read_files(out) == {"train.bin": oracle.stream(oracle.ids(texts))}


def test_overwrite_that_cannot_be_planned_removes_nothing(tmp_path, corpus, read_files):
    out = tmp_path / "out"
    tokenmill.prepare(corpus, out, num_proc=1)
    before = read_files(out)
    with pytest.raises(ConfigError, match="nope"):
        tokenmill.prepare(corpus, out, text_column="nope", num_proc=1, overwrite=True)
    assert read_files(out) == before and tokenmill.Manifest.load(os.fspath(out))


def test_a_file_named_several_ways_is_read_once(tmp_path, corpus, texts, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink(corpus, tmp_path / "link.parquet")
    sources = [corpus, "corpus/corpus.parquet", "./corpus/../corpus/corpus.parquet", "link.parquet"]
    manifest = tokenmill.prepare(sources, tmp_path / "out", num_proc=1)
    assert manifest.counts.num_rows == len(texts)


def test_output_within_the_source_folder_is_not_taken_for_input(tmp_path, texts):
    path = Path(write_corpus("jsonl", tmp_path / "in", texts))
    path.write_text(path.read_text() + "{broken\n")
    options = {"val": "none", "num_proc": 1, "max_bad_fraction": 0.1}
    first = tokenmill.prepare(tmp_path / "in", tmp_path / "in" / "out", **options)
    assert tokenmill.prepare(tmp_path / "in", tmp_path / "in" / "out", **options) == first


def test_nothing_to_write_leaves_nothing_that_would_be_resumed(tmp_path, corpus):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(InputError, match="nothing to write"):
        tokenmill.prepare(tmp_path / "empty.txt", tmp_path / "out", num_proc=1)
    assert not (tmp_path / "out").exists()
    tokenmill.prepare(corpus, tmp_path / "out", num_proc=1)


def test_many_bad_lines_are_placed_in_one_pass(tmp_path):
    lines = [f'{{"text": "row {n}"}}' if n % 10 else "{bad" for n in range(1, 30_001)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    manifest = tokenmill.prepare(
        tmp_path / "a.jsonl", tmp_path / "out", num_proc=1, max_bad_fraction=0.2, slice_bytes=SMALL
    )
    assert manifest.counts.num_quarantined == 3000
    listed = (tmp_path / "out" / "tokenmill-quarantine.jsonl").read_text().splitlines()
    places = [json.loads(line)["place"] for line in listed]
    assert places == [f"line {n}" for n in range(10, 30_001, 10)]
