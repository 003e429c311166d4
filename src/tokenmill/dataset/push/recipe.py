"""The command that makes a dataset again, from its manifest; options with default values are left
out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from tokenmill.config import Config
from tokenmill.dataset.manifest import Manifest
from tokenmill.encodings import EncodingId
from tokenmill.encodings.builtin import ENCODING_NAMES
from tokenmill.encodings.hub_model import pinned_name
from tokenmill.settings import resolved

# Named sources are too long for a command line.
FROM_FILE = "tokenmill prepare --config tokenmill.toml -o OUT"
_PLAIN = (
    *("input_format", "text_column", "lists", "where", "sample", "dedup", "limit_docs"),
    *("limit_tokens", "keep"),
    *("shard_tokens", "name", "dtype", "eot", "empty", "on_bad_document"),
)


def prepare_command(manifest: Manifest) -> str:
    """The command; SOURCE stands for the inputs, which the manifest lists."""
    options, encoding = manifest.identity["options"], manifest.identity["encoding"]
    if manifest.converted_from is None and manifest.sources:
        return FROM_FILE
    if manifest.converted_from is not None:
        return f"tokenmill convert IN OUT --format {options['format']}"
    identity = EncodingId.from_plain({**encoding, "source": None})
    usual = resolved(Config(sources=("SOURCE",), format=options["format"]), identity).identity()
    tokenizer = pinned_name(manifest.revisions, encoding["name"])
    words = ["tokenmill prepare SOURCE -o OUT", f"--tokenizer {shlex.quote(tokenizer)}"]
    if encoding["name"] not in ENCODING_NAMES:
        words += _tokenizer_options(encoding)
    words += _bos_option(options, encoding)
    return " ".join((*words, f"--format {options['format']}", *_changed(options, usual)))


def _tokenizer_options(encoding: dict[str, Any]) -> Iterator[str]:
    if encoding["pattern"] is not None:
        yield f"--pattern {shlex.quote(encoding['pattern'])}"
    yield f"--eot-token {shlex.quote(encoding['eot'])}"


def _bos_option(options: dict[str, Any], encoding: dict[str, Any]) -> Iterator[str]:
    if options.get("bos"):
        yield f"--bos-token {shlex.quote(encoding['bos'])}"


def _changed(options: dict[str, Any], usual: dict[str, Any]) -> Iterator[str]:
    changed = {name: value for name, value in options.items() if value != usual.get(name)}
    for name in _PLAIN:
        if changed.get(name) is not None:
            yield f"--{name.replace('_', '-')} {shlex.quote(str(options[name]))}"
    for name in ("separator", "template"):
        if changed.get(name):
            typed = options[name].encode("unicode_escape").decode()
            yield f"--{name} {shlex.quote(typed)}"
    if "seq_len" in changed:
        yield f"--seq-len {options['seq_len'] or 'document'}"
    if "val" in changed and options["val"] != "fraction":
        yield "--no-val" if options["val"] == "none" else "--val-first-shard"
    elif "val_fraction" in changed:
        yield f"--val-fraction {options['val_fraction']}"
    if options["shuffle"]:
        yield "--shuffle"
    if options["shuffle"] or changed.get("sample"):
        yield f"--seed {options['seed']}"
