"""LitData's cases of elastic resume (its tests/streaming/test_elastic.py), asked of ours.

There a case holds if no row comes twice after the resume; a prefix that is no multiple of
world size x batch is rounded down, so that rows come again, and its tests say so. Here every case
is the order of the undisturbed run, to the row.
"""

from __future__ import annotations

import itertools
import json

import pytest

import loader_oracle as oracle
import tokenmill

NUM_ROWS = 128


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    """Row r begins with the token r; shards of uneven sizes."""
    tokens = [i // 2 if i % 2 == 0 else 999 for i in range(2 * NUM_ROWS + 1)]
    folder = tmp_path_factory.mktemp("elastic") / "data"
    return str(oracle.write_shards(folder, tokens, [3, 11, 1, 107, 54, 81]))


def loader_of(data: str, batch_size: int, rank: int = 0, world_size: int = 1):
    return tokenmill.Loader(
        data, seq_len=2, batch_size=batch_size, epochs=2, seed=42, rank=rank, world_size=world_size
    )


def taken(data: str, state, batch_size: int, world_size: int, workers: int, steps: int):
    """The rows of these steps, ranks side by side, and the state that any of them leaves."""
    parts, states = [], []
    for rank in range(world_size):
        loader = loader_of(data, batch_size, rank, world_size)
        if state is not None:
            loader.load_state_dict(state)
        made = [loader.batches(worker, workers) for worker in range(workers)]
        batches = [batch for turn in itertools.zip_longest(*made) for batch in turn if batch]
        parts.append([batch.tokens[:, 0].tolist() for batch in batches[:steps]])
        states.append(loader.state_at(batches[:steps][-1].rows) if batches[:steps] else state)
    assert all(state == states[0] for state in states)
    rows = [row for step in zip(*parts, strict=True) for part in step for row in part]
    return rows, json.loads(json.dumps(states[-1]))


# Of each stretch: rows a step, world size, workers, steps.
CASES = {
    "workers_2_to_8": [(4, 1, 2, 6), (4, 1, 8, 99)],
    "workers_8_to_2": [(4, 1, 8, 5), (4, 1, 2, 99)],
    "strict_resume_same_workers": [(4, 1, 1, 5), (4, 1, 1, 99)],
    "world_size_2_to_1": [(8, 2, 1, 2), (4, 1, 1, 99)],
    "8_to_2_to_8": [(32, 8, 1, 1), (8, 2, 1, 3), (32, 8, 1, 99)],
    "constant_global_batch": [(32, 8, 1, 2), (32, 4, 1, 99)],
    "unaligned_drop_first": [(13, 1, 1, 1), (8, 2, 1, 99)],
    "uneven_chunk_sizes": [(5, 1, 1, 1), (12, 2, 3, 99)],
    "second_checkpoint": [(4, 1, 2, 6), (4, 1, 1, 3), (4, 1, 4, 99)],
    "past_the_end": [(16, 2, 1, 99), (16, 4, 2, 99)],
    "over_an_epoch": [(7, 1, 3, 20), (20, 4, 2, 99)],
}


@pytest.mark.parametrize("stretches", CASES.values(), ids=CASES)
def test_every_elastic_case_of_litdata_gives_the_order_of_the_undisturbed_run(data, stretches):
    expected = [int(batch.tokens[0, 0]) for batch in loader_of(data, 1)]
    state, found = None, []
    for stretch in stretches:
        rows, state = taken(data, state, *stretch)
        found += rows
    assert found == expected[: len(found)]
    assert len(expected) - len(found) < stretches[-1][0]  # less than a step is left
    assert sorted(expected[:NUM_ROWS]) == list(range(NUM_ROWS))
