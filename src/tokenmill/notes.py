"""What a person should know before training on a dataset, as sentences; part of its manifest.

Pure functions of what the manifest says anyway. Whatever depends on the format belongs here: a
conversion asks again, for its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenmill.record import Counts


def notes_of(
    options: Mapping[str, Any], num_tail_tokens: Mapping[str, int], counts: Counts
) -> tuple[str, ...]:
    """The notes on a dataset whose splits left out so many tokens, because they fill no sample."""
    found = []
    if options["format"] == "nanogpt" and options["dtype"] == "uint32":
        found.append("uint32 tokens: in nanoGPT's train.py, read both files with dtype=np.uint32")
    if "train" not in num_tail_tokens:
        found.append(
            "all tokens are in the validation shard: the corpus is smaller than one shard; "
            "use a smaller --shard-tokens, --val-fraction 0.01 or --no-val"
        )
    elif options["val"] == "fraction" and "val" not in num_tail_tokens:
        found.append(
            f"no document fell into the validation split ({options['val_fraction']:.2%}): "
            "the corpus is small; with --val-fraction 0.05 or more, some probably will"
        )
    found += [
        f"the last {num_tokens:,} tokens of {split} fill no sample of "
        f"{options['seq_len']:,}: left out"
        for split, num_tokens in num_tail_tokens.items()
        if num_tokens
    ]
    if counts.num_replaced:
        found.append(f"{counts.num_replaced:,} documents had bytes replaced by U+FFFD")
    if counts.num_quarantined:
        found.append("what was left out, and why: tokenmill-quarantine.jsonl")
    return tuple(found)


def split_rule_of(options: Mapping[str, Any]) -> str:
    """How the validation split was chosen."""
    if options["val"] == "fraction":
        return f"{options['val_fraction']:.4g} of all documents, by a hash of their text"
    rules = {"first-shard": "the first shard", "none": "nothing is held out"}
    return rules.get(options["val"], str(options["val"]))
