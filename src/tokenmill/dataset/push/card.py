"""The dataset card, README.md: what the dataset is, how it was made, how to load it.

It follows from the manifest alone, so the same dataset has the same card. Its last line is a hash
of the rest: an unedited card is replaced by a newer one; one that the user wrote or edited stays.
"""

from __future__ import annotations

import collections
import hashlib
import os
import re
from collections.abc import Iterable, Iterator

from tokenmill.corpus.spans import HUB_SCHEME
from tokenmill.dataset.manifest import Manifest, ManifestInput
from tokenmill.dataset.notes import split_words
from tokenmill.dataset.push.loading import folder_of, loading_snippet
from tokenmill.dataset.recipe import config_text, prepare_command
from tokenmill.formats import get_format
from tokenmill.wording.plural import counted

CARD_NAME = "README.md"
_MARK = re.compile(rb"<!-- written by tokenmill push, sha256 ([0-9a-f]{64}) -->\n$")
_SIZES = "n<1K 1K<n<10K 10K<n<100K 100K<n<1M 1M<n<10M 10M<n<100M 100M<n<1B 1B<n<10B 10B<n<100B"
_HUB_INPUT = re.compile(rf"{HUB_SCHEME}datasets/([^@]+)@([^/]+)/.+")
_SHOWN_SOURCES = 20


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
    yield f'pretty_name: "{folder_of(repo)}"'
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
    yield f"# {folder_of(repo)}\n"
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
    at = "" if revision == "main" else f" --revision {revision}"
    folder = folder_of(repo)
    below = f"data/{folder}" if manifest.identity["options"]["format"] == "nanogpt" else folder
    snippet = loading_snippet(manifest, repo, revision)
    yield "```sh"
    yield f"hf download {repo} --repo-type dataset{at} --local-dir {below}"
    yield f"tokenmill verify {below}    # every hash, id and count, against `tokenmill.json`"
    yield f"```\n\n{snippet.intro}\n"
    yield f"```{snippet.language}\n{snippet.code}\n```"


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
