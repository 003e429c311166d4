"""A training loop with the shape of nanoGPT's train.py, for a test that changes five of its lines.

A model of one table; the same names, and the same order of fetching, evaluating and saving.
"""

import os
import sys

import numpy as np
import torch

out_dir, init_from, batch_size, gradient_accumulation_steps = sys.argv[1:]
batch_size, gradient_accumulation_steps = int(batch_size), int(gradient_accumulation_steps)
block_size, eval_interval, max_iters, vocab_size = 8, 4, 12, 512
ddp_world_size, seed_offset = 1, 0
torch.manual_seed(1337 + seed_offset)

data_dir = os.path.join(out_dir, "..", "data")


def get_batch(split):
    data = np.memmap(os.path.join(data_dir, f"{split}.bin"), dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    ids = torch.from_numpy(data.astype(np.int64))
    x = torch.stack([ids[i : i + block_size] for i in ix])
    y = torch.stack([ids[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


iter_num = 0
model = torch.nn.Embedding(vocab_size, vocab_size)
if init_from == "resume":
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"))
    model.load_state_dict(checkpoint["model"])
    iter_num = checkpoint["iter_num"]


def loss_of(x, y):
    return torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.view(-1))


@torch.no_grad()
def estimate_loss():
    return {split: loss_of(*get_batch(split)) for split in ("train", "val")}


X, Y = get_batch("train")
while iter_num <= max_iters:
    if iter_num % eval_interval == 0:
        estimate_loss()
        if iter_num > 0:
            checkpoint = {
                "model": model.state_dict(),
                "iter_num": iter_num,
            }
            torch.save(checkpoint, os.path.join(out_dir, "ckpt.pt"))
    for _micro_step in range(gradient_accumulation_steps):
        loss = loss_of(X, Y) / gradient_accumulation_steps
        X, Y = get_batch("train")
        loss.backward()
    model.weight.data -= 0.1 * model.weight.grad  # torch.optim takes seconds to import
    model.weight.grad = None
    print(f"iter {iter_num}: loss {loss.item() * gradient_accumulation_steps!r}", flush=True)
    iter_num += 1
