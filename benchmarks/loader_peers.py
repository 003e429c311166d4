"""Loaders beside ours, each on shards that tokenmill converted for it: one in a process.

    PYTHONPATH=src python loader_peers.py NAME DATA

Runs in an environment with the loaders (.venv-loaders, and grain), which benchmarks/loader.py
--peers starts it with. DATA has a folder for each format. All give shuffled batches of 64 rows of
1,024 tokens in this one process, without workers. Prints JSON: tokens a second of CPU time, seconds
from the first import to the first batch, and from a state in the middle of the epoch to a batch.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

warnings.filterwarnings("ignore")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/loaders"))
SEQ_LEN, ROWS = 1024, 64

Batches = Iterator[Any]
# A loader, its batches, its state now, and one that goes on from a state; None: it has no state.
Made = tuple[Batches, Callable[[], Any] | None, Callable[[Any], Batches] | None]


def ours(data: Path) -> Made:
    import tokenmill

    def made() -> tokenmill.Loader:
        return tokenmill.Loader(data / "nanogpt", seq_len=SEQ_LEN, batch_size=ROWS, prefetch=0)

    def resumed(state: Any) -> Batches:
        loader = made()
        loader.load_state_dict(state)
        return (batch.tokens for batch in loader)

    loader = made()
    return (batch.tokens for batch in loader), loader.state_dict, resumed


def nanogpt(data: Path) -> Made:
    """As train.py does it: maps the file for every batch, and draws crops."""
    import torch

    def batches() -> Batches:
        while True:
            tokens = np.memmap(data / "nanogpt" / "train.bin", dtype=np.uint16, mode="r")
            starts = torch.randint(len(tokens) - SEQ_LEN, (ROWS,))
            yield torch.stack(
                [torch.from_numpy(tokens[i : i + SEQ_LEN + 1].astype(np.int64)) for i in starts]
            )

    return batches(), None, None


class MappedRows:
    """Rows by number, for loaders that want a source of their own."""

    def __init__(self, data: Path) -> None:
        path = data / "nanogpt" / "train.bin"
        self.tokens = np.asarray(np.memmap(path, np.uint16, mode="r"))

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // SEQ_LEN

    def __getitem__(self, row: int) -> np.ndarray:
        return self.tokens[row * SEQ_LEN : row * SEQ_LEN + SEQ_LEN + 1].astype(np.int64)


def torchdata(data: Path) -> Made:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def made() -> Any:
        return StatefulDataLoader(MappedRows(data), batch_size=ROWS, shuffle=True, drop_last=True)

    def resumed(state: Any) -> Batches:
        loader = made()
        loader.load_state_dict(state)
        return iter(loader)

    loader = made()
    return iter(loader), loader.state_dict, resumed


def grain(data: Path) -> Made:
    import grain.python as pygrain

    def made() -> Any:
        rows = pygrain.MapDataset.source(MappedRows(data)).shuffle(seed=0).repeat()
        options = pygrain.ReadOptions(num_threads=0)
        return iter(rows.batch(ROWS).to_iter_dataset(options))

    def resumed(state: Any) -> Batches:
        batches = made()
        batches.set_state(state)
        return batches

    batches = made()
    return batches, batches.get_state, resumed


def litdata(data: Path) -> Made:
    from absent import leave_out

    leave_out("litdata")
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader

    def made() -> Any:
        blocks = TokensLoader(block_size=SEQ_LEN)
        rows = StreamingDataset(str(data / "litdata" / "train"), item_loader=blocks, shuffle=True)
        return StreamingDataLoader(rows, batch_size=ROWS, num_workers=0)

    def resumed(state: Any) -> Batches:
        loader = made()
        loader.load_state_dict(state)
        return iter(loader)

    loader = made()
    return iter(loader), loader.state_dict, resumed


def streaming(data: Path) -> Made:
    from absent import leave_out

    leave_out("mds")
    from streaming.base.dataset import StreamingDataset
    from torch.utils.data import DataLoader

    rows = StreamingDataset(
        local=str(data / "mds" / "train"), shuffle=True, batch_size=ROWS, num_canonical_nodes=1
    )

    def begun() -> Batches:
        return (batch["tokens"] for batch in DataLoader(rows, batch_size=ROWS))

    def resumed(state: Any) -> Batches:
        rows.load_state_dict(state)
        return begun()

    return begun(), lambda: rows.state_dict(ROWS * 100, True), resumed


def olmo(data: Path) -> Made:
    from absent import leave_out

    leave_out("olmo")
    import tempfile

    from olmo_core.data.collator import DataCollator
    from olmo_core.data.data_loader import NumpyFSLDataLoader
    from olmo_core.data.numpy_dataset import NumpyFSLDataset

    work = tempfile.mkdtemp()

    def made() -> Any:
        rows = NumpyFSLDataset(
            str(data / "olmo" / "part-train-00000.npy"), sequence_length=SEQ_LEN,
            pad_token_id=50256, eos_token_id=50256, vocab_size=50257, dtype=np.uint16,
        )  # fmt: skip
        rows.prepare()
        return NumpyFSLDataLoader(
            rows, global_batch_size=ROWS * SEQ_LEN, collator=DataCollator(pad_token_id=50256),
            work_dir=work, seed=0, num_threads=0, num_workers=0,
        )  # fmt: skip

    def resumed(state: Any) -> Batches:
        loader = made()
        loader.load_state_dict(state)
        loader.reshuffle(epoch=1)
        return (batch["input_ids"] for batch in loader)

    loader = made()
    loader.reshuffle(epoch=1)
    return (batch["input_ids"] for batch in loader), loader.state_dict, resumed


def megatron(data: Path) -> Made:
    from absent import leave_out

    leave_out("megatron")
    import tempfile
    from types import SimpleNamespace

    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split

    tokenizer = SimpleNamespace(
        eod=50256, pad=50256, vocab_size=50257, unique_identifiers={"class": "gpt2"}
    )
    cache = tempfile.mkdtemp()

    def made() -> Any:
        config = GPTDatasetConfig(
            random_seed=0, sequence_length=SEQ_LEN, split="1", path_to_cache=cache,
            reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
            create_attention_mask=False, tokenizer=tokenizer, mid_level_dataset_surplus=0.005,
        )  # fmt: skip
        path = str(data / "megatron" / "text_train_00000_document")
        low = IndexedDataset(path)
        documents = np.arange(len(low.document_indices) - 1, dtype=np.int32)
        return GPTDataset(low, path, documents, None, Split.train, config)

    def from_row(first: int) -> Batches:
        rows = made()
        for start in range(first, len(rows) - ROWS, ROWS):
            yield np.stack([rows[row]["tokens"] for row in range(start, start + ROWS)])

    return from_row(0), lambda: 100 * ROWS, from_row


def datatrove(data: Path) -> Made:
    from absent import leave_out

    leave_out("datatrove")
    from datatrove.utils.dataset import DatatroveFolderDataset
    from torch.utils.data import DataLoader

    folder = str(data / "datatrove" / "train")
    rows = DatatroveFolderDataset(
        folder, SEQ_LEN, filename_pattern="*.ds", token_size=2, shuffle=True
    )
    loader = DataLoader(rows, batch_size=ROWS)
    return (batch["input_ids"] for batch in loader), None, None


PACKAGES = {"streaming": "mosaicml-streaming", "olmo": "ai2-olmo-core", "megatron": "megatron-core"}
LOADERS = {
    "tokenmill": ours, "nanogpt": nanogpt, "torchdata": torchdata, "grain": grain,
    "litdata": litdata, "streaming": streaming, "olmo": olmo, "megatron": megatron,
    "datatrove": datatrove,
}  # fmt: skip


def measured(name: str, data: Path) -> dict[str, Any]:
    begin = time.process_time()
    batches, state, resumed = LOADERS[name](data)
    first = next(batches)
    found: dict[str, Any] = {
        "loader": name,
        "cpu_seconds_to_first_batch": time.process_time() - begin,
    }
    for _ in range(100):
        next(batches)
    now = state() if state else None
    speeds = []
    for _ in range(3):  # the best of three: others share the machine
        begin, count = time.process_time(), 0
        for _ in range(25):
            count += int(np.prod(np.shape(next(batches))[:1])) * SEQ_LEN
        speeds.append(count / (time.process_time() - begin))
    found["tokens_per_second"] = round(max(speeds))
    found["own_megabytes"] = anonymous_megabytes()
    if resumed and now is not None:
        begin = time.process_time()
        next(resumed(now))
        found["cpu_seconds_to_resume"] = time.process_time() - begin
        found["state_bytes"] = len(repr(now))
    assert len(first) == ROWS
    if name not in ("tokenmill", "nanogpt"):
        found["version"] = version(PACKAGES.get(name, name))
    return found


def anonymous_megabytes() -> float:
    """Without pages of mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon:")).split()[1]) / 1024


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], Path(sys.argv[2]))))
