"""Packed rows against lists and quadratic loops, and the Loader's packed runs, killed anywhere."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loader_oracle
import packing_oracle as oracle
import tokenmill
from corpora import made_texts, write_corpus
from tokenmill.cli import main
from tokenmill.dataset.split import Split
from tokenmill.errors import ConfigError, ConflictError, InputError, IntegrityError
from tokenmill.formats import NAMES
from tokenmill.loader.packing import pack, row_plan
from tokenmill.loader.packing.best_fit import best_fit_decreasing
from tokenmill.loader.packing.row_plan import RowPlan, plan_name
from tokenmill.storage.local import LocalStore

EOT = 50256
EXTRAS = ("cu_seqlens", "position_ids", "document_ids", "loss_mask")


@settings(max_examples=200, deadline=None)
@given(data=st.data(), seq_len=st.integers(1, 40))
def test_best_fit_decreasing_is_the_quadratic_loop(data, seq_len):
    lengths = data.draw(st.lists(st.integers(1, seq_len), max_size=60))
    found = best_fit_decreasing(np.array(lengths, np.int64), seq_len).tolist()
    assert found == oracle.best_fit(lengths, seq_len)


def test_rows_that_are_longer_than_memory_are_packed_in_the_memory_of_the_pieces():
    lengths = np.arange(1, 2001)
    tracemalloc.start()
    try:
        found = best_fit_decreasing(lengths, row_plan.MAX_SEQ_LEN)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not found.any()
    assert peak_bytes < 1 << 20


def documents_of(lengths: list[int], eot: str, salt: int = 0) -> list[list[int]]:
    """Documents of these lengths, whose tokens are all different, with their EOT id."""
    numbers = itertools.count(1 + 1000 * salt)
    before, after = [EOT] * (eot == "prepend"), [EOT] * (eot == "append")
    texts = ([next(numbers) for _ in range(length - 1)] for length in lengths)
    return [before + text + after for text in texts]


def written(folder, documents: list[list[int]], eot: str, cuts=()):
    tokens = [token for document in documents for token in document]
    path = loader_oracle.write_shards(folder, tokens, cuts)
    return tokenmill.open(path, tokenizer="gpt2", eot=eot)


@pytest.fixture
def small_units(monkeypatch):
    monkeypatch.setattr(pack, "UNIT_DOCUMENTS", 7)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_packed_run_when_killed_and_resumed_anywhere_then_the_rows_of_the_oracle(
    tmp_path_factory, data
):
    """Random documents, shards, policies; at each of several resumes another batch size and world
    size. Tokens, targets and masks of every row."""
    draw = data.draw
    folder, pack.UNIT_DOCUMENTS = tmp_path_factory.mktemp("packed"), 7
    seq_len, seed = draw(st.integers(1, 12)), draw(st.integers(0, 3))
    eot = draw(st.sampled_from(["append", "prepend"]))
    long = draw(st.sampled_from(["split", "truncate", "drop"]))
    shuffle = draw(st.sampled_from(["full", "block", None]))
    lengths = draw(st.lists(st.integers(1, 30), min_size=1, max_size=40))
    documents = documents_of(lengths, eot)
    source = written(folder, documents, eot, draw(st.lists(st.integers(1, 300), max_size=3)))
    try:
        report = tokenmill.pack(source, seq_len=seq_len, seed=seed, long=long)["train"]
    finally:
        pack.UNIT_DOCUMENTS = 1 << 16
    rows = oracle.plan(lengths, seq_len, long, seed, 7)
    places = [(d, at + n) for row in rows for d, at, size in row for n in range(size)]
    assert len(places) == len(set(places)) == report.num_packed_tokens  # no token twice
    assert all(sum(size for _, _, size in row) <= seq_len for row in rows)
    if long == "split":
        assert len(places) == sum(lengths) and not report.num_lost_tokens
    else:
        assert all(row[0][1] == 0 for row in rows) and not report.num_begun_inside
    kept = {d: sum(s for row in rows for e, _, s in row if e == d) for d, _ in places}
    in_rows = [[d for row in rows for e, _, _ in row if e == d] for d in range(len(lengths))]
    assert (report.num_intact, report.num_split, report.num_truncated, report.num_dropped) == (
        sum(len(n) == 1 and kept[d] == lengths[d] for d, n in enumerate(in_rows)),
        sum(len(n) > 1 for n in in_rows),
        sum(bool(n) and kept[d] < lengths[d] for d, n in enumerate(in_rows)),
        sum(not n for n in in_rows),
    )
    assert report.num_pad_tokens == len(rows) * seq_len - len(places)
    if not rows:
        with pytest.raises(ConfigError, match="has no row of train"):
            tokenmill.Loader(source, packed=True, seq_len=seq_len, batch_size=1)
        return
    expected = [oracle.row_of(documents, row, seq_len, EOT, EOT) for row in rows]
    place, state = 0, None
    for _ in range(draw(st.integers(1, 3))):
        world, part = draw(st.sampled_from([1, 2, 3])), draw(st.integers(1, 4))
        loaders = [
            tokenmill.Loader(
                source,
                packed=True,
                seq_len=seq_len,
                batch_size=world * part,
                world_size=world,
                rank=rank,
                seed=seed,
                shuffle=shuffle,
                extras=EXTRAS,
                prefetch=0,
            )
            for rank in range(world)
        ]
        for loader in loaders if state else ():
            loader.load_state_dict(state)
            assert loader.state_dict() == state
        for _ in range(draw(st.integers(1, 3))):
            for rank, batch in enumerate(next(iter(loader)) for loader in loaders):
                for n in range(part):
                    turn = place + rank * part + n
                    number = loader_oracle.row_at(turn, len(rows), shuffle, seed, "data")
                    found = (
                        batch.tokens[n],
                        batch.targets[n],
                        batch.position_ids[n],
                        batch.document_ids[n],
                        batch.loss_mask[n],
                    )
                    assert tuple(array.tolist() for array in found) == expected[number]
            place += world * part
        state = json.loads(json.dumps(loaders[0].state_dict()))


def test_cu_seqlens_has_padding_as_a_segment_of_its_own(tmp_path):
    """open-instruct #1900 folds padding into a document."""
    source = written(tmp_path, documents_of([5, 3, 4], "append"), "append")
    tokenmill.pack(source, seq_len=10)
    loader = tokenmill.Loader(
        source, packed=True, seq_len=10, batch_size=2, shuffle=None, extras=EXTRAS
    )
    batch = next(iter(loader))
    ends = {5: [0, 5, 9], 3: [0, 3]}  # 5 + 4 tokens and 1 of padding; 3 and 7
    firsts = [int(tokens.tolist().index(EOT)) + 1 for tokens in batch.tokens]
    expected = [10 * row + at for row, first in enumerate(firsts) for at in ends[first]]
    assert batch.cu_seqlens.tolist()[: len(expected)] == expected
    assert set(batch.cu_seqlens.tolist()[len(expected) :]) <= {20}
    assert int(batch.loss_mask.sum()) == 4 + 3 + 2  # the targets within documents


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_the_rows_of_its_documents_and_its_written_rows_the_same(name, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in made_texts(40)))
    options = {"shard_tokens": 1000} if name in ("npy", "llmc") else {}
    options |= {"seq_len": "document"} if name == "mds" else {}
    out = str(tmp_path / name)
    tokenmill.prepare(corpus, out, format=name, runner="inline", **options)
    reports = tokenmill.pack(out, seq_len=64, write=tmp_path / "rows")
    with tokenmill.open(out) as data:
        documents = [tokens.tolist() for tokens in data["train"]]
    assert reports["train"].num_documents == len(documents)
    lengths = [len(document) for document in documents]
    rows = oracle.plan(lengths, 64, "split", 0, 1 << 16)
    loader_options = {"seq_len": 64, "batch_size": 1, "shuffle": None, "epochs": 1}
    loader = tokenmill.Loader(out, packed=True, extras=EXTRAS, **loader_options)
    copies = tokenmill.Loader(tmp_path / "rows", packed=True, extras=EXTRAS, **loader_options)
    assert len(loader) == len(copies) == len(rows)
    for step, (batch, copy, row) in enumerate(zip(loader, copies, rows, strict=True)):
        tokens, targets, positions, numbers, mask = oracle.row_of(documents, row, 64, EOT, EOT)
        assert batch.tokens[0].tolist() == copy.tokens[0].tolist() == tokens
        assert (
            batch.targets[0].tolist() == targets and copy.targets[0].tolist()[:-1] == targets[:-1]
        )
        assert batch.position_ids[0].tolist() == copy.position_ids[0].tolist() == positions
        assert batch.document_ids[0].tolist() == copy.document_ids[0].tolist() == numbers
        assert batch.loss_mask[0].tolist() == mask
        [origin] = loader.documents_of(step)
        assert list(origin.documents) == [document for document, _, _ in row]
    assert tokenmill.verify(tmp_path / "rows").is_whole and tokenmill.verify(out).is_whole
    flat = tokenmill.open(tmp_path / "rows")["train"].tokens().reshape(-1, 64)
    assert flat.tolist() == [oracle.row_of(documents, row, 64, EOT, EOT)[0] for row in rows]


