"""Trains a small model with DDP and with FSDP on 4, then 3, 2 and 1 processes of gloo.

    python world_sizes.py DATA FOLDER

Each world size goes on where the last one stopped, with the state of another rank each time. Prints
{"ddp": {"tokens": every step's rows, "losses": [...]}, "fsdp": the same}.
"""

import itertools
import json
import multiprocessing
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import tokenmill

WORLD_SIZES, STEPS = (4, 3, 2, 1), 3


def main(data: str, folder: str) -> None:
    context = multiprocessing.get_context("fork")  # torch is imported once
    ranks = [
        context.Process(target=trained, args=(rank, data, folder)) for rank in range(WORLD_SIZES[0])
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    sys.exit(max(abs(rank.exitcode) for rank in ranks))


def trained(rank: int, data: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD_SIZES[0]
    )
    groups = [dist.new_group(range(size)) for size in WORLD_SIZES]
    found = {name: chain(name, rank, groups, data) for name in ("ddp", "fsdp")}
    if rank == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def chain(name: str, rank: int, groups, data: str) -> dict:
    found, kept = {"tokens": [], "losses": []}, [None, None]
    for world_size, group in zip(WORLD_SIZES, groups, strict=True):
        if rank < world_size:
            kept = some_steps(name, rank, world_size, group, data, kept, found)
            states = [None] * world_size
            dist.all_gather_object(states, kept[1], group)
            assert all(state == states[0] for state in states), states
            kept[1] = states[-1]
        dist.barrier()
    return found


def some_steps(name: str, rank: int, world_size: int, group, data: str, kept, found) -> list:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(512, 12), nn.Linear(12, 512))
    weights, state = kept
    if weights is not None:
        model.load_state_dict(weights)
    wrapped = model
    if name == "ddp":
        wrapped = nn.parallel.DistributedDataParallel(model, process_group=group)
    else:
        fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
    loader = tokenmill.Loader(
        data, seq_len=4, batch_size=12, epochs=6, rank=rank, world_size=world_size
    )
    if state is not None:
        loader.load_state_dict(state)
    for batch in itertools.islice(loader, STEPS):
        tokens, targets = (torch.from_numpy(rows) for rows in (batch.tokens, batch.targets))
        loss = nn.functional.cross_entropy(wrapped(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= parameter.grad
                parameter.grad = None
        found["losses"].append(mean(loss.detach(), group))
        found["tokens"].append(gathered(tokens.contiguous(), world_size, group))
    return [{key: whole(value) for key, value in model.state_dict().items()}, loader.state_dict()]


def mean(value, group) -> float:
    dist.all_reduce(value, group=group)
    return value.item() / dist.get_world_size(group)


def gathered(tokens, world_size: int, group) -> list:
    parts = [torch.empty_like(tokens) for _ in range(world_size)]
    dist.all_gather(parts, tokens, group=group)
    return torch.cat(parts).tolist()


def whole(value):
    return value.full_tensor() if hasattr(value, "full_tensor") else value.clone()


if __name__ == "__main__":
    main(*sys.argv[1:])
