"""The options of a run on the command line, and the Config that they make.

For every command that starts a run, or reads text as a run does: all from the table in
config/options.py. A source may have a name, `web=corpus/web/`; but a word that exists as a file, a
folder or a glob is that path, as `year=2024/` often is.
"""

from __future__ import annotations

import argparse
import glob
import os
from collections.abc import Sequence
from typing import Any

from tokenmill.cli.usage import Checked
from tokenmill.config import Config
from tokenmill.config.options import DEFAULTS, OPTIONS, SOURCE_NAME, Option, called, options_of
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
        "override it, and --no-NAME takes back what it says: --no-shuffle, --no-where, ...",
    )


class _ConfigPath(argparse.Action):
    """With --config, SOURCE and -o are no longer required: the file may have them."""

    def __call__(self, parser: Any, namespace: Any, values: Any, _: str | None = None) -> None:
        setattr(namespace, self.dest, values)
        for action in parser._actions:
            if action.dest in ("sources", "out"):
                action.required = False


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Every option of a run, and those that only the command line has."""
    parser.add_argument(
        "-o", "--out", required=True, help="output folder, or a URL: s3://bucket/folder"
    )
    groups = add_options(parser)
    groups["what is written"].add_argument(
        "--pack",
        metavar="N",
        help="also plan rows of N tokens, as `tokenmill pack OUT --seq-len N` does",
    )
    running = groups["how it runs"]
    running.add_argument(
        "--partition",
        metavar="I/N",
        help="encode only the Ith of N shares of the corpus, as one task of a Slurm array or a "
        "Kubernetes job; then `tokenmill finish OUT`",
    )
    running.add_argument("--dry-run", action="store_true", help="show the plan, write nothing")
    running.add_argument("--json", action="store_true", help="print the summary as JSON on stdout")
    running.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary")
    running.add_argument("-v", "--verbose", action="store_true", help="tracebacks with errors")


def add_options(parser: argparse.ArgumentParser, command: str = "") -> dict[str, Any]:
    """Add the options of a run that a command takes, all by default; returns them by group. One
    that is not typed is not in the namespace: None is a value."""
    groups: dict[str, Any] = {}
    exclusive: dict[str, Any] = {}
    for name, option in options_of(command).items():
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        group = groups[option.group]
        if option.instead_of:
            if option.instead_of not in exclusive:
                exclusive[option.instead_of] = group.add_mutually_exclusive_group()
            group = exclusive[option.instead_of]
        _add_option(group, name, option)
    return groups


def add_option(parser: Any, name: str, help_: str) -> None:
    """Add one option of a run, which means something of its own here; None if it is not typed."""
    kind = OPTIONS[name].kind
    parser.add_argument(called(name), action=Checked, kind=kind, default=None, help=help_)


def _add_option(group: Any, name: str, option: Option) -> None:
    flag, usual, suppressed = called(name), DEFAULTS[name], argparse.SUPPRESS
    if isinstance(usual, bool):
        action = argparse.BooleanOptionalAction
        group.add_argument(flag, action=action, default=suppressed, help=option.help)
        return
    if option.help:
        help_ = option.help.format(default=usual) if "{default" in option.help else option.help
        group.add_argument(flag, action=Checked, kind=option.kind, default=suppressed, help=help_)
    off = [(f"--no-{flag[2:]}", None, suppressed)] if option.is_optional else []
    for switch, value, help_ in (*option.switches, *off):
        group.add_argument(
            switch, action="store_const", const=value, dest=name, default=suppressed, help=help_
        )


def config_from(arguments: argparse.Namespace) -> Config:
    from tokenmill.storage.address import require_lasting

    if arguments.out == "":
        raise ConfigError("-o is empty", hint="is the variable set? -o data/mine")
    if arguments.out is not None:
        require_lasting(arguments.out)
    config = typed_config(arguments)
    if not config.out:
        raise ConfigError("missing: -o, the output folder", hint="add `-o data/mine`")
    require_lasting(config.out)
    return config


def typed_config(arguments: argparse.Namespace, command: str = "", **more: Any) -> Config:
    """The Config of the typed options and the configuration file, with defaults for the rest."""
    typed = {n: v for n, v in vars(arguments).items() if n in options_of(command)} | more
    if getattr(arguments, "out", None) is not None:
        typed["out"] = arguments.out
    if sources := typed_sources(arguments.sources or []):
        typed["sources"] = sources
    if getattr(arguments, "config", None) is None:
        return Config(**typed)
    from tokenmill.config.file import ConfigFile  # takes 10 ms, which only --config should pay

    file = ConfigFile.read(arguments.config)
    try:
        return Config(**file.completed(typed))
    except ConfigError as error:  # what contradicts may be in the file, or typed
        raise ConfigError(f"{error.message} (with {file.path})", error.hint) from error


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
    if not equals or not SOURCE_NAME.fullmatch(name) or (_is_here(word) and not _is_here(path)):
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