@pytest.mark.parametrize(
    ("lengths", "seq_len"), [([1], 1), ([9], 1), ([5], 5), ([50, 60, 70], 7), ([1] * 30, 8)]
)
def test_edges_of_packing(tmp_path, lengths, seq_len):
    documents = documents_of(lengths, "append")
    source = written(tmp_path, documents, "append")
    report = tokenmill.pack(source, seq_len=seq_len)["train"]
    rows = oracle.plan(lengths, seq_len, "split", 0, 1 << 16)
    assert report.num_rows == len(rows)
    loader = tokenmill.Loader(
        source, packed=True, seq_len=seq_len, batch_size=1, shuffle=None, epochs=1
    )
    expected = [oracle.row_of(documents, row, seq_len, EOT, EOT) for row in rows]
    assert [batch.tokens[0].tolist() for batch in loader] == [one[0] for one in expected]


def test_mixture_of_packed_sources_counts_tokens_and_not_rows(tmp_path):
    """Rows of half padding come twice as often."""
    sources = {
        "half": written(tmp_path / "half", documents_of([6] * 50, "append"), "append"),
        "full": written(tmp_path / "full", documents_of([10] * 50, "append", 1), "append"),
    }
    for source in sources.values():
        tokenmill.pack(source, seq_len=10)
    weights = {"half": 0.5, "full": 0.5}
    loader = tokenmill.Loader(sources, weights=weights, packed=True, seq_len=10, batch_size=1)
    for batch in itertools.islice(loader, 40):
        assert batch.tokens.shape == (1, 10)
        progress = loader.progress()
        assert abs(progress["half"].planned_tokens - progress["half"].delivered_tokens) <= 20
    assert progress["half"].delivered_tokens == 6 * 25 and progress["full"].delivered_tokens == 150
    plain = tokenmill.Loader(sources, packed={"full": True}, seq_len=10, batch_size=4)
    assert plain.progress().keys() == {"full", "half"} and "29 rows" in repr(plain)


