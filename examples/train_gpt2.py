"""GPT-2 on tokenmill's shards: DDP, checkpoints, and a resume that continues the same run.

    python examples/train_gpt2.py data/web --out runs/a                        a GPU, or the CPU
    torchrun --nproc-per-node 8 examples/train_gpt2.py data/web --out runs/a   eight GPUs

Kill it whenever you like. The same command goes on from the last checkpoint, on any number of GPUs
and with any --micro-batch: a step is --batch-size rows on all of them together, and which rows
these are depends on the step alone. What may then differ is the last bits of a sum of gradients;
with --exact nothing does, at the price of computing one row at a time.

--out gets checkpoint.pt and, for each attempt, log-FIRSTSTEP.jsonl: the loss, a checksum of the
rows, the seconds of the step and those it waited for data, and the share of the GPU's peak (MFU).
"""

import argparse
import contextlib
import json
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from gpt2_model import Gpt2, mask_of
from torch import nn

import tokenmill

PEAK_FLOPS = {"A100": 312e12, "H100": 989e12, "H200": 989e12}  # bf16, dense
EXACT_UNIT = 2.0**-40  # of --exact: a sum of integers does not depend on its order
RANK, WORLD_SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def main(arguments: list[str] | None = None) -> None:
    options = options_of(arguments)
    device = device_of(options)
    loaders = loaders_of(options)
    torch.manual_seed(options.seed)
    raw = Gpt2(options).to(device)
    optimizer = torch.optim.AdamW(raw.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    checkpoint, first = os.path.join(options.out, "checkpoint.pt"), 0
    if os.path.exists(checkpoint):
        first = loaded(checkpoint, raw, optimizer, loaders, device)
    model = torch.compile(raw) if options.compile else raw
    if WORLD_SIZE > 1 and not options.exact:
        model = nn.parallel.DistributedDataParallel(model)

    os.makedirs(options.out, exist_ok=True)
    batches = batches_of(loaders, device)
    rows, counter = next(batches)
    for step in range(first, options.steps):
        begin = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, options)
        loss = (exact_gradients if options.exact else gradients)(model, rows, step, options)
        nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        checksum, done = checksum_of(rows), counter
        asked = time.perf_counter()
        rows, counter = next(batches)  # while the GPU works
        waited = time.perf_counter() - asked
        line = {"step": step, "loss": loss.item(), "rows": checksum.item()}
        line |= timed(raw, time.perf_counter() - begin, waited, options)
        if RANK == 0:
            logged(line, os.path.join(options.out, f"log-{first}.jsonl"), is_first=step == first)
        if RANK == 0 and (step + 1) % options.checkpoint_every == 0:
            state = {"model": raw.state_dict(), "optimizer": optimizer.state_dict()}
            state |= {"step": step + 1, "loader": loaders[0].state_at(done)}
            torch.save(state, checkpoint + ".unfinished")
            os.replace(checkpoint + ".unfinished", checkpoint)
    if dist.is_initialized():
        dist.barrier()  # nobody leaves while another still reads or saves
        # Before the group: if torch's reducer goes last, it waits, and holds the GIL, for a thread
        # of gloo that waits for the GIL.
        del model
        dist.destroy_process_group()


