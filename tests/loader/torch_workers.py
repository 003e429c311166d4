"""Has DataLoader's worker processes make rows, in a process of its own: torch's SIGCHLD handler
raises in whatever the main thread does at the moment, and that may be pytest's own code.

    python torch_workers.py DATA fork|spawn|elastic|twice

Prints the rows of `tokens` of every batch, in a list for each loop.
"""

import itertools
import json
import sys

from torch.utils.data import DataLoader

import tokenmill
from tokenmill.loader.torch import TorchLoader, TorchRows


def loops(name: str, data: str) -> list[list]:
    def loader() -> tokenmill.Loader:
        return tokenmill.Loader(data, seq_len=4, batch_size=2, epochs=2)

    if name == "fork":
        return [
            tokens_of(TorchLoader(loader(), workers, multiprocessing_context="fork"))
            for workers in (2, 3)
        ]
    if name == "spawn":  # a loader is opened again where it arrives
        return [tokens_of(TorchLoader(loader(), 1, multiprocessing_context="spawn"), 3)]
    if name == "elastic":
        return list(elastic(loader))
    batches = DataLoader(TorchRows(loader()), batch_size=None, num_workers=2)
    going_on = TorchLoader(loader(), 2)
    return [tokens_of(rows, 3) for rows in (batches, batches, going_on, going_on)]


def elastic(loader):
    """Loops with 2 workers, then none, then 3, each from the state of the last one."""
    state = None
    for workers, count in ((2, 5), (0, 4), (3, 7)):
        batches = TorchLoader(loader(), workers)
        if state is not None:
            batches.load_state_dict(state)
            assert batches.state_dict() == state
        num_left = len(batches)
        yield tokens_of(batches, count)
        assert len(batches) == num_left - count
        state = json.loads(json.dumps(batches.state_dict()))


def tokens_of(batches, count: int | None = None) -> list:
    return [batch["tokens"].tolist() for batch in itertools.islice(batches, count)]


if __name__ == "__main__":
    print(json.dumps(loops(sys.argv[2], sys.argv[1])))