def test_plan_of_other_tokens_or_options_is_refused_and_the_same_one_is_kept(tmp_path):
    documents = documents_of([5, 9, 3, 8], "append")
    source = written(tmp_path / "a", documents, "append")
    tokenmill.pack(source, seq_len=8)
    plan = tmp_path / "a" / plan_name(8)
    stamp = os.stat(plan).st_ino
    tokenmill.pack(source, seq_len=8)
    assert os.stat(plan).st_ino == stamp  # kept
    options = {"seq_len": 8, "batch_size": 1}
    state = tokenmill.Loader(source, packed=True, **options).state_dict()
    assert len(json.dumps(state)) < 1000
    tokenmill.pack(source, seq_len=8, long="split")  # the same by its name
    with pytest.raises(ConflictError, match="with --long split, not --long truncate") as caught:
        tokenmill.pack(source, seq_len=8, long="truncate")
    assert os.stat(plan).st_ino == stamp and "--overwrite" in caught.value.hint
    tokenmill.pack(source, seq_len=8, long="truncate", overwrite=True)
    assert os.stat(plan).st_ino != stamp
    with pytest.raises(ConflictError, match=r"the content of data was \w+ in rows \w+, is"):
        tokenmill.Loader(source, packed=True, **options).load_state_dict(state)
    documents[1][0] += 1
    other = written(tmp_path / "b", documents, "append")
    with pytest.raises(ConflictError, match="made for other tokens") as caught:
        tokenmill.Loader(other, packed=plan, **options)
    assert "tokenmill pack" in caught.value.hint
    with pytest.raises(ConflictError, match="made for other tokens"):
        tokenmill.pack(other, seq_len=8, long="truncate", plan=plan)
    with pytest.raises(ConfigError, match="there is no plan of rows at"):
        tokenmill.Loader(other, packed=True, **options)
    with pytest.raises(ConfigError, match="rows of 8 tokens, not 9"):
        tokenmill.Loader(source, packed=plan, seq_len=9, batch_size=1)
    with pytest.raises(ConfigError, match="is one plan, and there are 2 sources"):
        tokenmill.Loader({"a": source, "b": source}, packed=plan, **options)
    with pytest.raises(ConfigError, match="source in packed"):
        tokenmill.Loader({"a": source}, packed={"b": True}, **options)


