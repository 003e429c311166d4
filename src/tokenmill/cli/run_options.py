"""The options of a run on the command line, and the Config that they make.

For every command that starts a run, or reads text as a run does. A source may have a name,
`web=corpus/web/`; but a word that exists as a file, a folder or a glob is that path, as
`year=2024/` often is.
"""

from __future__ import annotations

import argparse
import dataclasses
import glob
import os
from collections.abc import Sequence
from typing import Any

from tokenmill.cli.screen import parsed_separator
from tokenmill.config.named_source import NAME
from tokenmill.config.options import (
    BAD_DOCUMENT_POLICIES,
    BOS_POLICIES,
    DEDUP_POLICIES,
    DTYPES,
    EMPTY_POLICIES,
    EOT_POLICIES,
    LIST_POLICIES,
    Config,
)
from tokenmill.errors import ConfigError


def add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="files, folders or globs: .parquet .arrow .feather .jsonl .json .csv .tsv .txt (from "
        ".jsonl on also .gz .zst .bz2 .xz .lz4); - for standard input, with --input-format; "
        "OWNER/NAME[:CONFIG[/SPLIT]][@REVISION] or hf://datasets/OWNER/NAME[@REVISION]/GLOB on the "
        "Hugging Face Hub; s3://BUCKET/PREFIX/, gs://, az:// and others of fsspec, also with globs"
        "; NAME=SOURCE names a source, whose tokens are then counted separately",
    )
    parser.add_argument(
        "--config",
        action=_ConfigPath,
        metavar="FILE",
        help="a tokenmill.toml with options, sources and options of sources; typed options "
        "replace its values, but cannot turn off what it turns on",
    )


