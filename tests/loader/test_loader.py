"""The loader against an oracle that is a list and a loop, killed and resumed anywhere."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loader_oracle as oracle
import tokenmill
from corpora import made_texts, write_corpus
from tokenmill.errors import ConfigError, ConflictError, IntegrityError
from tokenmill.loader import prefetch
from tokenmill.loader.prefetch import Prefetch

EOT = 50256


def rows_of(batches) -> list[list[int]]:
    """Tokens and the last target of every row of some batches."""
    return [
        [*tokens.tolist(), int(targets[-1])]
        for batch in batches
        for tokens, targets in zip(batch.tokens, batch.targets, strict=True)
    ]


def steps_of(loaders, count: int) -> tuple[list[list[int]], dict]:
    """The rows of the next steps, ranks side by side, and the state that all ranks agree on."""
    found = []
    parts = [list(itertools.islice(loader, count)) for loader in loaders]
    for step in zip(*parts, strict=True):
        found += rows_of(step)
        assert len({batch.rows for batch in step}) == 1
    [state] = {json.dumps(loader.state_dict()) for loader in loaders}
    assert len(state) < 1000
    return found, json.loads(state)


def numbered(num_tokens: int, salt: int) -> list[int]:
    return [(7919 * i + salt) % 50000 for i in range(num_tokens)]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_run_when_killed_and_resumed_anywhere_then_the_rows_of_the_oracle_in_its_order(
    tmp_path_factory, data
):
    """Random corpora, shards, seq_len, mixes, stages, skips; at each of several resumes another
    batch size, world size and prefetch. Every row once, in the oracle's order."""
    folder = tmp_path_factory.mktemp("run")
    draw = data.draw
    names = draw(st.lists(st.sampled_from(["web", "code", "math"]), min_size=1, unique=True))
    seq_len, seed = draw(st.integers(1, 9)), draw(st.integers(0, 5))
    shuffle = draw(st.sampled_from(["full", "block", None]))
    corpora, sources = {}, {}
    for salt, name in enumerate(sorted(names)):
        corpora[name] = numbered(draw(st.integers(seq_len + 1, 150)), salt)
        cuts = draw(st.lists(st.integers(0, 150), max_size=4))
        sources[name] = oracle.write_shards(folder / name, corpora[name], cuts)
    weight = st.integers(1, 9) | st.sampled_from([0.1, 0.25, 2.5])
    stages = [(0, {name: draw(weight) for name in names})]
    if draw(st.booleans()):
        stages.append((draw(st.integers(1, 40)), {name: draw(weight) for name in names}))
    skip = draw(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=2))
    skip = [(start, start + length) for start, length in skip]

    def loaders() -> list[tokenmill.Loader]:
        world = draw(st.sampled_from([1, 2, 3]))
        return [
            tokenmill.Loader(
                sources,
                weights=stages[0][1],
                stages=[(start * seq_len, weights) for start, weights in stages[1:]],
                seq_len=seq_len,
                batch_size=world * draw_part,
                rank=rank,
                world_size=world,
                seed=seed,
                shuffle=shuffle,
                skip=skip,
                prefetch=prefetch,
            )
            for draw_part, prefetch in [(draw(st.integers(1, 7)), draw(st.sampled_from([0, 2])))]
            for rank in range(world)
        ]

    found: list[list[int]] = []
    state = None
    for _ in range(draw(st.integers(1, 4))):
        ranks = loaders()
        if state is not None:
            for loader in ranks:
                loader.load_state_dict(state)
                assert loader.state_dict() == state  # saving right after loading
        rows, state = steps_of(ranks, draw(st.integers(0, 4)))
        found += rows
    whole = [(start, oracle.whole(weights)) for start, weights in stages]
    origins = oracle.run(corpora, whole, seq_len, seed, shuffle, 400)
    kept = [o for n, o in enumerate(origins) if not any(a <= n < b for a, b in skip)]
    assert found == [oracle.tokens_of(corpora, origin, seq_len) for origin in kept[: len(found)]]


@pytest.mark.parametrize("name", ["nanogpt", "megatron", "mds", "parquet", "litdata"])
def test_rows_of_every_format_are_those_of_its_token_stream(name, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in made_texts(40)))
    out, shards = str(tmp_path / name), {} if name == "nanogpt" else {"shard_tokens": 3000}
    tokenmill.prepare(corpus, out, format=name, runner="inline", val="none", **shards)
    expected = tokenmill.open(out)["train"].tokens().tolist()
    loader = tokenmill.Loader(out, seq_len=100, batch_size=3, shuffle=None, epochs=1)
    found = rows_of(loader)
    assert len(found) > 30
    assert found == [expected[100 * n : 100 * n + 101] for n in range(len(found))]


