"""Trains a tokenizer on a corpus: read this first.

    plan the corpus  ->  count its words  ->  merge pairs  ->  tokenizer.json and ranks

The corpus is read as `prepare` reads it: the same sources, readers and filters. Counts are exact
64-bit numbers, and the result depends on the corpus and the options alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tokenmill import __version__
from tokenmill.config import Config
from tokenmill.corpus.hub_inputs import HubInputs
from tokenmill.corpus.inputs import found_inputs
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.planning import make_plan
from tokenmill.corpus.readers import ReadOptions
from tokenmill.encodings.own_pattern import require_whole_pieces
from tokenmill.encodings.patterns import Pattern, pattern_named
from tokenmill.errors import ConfigError, ConflictError, InputError
from tokenmill.runners.machine import available_cpus
from tokenmill.storage import disk, objects
from tokenmill.storage.address import file_id
from tokenmill.storage.lock import folder_lock
from tokenmill.storage.scratch import scratch_folder
from tokenmill.storage.store import store_of
from tokenmill.vocabulary.counting import (
    SavedCounts,
    WordTable,
    counted_words,
    require_saved_counts,
)
from tokenmill.vocabulary.merges import Merges, learned_merges
from tokenmill.vocabulary.saving import BYTE_ORDERS, rank_file, spelled, tokenizer_json
from tokenmill.vocabulary.words import WordCounter, require_portable
from tokenmill.wording.plural import counted

END_OF_TEXT = "<|endoftext|>"
MAX_VOCABULARY = 1 << 20
COUNTS_SUFFIX = ".counts"  # saved counts, beside the tokenizer until it is written


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    vocab_size: int  # special tokens included
    pattern: str = "cl100k"
    special_tokens: tuple[str, ...] = (END_OF_TEXT,)
    ties: str = "tokenizers"  # whose order of equal pairs: a name in BYTE_ORDERS

    def __post_init__(self) -> None:
        least = 256 + len(self.special_tokens)
        if not least <= self.vocab_size <= MAX_VOCABULARY:
            raise ConfigError(
                f"--vocab-size must lie between {least:,} (256 bytes and "
                f"{len(self.special_tokens)} special) and {MAX_VOCABULARY:,}, got "
                f"{self.vocab_size:,}",
                hint="--vocab-size 32768",
            )
        if len(set(self.special_tokens)) < len(self.special_tokens) or not all(self.special_tokens):
            raise ConfigError("--special-token: each must be given once, and none may be empty")
        if not self.special_tokens:
            raise ConfigError(
                "a tokenizer needs a special token that ends documents",
                hint=f"--special-token '{END_OF_TEXT}'",
            )

    @property
    def num_tokens(self) -> int:
        return self.vocab_size - len(self.special_tokens)


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained tokenizer and what it was trained on."""

    path: str
    ranks_path: str
    vocab_size: int
    pattern: str
    special_tokens: dict[str, int]
    num_documents: int
    text_bytes: int
    num_words: int  # distinct ones
    dropped_share: float  # of all words: those too rare to keep
    num_training_tokens: int  # of the training text
    num_unused: int  # distinct tokens that do not occur there, without special ones
    sha256: str

    @property
    def bytes_per_token(self) -> float:
        return self.text_bytes / max(1, self.num_training_tokens)

    def to_plain(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "bytes_per_token": self.bytes_per_token}


class TrainingWatch:
    """The observer of a training run; this one ignores everything."""

    def planned(self, text_bytes: int) -> None: ...

    def counted(self, text_bytes: int) -> None: ...

    def merged(self, num_tokens: int) -> None: ...

    def notice(self, message: str) -> None: ...


def train(
    config: Config,
    options: TrainingOptions,
    *,
    sample_bytes: int | None = None,
    overwrite: bool = False,
    watch: TrainingWatch | None = None,
) -> Trained:
    """Train a tokenizer on `config`'s sources and save it at `config.out`, a .json file.

    With `sample_bytes`, on about that much text, spread over the corpus.
    """
    watch = watch or TrainingWatch()
    objects.report_retries_to(watch.notice)
    _note_unused(config, watch)
    path = _output_path(config.out, overwrite)
    pattern = _usable(pattern_named(options.pattern, "a new vocabulary"))
    with scratch_folder() as scratch:
        remote = HubInputs(config, scratch, watch.notice)
        with contextlib.closing(remote):
            config, plan = _plan(config, sample_bytes, remote, scratch, path)
            watch.planned(plan.slices.text_bytes)
            kept = SavedCounts(path + COUNTS_SUFFIX, _plan_id(plan, config, pattern))
            words = counted_words(
                plan,
                ReadOptions.by_source(config),
                WordCounter(pattern),
                remote,
                kept,
                config.num_proc or available_cpus(),
                watch.counted,
            )
    if words.num_dropped and not len(words):
        raise InputError(
            "nothing to train on: all words are too rare to be kept",
            hint=f"--pattern {options.pattern}: does it cut text into words?",
        )
    if not len(words):
        store_of(path).remove(path + COUNTS_SUFFIX)  # there is nothing to continue
        raise _nothing_to_train_on(config, sample_bytes)
    order = BYTE_ORDERS[options.ties]
    merges = learned_merges(words.words(), options.num_tokens, order, watch.merged)
    _require_apart(options.special_tokens, merges)
    return _saved(path, merges, words, pattern, options, overwrite)


def _note_unused(config: Config, watch: TrainingWatch) -> None:
    """A configuration file may choose documents in ways that training does not know: a limit counts
    tokens of a tokenizer that is yet to be learned, and no text is kept to compare others with."""
    names = [name for name in ("dedup", "limit_tokens") if getattr(config, name) is not None]
    if names:
        watch.notice(
            f"note: training does not use {' and '.join(names)} of the configuration; "
            "--sample 2GB limits how much text it learns from"
        )