def indexed(folder, tokens: list[int], lengths: list[int]) -> Path:
    """A shard of datatrove, whose documents are cut by a file of their ends beside it."""
    np.array(tokens, np.uint16).tofile(folder / "00000_tokens.ds")
    np.cumsum(lengths).astype(np.uint64).tofile(folder / "00000_tokens.ds.index")
    return folder


def test_plan_when_the_documents_of_the_same_tokens_change_then_it_is_not_used(tmp_path):
    tokens = list(range(1, 601))
    indexed(tmp_path, tokens, [6] * 100)
    assert tokenmill.pack(tmp_path, seq_len=30)["train"].num_documents == 100
    options = {"seq_len": 30, "batch_size": 1, "shuffle": None}
    plain = tokenmill.Loader(tmp_path, **options).state_dict()
    marked = tokenmill.Loader(tmp_path, extras="document_ids", **options).state_dict()
    packed = tokenmill.Loader(tmp_path, packed=True, **options).state_dict()
    indexed(tmp_path, tokens, [10] * 60)
    with pytest.raises(ConflictError, match="made for other documents"):
        tokenmill.Loader(tmp_path, packed=True, **options)
    assert tokenmill.pack(tmp_path, seq_len=30)["train"].num_documents == 60
    # Rows of plain tokens are the same; those with marks of documents, or of a plan, are not.
    loader = tokenmill.Loader(tmp_path, extras="document_ids", **options)
    loader.load_state_dict(plain)
    with pytest.raises(ConflictError, match=r"data: the documents were \w+, are \w+"):
        loader.load_state_dict(marked)
    tokenmill.Loader(tmp_path, **options).load_state_dict(marked)
    with pytest.raises(ConflictError, match="the content of data was"):
        tokenmill.Loader(tmp_path, packed=True, **options).load_state_dict(packed)


def test_plan_when_eot_ids_separate_documents_elsewhere_then_it_is_not_used(tmp_path):
    documents = [[1, 2, 3, EOT]] * 50
    tokenmill.pack(written(tmp_path, documents, "prepend"), seq_len=8)
    source = tokenmill.open(tmp_path, tokenizer="gpt2", eot="append")
    with pytest.raises(ConflictError, match="made for other documents"):
        tokenmill.Loader(source, packed=True, seq_len=8, batch_size=1)
    assert tokenmill.pack(source, seq_len=8)["train"].num_documents == 50


