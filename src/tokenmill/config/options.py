"""Every option of a run, once: the fields of `Config`. A new option is a field here, and the module
that acts on it.

A field is Python's own: name, type and default. Its `Option` says the rest: the kind of its values,
its help, whether it determines bytes, whether a source may have its own. From these come the checks
of Python, command line and tokenmill.toml, the command line itself (cli/arguments.py), suggestions
for misspelt names, how a dataset is made again (dataset/recipe.py), and the identity; tests compare
the signatures in api/ with them.

Options left at None follow the format; `settings.resolved` fills them in. `identity()` holds the
options that determine the output's bytes: a run can only be resumed with the same ones. The others
(number of workers, tolerated bad documents) may change between attempts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tokenmill.config import kinds
from tokenmill.config.kinds import Kind, Unfit, choice, text
from tokenmill.errors import ConfigError, InputError

# Groups of the command line's help.
READ, ENCODED = "what is read", "how it is encoded"
WRITTEN, RUNS = "what is written", "how it runs"
ESTIMATE, TRAIN, COMPARE = "estimate", "tokenizer train", "tokenizer compare"
_TEXTS = (ESTIMATE, TRAIN, COMPARE)


@dataclass(frozen=True)
class Option:
    """What is known of an option besides its name, type and default."""

    kind: Kind
    group: str = ""
    help: str = ""  # "{default}" is filled in; empty: not on the command line
    in_identity: bool = True  # whether it determines bytes
    if_given: bool = False  # whether the identity leaves it out where it is None
    of_source: bool = False  # a source may have its own
    # What a source without the run's value writes; TOML has no null.
    unset: Any = None
    switches: tuple[tuple[str, Any, str], ...] = ()  # words of a shell for a value, and their help
    is_optional: bool = False  # --no-NAME makes it None, whatever a configuration file says
    instead_of: str = ""  # options that have the same here exclude each other
    also_of: tuple[str, ...] = ()  # commands that take it, besides those that start a run
    other_names: str = ""  # what other tools call it


def _option(default: Any, kind: Kind, group: str = "", help_: str = "", **more: Any) -> Any:
    option = Option(kind, group, help_, **more)
    return dataclasses.field(default=default, metadata={"option": option})


@dataclass(frozen=True, kw_only=True)
class Config:
    """What `prepare` is asked to do."""

    # fmt: off
    sources: tuple[str, ...] = _option((), kinds.PATHS, in_identity=False,
        other_names="input inputs input_dir input_folder input_path input_file data data_dir "
        "data_path data_files data_folder dataset source src file files path paths i")
    out: str = _option("", kinds.PATH, in_identity=False,
        other_names="output output_dir output_folder output_path output_prefix out_dir outdir "
        "out_path out_folder dest destination target save_dir save_path save_to write_to o")
    text_column: str = _option("text", text("NAME"), READ,
        "column or JSON field (default: {default}); meta.text is a field of meta", of_source=True,
        also_of=_TEXTS,
        other_names="column columns col text_col text_key text_field text_column_name json_key "
        "json_keys key field content_column dataset_text_field")
    template: str | None = _option(None, kinds.TEMPLATE, READ,
        r"a row's text from several columns: '{title}\n\n{text}'", of_source=True, unset="",
        is_optional=True, also_of=_TEXTS,
        other_names="format_string text_template columns_template prompt_template")
    lists: str | None = _option(None, choice("join", "documents"), READ,
        "for a column of lists of strings: join them (with --separator, by default a blank "
        "line), or make documents of them", of_source=True, is_optional=True, also_of=_TEXTS,
        other_names="list join_lists explode list_policy")
    separator: str | None = _option(None, kinds.SEPARATOR, READ,
        r"what separates documents in .txt: '\n\n', '<|endoftext|>'", of_source=True, unset="",
        is_optional=True, also_of=_TEXTS,
        other_names="sep delimiter delim document_separator doc_separator doc_sep split_on")
    input_format: str | None = _option(None, text("NAME"), READ,
        "read every file as this kind, whatever its name: parquet, arrow, jsonl, csv, tsv or "
        "text; in a folder, the files of this kind, or for text every file that may be text",
        of_source=True, is_optional=True, also_of=_TEXTS,
        other_names="input_type file_type file_format data_format in_format reader")
    where: str | None = _option(None, kinds.WHERE, READ,
        "only rows that satisfy this: 'int_score >= 3 and language == \"en\"'; "
        "docs/choosing-rows.md has the grammar", of_source=True, unset="", is_optional=True,
        also_of=(ESTIMATE, TRAIN),
        other_names="filter filters query condition predicate select")
    sample: float | None = _option(None, kinds.SHARE, READ,
        "only this fraction of the rows, across the whole corpus, by a hash of --seed and row",
        of_source=True, unset=1.0, is_optional=True, also_of=(ESTIMATE,),
        other_names="num_samples subsample sample_fraction sample_rate fraction")
    dedup: str | None = _option(None, choice("exact"), READ,
        "only the first of equal texts, in the order of the sources", is_optional=True,
        also_of=(ESTIMATE,),
        other_names="deduplicate dedupe unique drop_duplicates exact_dedup")
    limit_tokens: int | None = _option(None, kinds.COUNT, READ,
        "whole documents, in the order of the sources, until there are N tokens: 1B",
        is_optional=True, also_of=(ESTIMATE,),
        other_names="max_tokens num_tokens token_limit token_budget total_tokens tokens")
    keep: str | None = _option(None, kinds.COLUMNS, READ,
        "columns to keep beside the tokens (id,url,dump), with the file and row of each "
        "document; '' for the latter alone", if_given=True, is_optional=True,
        other_names="keep_columns kept_columns metadata meta extra_columns remove_columns")
    limit_docs: int | None = _option(None, kinds.COUNT, READ,
        "only the first N documents", is_optional=True,
        other_names="limit max_docs num_docs max_documents num_documents max_samples num_samples "
        "max_rows docs limit_documents")
    on_bad_document: str = _option("quarantine", choice("quarantine", "replace", "error"), READ,
        "invalid UTF-8, broken JSON, text that no engine can encode (default: {default})",
        other_names="on_error on_bad errors skip_errors")
    max_bad_fraction: float = _option(0.001, kinds.TOLERATED, READ,
        "fail if a larger fraction of rows is bad (default: {default})", in_identity=False,
        other_names="max_errors max_error_fraction max_bad")
    # The encoding's own identity covers the next four.
    tokenizer: str = _option("gpt2", kinds.TOKENIZER, ENCODED,
        "{default} (default), r50k_base, p50k_base, cl100k_base, o200k_base, o200k_harmony, a "
        "model on the Hub (Qwen/Qwen3-0.6B), a tokenizer.json, a tekken.json, a SentencePiece "
        "model or a file of ranks; see: tokenmill tokenizers", in_identity=False,
        also_of=(ESTIMATE,),
        other_names="tokeniser tokenizer_name tokenizer_path tokenizer_name_or_path "
        "tokenizer_model tokenizer_type encoding encoding_name encoder model model_name vocab "
        "vocab_file bpe t")
    pattern: str | None = _option(None, text("NAME|REGEX"), ENCODED,
        "for an unknown file of ranks: gpt2, cl100k, o200k, qwen or a regular expression",
        in_identity=False, also_of=(ESTIMATE,),
        other_names="regex pat_str split_pattern pretokenizer")
    eot_token: str | None = _option(None, text("TEXT|ID|TEXT=ID"), ENCODED,
        "the special token that marks documents", in_identity=False, also_of=(ESTIMATE,),
        other_names="eos_token eod_token end_token eot_text document_token")
    bos_token: str | None = _option(None, text("TEXT|ID|TEXT=ID"), ENCODED,
        "the special token that begins documents (default: the tokenizer's); implies --bos "
        "prepend", in_identity=False, also_of=(ESTIMATE,),
        other_names="begin_token start_token bos_text")
    eot: str | None = _option(None, choice("append", "prepend", "both", "none"), ENCODED,
        "where EOT goes (default: the format's)", also_of=(ESTIMATE,),
        other_names="eos eod append_eod append_eos append_eot add_eos eos_policy")
    bos: str | None = _option(None, choice("prepend", "none"), ENCODED,
        "where BOS goes (default: none)", also_of=(ESTIMATE,),
        other_names="add_bos prepend_bos add_bos_token bos_policy")
    empty: str | None = _option(None, choice("drop", "keep"), ENCODED,
        "empty documents (default: the format's)",
        other_names="keep_empty drop_empty skip_empty")
    format: str = _option("nanogpt", text("NAME"), WRITTEN,
        "{default} (default); `tokenmill formats` lists them all", also_of=(ESTIMATE,),
        other_names="output_format out_format to_format target_format fmt writer f")
    name: str | None = _option(None, kinds.FILE_NAME, WRITTEN,
        "stem of shard names (default: the format's)",
        other_names="prefix stem dataset_name shard_prefix shard_name")
    shard_tokens: int | None = _option(None, kinds.COUNT, WRITTEN,
        "tokens per shard (default: the format's)",
        other_names="shard_size tokens_per_shard tokens_per_file max_tokens_per_file "
        "max_tokens_per_shard max_shard_size chunk_size file_size")
    seq_len: int | None = _option(None, kinds.SEQ_LEN, WRITTEN,
        "tokens per sample, if the format holds samples (mds: 2048); `document` for one sample "
        "per document",
        other_names="block_size seq_length sequence_length context_length context_size context "
        "ctx_len max_length max_len max_seq_len max_seq_length")
    dtype: str = _option("auto", choice("auto", "uint16", "uint32"), WRITTEN,
        "(default: {default})",
        other_names="token_dtype np_dtype token_size data_type")
    val_fraction: float | None = _option(None, kinds.FRACTION, WRITTEN,
        "hold out documents by a hash of their text", instead_of="val",
        other_names="val_ratio val_size val_split val_frac valid_fraction validation_fraction "
        "validation_split test_size eval_fraction holdout split")
    val: str | None = _option(None, choice("fraction", "first-shard", "none"), group=WRITTEN,
        instead_of="val",
        switches=(
            ("--val-first-shard", "first-shard", "the first shard is the validation split"),
            ("--no-val", "none", "hold out nothing"),
        ))
    shuffle: bool = _option(False, kinds.SWITCH, WRITTEN,
        "shuffle all documents, on disk",
        other_names="randomize randomise permute")
    seed: int = _option(0, kinds.SEED, WRITTEN,
        "for the shuffle, the split and the sample (default: {default})", also_of=(TRAIN,),
        other_names="random_seed shuffle_seed rng_seed random_state")
    slice_bytes: int = _option(32 << 20, kinds.COUNT)
    num_proc: int | None = _option(None, kinds.WORKERS, RUNS,
        "workers (default: one per CPU)", in_identity=False, also_of=(ESTIMATE, TRAIN),
        other_names="workers num_workers nworkers n_workers nproc n_proc num_procs num_process "
        "procs num_processes processes preprocessing_num_workers jobs n_jobs num_jobs cpus "
        "num_cpus cpu_count threads num_threads parallelism tasks num_tasks j n p w")
    runner: str | None = _option(None, choice("inline", "processes", "ray"), RUNS,
        "inline, processes or ray (default: inline for --num-proc 1, else processes)",
        in_identity=False,
        other_names="executor backend engine")
    ray_address: str | None = _option(None, text("ADDR"), RUNS,
        "of the cluster (default: RAY_ADDRESS, else a cluster that `ray start` started here, "
        "else a new one for this run)", in_identity=False,
        other_names="address cluster")
    worker_cpus: float | None = _option(None, kinds.POSITIVE, RUNS,
        "with ray: CPUs per worker (default: 1)", in_identity=False,
        other_names="cpus_per_worker cpus_per_task")
    worker_memory: int | None = _option(None, kinds.MEMORY, RUNS,
        "with ray: memory per worker: 2G", in_identity=False,
        other_names="memory mem mem_per_worker")
    stall_timeout: float = _option(300.0, kinds.SECONDS, RUNS,
        "replace a worker that is silent for S seconds (default: {default:g})", in_identity=False,
        other_names="timeout worker_timeout")
    keep_downloads: bool = _option(True, kinds.SWITCH, RUNS,
        "keep files from the Hub in its cache (default), or remove each once it is encoded",
        in_identity=False,
        other_names="keep_cache cache")
    overwrite: bool = _option(False, kinds.SWITCH, RUNS,
        "replace the dataset in OUT once the new one is complete", in_identity=False,
        also_of=(TRAIN,),
        other_names="force clobber replace overwrite_output_dir overwrite_cache")
    # fmt: on
    named: tuple[NamedSource, ...] = ()  # their paths are `sources`, too

    def __post_init__(self) -> None:
        """Accept what Python callers may pass: paths, an Encoding, numbers such as "10M"."""
        given: Any = self.sources
        named = NamedSource.all_from(self.named)
        if isinstance(given, Mapping):
            named = tuple(NamedSource.from_user(name, value) for name, value in given.items())
            given = [path for source in named for path in source.paths]
        found = {"sources": given, **_tokenizer_options(self)}
        for name, option in OPTIONS.items():
            value = found.get(name, getattr(self, name))
            if value is not None or DEFAULTS[name] is not None:
                value = option.kind.checked(called(name), value)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "named", tuple(map(self._without_usual, named)))
        for rule in _RULES:
            rule(self)
        for source in self.named:
            with of_source(source.name):
                self._for_source(source)

    @property
    def has_bos(self) -> bool:
        """Whether documents begin with a BOS token."""
        return self.bos == "prepend" or self.bos_token is not None

    def identity(self) -> dict[str, Any]:
        """The options that determine the output's bytes."""
        values = {name: getattr(self, name) for name, o in OPTIONS.items() if o.in_identity}
        found = {n: v for n, v in values.items() if v is not None or not OPTIONS[n].if_given}
        if self.named:
            found["named"] = {s.name: s.identity(place) for place, s in enumerate(self.named)}
        return found

    @property
    def kept_columns(self) -> tuple[str, ...] | None:
        """The columns of --keep; None without --keep."""
        return None if self.keep is None else kinds.columns_in(self.keep)

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
            name: None if value == OPTIONS[name].unset else value for name, value in source.options
        }
        return dataclasses.replace(self, named=(), sources=source.paths or self.sources, **own)

    def _without_usual(self, source: NamedSource) -> NamedSource:
        """The source without options that equal those of the whole run."""
        usual = {name: getattr(self, name) for name, _ in source.options}
        usual = {n: OPTIONS[n].unset if value is None else value for n, value in usual.items()}
        options = tuple((name, value) for name, value in source.options if value != usual[name])
        return dataclasses.replace(source, options=tuple(sorted(options)))


