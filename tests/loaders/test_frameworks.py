"""Frameworks that wrap a loader stop and resume it, and every batch comes once, in order."""

import loader_oracle as oracle
import tokenmill
from loader_env import frameworks


def test_torchdata_accelerate_and_lightning_stop_and_resume_without_a_row_twice(tmp_path):
    tokens = [(7919 * i) % 509 for i in range(31 * 4 + 1)]
    data = oracle.write_shards(tmp_path / "data", tokens, [50, 51, 99])
    loader = tokenmill.Loader(data, seq_len=4, batch_size=4, epochs=2, seed=3)
    expected = [batch.tokens[0].tolist() for batch in loader]
    found = frameworks(data)
    assert set(found) == {"torchdata", "accelerate", "lightning"} and len(expected) == 15
    for name, passes in found.items():
        for how, firsts in passes.items():
            assert firsts == expected, f"{name}, {how}"