def loaded(checkpoint, model, optimizer, loaders, device) -> int:
    """The step to go on with."""
    state = torch.load(checkpoint, map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    for loader in loaders:
        loader.load_state_dict(state["loader"])  # the same for every rank
    return state["step"]


def loaders_of(options) -> list[tokenmill.Loader]:
    """This process's: one, unless --ranks has it play several ranks."""
    return [
        tokenmill.Loader(
            options.data,
            seq_len=options.seq_len,
            batch_size=options.batch_size,
            rank=RANK * options.ranks + number,
            world_size=WORLD_SIZE * options.ranks,
            seed=options.seed,
            dtype="int32",  # half the bytes to send; int64 on the GPU
            prefetch=0,  # batches_of has a thread
            extras=("document_ids", "position_ids") if options.mask_documents else (),
        )
        for number in range(options.ranks)
    ]


def batches_of(loaders, device):
    """This process's rows of each step, on the device, and the run's counter after it. A thread
    does all of it a step ahead: beside another thread, every call of torch waits for its turn."""
    steps = zip(*loaders, strict=True)
    with ThreadPoolExecutor(1) as thread:
        ahead = thread.submit(next_rows, steps, device)
        while (rows := ahead.result()) is not None:
            ahead = thread.submit(next_rows, steps, device)
            yield rows


def next_rows(steps, device):
    if (batches := next(steps, None)) is None:
        return None
    parts, rows = [batch.arrays() for batch in batches], {}
    for name in parts[0]:
        rows[name] = torch.cat([torch.from_numpy(part[name]) for part in parts])
        if device != "cpu":
            rows[name] = rows[name].pin_memory().to(device, non_blocking=True)
    rows |= {name: rows[name].long() for name in ("tokens", "targets")}
    return rows, batches[0].rows


def gradients(model, rows, step, options):
    """The step's mean loss; the gradients are left in the model."""
    torch.manual_seed(step * WORLD_SIZE + RANK)  # of dropout, so that there is no state to save
    num_rows, losses = len(rows["tokens"]), []
    for part in parts_of(rows, options.micro_batch):
        is_last = (len(losses) + 1) * options.micro_batch >= num_rows
        waits = WORLD_SIZE > 1 and not is_last
        with model.no_sync() if waits else contextlib.nullcontext():
            losses.append(loss_of(model, part) * (len(part["tokens"]) / num_rows))
            losses[-1].backward()
    return summed(sum(loss.detach() for loss in losses)) / WORLD_SIZE


def exact_gradients(model, rows, step, options):
    """The same bits for any number of processes: row by row, added up as integers."""
    first = step * options.batch_size + RANK * len(rows["tokens"])
    values = [torch.zeros((), device=rows["tokens"].device), *model.parameters()]
    sums = [torch.zeros_like(value, dtype=torch.int64) for value in values]
    for number, row in enumerate(parts_of(rows, 1), first):
        torch.manual_seed(number)
        loss = loss_of(model, row)
        loss.backward()
        found = [loss.detach(), *(each.grad for each in model.parameters())]
        for each, value in zip(sums, found, strict=True):
            each.add_((value.double() / EXACT_UNIT).round().long())
        model.zero_grad()
    means = [summed(each).double() * (EXACT_UNIT / options.batch_size) for each in sums]
    for parameter, mean in zip(model.parameters(), means[1:], strict=True):
        parameter.grad = mean.float()
    return means[0]


def loss_of(model, rows):
    with torch.autocast("cuda", torch.bfloat16, enabled=rows["tokens"].is_cuda):
        if "document_ids" not in rows:
            return model(rows["tokens"], rows["targets"])
        mask = mask_of(rows["document_ids"])
        return model(rows["tokens"], rows["targets"], mask, rows["position_ids"])


def parts_of(rows, count):
    for start in range(0, len(rows["tokens"]), count):
        yield {name: each[start : start + count] for name, each in rows.items()}


def checksum_of(rows):
    """Of the step's rows, whichever process has them."""
    places = torch.arange(1, rows["tokens"].shape[1] + 1, device=rows["tokens"].device)
    return summed((rows["tokens"] * places + rows["targets"] ** 2).sum())


def summed(value):
    """Over all processes."""
    if dist.is_initialized():
        dist.all_reduce(value)
    return value


def learning_rate(step, options):
    warm = min(1.0, (step + 1) / options.warmup)
    return options.lr * warm * (0.55 + 0.45 * math.cos(math.pi * min(1.0, step / options.steps)))


def timed(model, seconds, waited, options) -> dict:
    speed = options.batch_size * options.seq_len / seconds
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    peak = next((peak for known, peak in PEAK_FLOPS.items() if known in name), math.inf)
    mfu = model.flops_per_token() * speed / WORLD_SIZE / peak
    return {"seconds": seconds, "data_seconds": waited, "tokens_per_second": speed, "mfu": mfu}


def logged(line, path, is_first):
    with open(path, "w" if is_first else "a") as log:
        log.write(json.dumps(line) + "\n")
    share = line["data_seconds"] / line["seconds"]
    print(f"step {line['step']}  loss {line['loss']:.4f}  {line['seconds'] * 1e3:.0f} ms", end="  ")
    print(f"data {share:.2%}  mfu {line['mfu']:.1%}", flush=True)


def device_of(options) -> str:
    local, has_gpu = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.is_available()
    device = f"cuda:{local}" if has_gpu and not options.cpu else "cpu"
    if options.exact or options.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(1)  # sums on a CPU depend on it
    if device != "cpu":
        torch.cuda.set_device(device)  # of this thread
    if WORLD_SIZE > 1:
        dist.init_process_group("gloo" if device == "cpu" else "nccl")
    return device


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="a dataset: what `tokenmill prepare` wrote")
    parser.add_argument("--out", required=True, help="folder of the checkpoint and the logs")
    shape = {"seq-len": 1024, "layers": 12, "heads": 12, "width": 768, "vocab": 50304}
    run = {"steps": 20_000, "batch-size": 512, "warmup": 700, "checkpoint-every": 500, "seed": 0}
    for name, value in {**shape, **run, "micro-batch": 32, "ranks": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--dropout", type=float, default=0.0)
    for name in ("mask-documents", "compile", "deterministic", "exact", "cpu"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