class _ConfigPath(argparse.Action):
    """With --config, SOURCE and -o are no longer required: the file may have them."""

    def __call__(self, parser: Any, namespace: Any, values: Any, _: str | None = None) -> None:
        setattr(namespace, self.dest, values)
        for action in parser._actions:
            if action.dest in ("sources", "out"):
                action.required = False


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add every option of a run. Each has the name of its field in Config."""
    parser.add_argument(
        "-o", "--out", required=True, help="output folder, or a URL: s3://bucket/folder"
    )

    what = add_reading_options(parser)
    add_choosing_options(what)
    add_keeping_option(what)
    what.add_argument("--limit-docs", metavar="N", help="only the first N documents")
    what.add_argument(
        "--on-bad-document",
        choices=BAD_DOCUMENT_POLICIES,
        help="invalid UTF-8, broken JSON, text that no engine can encode "
        f"(default: {Config.on_bad_document})",
    )
    what.add_argument(
        "--max-bad-fraction",
        type=float,
        metavar="F",
        help=f"fail if a larger fraction of rows is bad (default: {Config.max_bad_fraction})",
    )

    how = add_encoding_options(parser)
    how.add_argument(
        "--empty", choices=EMPTY_POLICIES, help="empty documents (default: the format's)"
    )

    _add_writing_options(parser)
    _add_running_options(parser)


def _add_writing_options(parser: argparse.ArgumentParser) -> None:
    shards = parser.add_argument_group("what is written")
    shards.add_argument(
        "--format",
        metavar="NAME",
        help=f"{Config.format} (default); `tokenmill formats` lists them all",
    )
    shards.add_argument("--name", help="stem of shard names (default: the format's)")
    shards.add_argument(
        "--shard-tokens", metavar="N", help="tokens per shard (default: the format's)"
    )
    shards.add_argument(
        "--seq-len",
        metavar="N",
        help="tokens per sample, if the format holds samples (mds: 2048); "
        "`document` for one sample per document",
    )
    shards.add_argument("--dtype", choices=DTYPES, help=f"(default: {Config.dtype})")
    val = shards.add_mutually_exclusive_group()
    val.add_argument(
        "--val-fraction", type=float, metavar="F", help="hold out documents by a hash of their text"
    )
    val.add_argument(
        "--val-first-shard", action="store_true", help="the first shard is the validation split"
    )
    val.add_argument("--no-val", action="store_true", help="hold out nothing")
    shards.add_argument("--shuffle", action="store_true", help="shuffle all documents, on disk")
    shards.add_argument(
        "--seed",
        type=int,
        metavar="S",
        help=f"for the shuffle, the split and the sample (default: {Config.seed})",
    )

    shards.add_argument(
        "--pack",
        metavar="N",
        help="also plan rows of N tokens, as `tokenmill pack OUT --seq-len N` does",
    )


def _add_running_options(parser: argparse.ArgumentParser) -> None:
    running = parser.add_argument_group("how it runs")
    running.add_argument("--num-proc", type=int, metavar="N", help="workers (default: one per CPU)")
    running.add_argument(
        "--partition",
        metavar="I/N",
        help="encode only the Ith of N shares of the corpus, as one task of a Slurm array or a "
        "Kubernetes job; then `tokenmill finish OUT`",
    )
    running.add_argument(
        "--runner",
        metavar="NAME",
        help="inline, processes or ray (default: inline for --num-proc 1, else processes)",
    )
    running.add_argument(
        "--ray-address",
        metavar="ADDR",
        help="of the cluster (default: RAY_ADDRESS, else a cluster that `ray start` started here, "
        "else a new one for this run)",
    )
    running.add_argument(
        "--worker-cpus", type=float, metavar="N", help="with ray: CPUs per worker (default: 1)"
    )
    running.add_argument("--worker-memory", metavar="N", help="with ray: memory per worker: 2G")
    running.add_argument(
        "--stall-timeout",
        type=float,
        metavar="S",
        help=f"replace a worker that is silent for S seconds (default: {Config.stall_timeout:g})",
    )
    running.add_argument(
        "--keep-downloads",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="keep files from the Hub in its cache (default), or remove each once it is encoded",
    )
    running.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the dataset in OUT once the new one is complete",
    )
    running.add_argument("--dry-run", action="store_true", help="show the plan, write nothing")
    running.add_argument("--json", action="store_true", help="print the summary as JSON on stdout")
    running.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    running.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")


def add_reading_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Options for reading the sources."""
    what = parser.add_argument_group("what is read")
    what.add_argument(
        "--text-column",
        metavar="NAME",
        help=f"column or JSON field (default: {Config.text_column}); meta.text is a field of meta",
    )
    what.add_argument(
        "--template",
        metavar="TEXT",
        help=r"a row's text from several columns: '{title}\n\n{text}'",
    )
    what.add_argument(
        "--lists",
        choices=LIST_POLICIES,
        help="for a column of lists of strings: join them (with --separator, by default a blank "
        "line), or make documents of them",
    )
    what.add_argument(
        "--separator",
        metavar="SEP",
        help=r"what separates documents in .txt: '\n\n', '<|endoftext|>'",
    )
    what.add_argument(
        "--input-format",
        metavar="NAME",
        help="read every file as this kind, whatever its name: parquet, arrow, jsonl, csv, tsv or "
        "text; in a folder, the files of this kind, or for text every file that may be text",
    )
    return what


def add_choosing_options(what: argparse._ArgumentGroup) -> None:
    """Options that choose rows."""
    what.add_argument(
        "--where",
        metavar="EXPR",
        help="only rows that satisfy this: 'int_score >= 3 and language == \"en\"'; "
        "docs/choosing-rows.md has the grammar",
    )
    what.add_argument(
        "--sample",
        metavar="F",
        help="only this fraction of the rows, across the whole corpus, by a hash of --seed and row",
    )
    what.add_argument(
        "--dedup",
        choices=DEDUP_POLICIES,
        help="only the first of equal texts, in the order of the sources",
    )
    what.add_argument(
        "--limit-tokens",
        metavar="N",
        help="whole documents, in the order of the sources, until there are N tokens: 1B",
    )


def add_keeping_option(what: argparse._ArgumentGroup) -> None:
    what.add_argument(
        "--keep",
        metavar="COLUMNS",
        help="columns to keep beside the tokens (id,url,dump), with the file and row of each "
        "document; '' for the latter alone",
    )


