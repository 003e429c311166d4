"""The dataset card, README.md: what the dataset is, how it was made, how to load it.

It follows from the manifest alone, so the same dataset has the same card. Its last line is a hash
of the rest: an unedited card is replaced by a newer one; one that the user wrote or edited stays.
The Python that it shows is what tests/loaders/ reads our shards with.
"""

from __future__ import annotations

import collections
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from tokenmill.corpus.spans import HUB_SCHEME
from tokenmill.dataset.manifest import Manifest, ManifestInput
from tokenmill.dataset.notes import split_words
from tokenmill.dataset.recipe import config_text, prepare_command
from tokenmill.formats import DTYPE_BYTES, get_format
from tokenmill.wording.plural import counted

CARD_NAME = "README.md"
MAIN = "main"  # the branch
_MARK = re.compile(rb"<!-- written by tokenmill push, sha256 ([0-9a-f]{64}) -->\n$")
_SIZES = "n<1K 1K<n<10K 10K<n<100K 100K<n<1M 1M<n<10M 10M<n<100M 100M<n<1B 1B<n<10B 10B<n<100B"
_HUB_INPUT = re.compile(rf"{HUB_SCHEME}datasets/([^@]+)@([^/]+)/.+")
_SHOWN_SOURCES = 20
_DEFAULT_BLOCK = 2048
# How trainers load each format from `{folder}`: a sentence, a language, and code in it.
_SNIPPETS = {
    "nanogpt": (
        "In a [nanoGPT](https://github.com/karpathy/nanoGPT) checkout, with the files in "
        "`data/{folder}`:",
        "sh",
        "python train.py --dataset={folder}",
    ),
    "npy": (
        "build-nanogpt's `train_gpt2.py` reads the folder that its `data_root` names. By hand:",
        "python",
        'import numpy as np\n\ntokens = np.load("{folder}/{first}")',
    ),
    "llmc": (
        "llm.c, and likewise modded-nanogpt:",
        "sh",
        './train_gpt2cu -i "{folder}/{stem}_train_*.bin" -j "{folder}/{stem}_val_*.bin"',
    ),
    "megatron": (
        "Megatron-LM takes the prefix of each file as `--data-path`. By hand:",
        "python",
        "from megatron.core.datasets.indexed_dataset import IndexedDataset\n\n"
        'dataset = IndexedDataset("{folder}/{prefix}")',
    ),
    "olmo": (
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
    "datatrove": (
        "With datatrove, as nanotron does:",
        "python",
        "from datatrove.utils.dataset import DatatroveFolderDataset\n\n"
        "dataset = DatatroveFolderDataset(\n"
        '    "{folder}/train", seq_len=2048, token_size={token_bytes}\n'
        ")",
    ),
    "mds": (
        "With MosaicML Streaming, whose `StreamingDataset(local=...)` takes the same folder:",
        "python",
        "from streaming.base.local import LocalDataset\n\n"
        'dataset = LocalDataset("{folder}/train")\n'
        'tokens = dataset[0]["tokens"]',
    ),
    "litdata": (
        "With LitData, as LitGPT does:",
        "python",
        "from litdata import StreamingDataset, TokensLoader\n\n"
        "loader = TokensLoader(block_size={block})\n"
        'dataset = StreamingDataset("{folder}/train", item_loader=loader)',
    ),
    "parquet": (
        "With `datasets`, also without a download:",
        "python",
        'from datasets import load_dataset\n\ndataset = load_dataset("{repo}", {at}split="train")\n'
        'tokens = dataset[0]["input_ids"]',
    ),
}


def card_of(manifest: Manifest, repo: str, revision: str) -> bytes:
    text = "\n".join((*_header(manifest, repo), *_body(manifest, repo, revision))) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text}<!-- written by tokenmill push, sha256 {digest} -->\n".encode()


