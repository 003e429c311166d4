"""The configuration of one run: built alike by Python, the command line and a config file, and
validated when it is made.

Options left at None follow the format; `settings.resolved` fills them in. `identity()` holds the
options that determine the output's bytes: a run can only be resumed with the same ones. The others
(number of workers, tolerated bad documents) may change between attempts.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from tokenmill.config.named_source import OWN_OPTIONS, UNSET, NamedSource
from tokenmill.errors import ConfigError, InputError, unknown_name
from tokenmill.wording.quantities import count_of, seq_len_of, share_of

EOT_POLICIES = ("append", "prepend", "both", "none")
BOS_POLICIES = ("prepend", "none")
DEDUP_POLICIES = ("exact",)
DTYPES = ("auto", "uint16", "uint32")
BAD_DOCUMENT_POLICIES = ("quarantine", "replace", "error")
EMPTY_POLICIES = ("drop", "keep")
LIST_POLICIES = ("join", "documents")
RUNNERS = ("inline", "processes", "ray")
# What --keep writes for every document besides columns of the corpus (encode/kept_file.py).
OWN_COLUMNS = ("_source", "_file", "_byte", "_row", "_tokens")
VAL_POLICIES = ("fraction", "first-shard", "none")
# Options that accept "100M"; seq_len also accepts "document".
COUNTS = (
    *("limit_docs", "limit_tokens", "shard_tokens", "seq_len"),
    *("num_proc", "worker_memory", "slice_bytes"),
)


def _not_in_identity(default: Any) -> Any:
    return field(default=default, metadata={"identity": False})


@dataclass(frozen=True, kw_only=True)
class Config:
    """What `prepare` is asked to do."""

    sources: tuple[str, ...] = _not_in_identity(())
    out: str = _not_in_identity("")
    # The encoding's own identity covers the next five.
    tokenizer: str = _not_in_identity("gpt2")
    pattern: str | None = _not_in_identity(None)  # of a .tiktoken file: gpt2, cl100k, o200k, regex
    eot_token: str | None = _not_in_identity(None)  # the special token that ends a document
    bos_token: str | None = _not_in_identity(None)  # the special token that begins a document
    format: str = "nanogpt"
    input_format: str | None = None  # read every file as this kind, whatever its name
    text_column: str = "text"
    separator: str | None = None
    template: str | None = None  # a row's text from several columns: '{title}\n\n{text}'
    lists: str | None = None  # for a column of lists of strings: "join" or "documents"
    where: str | None = None  # an expression that rows must satisfy (tokenmill.where)
    sample: float | None = None  # this fraction of the rows, chosen by a hash
    dedup: str | None = None  # "exact": only the first of equal texts
    limit_docs: int | None = None
    limit_tokens: int | None = None  # whole documents, in order, until there are this many tokens
    # Columns to keep beside the tokens, comma-separated; "": only where each document comes from.
    # If None, it is not part of the identity.
    keep: str | None = field(default=None, metadata={"identity": "if given"})
    shard_tokens: int | None = None
    seq_len: int | None = None  # tokens per sample, in formats of samples; 0: a document is one
    name: str | None = None
    dtype: str = "auto"
    eot: str | None = None
    bos: str | None = None  # None: prepend if there is a bos_token, else none
    empty: str | None = None
    val: str | None = None
    val_fraction: float | None = None
    shuffle: bool = False
    seed: int = 0
    on_bad_document: str = "quarantine"
    max_bad_fraction: float = _not_in_identity(0.001)
    slice_bytes: int = 32 << 20
    num_proc: int | None = _not_in_identity(None)
    runner: str | None = _not_in_identity(None)  # None: inline for one worker, else processes
    ray_address: str | None = _not_in_identity(None)  # None: a running cluster, else a new one
    worker_cpus: float | None = _not_in_identity(None)  # reserved by Ray for each worker
    worker_memory: int | None = _not_in_identity(None)  # in bytes
    stall_timeout: float = _not_in_identity(300.0)
    overwrite: bool = _not_in_identity(False)
    keep_downloads: bool = _not_in_identity(True)  # of Hub files, in the cache of huggingface_hub
    named: tuple[NamedSource, ...] = _not_in_identity(())  # their paths are `sources`, too

    def __post_init__(self) -> None:
        self._normalize()
        if not self.sources:
            raise ConfigError("no source given", hint="tokenmill prepare corpus/ -o out/")
        self._check_places()
        _require_known("--eot", self.eot, EOT_POLICIES)
        self._check_bos()
        _require_known("--dedup", self.dedup, DEDUP_POLICIES)
        _require_known("--dtype", self.dtype, DTYPES)
        _require_known("--empty", self.empty, EMPTY_POLICIES)
        _require_known("validation split", self.val, VAL_POLICIES)
        _require_known("--on-bad-document", self.on_bad_document, BAD_DOCUMENT_POLICIES)
        require_positive("--shard-tokens", self.shard_tokens)
        if self.seq_len is not None and not 0 <= self.seq_len < 1 << 31:
            raise ConfigError(
                f"--seq-len must be at least 1, got {self.seq_len}", hint="--seq-len 2048"
            )
        require_positive("--limit-docs", self.limit_docs)
        require_positive("--limit-tokens", self.limit_tokens)
        require_positive("--num-proc", self.num_proc)
        require_positive("--stall-timeout", self.stall_timeout)
        self._check_runner()
        require_positive("slice_bytes", self.slice_bytes)
        self._check_text()
        self._check_choice()
        if self.val_fraction is not None and not 0 < self.val_fraction < 1:
            raise ConfigError(
                f"--val-fraction must lie between 0 and 1, got {self.val_fraction}",
                hint="--val-fraction 0.0005 holds out one document in 2,000, --no-val none",
            )
        if self.val_fraction is not None and self.val not in (None, "fraction"):
            raise ConfigError("choose one of --val-fraction, --val-first-shard and --no-val")
        if not 0 <= self.max_bad_fraction <= 1:
            raise ConfigError(f"--max-bad-fraction must lie in [0, 1], got {self.max_bad_fraction}")
        if not 0 <= self.seed < 1 << 64:
            raise ConfigError(f"--seed must lie in [0, 2^64), got {self.seed}")
        if self.separator == "":
            raise ConfigError("--separator is empty", hint=r"--separator '\n\n'")
        if self.name is not None and (
            not self.name or self.name.startswith(".") or set(self.name) & set("/\\\0")
        ):
            raise ConfigError(f"--name {self.name!r} cannot be part of a file name")
        for source in self.named:
            with of_source(source.name):
                self._for_source(source)

    def _normalize(self) -> None:
        """Accept what Python callers may pass: paths, an Encoding, numbers such as "10M"."""
        given: Any = self.sources
        named = NamedSource.all_from(self.named)
        if isinstance(given, Mapping):
            named = tuple(NamedSource.from_user(name, value) for name, value in given.items())
            given = [path for source in named for path in source.paths]
        if isinstance(given, (str, os.PathLike)):
            given = (given,)
        found: dict[str, Any] = {
            "named": tuple(map(self._without_usual, named)),
            "sources": _paths("sources", given),
            "out": _paths("out", [self.out])[0],
            **_tokenizer_options(self),
            "keep": _kept_text(self.keep),
        }
        for name in COUNTS:
            value: Any = getattr(self, name)
            if value is not None:
                parse = seq_len_of if name == "seq_len" else count_of
                found[name] = parse(f"--{name.replace('_', '-')}", value)
        if self.sample is not None:
            found["sample"] = share_of("--sample", self.sample)
        for name, value in found.items():
            object.__setattr__(self, name, value)
        _require_types(self)

    def _check_places(self) -> None:
        # Imported late: the command line takes its defaults from here, and `--help` must be quick.
        from tokenmill.storage.address import is_url, require_lasting, require_output, require_plain

        for url in filter(is_url, (*self.sources, self.out)):
            require_plain(url)
        require_output(self.out)
        if self.runner != "inline":
            require_lasting(self.out)

    def _check_text(self) -> None:
        _require_known("--lists", self.lists, LIST_POLICIES)
        if self.template is None:
            return
        from tokenmill.where.template import template_of

        template_of(self.template)
        for option, value in (("text_column", self.text_column), ("lists", self.lists)):
            if value != getattr(Config, option):
                name = option.replace("_", "-")
                raise ConfigError(
                    f"--template already names the columns, so --{name} has no meaning",
                    hint=f"leave out --{name}; a template writes a column as {{text}}",
                )

    def _check_choice(self) -> None:
        if self.where is not None:
            from tokenmill.where.parser import parsed

            parsed(self.where)
        if self.sample is not None and not 0 < self.sample < 1:
            raise ConfigError(
                f"--sample must lie between 0 and 1, got {self.sample}",
                hint="--sample 0.1 takes one row in 10",
            )
        if self.dedup is not None and self.has_repeats:
            raise ConfigError(
                "--dedup would remove what `repeat` repeats",
                hint="leave out one of them; the loader can repeat a source by its weight",
            )

    def _check_bos(self) -> None:
        _require_known("--bos", self.bos, BOS_POLICIES)
        if self.bos_token is not None and self.bos == "none":
            raise ConfigError("--bos-token with --bos none", hint="leave one of them out")

    def _check_runner(self) -> None:
        _require_known("--runner", self.runner, RUNNERS)
        require_positive("--worker-cpus", self.worker_cpus)
        require_positive("--worker-memory", self.worker_memory)
        if self.runner == "inline" and self.num_proc not in (None, 1):
            raise ConfigError(
                f"--runner inline has one worker, not --num-proc {self.num_proc}",
                hint="--runner processes",
            )
        if self.runner != "ray":
            for option in ("ray_address", "worker_cpus", "worker_memory"):
                if getattr(self, option) is not None:
                    name = option.replace("_", "-")
                    raise ConfigError(f"--{name} is only for --runner ray", hint="--runner ray")

    @property
    def has_bos(self) -> bool:
        """Whether documents begin with a BOS token."""
        return self.bos == "prepend" or self.bos_token is not None

    def identity(self) -> dict[str, Any]:
        """The options that determine the output's bytes."""
        options = {f: f.metadata.get("identity", True) for f in dataclasses.fields(self)}
        found = {
            f.name: getattr(self, f.name)
            for f, is_part in options.items()
            if is_part and not (is_part == "if given" and getattr(self, f.name) is None)
        }
        if self.named:  # else absent, as in plans made before sources had names
            found["named"] = {s.name: s.identity(place) for place, s in enumerate(self.named)}
        return found

    @property
    def kept_columns(self) -> tuple[str, ...] | None:
        """The columns of --keep; None without --keep."""
        return None if self.keep is None else columns_in(self.keep)

    # Named sources

    def by_source(self) -> dict[str, Config]:
        """The configuration of each named source, in order. Without named sources: {"": self}."""
        if not self.named:
            return {"": self}
        return {source.name: self._for_source(source) for source in self.named}

    def repeat_of(self, name: str) -> int:
        return next((source.repeat for source in self.named if source.name == name), 1)

    @property
    def has_repeats(self) -> bool:
        return any(source.repeat > 1 for source in self.named)

    def _for_source(self, source: NamedSource) -> Config:
        own: dict[str, Any] = {
            name: None if value == UNSET.get(name) else value for name, value in source.options
        }
        return dataclasses.replace(self, named=(), sources=source.paths or self.sources, **own)

    def _without_usual(self, source: NamedSource) -> NamedSource:
        """The source without options that equal those of the whole run."""
        usual = {name: getattr(self, name) for name, _ in source.options}
        usual = {n: UNSET.get(n) if value is None else value for n, value in usual.items()}
        options = tuple((name, value) for name, value in source.options if value != usual[name])
        return dataclasses.replace(source, options=tuple(sorted(options)))