def add_encoding_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Options for encoding text."""
    how = parser.add_argument_group("how it is encoded")
    how.add_argument(
        "--tokenizer",
        metavar="NAME|FILE",
        help=f"{Config.tokenizer} (default), r50k_base, p50k_base, cl100k_base, o200k_base, "
        "o200k_harmony, a model on the Hub (Qwen/Qwen3-0.6B), a tokenizer.json, a tekken.json, "
        "a SentencePiece model or a file of ranks; see: tokenmill tokenizers",
    )
    how.add_argument(
        "--pattern",
        metavar="NAME|REGEX",
        help="for an unknown file of ranks: gpt2, cl100k, o200k, qwen or a regular expression",
    )
    how.add_argument(
        "--eot-token", metavar="TEXT|ID|TEXT=ID", help="the special token that marks documents"
    )
    how.add_argument(
        "--eot",
        choices=EOT_POLICIES,
        help="where it goes (default: the format's)",
    )
    how.add_argument(
        "--bos-token",
        metavar="TEXT|ID|TEXT=ID",
        help="the special token that begins documents (default: the tokenizer's); implies --bos "
        "prepend",
    )
    how.add_argument("--bos", choices=BOS_POLICIES, help="where it goes (default: none)")
    return how


def config_from(arguments: argparse.Namespace) -> Config:
    from tokenmill.storage.address import require_lasting

    if arguments.out == "":
        raise ConfigError("-o is empty", hint="is the variable set? -o data/mine")
    if arguments.out is not None:
        require_lasting(arguments.out)
    val = "first-shard" if arguments.val_first_shard else "none" if arguments.no_val else None
    config = typed_config(arguments, val=val)
    if not config.out:
        raise ConfigError("missing: -o, the output folder", hint="add `-o data/mine`")
    require_lasting(config.out)
    return config


def typed_config(arguments: argparse.Namespace, **more: Any) -> Config:
    """The Config of the typed options and the configuration file, with defaults for the rest."""
    names = (field.name for field in dataclasses.fields(Config))
    given = {name: getattr(arguments, name, None) for name in names} | more
    if arguments.separator is not None:
        given["separator"] = parsed_separator(arguments.separator)
    if getattr(arguments, "template", None) is not None:
        given["template"] = parsed_separator(arguments.template)
    given["sources"] = typed_sources(arguments.sources or []) or None
    typed = {
        name: value
        for name, value in given.items()
        if value is not None and (value, getattr(Config, name)) != (False, False)
    }
    if getattr(arguments, "config", None) is None:
        return Config(**typed)
    from tokenmill.config.file import ConfigFile  # takes 10 ms, which only --config should pay

    file = ConfigFile.read(arguments.config)
    with file.naming_lines(typed):
        return Config(**file.completed(typed))


def typed_sources(words: Sequence[str]) -> dict[str, dict[str, str]] | list[str]:
    """Named sources as tables, or a list of sources without names."""
    found: dict[str, dict[str, str]] = {}
    others: list[str] = []
    for word in words:
        name, path = _name_and_path(word)
        if not name:
            others.append(word)
            continue
        if name in found:
            raise ConfigError(
                f"two sources are named {name}: {found[name]['paths']} and {path}",
                hint=f"use two names, or in a tokenmill.toml: [source.{name}] "
                f'paths = ["{found[name]["paths"]}", "{path}"]',
            )
        found[name] = {"paths": path}
    if found and others:
        raise ConfigError(
            f"{others[0]} has no name, and other sources have one",
            hint=f"name it: NAME={others[0]}",
        )
    return found or others


def _name_and_path(word: str) -> tuple[str, str]:
    """The name and the path; the name is empty if there is none."""
    name, equals, path = word.partition("=")
    if not equals or not NAME.fullmatch(name) or (_is_here(word) and not _is_here(path)):
        return "", word
    if not path:
        raise ConfigError(f"source {name} has no path", hint=f"{name}=corpus/{name}/")
    if _is_here(word):
        raise ConfigError(
            f"{word} may be the file of that name, or {path} as a source named {name}",
            hint=f"for the file: ./{word}; for the source: {name}=./{path}",
        )
    return name, path


def _is_here(path: str) -> bool:
    return os.path.lexists(path) or (glob.has_magic(path) and any(glob.iglob(path)))
