"""The summary of a finished run: a few lines worth pasting."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from tokenmill.cli.screen import printable, shown_bytes, shown_count, shown_rate, shown_seconds
from tokenmill.dataset.places import dataset_folder
from tokenmill.storage import hashing
from tokenmill.wording.plural import counted, noun_for

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from tokenmill.cli.progress import Progress
    from tokenmill.dataset.manifest import Manifest, OutputFile

# With less text than this, the speed would be that of Python's start.
MIN_RATED_BYTES = 1_000_000
_EOT_WORDS = {"append": "appended", "prepend": "prepended", "both": "at both ends"}
_MAX_FILES = 6


def print_summary(
    manifest: Manifest, out: str, arguments: argparse.Namespace, progress: Progress, text_bytes: int
) -> None:
    """Print it as lines or JSON. `text_bytes` were encoded since the command began."""
    seconds = progress.seconds
    if arguments.json:
        beside = {"seconds": round(seconds, 3), "out": out, "notes": manifest.notes}
        print(json.dumps({**beside, **manifest.to_plain()}))
    elif not arguments.quiet:
        for line in summary(manifest, out, seconds if progress.has_worked else None, text_bytes):
            print(printable(line), file=sys.stderr)


def summary(manifest: Manifest, out: str, seconds: float | None, text_bytes: int) -> list[str]:
    """The lines. `text_bytes` were encoded in `seconds`; None if the run was already finished."""
    counts, options = manifest.counts, manifest.identity["options"]
    head = f"{out} is already complete; nothing to do. " if seconds is None else ""
    is_resumed = seconds is not None and 0 < text_bytes < counts.text_bytes
    part = f"; {shown_bytes(text_bytes)} of it" if is_resumed else ""
    lines = [
        f"{head}{counted(counts.num_written, 'document')}, {shown_bytes(counts.text_bytes)} of "
        f"text -> {counted(manifest.num_tokens, 'token')}{part}{shown_speed(seconds, text_bytes)}",
        *_file_lines(manifest),
        *address_lines(out),
        f"  {counted(counts.num_rows, 'row')} = {counts.shown_sum}",
        *_source_lines(manifest),
        f"  {manifest.identity['encoding']['name']}, {options['dtype']}, "
        f"format {options['format']}, {_shown_eot(manifest)}, "
        f"{'shuffled' if options['shuffle'] else 'in order'}; "
        f"{counts.text_bytes / max(1, manifest.num_tokens):.2f} bytes per token",
    ]
    return lines + note_lines(manifest.notes)


def address_lines(out: str) -> list[str]:
    """Where a trainer finds the shards, if that is not the output folder itself."""
    folder = dataset_folder(out)
    return [] if folder == out else [f"  trainers read {folder}"]


def shown_speed(seconds: float | None, text_bytes: int) -> str:
    """The duration, and the speed if it is meaningful."""
    if seconds is None:
        return ""
    rate = f", {shown_rate(text_bytes / seconds)} of text" if text_bytes >= MIN_RATED_BYTES else ""
    return f" in {shown_seconds(seconds)}{rate}"


def note_lines(notes: Iterable[str]) -> list[str]:
    """Notes, each with its label; further lines of a note, such as a command, are indented."""
    return [
        f"  note: {line}" if number == 0 else f"    {line}"
        for note in notes
        for number, line in enumerate(note.split("\n"))
    ]


def _file_lines(manifest: Manifest) -> list[str]:
    files = manifest.files
    shown = files if len(files) <= _MAX_FILES else (*files[:3], *files[-2:])
    width = max(len(file.name) for file in shown)
    lines = [
        f"  {file.name:<{width}}  {shown_count(file.num_tokens):>6} "
        f"{noun_for(file.num_tokens, 'token'):<6}  {shown_bytes(file.num_bytes):>9}  "
        f"sha256 {file.first_sha256[:12]}{_hashed_part(file)}"
        for file in shown
    ]
    if len(files) > _MAX_FILES:
        lines.insert(3, f"  ... {len(files) - 5:,} more ...")
    return lines


def _hashed_part(file: OutputFile) -> str:
    """What the shown sha256 is of, if it is not the whole file's, which sha256sum prints."""
    is_whole = isinstance(file.sha256, str)
    return "" if is_whole else f" of its first {hashing.PIECE_BYTES:,} bytes"


def _source_lines(manifest: Manifest) -> list[str]:
    width = max(map(len, manifest.sources), default=0)
    return [
        f"    {name:<{width}}  {counted(found.counts.num_rows, 'row')} = {found.counts.shown_sum}; "
        f"{shown_bytes(found.counts.text_bytes)} -> {counted(found.num_tokens, 'token')}"
        for name, found in manifest.sources.items()
    ]


def _shown_eot(manifest: Manifest) -> str:
    encoding, options = manifest.identity["encoding"], manifest.identity["options"]
    eot, bos = options["eot"], ""
    if options.get("bos"):
        bos = f"BOS {encoding['bos']} ({encoding['bos_token']}) prepended, "
    if eot == "none":
        return f"{bos}no EOT"
    return f"{bos}EOT {encoding['eot']} ({encoding['eot_token']}) {_EOT_WORDS[eot]}"