def _nothing_to_train_on(config: Config, sample_bytes: int | None) -> InputError:
    hint = "are these the right files, and is --text-column the right column?"
    if sample_bytes is not None:
        hint = f"a larger --sample: this one is {counted(sample_bytes, 'byte')}, as in 2GB; 0.1 is "
        hint += "a tenth of the rows"
    elif config.where is not None or config.sample is not None:
        hint = "let more rows in: another --where, or a larger --sample"
    sources = ", ".join(config.sources)
    return InputError(f"nothing to train on: no document in {sources} has text", hint=hint)


def _require_apart(special_tokens: Iterable[str], merges: Merges) -> None:
    """`tokenizers` would give a special token the id of an ordinary one that is spelled like it."""
    tokens = {spelled(token) for token in merges.tokens}
    for text in special_tokens:
        if text in tokens:
            raise ConfigError(
                f"--special-token {text}: the corpus has this as text so often that it became an "
                "ordinary token",
                hint="another text, one that --pattern cuts: --special-token '<|endoftext|>'",
            )


def _saved(
    path: str,
    merges: Merges,
    words: WordTable,
    pattern: Pattern,
    options: TrainingOptions,
    overwrite: bool,
) -> Trained:
    data = tokenizer_json(merges.tokens, merges.pairs, pattern, options.special_tokens)
    ranks_path = _ranks_path(path)
    with folder_lock(os.path.dirname(path)):  # two runs do not write a file of the pair each
        _write(ranks_path, rank_file(merges.tokens), overwrite)
        _write(path, data, overwrite)
    store_of(path).remove(path + COUNTS_SUFFIX)
    num_tokens, total = len(merges.tokens), words.num_words
    return Trained(
        path=path,
        ranks_path=ranks_path,
        vocab_size=num_tokens + len(options.special_tokens),
        pattern=options.pattern,
        special_tokens={text: num_tokens + i for i, text in enumerate(options.special_tokens)},
        num_documents=words.num_documents,
        text_bytes=words.text_bytes,
        num_words=len(words),
        dropped_share=words.num_dropped / max(1, total + words.num_dropped),
        num_training_tokens=merges.num_symbols,
        num_unused=merges.num_unused,
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _write(path: str, data: bytes, overwrite: bool) -> None:
    """Write a file, which without `overwrite` must not be there with other bytes."""
    if overwrite:
        store_of(path).write(path, data)
    elif not store_of(path).create(path, data) and store_of(path).read(path) != data:
        raise ConflictError(
            f"{path} is another tokenizer, which appeared during the training",
            hint="another -o NAME, or --overwrite: the same command goes on from what was counted",
        )


def _output_path(out: str, overwrite: bool) -> str:
    path = os.path.abspath(out)
    if not path.endswith(".json"):
        raise ConfigError(f"-o {out}: a tokenizer is a .json file", hint=f"-o {_json_name(out)}")
    require_saved_counts(path + COUNTS_SUFFIX)
    found = [out] if os.path.exists(path) else []
    # Ranks beside counts are those of a run that was killed before it wrote the .json file.
    if os.path.exists(_ranks_path(path)) and not os.path.exists(path + COUNTS_SUFFIX):
        found.append(_ranks_path(out))
    if found and not overwrite:
        raise ConflictError(
            f"this would overwrite {' and '.join(found)}", hint="another -o NAME, or --overwrite"
        )
    disk.make_folder(os.path.dirname(path))
    return path


def _require_inputs_apart(path: str, inputs: Iterable[str]) -> None:
    """Refuse outputs that would replace an input, under any name or link."""
    outputs = {
        file_id(one): one
        for one in (path + COUNTS_SUFFIX, _ranks_path(path), path)
        if os.path.exists(one)
    }
    for source in inputs if outputs else ():
        replaced = outputs.get(file_id(source))
        if replaced is not None:
            raise ConfigError(
                f"{source} is an input of this command, and its output {replaced} would replace it",
                hint="another -o NAME",
            )


def _json_name(out: str) -> str:
    stem, suffix = os.path.splitext(out)
    return f"{stem}.json" if suffix else os.path.join(out, "tokenizer.json")


def _ranks_path(path: str) -> str:
    return os.path.splitext(path)[0] + ".tiktoken"


def _usable(pattern: Pattern) -> Pattern:
    if pattern.gigatoken_name is None:
        require_whole_pieces(pattern.expression, "--pattern")
        require_portable(pattern.expression)
    return pattern


def _plan(
    config: Config, sample_bytes: int | None, remote: HubInputs, scratch: str, path: str
) -> tuple[Config, Plan]:
    store_of(scratch).make_folder(os.path.join(scratch, "structure"))
    found = found_inputs(config, remote.inputs, remote.again)
    _require_inputs_apart(path, (source.path for source in found.inputs))

    def planned(config: Config) -> Plan:
        return make_plan({}, found.inputs, config, remote.structure_of)

    plan = planned(config)
    text_bytes = plan.slices.text_bytes
    if sample_bytes is not None and sample_bytes < text_bytes:
        config = dataclasses.replace(config, sample=sample_bytes / text_bytes)
        plan = planned(config)
    return config, plan


def _plan_id(plan: Plan, config: Config, pattern: Pattern) -> str:
    """A hash of everything that the counts depend on."""
    facts = (__version__, plan.plan_id, ReadOptions.by_source(config), pattern)
    return hashlib.sha256(repr(facts).encode()).hexdigest()
