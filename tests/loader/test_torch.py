"""The loader inside torch: worker processes, StatefulDataLoader's protocol, DDP."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest

import loader_oracle as oracle
import tokenmill

torch = pytest.importorskip("torch")
from tokenmill.loader.torch import TorchLoader, TorchRows  # noqa: E402

# Not how many workers are quick, but that any number gives the same rows.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture
def small(tmp_path) -> str:
    tokens = [(7919 * i) % 50000 for i in range(31 * 4 + 1)]
    return str(oracle.write_shards(tmp_path / "small", tokens, [50, 51, 99]))


def loader_of(path: str, **options) -> tokenmill.Loader:
    return tokenmill.Loader(path, **{"seq_len": 4, "batch_size": 2, "epochs": 2, **options})


def firsts(batches) -> list[list[list[int]]]:
    return [batch["tokens"].tolist() for batch in batches]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_give_the_order_of_one_process_and_no_row_twice(small, context):
    """torchtitan #291: every worker iterates the same stream."""
    if context == "fork":
        expected = [batch.tokens.tolist() for batch in loader_of(small)]
        for workers in (0, 2, 3):
            options = {"multiprocessing_context": context} if workers else {}
            assert firsts(TorchLoader(loader_of(small), workers, **options)) == expected
    else:  # a loader is opened again where it arrives
        found = TorchLoader(loader_of(small), 1, multiprocessing_context="spawn")
        assert firsts(itertools.islice(found, 3)) == [
            batch.tokens.tolist() for batch in itertools.islice(loader_of(small), 3)
        ]


def test_state_with_workers_goes_on_with_any_other_number_of_them(small):
    """litData #213, #251, #316, torchdata's assertion: state that lives in workers."""
    expected = [batch.tokens.tolist() for batch in loader_of(small)]
    found, state = [], None
    for workers, count in ((2, 5), (0, 4), (3, 7)):
        batches = TorchLoader(loader_of(small), workers)
        if state is not None:
            batches.load_state_dict(state)
            assert batches.state_dict() == state
        found += firsts(itertools.islice(batches, count))
        state = json.loads(json.dumps(batches.state_dict()))
    assert found == expected[:16] and len(batches) == len(expected) - 16


def test_tensors_share_memory_with_the_batch_and_have_the_extras(small):
    source = tokenmill.open(small, tokenizer="gpt2", eot="append")
    loader = loader_of(source, extras=("cu_seqlens", "loss_mask"))
    [batch] = itertools.islice(TorchLoader(loader), 1)
    assert batch["tokens"].dtype == batch["targets"].dtype == torch.int64
    assert batch["tokens"].data_ptr() + 8 == batch["targets"].data_ptr()
    assert set(batch) == {"tokens", "targets", "cu_seqlens", "loss_mask", "rows"}
    assert loader.state_dict()["rows"] == batch["rows"] == 2


@pytest.mark.parametrize("made", [0, 1, 5])
def test_dataset_in_a_worker_goes_on_from_its_own_state(small, made, monkeypatch):
    """What torchdata's StatefulDataLoader does in each worker."""
    from tokenmill.loader import torch as adapter

    expected = [batch.tokens.tolist() for batch in loader_of(small)]
    for worker in range(3):
        info = type("Info", (), {"id": worker, "num_workers": 3})
        monkeypatch.setattr(adapter, "get_worker_info", lambda info=info: info)
        rows = TorchRows(loader_of(small))
        list(itertools.islice(rows, made))
        again = TorchRows(loader_of(small))
        again.load_state_dict(json.loads(json.dumps(rows.state_dict())))
        assert again.state_dict() == rows.state_dict()
        assert firsts(again) == expected[worker::3][made:]


DDP = """
import itertools, json, os, sys, torch, torch.distributed as dist
import tokenmill
rank, world = int(sys.argv[2]), 2
dist.init_process_group("gloo", init_method=sys.argv[3], rank=rank, world_size=world)
ranks = {"rank": rank, "world_size": world}
loader = tokenmill.Loader(sys.argv[1], seq_len=4, batch_size=4, epochs=1, **ranks)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
found = []
for batch in itertools.islice(loader, 3):
    tokens = torch.from_numpy(batch.tokens)
    model(tokens.float()).sum().backward()
    parts = [torch.empty_like(tokens.contiguous()) for _ in range(world)]
    dist.all_gather(parts, tokens.contiguous())
    found.append(torch.cat(parts).tolist())
states = [None] * world
dist.all_gather_object(states, loader.state_dict())
assert all(state == states[0] for state in states)
if rank == 0:
    print(json.dumps(found))
dist.destroy_process_group()
"""


def test_ranks_of_ddp_side_by_side_are_the_step(small, tmp_path):
    (tmp_path / "ddp.py").write_text(DDP)
    expected = [batch.tokens.tolist() for batch in loader_of(small, batch_size=4, epochs=1)][:3]
    command = [sys.executable, str(tmp_path / "ddp.py"), small]
    ranks = [
        subprocess.Popen([*command, str(rank), f"file://{tmp_path}/meet"], stdout=subprocess.PIPE)
        for rank in range(2)
    ]
    first, _ = [rank.communicate()[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert json.loads(first) == expected