def is_untouched(card: bytes) -> bool:
    """Whether a card is as we wrote it, for this dataset or another."""
    mark = _MARK.search(card)
    return mark is not None and hashlib.sha256(card[: mark.start()]).hexdigest() == mark[1].decode()


def _header(manifest: Manifest, repo: str) -> Iterator[str]:
    """The YAML that the Hub reads."""
    yield "---"
    yield f'pretty_name: "{_folder(repo)}"'
    yield "task_categories:\n- text-generation"
    yield f'tags:\n- tokenmill\n- tokenized\n- "{manifest.identity["options"]["format"]}"'
    yield f'size_categories:\n- "{_size(manifest.num_documents)}"'
    if manifest.identity["options"]["format"] == "parquet":
        yield "configs:\n- config_name: default\n  data_files:"
        for split in manifest.splits:
            yield f"  - split: {split}\n    path: {_glob(manifest, split)}"
    else:
        yield "viewer: false"
    yield "---"


def _size(num_documents: int) -> str:
    names = _SIZES.split()
    return next((s for i, s in enumerate(names) if num_documents < 1000 * 10**i), "100B<n<1T")


def _glob(manifest: Manifest, split: str) -> str:
    first = next(file.name for file in manifest.shards if file.split == split)
    return re.sub(r"\d{5,}", "*", first)


def _body(manifest: Manifest, repo: str, revision: str) -> Iterator[str]:
    options, encoding = manifest.identity["options"], manifest.identity["encoding"]
    counts = manifest.counts
    yield f"# {_folder(repo)}\n"
    yield (
        f"{counted(manifest.num_tokens, 'token')} of "
        f"{counted(manifest.num_documents, 'document')}, ready for "
        f"{get_format(options['format']).trainers}. Made with tokenmill.\n"
    )
    yield "| | |\n|---|---|"
    n_vocab = encoding["max_token_value"] + 1
    yield f"| tokenizer | `{encoding['name']}`, {n_vocab:,} ids, {_eot(manifest)} |"
    yield f"| format | `{options['format']}`, {options['dtype']}, {_order(manifest)} |"
    for split, totals in manifest.splits.items():
        num_shards = sum(file.split == split for file in manifest.shards)
        yield (
            f"| {split} | {counted(totals.num_tokens, 'token')}, "
            f"{counted(totals.num_documents, 'document')}, {counted(num_shards, 'shard')} |"
        )
    yield f"| validation | {split_words(manifest)} |"
    yield (f"| rows | {counts.num_rows:,} = {counts.shown_sum} |")
    yield from ("\n## How to load it\n", *_loading(manifest, repo, revision))
    yield from ("\n## How it was made\n", "```sh", prepare_command(manifest), "```\n")
    if manifest.sources and manifest.converted_from is None:
        yield "with this `tokenmill.toml`, where SOURCE stands for local files:\n"
        yield f"```toml\n{config_text(manifest, local='SOURCE')}```\n"
    yield from _named_sources(manifest)
    yield from _sources(manifest.inputs)
    if manifest.notes:
        notes = (_without_folders(note, manifest.inputs) for note in manifest.notes)
        yield from ("\n## Notes\n", *map(_note, notes))
    yield (
        "\n## Licence\n\nNot stated. Those of the sources apply to their text; add `license:` to "
        "the header of this page.\n"
    )


def _loading(manifest: Manifest, repo: str, revision: str) -> Iterator[str]:
    name, folder = manifest.identity["options"]["format"], _folder(repo)
    at = "" if revision == MAIN else f" --revision {revision}"
    below = f"data/{folder}" if name == "nanogpt" else folder
    yield "```sh"
    yield f"hf download {repo} --repo-type dataset{at} --local-dir {below}"
    yield f"tokenmill verify {below}    # every hash, id and count, against `tokenmill.json`"
    if name in _SNIPPETS:
        facts = _facts(manifest, repo, revision)
        intro, language, code = (text.format_map(facts) for text in _SNIPPETS[name])
        yield f"```\n\n{intro}\n\n```{language}\n{code}"
    yield "```"


