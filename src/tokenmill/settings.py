"""A configuration resolved: the defaults of its format and tokenizer filled in, and checked.

`identity_of` is everything besides the inputs that determines the bytes. The plan and the manifest
store it, and a run can only be resumed with the same one.
"""

from __future__ import annotations

import dataclasses
from importlib import metadata
from typing import Any

from tokenmill.config import Config
from tokenmill.encode.documents import separator_of
from tokenmill.encodings import EncodingId
from tokenmill.errors import ConfigError
from tokenmill.formats import Format, Layout, chosen_dtype, get_format

BYTES_VERSION = 2  # raised when the same inputs and options would give different bytes
_ENGINES = {
    "tiktoken": ("gigatoken", "tiktoken"),
    "tekken": ("tiktoken",),
    "huggingface": ("gigatoken", "tokenizers"),
    "sentencepiece": ("gigatoken", "tokenizers"),
    "sentencepiece-library": ("sentencepiece",),
    "vocab-merges": ("gigatoken", "tokenizers"),
}


def resolved(config: Config, encoding: EncodingId) -> Config:
    """The configuration with its format's defaults filled in. Raises ConfigError if the format
    cannot do what it asks for."""
    format_ = get_format(config.format)
    defaults = format_.defaults
    require_applicable(format_, config.shard_tokens, config.name, config.seq_len)
    val = config.val or ("fraction" if config.val_fraction is not None else defaults.val)
    shard_tokens = config.shard_tokens or defaults.shard_tokens
    if val == "first-shard" and shard_tokens is None:
        raise ConfigError(
            f"--val-first-shard does not apply to {config.format}, which has one file per split",
            hint="--val-fraction 0.0005",
        )
    if val == "first-shard" and config.has_repeats:
        raise ConfigError(
            "with repeat, documents of the first shard, the validation split, would also be in the "
            "training split",
            hint="--val-fraction 0.0005 keeps all copies of a document in one split; or --no-val",
        )
    fraction = (config.val_fraction or defaults.val_fraction) if val == "fraction" else None
    seq_len = defaults.seq_len if config.seq_len is None else config.seq_len
    eot, bos = _specials_of(config, encoding, defaults.eot)
    full = dataclasses.replace(
        config,
        eot=eot,
        bos=bos,
        bos_token=encoding.bos_option if bos else None,
        empty=config.empty or defaults.empty,
        val=val,
        val_fraction=fraction,
        # If the first shard is held out, the size of the corpus decides (assemble/fitting.py).
        shard_tokens=None
        if val == "first-shard" and config.shard_tokens is None
        else whole_samples(shard_tokens, seq_len),
        seq_len=seq_len,
        name=config.name or defaults.name,
        dtype=chosen_dtype(config.dtype, encoding.max_token_value, encoding.name, format_),
    )
    layout = layout_of(full, encoding)
    if layout.has_boundaries and full.eot == "none" and not bos and full.empty == "keep":
        raise ConfigError(
            "--eot none with --empty keep makes documents without tokens",
            hint="--empty drop",
        )
    format_.check(layout)
    return full


def _specials_of(config: Config, encoding: EncodingId, usual: str) -> tuple[str, str | None]:
    """The policies of EOT and BOS: for BOS "prepend", or None if there is none."""
    eot = config.eot or usual
    if not config.has_bos:
        return eot, None
    if eot in ("prepend", "both"):
        which = f"--eot {eot}" if config.eot else f"{config.format}'s --eot {eot}"
        raise ConfigError(
            f"documents cannot begin with both BOS and EOT: --bos prepend and {which}",
            hint="--eot append, or --eot none",
        )
    if encoding.bos_token is None:  # the two are one token
        return {"append": "both", "none": "prepend"}[eot], None
    return eot, "prepend"


def require_applicable(
    format_: Format, shard_tokens: int | None, name: str | None, seq_len: int | None
) -> None:
    """Raise ConfigError for an option that the format does not have."""
    if shard_tokens is not None and format_.traits.one_file:
        raise ConfigError(
            f"--shard-tokens does not apply to {format_.name}, which has one file per split",
            hint="--format llmc or --format npy write numbered shards",
        )
    if name is not None and format_.defaults.name is None:
        raise ConfigError(f"--name does not apply to {format_.name}, whose file names are fixed")
    if seq_len and not format_.traits.samples:
        raise ConfigError(
            f"--seq-len does not apply to {format_.name}, whose trainer cuts samples itself",
            hint="leave out --seq-len",
        )


def whole_samples(shard_tokens: int | None, seq_len: int) -> int | None:
    """The shard size rounded down to whole samples, so that no sample crosses into the next shard.
    Raises ConfigError if a shard holds none."""
    if not shard_tokens or not seq_len:
        return shard_tokens
    if shard_tokens < seq_len:
        raise ConfigError(
            f"a shard of {shard_tokens:,} tokens holds no sample of {seq_len:,}",
            hint=f"--shard-tokens {100 * seq_len}",
        )
    return shard_tokens - shard_tokens % seq_len


def identity_of(config: Config, encoding: EncodingId) -> dict[str, Any]:
    """Everything besides the inputs that determines the bytes."""
    return {
        "options": config.identity(),
        # A vocabulary file may move: its contents count, not its path.
        "encoding": {k: v for k, v in encoding.to_plain().items() if k != "source"},
        "versions": {
            "bytes": BYTES_VERSION,
            **{name: metadata.version(name) for name in _ENGINES[encoding.kind]},
        },
    }


def layout_of(config: Config, encoding: EncodingId) -> Layout:
    format_, seq_len = get_format(config.format), config.seq_len or 0
    return Layout(
        format=config.format,
        name=config.name or "",
        dtype=config.dtype,
        shard_tokens=whole_samples(config.shard_tokens or format_.defaults.shard_tokens, seq_len),
        seq_len=seq_len,
        first_shard_is_val=config.val == "first-shard",
        eot_id=separator_of({"eot": config.eot, "bos": config.bos}, encoding.to_plain())[1],
        encoding=encoding.name,
        has_boundaries=format_.traits.boundaries and not seq_len,
    )