OPTIONS: dict[str, Option] = {
    field.name: field.metadata["option"]
    for field in dataclasses.fields(Config)
    if "option" in field.metadata
}
DEFAULTS: dict[str, Any] = {name: getattr(Config, name) for name in OPTIONS}


def called(name: str) -> str:
    """What an option is called in messages: by the command line, if it is there."""
    return f"--{name.replace('_', '-')}" if OPTIONS[name].help else name


def options_of(command: str) -> dict[str, Option]:
    """The options that a command takes besides sources and output folder; "": a run's."""
    on_line = {n: o for n, o in OPTIONS.items() if o.help or o.switches}
    return {n: o for n, o in on_line.items() if not command or command in o.also_of}


# What contradicts what


def _has_source(config: Config) -> None:
    if not config.sources:
        raise ConfigError("no source given", hint="tokenmill prepare corpus/ -o out/")


def _places_can_be_used(config: Config) -> None:
    # Imported late: the command line takes its defaults from here, and `--help` must be quick.
    from tokenmill.storage.address import is_url, require_lasting, require_output, require_plain

    for url in filter(is_url, (*config.sources, config.out)):
        require_plain(url)
    require_output(config.out)
    if config.runner != "inline":
        require_lasting(config.out)


def _template_names_the_columns(config: Config) -> None:
    for name in ("text_column", "lists") if config.template is not None else ():
        if getattr(config, name) != DEFAULTS[name]:
            raise ConfigError(
                f"--template already names the columns, so {called(name)} has no meaning",
                hint=f"leave out {called(name)}; a template writes a column as {{text}}",
            )