def _facts(manifest: Manifest, repo: str, revision: str) -> dict[str, Any]:
    """What the snippets name."""
    options, encoding = manifest.identity["options"], manifest.identity["encoding"]
    shards = [file.name for file in manifest.shards if file.split == "train"] or [
        file.name for file in manifest.shards
    ]
    return {
        "repo": repo,
        "folder": _folder(repo),
        "at": "" if revision == MAIN else f'revision="{revision}", ',
        "first": shards[0],
        "prefix": os.path.splitext(shards[0])[0],
        "stem": options["name"],
        "block": options.get("seq_len") or _DEFAULT_BLOCK,
        "token_bytes": DTYPE_BYTES[options["dtype"]],
        "n_vocab": encoding["max_token_value"] + 1,
        "eot_id": encoding["eot_token"],
    }


def _folder(repo: str) -> str:
    """The folder that the card downloads the files to."""
    return repo.split("/")[1]


def _eot(manifest: Manifest) -> str:
    words = {"append": "appended", "prepend": "prepended", "both": "at both ends"}
    eot, encoding = manifest.identity["options"]["eot"], manifest.identity["encoding"]
    bos = ""
    if manifest.identity["options"].get("bos"):
        text = encoding["bos"].replace("|", "\\|")
        bos = f"`{text}` ({encoding['bos_token']}) prepended to each document"
    if eot not in words:
        return bos or "no token between documents"
    token = encoding["eot"].replace("|", "\\|")  # in a table
    return f"{bos and bos + ', '}`{token}` ({encoding['eot_token']}) {words[eot]} to each document"


def _order(manifest: Manifest) -> str:
    options = manifest.identity["options"]
    return (
        f"shuffled with seed {options['seed']}" if options["shuffle"] else "in the corpus's order"
    )


def _named_sources(manifest: Manifest) -> Iterator[str]:
    if not manifest.sources:
        return
    yield "| name | rows | documents | bytes of text | tokens |\n|---|--:|--:|--:|--:|"
    for name, found in manifest.sources.items():
        counts = found.counts
        yield (
            f"| {name} | {counts.num_rows:,} | {counts.num_written:,} | {counts.text_bytes:,} | "
            f"{found.num_tokens:,} |"
        )
    yield ""


def _sources(inputs: Iterable[ManifestInput]) -> Iterator[str]:
    """The sources with their number of files; local paths are not shown."""
    found: dict[str, list[int]] = collections.defaultdict(list)
    for source in inputs:
        found[_source(source.path)].append(source.num_bytes)
    yield "| source | files | bytes |\n|---|--:|--:|"
    for name, sizes in list(found.items())[:_SHOWN_SOURCES]:
        yield f"| {name} | {len(sizes):,} | {sum(sizes):,} |"
    if len(found) > _SHOWN_SOURCES:
        yield f"| and {len(found) - _SHOWN_SOURCES:,} more: see `tokenmill.json` | | |"


def _source(path: str) -> str:
    if hub := _HUB_INPUT.fullmatch(path):
        repo, commit = hub.groups()
        return f"[{repo}](https://huggingface.co/datasets/{repo}/tree/{commit}) at `{commit[:12]}`"
    if "://" in path:
        return f"`{path.rpartition('/')[0]}/`"
    return "local files"


def _without_folders(note: str, inputs: Iterable[ManifestInput]) -> str:
    """The note with local paths shortened to file names, because the page is public."""
    for path in (one.path for one in inputs):
        if os.path.isabs(path):
            note = note.replace(path, os.path.basename(path))
    return note


def _note(note: str) -> str:
    first, *commands = note.split("\n")
    return f"- {first}" + "".join(f"\n\n  ```sh\n  {command}\n  ```\n" for command in commands)