# One run with an end


@pytest.fixture
def small(tmp_path) -> str:
    """31 rows of 4, and 2 tokens that fill none."""
    return str(oracle.write_shards(tmp_path / "small", numbered(31 * 4 + 3, 0), [50, 51, 99]))


def all_rows(**options) -> list[list[int]]:
    return rows_of(tokenmill.Loader(seq_len=4, **options))


def test_epochs_when_counted_then_each_has_every_row_once_in_another_order(small):
    found = all_rows(sources=small, batch_size=1, epochs=3)
    epochs = [sorted(found[start : start + 31]) for start in (0, 31, 62)]
    assert len(found) == 93 and epochs[0] == epochs[1] == epochs[2]
    assert found[:31] != found[31:62] != found[62:]
    loader = tokenmill.Loader(small, seq_len=4, batch_size=1, epochs=3)
    assert len(loader) == 93 and "31 rows (2 tokens left out)" in repr(loader)


@pytest.mark.parametrize("step", [0, 1, 30, 31, 32, 61, 62, 92, 93])
def test_state_at_and_around_the_end_of_an_epoch_goes_on_with_a_whole_next_epoch(small, step):
    """streaming #700, #869, NeMo #7221, torchdata #1437, torchtitan #3008, #1357, litgpt #1712."""
    expected = all_rows(sources=small, batch_size=1, epochs=3)
    loader = tokenmill.Loader(small, seq_len=4, batch_size=1, epochs=3)
    found = rows_of(itertools.islice(loader, step))
    for _ in range(2):  # torchtitan #3907: the second resume differs
        state = loader.state_dict()
        loader = tokenmill.Loader(small, seq_len=4, batch_size=1, epochs=3)
        loader.load_state_dict(state)
        assert loader.state_dict() == state and len(loader) == 93 - len(found)
        found += rows_of(itertools.islice(loader, 5))
    assert found + rows_of(loader) == expected
    assert not rows_of(loader)  # the run is over


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_ranks_end_at_the_same_step_and_the_rows_that_fill_none_are_left_out(small, world_size):
    """litData #340, streaming #617: ranks that are exhausted at different steps hang."""
    lengths = {
        len(
            list(
                tokenmill.Loader(
                    small, seq_len=4, batch_size=4, rank=rank, world_size=world_size, epochs=1
                )
            )
        )
        for rank in range(world_size)
    }
    assert lengths == {31 // 4}


def test_batch_size_that_does_not_divide_what_was_read_reads_no_row_twice(small):
    """litData, streaming and OLMo-core round down to a multiple of world size or batch."""
    expected = all_rows(sources=small, batch_size=1, epochs=2)
    found, state = [], None
    for size in (3, 7, 2, 5, 11, 1):
        loader = tokenmill.Loader(small, seq_len=4, batch_size=size, epochs=2)
        if state is not None:
            loader.load_state_dict(state)
        found += rows_of(itertools.islice(loader, 2))
        state = loader.state_dict()
    assert found == expected[: len(found)] and len(found) == 58


def test_run_of_a_mixture_ends_before_a_source_is_used_up_and_the_weights_hold_to_the_end(tmp_path):
    """weights stop following after one source ends."""
    sources = {
        "few": oracle.write_shards(tmp_path / "few", numbered(4 * 10 + 1, 0)),
        "many": oracle.write_shards(tmp_path / "many", numbered(4 * 100 + 1, 1)),
    }
    options = {"weights": {"few": 0.5, "many": 0.5}, "seq_len": 4, "batch_size": 2}
    loader = tokenmill.Loader(sources, epochs=1, **options)
    for _ in loader:
        progress = loader.progress()
        assert abs(progress["few"].planned_tokens - progress["few"].delivered_tokens) < 8
    assert progress["few"].epochs == 1.0 and progress["many"].epochs == 0.1


# Ranks


def test_ranks_when_not_given_then_those_of_the_environment(small, monkeypatch):
    options = {"seq_len": 4, "batch_size": 4, "shuffle": None}
    together = rows_of(itertools.islice(tokenmill.Loader(small, **options), 3))
    monkeypatch.setenv("WORLD_SIZE", "2")
    loaders = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        loaders.append(tokenmill.Loader(small, **options))
    assert all(f"rank {rank} of 2" in repr(loader) for rank, loader in enumerate(loaders))
    parts = [[rows_of([batch]) for batch in itertools.islice(one, 3)] for one in loaders]
    assert [row for step in zip(*parts, strict=True) for part in step for row in part] == together
    # What is given counts; one rank alone takes all rows.
    assert "rank 0 of 2" in repr(tokenmill.Loader(small, rank=0, **options))
    assert "rank 1 of 4" in repr(tokenmill.Loader(small, world_size=4, **options))
    assert "rank 0 of 1" in repr(tokenmill.Loader(small, world_size=1, **options))
    reopen, arguments = loaders[0].__reduce__()  # in a worker of rank 0
    assert "rank 0 of 2" in repr(reopen(*arguments))


@pytest.mark.parametrize(
    ("environment", "given", "message"),
    [
        ({"WORLD_SIZE": "2"}, {}, "rank is not given, and this is one of 2 ranks"),
        ({}, {"world_size": 2}, "rank is not given"),
        ({"RANK": "1"}, {}, "rank 1 of world_size 1"),
        ({"RANK": "3", "WORLD_SIZE": "2"}, {}, "rank 3 of world_size 2"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, {}, "RANK in the environment is 'one'"),
        ({"RANK": "0", "WORLD_SIZE": "-2"}, {}, "WORLD_SIZE in the environment is '-2'"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, {}, "rank 0 of world_size 0"),
    ],
)
def test_ranks_when_they_cannot_be_then_refused(small, monkeypatch, environment, given, message):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        tokenmill.Loader(small, seq_len=4, batch_size=4, **given)


# The state


def test_state_counts_what_was_yielded_and_not_what_was_prepared(small):
    """metaseq #419."""
    loader = tokenmill.Loader(small, seq_len=4, batch_size=2, prefetch=5)
    for step, _ in enumerate(loader):
        time.sleep(0.01)
        assert loader.state_dict()["rows"] == 2 * (step + 1)
        if step == 3:
            break
    assert (
        rows_of(itertools.islice(loader, 1))
        == all_rows(sources=small, batch_size=10, epochs=1)[8:10]
    )


def test_state_of_other_data_or_options_is_refused_with_what_differs(small, tmp_path):
    tokens = numbered(31 * 4 + 3, 0)
    options = {"seq_len": 4, "batch_size": 2}
    state = tokenmill.Loader(small, **options).state_dict()
    tokens[60] += 1  # in one of the 64 places that are hashed
    changed = oracle.write_shards(tmp_path / "changed", tokens)
    for source, other, message in [
        (changed, {}, r"data: the content of data was \w+, is \w+"),
        (small, {"seq_len": 5}, r"seq_len \(tokens a row\) was 4, is 5"),
        (small, {"seed": 1}, "seed .* was 0, is 1"),
        (small, {"shuffle": None}, "shuffle .* was 'full', is None"),
        ({"web": small}, {}, "(?s)the source data is gone.*the source web is new"),
        ({"data": small, "web": small}, {}, "(?s)mix .*the source web is new"),
    ]:
        with pytest.raises(ConflictError, match=message):
            tokenmill.Loader(source, **{**options, **other}).load_state_dict(state)
    for wrong in ({}, {"rows": -1, "tokenmill_loader": 1}, {"rows": 5}, "rows"):
        with pytest.raises(ConfigError, match="not the state of a Loader"):
            tokenmill.Loader(small, **options).load_state_dict(wrong)
    for name, value in [
        ("data", None),
        ("data", 5),
        ("data", ["data"]),
        ("data", {5: "data"}),
        ("rows", 10**30),
        ("rows", 10**5000),
        ("rows", 1.0),
        ("seed", np.zeros(2)),
    ]:
        with pytest.raises(ConfigError, match="not the state of a Loader"):
            tokenmill.Loader(small, **options).load_state_dict({**state, name: value})
    loader = tokenmill.Loader(small, **options)
    loader.load_state_dict({**state, "rows": (1 << 48) - 1})
    assert next(iter(loader)).rows == (1 << 48) + 1


def test_state_when_a_shard_was_rewritten_below_its_manifest_then_refused(tmp_path):
    corpus = write_corpus("jsonl", tmp_path, made_texts(60))
    out = tmp_path / "out"
    tokenmill.prepare(corpus, out, runner="inline")
    tokenmill.pack(out, seq_len=16)
    options = {"seq_len": 16, "batch_size": 2}
    state = tokenmill.Loader(out, **options).state_dict()
    [shard] = out.glob("*train*.bin")
    tokens = np.fromfile(shard, np.uint16)
    np.random.default_rng(0).permutation(tokens).tofile(shard)
    with pytest.raises(ConflictError, match=r"the content of data was \w+, is"):
        tokenmill.Loader(out, **options).load_state_dict(state)
    with pytest.raises(ConflictError, match="made for other tokens"):
        tokenmill.Loader(out, packed=True, **options)


def test_same_tokens_elsewhere_and_a_later_stage_are_the_same_run(small, tmp_path):
    moved = oracle.write_shards(tmp_path / "moved", numbered(31 * 4 + 3, 0), [7])
    sources = {"a": small, "b": small}
    weights = {"a": 1, "b": 1}
    loader = tokenmill.Loader(sources, weights=weights, seq_len=4, batch_size=2)
    found = rows_of(itertools.islice(loader, 5))
    stages = [(48, {"a": 0, "b": 1})]
    other = tokenmill.Loader(
        {"a": moved, "b": moved}, weights=weights, stages=stages, seq_len=4, batch_size=2
    )
    other.load_state_dict(loader.state_dict())
    found += rows_of(itertools.islice(other, 5))
    again = tokenmill.Loader(sources, weights=weights, stages=stages, seq_len=4, batch_size=20)
    assert rows_of(itertools.islice(again, 1)) == found
    early = tokenmill.Loader(sources, weights={"a": 1, "b": 2}, seq_len=4, batch_size=2)
    with pytest.raises(ConflictError, match=r"mix \(the weights up to here"):
        early.load_state_dict(loader.state_dict())


def test_state_of_many_sources_stays_small_and_still_notices_a_change(small, tmp_path):
    other = oracle.write_shards(tmp_path / "other", numbered(200, 9))
    names = [f"a source with a long name, number {n}" for n in range(100)]
    state = tokenmill.Loader(dict.fromkeys(names, small), seq_len=4, batch_size=2).state_dict()
    assert len(json.dumps(state)) < 1000
    changed = {**dict.fromkeys(names, small), names[50]: other}
    weights = dict.fromkeys(names, 31)
    with pytest.raises(ConflictError, match="content of all 100"):
        tokenmill.Loader(changed, weights=weights, seq_len=4, batch_size=2).load_state_dict(state)


def test_state_loaded_while_iterating_is_an_error_and_not_a_mixture_of_two_runs(small):
    loader = tokenmill.Loader(small, seq_len=4, batch_size=2)
    batches = iter(loader)
    next(batches)
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(ConflictError, match="start: for batch in loader"):
        next(batches)
    first, second = iter(loader), iter(loader)
    next(first), next(second)
    with pytest.raises(ConflictError, match="another loop started"):
        next(first)


# Documents


def documents_for(eot: str) -> list[list[int]]:
    rng = random.Random(4)
    texts = [[rng.randrange(1, 9) for _ in range(rng.choice([0, 1, 3, 20]))] for _ in range(90)]
    texts[0] = [1, 2]
    before, after = eot in ("prepend", "both"), eot in ("append", "both")
    return [[EOT] * before + text + [EOT] * after for text in texts]


@pytest.mark.parametrize("eot", ["append", "prepend", "both"])
@pytest.mark.parametrize("shuffle", ["full", None])
def test_masks_are_those_of_a_list_of_documents(eot, shuffle, tmp_path):
    """Off by one at the T+1st token, padding that counts as a document, lengths that vary."""
    documents = documents_for(eot)
    tokens = [token for document in documents for token in document]
    numbers = [n for n, document in enumerate(documents) for _ in document]
    folder = oracle.write_shards(tmp_path / "data", tokens, [33, 200])
    source = tokenmill.open(folder, tokenizer="gpt2", eot=eot)
    loader = tokenmill.Loader(
        source,
        seq_len=8,
        batch_size=5,
        shuffle=shuffle,
        epochs=1,
        extras=("cu_seqlens", "position_ids", "document_ids", "loss_mask"),
    )
    lengths = set()
    assert [origin.row for origin in loader.documents_of(1)] == [
        oracle.row_at(turn, len(tokens[1:]) // 8, shuffle, 0, "data") for turn in range(5, 10)
    ]
    for step, batch in enumerate(loader):
        bounds = []
        for row, origin in enumerate(loader.documents_of(step)):
            own = numbers[origin.start : origin.start + 9]
            assert list(origin.documents) == list(range(own[0], own[7] + 1))
            assert batch.tokens[row].tolist() == tokens[origin.start : origin.start + 8]
            kinds = [own[: place + 1].index(own[place]) for place in range(8)]
            assert batch.position_ids[row].tolist() == [p - kinds[p] for p in range(8)]
            firsts = sorted(set(kinds))
            assert batch.document_ids[row].tolist() == [firsts.index(kind) for kind in kinds]
            bounds += [8 * row + first for first in firsts]
            text = tokens[origin.start : origin.start + 9]
            expected = [own[p] == own[p + 1] or (text[p + 1] == EOT != text[p]) for p in range(8)]
            assert batch.loss_mask[row].tolist() == expected
        found = batch.cu_seqlens.tolist()
        assert found[: len(bounds)] == bounds and set(found[len(bounds) :]) == {40}
        lengths.add((len(found), batch.cu_seqlens.dtype, batch.max_seqlen))
    assert {(dtype, most) for _, dtype, most in lengths} == {(np.dtype(np.int32), 8)}


def test_cu_seqlens_has_one_length_for_ordinary_documents(tmp_path):
    rng = random.Random(1)
    tokens = []
    while len(tokens) < 40_000:
        tokens += [*[5] * rng.randint(10, 900), EOT]
    source = tokenmill.open(oracle.write_shards(tmp_path, tokens), tokenizer="gpt2", eot="append")
    loader = tokenmill.Loader(source, seq_len=256, batch_size=8, epochs=1, extras="cu_seqlens")
    assert {len(batch.cu_seqlens) for batch in loader} == {8 * 5 + 1}


def test_eot_inside_a_text_is_no_end_where_the_format_knows_better(tmp_path):
    """An EOS scan is fooled; megatron's index is not."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": t}) + "\n" for t in ["a mill b"] * 40))
    out = str(tmp_path / "out")
    tokenmill.prepare(corpus, out, format="megatron", runner="inline")
    path = tmp_path / "out" / "text_train_00000_document.bin"
    tokens = np.fromfile(path, np.uint16)
    length = len(tokens) // 40
    tokens[1::length] = EOT
    tokens.tofile(path)
    loader = tokenmill.Loader(
        out, seq_len=length, batch_size=4, shuffle=None, extras="document_ids"
    )
    [batch] = itertools.islice(loader, 1)
    assert batch.document_ids.max() == 0


def test_masks_of_data_without_documents_are_refused_at_the_start(small):
    with pytest.raises(ConfigError, match="name the tokenizer"):
        tokenmill.Loader(small, seq_len=4, batch_size=2, extras="loss_mask")


# What may go wrong


def test_skipped_rows_are_left_out_and_nothing_else_changes(small):
    expected = all_rows(sources=small, batch_size=1, epochs=1)
    loader = tokenmill.Loader(small, seq_len=4, batch_size=3, skip=[(4, 7), (6, 9)], epochs=1)
    assert len(loader) == 26 // 3
    assert rows_of(loader) == (expected[:4] + expected[9:])[:24]
    [progress] = loader.progress().values()
    assert (progress.delivered_tokens, progress.skipped_tokens) == (24 * 4, 5 * 4)
    later = tokenmill.Loader(small, seq_len=4, batch_size=2)
    list(itertools.islice(later, 3))
    rows = np.array([[8, 12], [8, 9]], np.int32)  # as a file of ranges may be loaded
    resumed = tokenmill.Loader(small, seq_len=4, batch_size=2, skip=rows)
    resumed.load_state_dict(later.state_dict())
    assert rows_of(itertools.islice(resumed, 2)) == expected[6:8] + expected[12:14]
    assert (
        rows_of(itertools.islice(tokenmill.Loader(small, seq_len=4, batch_size=2), 1))
        == expected[:2]
    )


def test_prefetch_when_left_early_or_broken_then_no_thread_stays_and_the_error_arrives(small):
    before = threading.active_count()
    loader = tokenmill.Loader(small, seq_len=4, batch_size=2, prefetch=3)
    for _ in loader:
        assert threading.active_count() == before + 1
        break
    del _
    batches = iter(loader)
    next(batches)
    batches.close()
    assert threading.active_count() == before

    def broken():
        yield 1
        raise IntegrityError("cut off")

    ahead = Prefetch(broken(), 2)
    assert next(ahead) == 1
    with pytest.raises(IntegrityError, match="cut off"):
        next(ahead)
    with pytest.raises(StopIteration):
        next(ahead)
    ahead.close()
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"batch_size": 10, "rank": 0, "world_size": 4},
            r"(?s)cannot be shared by 4 ranks.*batch_size=8",
        ),
        ({"rank": 2, "world_size": 2}, "ranks are 0 to world_size - 1"),
        ({"shuffle": "blocks"}, "did you mean 'block'"),
        ({"extras": ("doc_ids",)}, "document_ids"),
        ({"split": "vall"}, "unknown split"),
        ({"seq_len": 1000}, "a row of seq_len 1,000 needs 1,001"),
        ({"seq_len": 0}, "seq_len must be at least 1"),
        ({"stages": [(0, {"data": 1})]}, "two stages begin at row 0"),
        ({"skip": [(5, 5)]}, "not a range of rows"),
        ({"dtype": "float16"}, "unknown dtype"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"weights": {"dat": 1}}, "did you mean 'data'"),
    ],
)
def test_mistakes_say_what_to_type(small, options, message):
    with pytest.raises(ConfigError, match=message):
        tokenmill.Loader(small, **{"seq_len": 4, "batch_size": 2, **options})


def test_unknown_argument_is_suggested(small):
    with pytest.raises(TypeError, match="did you mean 'batch_size'"):
        tokenmill.Loader(small, seq_len=4, batchsize=2)


def test_loader_counts_beyond_32_bits(small):
    loader = tokenmill.Loader(small, seq_len=4, batch_size=2)
    state = {**loader.state_dict(), "rows": 31 * (1 << 33)}
    loader.load_state_dict(state)
    [batch] = itertools.islice(loader, 1)
    row = oracle.row_at(31 * (1 << 33), 31, "full", 0, "data")
    assert batch.tokens[0].tolist() == numbered(127, 0)[4 * row : 4 * row + 4]
    assert batch.rows == 31 * (1 << 33) + 2


def test_epochs_without_a_whole_step_are_an_error_and_the_rest_of_the_rows_is_said(small):
    loader = tokenmill.Loader(small, seq_len=4, batch_size=4, epochs=1)
    assert len(list(loader)) == 7 and "7 steps, then 3 rows left out" in repr(loader)
    with pytest.raises(ConfigError, match="batch_size 32 needs more than the 31 rows") as error:
        tokenmill.Loader(small, seq_len=4, batch_size=32, epochs=1)
    assert "batch_size=31" in (error.value.hint or "")


def test_sources_of_two_tokenizers_are_not_mixed(small):
    other = tokenmill.open(small, tokenizer="cl100k_base", eot="append")
    gpt2 = tokenmill.open(small, tokenizer="gpt2", eot="append")
    with pytest.raises(ConfigError, match="web was made with the tokenizer"):
        tokenmill.Loader({"web": gpt2, "wiki": other}, seq_len=4, batch_size=1)
    same = tokenmill.open(small, tokenizer="gpt2", eot="append")
    assert next(iter(tokenmill.Loader({"a": gpt2, "b": same}, seq_len=4, batch_size=1)))


def test_prefetch_that_waits_for_a_silent_network_is_closed_all_the_same(monkeypatch):
    monkeypatch.setattr(prefetch, "_CLOSE_SECONDS", 0.05)
    is_over = threading.Event()

    def silent():
        yield 1
        is_over.wait(60)

    ahead = Prefetch(silent(), 1)
    assert next(ahead) == 1
    ahead.close()
    assert not is_over.is_set() and next(ahead, None) is None
    is_over.set()


def test_loss_mask_of_documents_without_eot_counts_no_eot_as_their_end(tmp_path):
    """The id may be in a text; only the format's boundaries separate documents."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": t}) + "\n" for t in ["a mill b"] * 40))
    out = str(tmp_path / "out")
    tokenmill.prepare(corpus, out, format="megatron", eot="none", runner="inline", val="none")
    path = tmp_path / "out" / "text_train_00000_document.bin"
    tokens = np.fromfile(path, np.uint16)
    length = len(tokens) // 40
    tokens[length] = EOT  # the second document begins with it
    tokens.tofile(path)
    loader = tokenmill.Loader(
        out, seq_len=2 * length, batch_size=1, shuffle=None, extras="loss_mask"
    )
    mask = next(iter(loader)).loss_mask[0]
    assert np.flatnonzero(~mask).tolist() == [length - 1, 2 * length - 1]