def _copies_are_wanted(config: Config) -> None:
    if config.dedup is not None and config.has_repeats:
        raise ConfigError(
            "--dedup would remove what `repeat` repeats",
            hint="leave out one of them; the loader can repeat a source by its weight",
        )


def _bos_token_is_used(config: Config) -> None:
    if config.bos_token is not None and config.bos == "none":
        raise ConfigError("--bos-token with --bos none", hint="leave one of them out")


def _one_validation_split(config: Config) -> None:
    if config.val_fraction is not None and config.val not in (None, "fraction"):
        raise ConfigError("choose one of --val-fraction, --val-first-shard and --no-val")


def _options_are_of_the_runner(config: Config) -> None:
    if config.runner == "inline" and config.num_proc not in (None, 1):
        raise ConfigError(
            f"--runner inline has one worker, not --num-proc {config.num_proc}",
            hint="--runner processes",
        )
    for name in ("ray_address", "worker_cpus", "worker_memory") if config.runner != "ray" else ():
        if getattr(config, name) is not None:
            raise ConfigError(f"{called(name)} is only for --runner ray", hint="--runner ray")


_RULES: tuple[Callable[[Config], None], ...] = (
    _has_source,
    _places_can_be_used,
    _template_names_the_columns,
    _copies_are_wanted,
    _bos_token_is_used,
    _one_validation_split,
    _options_are_of_the_runner,
)


