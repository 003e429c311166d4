"""The loader for `torch.utils.data`: batches as tensors, optionally made in worker processes.

    batches = TorchLoader(loader, num_workers=4)            counts in this process: elastic
    for batch in batches: model(batch["tokens"].to(device), batch["targets"].to(device))
    batches.state_dict()

    torchdata.stateful_dataloader.StatefulDataLoader(TorchRows(loader), batch_size=None)

Worker w of n makes steps w, w + n, ... of the rank's run, and torch's DataLoader takes them in
turn, so the order is that of one process. No DistributedSampler is needed: the loader knows its
rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

try:
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info
except ImportError as error:
    raise ImportError("tokenmill.loader.torch needs torch: pip install tokenmill[torch]") from error

from tokenmill.loader.batch import TokenBatch
from tokenmill.loader.loader import Loader
from tokenmill.loader.state import MAX_ROWS, not_a_state

Tensors = dict[str, Any]


def tensors_of(batch: TokenBatch) -> Tensors:
    """The batch's arrays as tensors that share its memory, and `rows`, the run's counter after
    it."""
    found: Tensors = {name: torch.from_numpy(array) for name, array in batch.arrays().items()}
    return {**found, "rows": batch.rows}


class TorchRows(IterableDataset[Tensors]):
    """A rank's batches as a dataset for DataLoader(..., batch_size=None).

    With worker processes, a second loop over the same DataLoader begins again where the first one
    began: torch makes new workers of this object, and does not tell it what they delivered.
    TorchLoader goes on. torchdata's StatefulDataLoader keeps its state for each worker, so it must
    be loaded with the same number of workers; TorchLoader has no such limit.
    """

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self.loader = loader
        self._begun: dict[str, Any] = (
            loader.state_dict()
        )  # the state from which batches are counted
        self._num_made = 0

    def __iter__(self) -> Iterator[Tensors]:
        info = get_worker_info()
        worker, num_workers = (0, 1) if info is None else (info.id, info.num_workers)
        self.loader.load_state_dict(self._begun)
        for batch in self.loader.batches(worker, num_workers, self._num_made):
            self._num_made += 1
            yield tensors_of(batch)

    def state_dict(self) -> dict[str, Any]:
        return {"begun": self._begun, "made": self._num_made}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        begun, num_made = (state.get(name) for name in ("begun", "made"))
        if not isinstance(num_made, int) or not 0 <= num_made < MAX_ROWS:
            raise not_a_state(state)
        self.loader.load_state_dict(begun or {})
        self._begun, self._num_made = dict(begun or {}), num_made


class TorchLoader:
    """A DataLoader over a Loader. Its state is the Loader's, so any number of workers can continue
    from it. `options` are those of torch's DataLoader, such as pin_memory and prefetch_factor."""

    def __init__(self, loader: Loader, num_workers: int = 0, **options: Any) -> None:
        self.loader = loader
        self._options = {**options, "num_workers": num_workers, "batch_size": None}

    def __iter__(self) -> Iterator[Tensors]:
        for batch in DataLoader(TorchRows(self.loader), **self._options):
            self.loader.advance_to(batch["rows"])
            yield batch

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.loader.load_state_dict(state)
