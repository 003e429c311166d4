"""The loader inside torch: worker processes, StatefulDataLoader's protocol, DDP."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

import loader_oracle as oracle
import tokenmill
from tokenmill.errors import ConfigError

torch = pytest.importorskip("torch")
from tokenmill.loader.torch import TorchLoader, TorchRows  # noqa: E402


@pytest.fixture
def small(tmp_path) -> str:
    tokens = [(7919 * i) % 509 for i in range(31 * 4 + 1)]
    return str(oracle.write_shards(tmp_path / "small", tokens, [50, 51, 99]))


def loader_of(path: str, **options) -> tokenmill.Loader:
    return tokenmill.Loader(path, **{"seq_len": 4, "batch_size": 2, "epochs": 2, **options})


def firsts(batches) -> list[list[list[int]]]:
    return [batch["tokens"].tolist() for batch in batches]


def in_workers(name: str, data: str) -> list[list]:
    return json.loads(script_output("torch_workers.py", data, name))


def script_output(script: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def expected_rows(small: str, count: int | None = None) -> list:
    return [batch.tokens.tolist() for batch in itertools.islice(loader_of(small), count)]


def test_workers_give_the_order_of_one_process_and_no_row_twice(small):
    """torchtitan #291: every worker iterates the same stream."""
    expected = expected_rows(small)
    assert firsts(TorchLoader(loader_of(small))) == expected
    assert in_workers("fork", small) == [expected, expected]
    assert in_workers("spawn", small) == [expected[:3]]


def test_state_with_workers_goes_on_with_any_other_number_of_them(small):
    """litData #213, #251, #316, torchdata's assertion: state that lives in workers."""
    expected = expected_rows(small)
    assert in_workers("elastic", small) == [expected[:5], expected[5:9], expected[9:16]]


def test_second_loop_over_rows_in_workers_begins_again_and_that_of_a_torch_loader_goes_on(small):
    first, second = expected_rows(small, 3), expected_rows(small, 6)[3:]
    assert in_workers("twice", small) == [first, first, first, second]


@pytest.mark.parametrize("wrong", [{}, {"begun": 1}, {"begun": {}, "made": 0}, {"made": "x"}])
def test_state_of_rows_that_is_none_is_refused(small, wrong):
    rows = TorchRows(loader_of(small))
    with pytest.raises(ConfigError, match="not the state of a Loader"):
        rows.load_state_dict(wrong)


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


def test_ddp_and_fsdp_go_on_with_any_number_of_processes(small, tmp_path):
    """4, 3, 2 and 1 of gloo: ranks side by side are the step, and losses those of one process."""
    output = script_output("world_sizes.py", small, str(tmp_path))
    steps = list(itertools.islice(loader_of(small, batch_size=12, epochs=6), 12))
    expected = losses_of_one(steps)
    for found in json.loads(output).values():
        assert found["tokens"] == [batch.tokens.tolist() for batch in steps]
        assert found["losses"] == pytest.approx(expected, rel=1e-5)


def losses_of_one(steps) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(512, 12), torch.nn.Linear(12, 512))
    losses = []
    for batch in steps:
        tokens, targets = (torch.from_numpy(rows) for rows in (batch.tokens, batch.targets))
        logits = model(tokens).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, targets.flatten())
        loss.backward()
        for parameter in model.parameters():
            parameter.data -= parameter.grad
            parameter.grad = None
        losses.append(loss.item())
    return losses