def _tokenizer_options(config: Config) -> dict[str, Any]:
    """The options by which any process finds an `Encoding` that is given as the tokenizer: those of
    its identity, with the path of its file unless the encoding comes with the package."""
    identity = getattr(config.tokenizer, "identity", None)
    if identity is None:
        return {}
    if config.pattern is not None or config.eot_token is not None:
        raise ConfigError("an Encoding already has its pattern and eot_token")
    return {
        "tokenizer": identity.source or identity.name,
        "pattern": identity.pattern,
        "eot_token": identity.eot_option,
    }


# Sources with a name

SOURCE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
MAX_REPEAT = 1000  # each copy adds its own slices to the plan
OWN_OPTIONS = tuple(name for name, option in OPTIONS.items() if option.of_source)
SOURCE_KEYS = ("paths", "repeat", *OWN_OPTIONS)


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A part of the corpus that is counted separately and may override options: a path, several
    paths, or a table of `paths`, `repeat` and options. `Config.by_source` resolves the options."""

    name: str
    paths: tuple[str, ...] = ()  # files, folders, globs, URLs; `finish` and `verify` have none
    repeat: int = 1  # how many times each of its documents is written
    options: tuple[tuple[str, Any], ...] = ()  # (name, value) of overridden options

    def __post_init__(self) -> None:
        if not SOURCE_NAME.fullmatch(self.name):
            raise ConfigError(
                f"a source cannot be named {self.name!r}",
                hint="a letter, then letters, digits, - and _: web=corpus/web/",
            )
        if type(self.repeat) is not int or not 1 <= self.repeat <= MAX_REPEAT:
            raise ConfigError(
                f"source {self.name}: repeat is a whole number from 1 to {MAX_REPEAT:,}, got "
                f"{self.repeat!r}",
                hint="repeat = 2 writes every document twice; sample = 0.5 takes half of the rows",
            )

    @staticmethod
    def from_user(name: str, given: Any) -> NamedSource:
        """The source that a user wrote as a path, several paths, or a table."""
        table = dict(given) if isinstance(given, Mapping) else {"paths": given}
        for key in table:
            if key not in SOURCE_KEYS:
                raise unknown_key(name, key)
        paths = table.pop("paths", None)
        if paths is None or paths in ("", []):
            raise ConfigError(
                f"source {name} has no paths",
                hint=f'{name}=corpus/{name}/ on the command line, or paths = "corpus/{name}/"',
            )
        try:
            some = kinds.PATHS.parse(paths)
        except Unfit:
            raise ConfigError(
                f"source {name} is a path, several paths or a table, got {paths!r}",
                hint=f'{{"{name}": "corpus/{name}/"}}',
            ) from None
        repeat = table.pop("repeat", 1)
        with of_source(name):
            options = tuple(
                (key, _own_value(key, value)) for key, value in table.items() if value is not None
            )
        return NamedSource(name, some, repeat, options)

    @staticmethod
    def all_from(plain: Any) -> tuple[NamedSource, ...]:
        """The sources of an identity, or of `dataclasses.asdict`."""
        if not isinstance(plain, Mapping):
            return tuple(
                one
                if isinstance(one, NamedSource)
                else NamedSource(
                    one["name"], tuple(one["paths"]), one["repeat"], _pairs(one["options"])
                )
                for one in plain
            )
        tables = {name: dict(table) for name, table in plain.items()}
        found = sorted(tables, key=lambda name: int(tables[name].pop("place")))
        repeats = {name: tables[name].pop("repeat", 1) for name in found}
        return tuple(
            NamedSource(name, (), repeats[name], _pairs(tables[name].items())) for name in found
        )

    def identity(self, place: int) -> dict[str, Any]:
        """What determines the bytes, besides the inputs."""
        repeat = {"repeat": self.repeat} if self.repeat > 1 else {}
        return {"place": place, **repeat, **dict(self.options)}


def _own_value(name: str, value: Any) -> Any:
    option = OPTIONS[name]
    is_plain = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    if is_plain and value == option.unset:
        return option.unset
    return option.kind.checked(called(name), value)


def _pairs(options: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((str(name), value) for name, value in options if name in OWN_OPTIONS)


def unknown_key(name: str, key: str) -> ConfigError:
    from tokenmill.config.names import option_meant

    meant = option_meant(key, SOURCE_KEYS)
    return ConfigError(
        f"source {name}: unknown option {key!r}",
        hint=f"did you mean {meant!r}?" if meant else f"a source has {', '.join(SOURCE_KEYS)}",
    )


@contextlib.contextmanager
def of_source(name: str) -> Iterator[None]:
    """Have errors raised inside say which named source they are about."""
    try:
        yield
    except (ConfigError, InputError) as error:
        if not name:
            raise
        hint = error.hint
        if hint is not None and any(called(option) in hint for option in OWN_OPTIONS):
            hint += f"; for {name} alone: the same key in [source.{name}] of a tokenmill.toml"
        raise type(error)(f"source {name}: {error.message}", hint) from error