def test_plan_that_was_damaged_anywhere_is_noticed(tmp_path, small_units):
    source = written(tmp_path, documents_of([5, 9, 3, 8] * 9, "append"), "append")
    tokenmill.pack(source, seq_len=8)
    path = tmp_path / plan_name(8)
    data = path.read_bytes()
    rng = random.Random(0)
    for place in [*rng.sample(range(8, len(data)), 60), len(data) - 1]:
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(IntegrityError, match="damaged"):
            loader = tokenmill.Loader(source, packed=path, seq_len=8, batch_size=1, epochs=1)
            list(loader)
    for length in (0, 7, 24, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(IntegrityError, match="not a plan of rows"):
            RowPlan(str(path))


def test_damaged_plan_when_verified_then_found_and_when_packed_then_made_again(tmp_path):
    corpus = write_corpus("jsonl", tmp_path, made_texts(60))
    out = tmp_path / "out"
    tokenmill.prepare(corpus, out, runner="inline", pack=16)
    path = out / plan_name(16)
    whole = path.read_bytes()
    [check] = [one for one in tokenmill.verify(out).checks if one.name == "row plans"]
    assert check.status == "passed" and check.detail == "1 plan of rows"
    for place, overwrite in [(40, False), (40, True), (len(whole) - 30, False)]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        report = tokenmill.verify(out)
        assert not report.is_whole and report.failures[0].file == path.name
        assert "damaged" in report.failures[0].message
        tokenmill.pack(out, seq_len=16, overwrite=overwrite)
        assert path.read_bytes() == whole and tokenmill.verify(out).is_whole


def test_plan_when_its_dataset_is_replaced_then_removed(tmp_path):
    for number, overwrite in ((60, False), (50, True)):
        corpus = write_corpus("jsonl", tmp_path, made_texts(number))
        tokenmill.prepare(corpus, tmp_path / "out", runner="inline", overwrite=overwrite)
        assert not (tmp_path / "out" / plan_name(16)).exists()
        tokenmill.pack(tmp_path / "out", seq_len=16)
    # A plan that was copied there is for other tokens, and verify says so.
    old = (tmp_path / "out" / plan_name(16)).read_bytes()
    corpus = write_corpus("jsonl", tmp_path, made_texts(40))
    tokenmill.prepare(corpus, tmp_path / "out", runner="inline", overwrite=True)
    (tmp_path / "out" / plan_name(16)).write_bytes(old)
    [failure] = tokenmill.verify(tmp_path / "out").failures
    assert "made for other tokens" in failure.message and "--seq-len 16" in failure.message


def test_plan_when_the_file_is_somebody_elses_then_it_is_never_replaced(tmp_path):
    source = written(tmp_path / "data", documents_of([5, 9], "append"), "append")
    other = tmp_path / "notes.txt"
    other.write_bytes(b"not a plan, but long enough to be one")
    (tmp_path / "empty").touch()
    linked = tmp_path / "linked.rows"
    linked.symlink_to(other)
    others = [other, tmp_path / "empty", linked]
    for path in [*others, *(one for one in (tmp_path / "data").rglob("*") if one.is_file())]:
        content = path.read_bytes()
        for overwrite in (False, True):
            with pytest.raises(ConflictError, match="is not a plan of rows") as caught:
                tokenmill.pack(source, seq_len=8, plan=path, overwrite=overwrite)
            assert path.read_bytes() == content and "--overwrite" not in str(caught.value.hint)


def test_plan_when_a_folder_or_a_pipe_has_its_name_then_it_is_refused(tmp_path):
    source = written(tmp_path / "data", documents_of([5, 9], "append"), "append")
    beside = tmp_path / "data" / plan_name(8)
    beside.mkdir()
    os.mkfifo(tmp_path / "pipe")
    for place in (None, beside, tmp_path, tmp_path / "pipe"):
        for overwrite in (False, True):
            with pytest.raises(ConflictError, match="is not a plan of rows"):
                tokenmill.pack(source, seq_len=8, plan=place, overwrite=overwrite)
    with pytest.raises(IntegrityError, match="it is not a regular file"):
        tokenmill.Loader(source, packed=beside, seq_len=8, batch_size=1)


def test_plan_when_four_processes_make_it_at_once_then_each_has_it(tmp_path):
    """Ranks of torchrun, each of which packs before it loads."""
    source = written(tmp_path / "data", [[1, 2, 3, EOT], [4, EOT]] * 20_000, "append")
    killed = tmp_path / "data" / f"{plan_name(8)}.0123456789abcdef.tmp"
    killed.write_bytes(b"tmrows1")
    code = (
        "import tokenmill, sys\n"
        "source = tokenmill.open(sys.argv[1], tokenizer='gpt2', eot='append')\n"
        "print('ready', flush=True); input()\n"
        "tokenmill.pack(source, seq_len=8)\n"
        "print(next(iter(tokenmill.Loader(source, packed=True, seq_len=8, batch_size=1))).rows)\n"
    )
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(source.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for rank in ranks:
        assert rank.stdout.readline() == "ready\n"
    for rank in ranks:
        rank.stdin.write("\n")
        rank.stdin.flush()
    found = [(*rank.communicate(), rank.returncode) for rank in ranks]
    assert [(out, code) for out, _, code in found] == [("1\n", 0)] * 4, found
    assert [path.name for path in (tmp_path / "data").glob("*.rows*")] == [plan_name(8)]


def test_plan_with_sound_checksums_cannot_lead_out_of_the_tokens(tmp_path, monkeypatch):
    source = written(tmp_path, documents_of([5, 3], "append"), "append")
    monkeypatch.setattr(row_plan._UnitRows, "is_sound", lambda *_: True)
    unit = row_plan.PlanWriter.unit

    def beyond(self, pieces, num_rows):
        pieces.starts[-1] += 4
        return unit(self, pieces, num_rows)

    monkeypatch.setattr(row_plan.PlanWriter, "unit", beyond)
    tokenmill.pack(source, seq_len=8)
    monkeypatch.undo()
    with pytest.raises(IntegrityError, match="damaged: rows 0"):
        next(iter(tokenmill.Loader(source, packed=True, seq_len=8, batch_size=1)))


def test_far_plan_and_tokens_are_fetched_as_needed(tmp_path, monkeypatch):
    source = written(tmp_path / "data", documents_of([5, 9, 3, 8] * 9, "append"), "append")
    tokenmill.pack(source, seq_len=8)
    options = {"packed": True, "seq_len": 8, "batch_size": 5, "epochs": 2}
    expected = [batch.tokens.tolist() for batch in tokenmill.Loader(source, **options)]
    monkeypatch.setattr(type(source["train"].files), "is_local", False)
    slow_store = SimpleNamespace(is_local=False, stat=LocalStore().stat)
    monkeypatch.setattr(row_plan, "store_of", lambda path: slow_store)
    monkeypatch.setattr(row_plan, "MAX_FETCHED_BYTES", 0)
    folder = tmp_path / "cache"
    for _ in range(2):
        source = tokenmill.open(tmp_path / "data", tokenizer="gpt2", eot="append")
        loader = tokenmill.Loader(source, cache_dir=folder, cache_bytes="1M", **options)
        state = loader.state_dict()
        assert [batch.tokens.tolist() for batch in loader] == expected
        loader.close()
        loader.load_state_dict(state)
        with pytest.raises(ConfigError, match="was closed"):
            next(iter(loader))
        # From the folder, from now on.
        monkeypatch.setattr(Split, "tokens", lambda *_: pytest.fail("it was fetched again"))
        known = source["train"].content
        monkeypatch.setattr(Split, "content", known)
        monkeypatch.setattr(Split, "token_content", known.tokens)
    assert len(list(folder.iterdir())) == 1


# The command


def test_command_packs_reports_and_writes(tmp_path, capsys):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in made_texts(40)))
    out = str(tmp_path / "out")
    assert main(["prepare", str(corpus), "-o", out, "--pack", "64", "--runner", "inline"]) == 0
    tokenmill.prepare(corpus, tmp_path / "same", pack=64, runner="inline")
    assert (tmp_path / "same" / plan_name(64)).read_bytes() == Path(out, plan_name(64)).read_bytes()
    told = capsys.readouterr().err
    assert "rows of 64 tokens" in told and "intact" in told and plan_name(64) in told
    assert main(["pack", out, "--seq-len", "64", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    report = found["splits"]["train"]
    assert found["plan"] == os.path.join(out, plan_name(64)) and found["long"] == "split"
    assert report["num_pad_tokens"] == report["num_rows"] * 64 - report["num_tokens"]
    rows, plan = str(tmp_path / "rows"), Path(out, plan_name(64)).read_bytes()
    assert main(["pack", out, "--seq-len", "64"]) == 0
    assert "(already there)" in capsys.readouterr().err
    other = ["pack", out, "--seq-len", "64", "--long", "truncate", "--write", rows]
    assert main(other) == 6
    assert "with --long split, not --long truncate" in capsys.readouterr().err
    assert not os.path.exists(rows) and Path(out, plan_name(64)).read_bytes() == plan
    assert main([*other, "--overwrite"]) == 0
    assert "lost (" in capsys.readouterr().err
    assert tokenmill.open(rows)["train"].num_tokens % 64 == 0
    for arguments, code, message in [
        (["--seq-len", "0"], 2, "a row has 1 to"),
        (["--seq-len", "64", "--long", "burn"], 2, "burn"),
        (["--seq-len", "64", "--format", "mds"], 2, "is for --write"),
        (["--seq-len", "32", "--write", rows, "--format", "mdz"], 2, "mdz"),
        (["--seq-len", "32", "--write", out], 2, "the output folder is the input folder"),
    ]:
        assert main(["pack", out, *arguments]) == code, arguments
        assert message in capsys.readouterr().err
    assert not Path(out, plan_name(32)).exists()


def test_documents_that_nothing_separates_cannot_be_packed(tmp_path):
    path = loader_oracle.write_shards(tmp_path / "data", list(range(1, 50)))
    with pytest.raises(ConfigError, match="nothing says where the documents of train end"):
        tokenmill.pack(path, seq_len=8)
    assert sorted(os.listdir(path)) == ["fineweb_train_000000.bin"]
    source = written(tmp_path / "long", documents_of([50], "append"), "append")
    with pytest.raises(InputError, match="has no rows"):
        tokenmill.pack(source, seq_len=8, long="drop", write=tmp_path / "rows")


def test_command_when_nothing_says_where_documents_end_then_the_hint_can_be_typed(tmp_path, capsys):
    np.array([1, 2, EOT, 3, EOT], np.uint16).tofile(tmp_path / "train.bin")
    command = ["pack", str(tmp_path), "--seq-len", "4", "-q"]
    assert main(command) == 2
    assert "--tokenizer gpt2" in capsys.readouterr().err
    assert main([*command, "--tokenizer", "gpt2"]) == 0