@contextlib.contextmanager
def of_source(name: str) -> Iterator[None]:
    """Have errors raised inside say which named source they are about."""
    try:
        yield
    except (ConfigError, InputError) as error:
        if not name:
            raise
        hint = error.hint
        if hint is not None and any(f"--{o.replace('_', '-')}" in hint for o in OWN_OPTIONS):
            hint += f"; for {name} alone: the same key in [source.{name}] of a tokenmill.toml"
        raise type(error)(f"source {name}: {error.message}", hint) from error


def columns_in(text: str) -> tuple[str, ...]:
    """Column names separated by commas; a name that contains a comma is in double quotes."""
    try:
        rows = list(csv.reader([text], skipinitialspace=True))
    except csv.Error as error:
        raise ConfigError(f"--keep {text!r}: {error}", hint="--keep id,url") from None
    return tuple(dict.fromkeys(name.strip() for row in rows for name in row))


def _kept_text(given: Any) -> str | None:
    """--keep as comma-separated values; Python callers may also pass a list of names."""
    if given is None:
        return None
    if isinstance(given, str):
        given = columns_in(given.strip())
    names = tuple(map(str, given))
    if own := [name for name in names if name in OWN_COLUMNS]:
        others = comma_separated(name for name in names if name not in OWN_COLUMNS)
        raise ConfigError(
            f"--keep {own[0]}: tokenmill writes a column of this name itself, for every document",
            hint=f"--keep {shlex.quote(others)}; to keep a column {own[0]} of the files, rename it",
        )
    if "" in names:
        raise ConfigError(
            "--keep: a column name is empty",
            hint="--keep id,url; a column without a name cannot be kept: rename it",
        )
    if any("\n" in name or "\r" in name for name in names):
        raise ConfigError("--keep: a column name contains a line break", hint="--keep id,url")
    for name in names:
        if name != name.encode(errors="replace").decode():
            raise ConfigError(f"--keep: {name!r} is not valid Unicode", hint="--keep id,url")
    return comma_separated(names)


