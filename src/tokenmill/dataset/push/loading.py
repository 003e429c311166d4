"""How to load a pushed dataset: code to paste, for the trainers of each format.

`{folder}` is where the files are. The Python is what tests/loaders/ reads our shards with.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from tokenmill.dataset.manifest import Manifest
from tokenmill.formats import DTYPE_BYTES, get_format


@dataclass(frozen=True, slots=True)
class Snippet:
    """A block of code and the sentence before it."""

    intro: str
    language: str
    code: str


_SNIPPETS = {
    "nanogpt": Snippet(
        "In a [nanoGPT](https://github.com/karpathy/nanoGPT) checkout, with the files in "
        "`data/{name}`:",
        "sh",
        "python train.py --dataset={name}",
    ),
    "npy": Snippet(
        "build-nanogpt's `train_gpt2.py` reads the folder that its `data_root` names. By hand:",
        "python",
        'import numpy as np\n\ntokens = np.load("{folder}/{first}")',
    ),
    "llmc": Snippet(
        "llm.c, and likewise modded-nanogpt:",
        "sh",
        './train_gpt2cu -i "{folder}/{stem}_train_*.bin" -j "{folder}/{stem}_val_*.bin"',
    ),
    "megatron": Snippet(
        "Megatron-LM takes the prefix of each file as `--data-path`. By hand:",
        "python",
        "from megatron.core.datasets.indexed_dataset import IndexedDataset\n\n"
        'dataset = IndexedDataset("{folder}/{prefix}")',
    ),
    "olmo": Snippet(
        "With OLMo-core:",
        "python",
        "from glob import glob\n\n"
        "from olmo_core.data.numpy_dataset import NumpyFSLDatasetConfig\n"
        "from olmo_core.data.tokenizer import TokenizerConfig\n\n"
        "tokenizer = TokenizerConfig(\n"
        "    vocab_size={n_vocab}, eos_token_id={eot_id}, pad_token_id={eot_id}\n"
        ")\n"
        "config = NumpyFSLDatasetConfig(\n"
        '    tokenizer=tokenizer, paths=sorted(glob("{folder}/{stem}-train-*.npy")), '
        "sequence_length=2048\n"
        ")",
    ),
    "datatrove": Snippet(
        "With datatrove, as nanotron does:",
        "python",
        "from datatrove.utils.dataset import DatatroveFolderDataset\n\n"
        "dataset = DatatroveFolderDataset(\n"
        '    "{folder}/train", seq_len=2048, token_size={token_bytes}\n'
        ")",
    ),
    "mds": Snippet(
        "With MosaicML Streaming, whose `StreamingDataset(local=...)` takes the same folder:",
        "python",
        "from streaming.base.local import LocalDataset\n\n"
        'dataset = LocalDataset("{folder}/train")\n'
        'tokens = dataset[0]["tokens"]',
    ),
    "litdata": Snippet(
        "With LitData, as LitGPT does:",
        "python",
        "from litdata import StreamingDataset, TokensLoader\n\n"
        "loader = TokensLoader(block_size={block})\n"
        'dataset = StreamingDataset("{folder}/train", item_loader=loader)',
    ),
    "parquet": Snippet(
        "With `datasets`, also without a download:",
        "python",
        'from datasets import load_dataset\n\ndataset = load_dataset("{repo}", {at}split="train")\n'
        'tokens = dataset[0]["input_ids"]',
    ),
}
_DEFAULT_BLOCK = 2048


def loading_snippet(manifest: Manifest, repo: str, revision: str, main: str = "main") -> Snippet:
    """How the trainers of the dataset's format load it from `folder_of(repo)`."""
    name = manifest.identity["options"]["format"]
    snippet = _SNIPPETS.get(name)
    if snippet is None:  # of a plugin
        return Snippet(f"Read by {get_format(name).trainers}.", "sh", f"ls {folder_of(repo)}")
    facts = _facts(manifest, repo)
    facts["at"] = "" if revision == main else f'revision="{revision}", '
    return Snippet(
        snippet.intro.format_map(facts), snippet.language, snippet.code.format_map(facts)
    )


def folder_of(repo: str) -> str:
    """The folder that the card downloads the files to."""
    return repo.split("/")[1]


def _facts(manifest: Manifest, repo: str) -> dict[str, Any]:
    options, encoding = manifest.identity["options"], manifest.identity["encoding"]
    shards = [file.name for file in manifest.shards if file.split == "train"] or [
        file.name for file in manifest.shards
    ]
    return {
        "repo": repo,
        "name": folder_of(repo),
        "folder": folder_of(repo),
        "first": shards[0],
        "prefix": os.path.splitext(shards[0])[0],
        "stem": options["name"],
        "block": options.get("seq_len") or _DEFAULT_BLOCK,
        "token_bytes": DTYPE_BYTES[options["dtype"]],
        "n_vocab": encoding["max_token_value"] + 1,
        "eot_id": encoding["eot_token"],
    }
