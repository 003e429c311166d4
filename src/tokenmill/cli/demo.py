"""`tokenmill demo`: prepares text that every machine has, Python's own standard library."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import sysconfig
from typing import TYPE_CHECKING

from tokenmill.cli import prepare
from tokenmill.cli.run_options import add_option
from tokenmill.cli.screen import printable
from tokenmill.cli.usage import CommandParser
from tokenmill.storage.store import exists

if TYPE_CHECKING:
    from tokenmill.config import Config

_SAMPLE_TOKENS = 60


DESCRIPTION = """\
Prepare the source of Python's standard library, one document per file, and decode a
piece of the result. Downloads nothing and takes seconds."""


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("-o", "--out", default="demo-out", help="output folder (default: demo-out)")
    add_option(parser, "num_proc", argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    from tokenmill.config import Config

    stdlib = sysconfig.get_paths()["stdlib"]
    # Everything but site-packages (and sqlite3, which also begins with s).
    sources = (os.path.join(stdlib, "*.py"), os.path.join(stdlib, "[!s]*", "**", "*.py"))
    config = Config(
        sources=sources,
        out=arguments.out,
        input_format="text",
        val_fraction=0.01,
        max_bad_fraction=0.01,
        num_proc=arguments.num_proc,
        overwrite=True,
    )
    require_own(arguments.out, stdlib)
    shown = " ".join(["tokenmill prepare", *(f"'{source}'" for source in sources)])
    shown += " --input-format text --val-fraction 0.01 --max-bad-fraction 0.01 --overwrite"
    shown += f" -o {shlex.quote(arguments.out)}"
    print(printable(f"$ {shown}"), file=sys.stderr)
    code = prepare.run_and_report(config, arguments)
    show_sample(config)
    return code


def require_own(out: str, stdlib: str) -> None:
    """Raise ConflictError if `out` holds anything but the files of an earlier demo."""
    from tokenmill.dataset.places import WORK_NAME, plan_path
    from tokenmill.dataset.publication import settle
    from tokenmill.errors import ConflictError
    from tokenmill.storage.store import store_of

    if not store_of(out).is_local:
        return  # in a bucket, every run gets a folder of its own
    settle(out)
    names = set(os.listdir(out) if os.path.isdir(out) else ())
    if exists(plan_path(out)):
        names.add(WORK_NAME)
    others = sorted(names - _names_of_demo(out, os.path.join(stdlib, "")))
    if others:
        raise ConflictError(
            f"{out} holds files that no demo wrote, and a demo would replace them: "
            f"{', '.join(others[:5])}",
            hint="choose another folder: tokenmill demo -o FOLDER",
        )


def _names_of_demo(out: str, stdlib: str) -> set[str]:
    """The names in the folder that come from an earlier demo: a dataset, an unfinished run."""
    from tokenmill.corpus.plan import Plan
    from tokenmill.dataset.manifest import MANIFEST_NAME, Manifest
    from tokenmill.dataset.places import WORK_NAME, plan_path
    from tokenmill.errors import IntegrityError

    names = set()
    with contextlib.suppress(IntegrityError):
        manifest = Manifest.load(out)
        if all(source.path.startswith(stdlib) for source in manifest.inputs):
            names |= {MANIFEST_NAME, *(file.name for file in manifest.files)}
    with contextlib.suppress(IntegrityError):
        is_begun = exists(plan_path(out))
        if not is_begun or all(
            source.path.startswith(stdlib) for source in Plan.load(plan_path(out)).inputs
        ):
            names.add(WORK_NAME)
    return names


def show_sample(config: Config) -> None:
    """Print the first tokens of train.bin, as ids and as text."""
    from tokenmill.dataset.dataset import open_dataset
    from tokenmill.encodings import get_encoding

    path, stream = os.path.join(config.out, "train.bin"), open_dataset(config.out).streams["train"]
    ids = stream.tokens(0, _SAMPLE_TOKENS).tolist()
    text = get_encoding(config.tokenizer).decode(ids)
    print(f"\nthe first tokens of {printable(path)}: {ids[:8]} ...", file=sys.stderr)
    for line in text.splitlines()[:12]:
        print(f"  | {printable(line)}", file=sys.stderr)