def comma_separated(names: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def _paths(option: str, given: Any) -> tuple[str, ...]:
    """Paths as text; Python callers may pass anything."""
    given = given if isinstance(given, Iterable) else [given]
    for one in given if isinstance(given, (list, tuple)) else ():
        if not isinstance(one, (str, os.PathLike)):
            raise ConfigError(f"{option}: a path is text or a Path, got {one!r}")
    return tuple(os.fspath(one) for one in given)


def _tokenizer_options(config: Config) -> dict[str, str | None]:
    """The options by which any process finds the tokenizer: for an `Encoding`, those of its
    identity, with the path of its file unless the encoding comes with the package."""
    tokenizer: Any = config.tokenizer
    identity = getattr(tokenizer, "identity", None)
    if identity is None:
        return {"tokenizer": _paths("tokenizer", [tokenizer])[0]}
    if config.pattern is not None or config.eot_token is not None:
        raise ConfigError("an Encoding already has its pattern and eot_token")
    return {
        "tokenizer": identity.source or identity.name,
        "pattern": identity.pattern,
        "eot_token": identity.eot_option,
    }


_KINDS = {
    "str": (str, "text"),
    "int": (int, "a whole number"),
    "float": (Real, "a number"),
    "bool": (bool, "True or False"),
}


def _require_types(config: Config) -> None:
    """Raise ConfigError for a field of the wrong type: Python callers may pass anything."""
    for known in dataclasses.fields(config):
        value, names = getattr(config, known.name), str(known.type).split(" | ")
        if names[0] not in _KINDS or (value is None and "None" in names):
            continue
        kind, words = _KINDS[names[0]]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ConfigError(
                f"--{known.name.replace('_', '-')} takes {words}, got {value!r}",
                hint=f"in Python: {known.name}=...",
            )


def _require_known(option: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise unknown_name(option, value, known)


def require_positive(option: str, value: float | None) -> None:
    if value is not None and not value > 0:  # so that nan is refused too
        raise ConfigError(f"{option} must be positive, got {value}")
