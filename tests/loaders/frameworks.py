"""Our batches through torchdata, accelerate and Lightning: PYTHONPATH=src python frameworks.py DATA

Prints {framework: what it found}: of torchdata and accelerate the first tokens of each batch, of
an uninterrupted pass and of one that was stopped and resumed; of Lightning the same from fit().
"""

import itertools
import json
import logging
import sys
import tempfile
import warnings

import torch
from torch import nn
from torchdata.stateful_dataloader import StatefulDataLoader

import tokenmill
from tokenmill.loader.torch import TorchLoader, TorchRows

warnings.filterwarnings("ignore")


def loader_of(data: str) -> tokenmill.Loader:
    return tokenmill.Loader(data, seq_len=4, batch_size=4, epochs=2, seed=3)


def firsts(batches) -> list[int]:
    return [batch["tokens"][0].tolist() for batch in batches]


def torchdata(data: str) -> dict:
    found = {}
    for workers, stop in ((0, 1), (0, 7), (2, 5)):
        made = StatefulDataLoader(TorchRows(loader_of(data)), batch_size=None, num_workers=workers)
        seen = firsts(itertools.islice(made, stop))
        again = StatefulDataLoader(TorchRows(loader_of(data)), batch_size=None, num_workers=workers)
        again.load_state_dict(made.state_dict())
        found[f"{workers} workers, stopped at {stop}"] = seen + firsts(again)
    return found


def accelerate(data: str) -> dict:
    """It moves batches to the device, and registers the loader as something to save."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    def begun():
        configuration = DataLoaderConfiguration(dispatch_batches=False, split_batches=False)
        accelerator = Accelerator(cpu=True, dataloader_config=configuration)
        batches = TorchLoader(loader_of(data))
        accelerator.register_for_checkpointing(batches)
        return accelerator, batches

    with tempfile.TemporaryDirectory() as folder:
        accelerator, batches = begun()
        model, optimizer = prepared(accelerator)
        seen = firsts(trained(itertools.islice(batches, 6), accelerator, model, optimizer))
        accelerator.save_state(folder)
        accelerator, batches = begun()
        model, optimizer = prepared(accelerator)
        accelerator.load_state(folder)
        return {"stopped at 6": seen + firsts(trained(batches, accelerator, model, optimizer))}


def prepared(accelerator):
    model = nn.Linear(4, 1)
    return accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))


def trained(batches, accelerator, model, optimizer):
    for batch in batches:
        accelerator.backward(model(batch["tokens"].float().to(accelerator.device)).sum())
        optimizer.step()
        yield batch


def lightning(data: str) -> dict:
    """It saves and loads the state of a loader that has one. The steps count, not its epochs."""
    import pytorch_lightning as pl

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen = nn.Linear(4, 1), []

        def training_step(self, batch, _number):
            self.seen += firsts([batch])
            return self.layer(batch["tokens"].float()).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    with tempfile.TemporaryDirectory() as folder:
        one, other = Model(), Model()
        shared = {**quiet, "accelerator": "cpu", "default_root_dir": folder}
        shared["enable_checkpointing"] = False
        trainer = pl.Trainer(max_epochs=-1, max_steps=6, **shared)
        trainer.fit(one, TorchLoader(loader_of(data)))
        trainer.save_checkpoint(f"{folder}/last.ckpt")
        trainer = pl.Trainer(max_epochs=-1, max_steps=15, **shared)
        trainer.fit(other, TorchLoader(loader_of(data)), ckpt_path=f"{folder}/last.ckpt")
        return {"stopped at 6": one.seen + other.seen}


if __name__ == "__main__":
    parts = (torchdata, accelerate, lightning)
    print(json.dumps({part.__name__: part(sys.argv[1]) for part in parts}))
