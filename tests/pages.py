"""The pages of docs/: their blocks, and how a reader runs them.

A block of `sh` or `python` is run as it stands, and the `text` block below it shows what it
printed. `follow` goes through a page from top to bottom in one folder and compares both, except for
what no two runs share (RULES). `pytest --write-pages` writes what came out into the page instead.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FENCE = re.compile(r"^(<!-- not run: [^\n]+ -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCRIPTS = {"sh": ("bash", "-euc"), "python": ("python", "-c")}
FILES = {"toml": "tokenmill.toml"}  # blocks that a reader saves

# What differs from run to run, and what stands for it when two outputs are compared.
RULES = (
    (r"tokenmill \d+\.\d+\.\d+", "tokenmill VERSION"),
    (r"\d+(\.\d+)? (s|ms)\b|(?<=in )\d+:\d\d", "TIME"),
    (r"(, )?\d+(\.\d+)? [kMG]?B/s of text", ""),
    (r"; \d+(\.\d+)? [kMG]?B of it(?= in)", ""),  # what a resumed run still had to do
    (r"\b[0-9a-f]{16}\b", "RUN"),  # the folder of a dataset in a bucket
    (r"data \d+\.\d+%", "data SHARE"),
    (r"loss \d+\.\d+", "loss NUMBER"),  # of another CPU: its last digits
    (r"http://127\.0\.0\.1:\d+/[\w-]{22}/", "ADDRESS"),
    (r"report.html: \d+\.\d kB", "report.html: SIZE"),
    (r"(resuming: )\d+ of (\d+ slices) (?:is|are)", r"\1SOME of \2 are"),
)
# Lines that some runs have and others do not: progress, if it takes long, and what bash says of a
# child that was killed, if it gets to it.
NOISE = re.compile(r"^(?:[\w ]*\d+%  .*|bash: line \d+:.* Killed .*)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str
    start: int  # of the text, in the page
    is_run: bool


def blocks_of(page: Path | str) -> list[Block]:
    """Of a file, or of its text."""
    found = FENCE.finditer(page if isinstance(page, str) else page.read_text())
    return [Block(one[2], one[3], one.start(3), not one[1]) for one in found]


def texts_of(page: Path | str, language: str) -> list[str]:
    return [block.text for block in blocks_of(page) if block.language == language]


def ran(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run to its end, which must be a good one."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment_of(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def environment_of(more: Mapping[str, str]) -> dict[str, str]:
    """With `tokenmill` and `python` as these tests have them."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "COLUMNS": "80", **more}


def follow(
    page: Path, folder: Path, write: bool, *, is_compared: bool = True, **environment: str
) -> list[str]:
    """What each block printed. A block whose output, shown below it, has an error ends with one;
    every other succeeds."""
    before, after, end = page.read_text(), "", 0
    blocks = blocks_of(before)
    shown, printed, outputs = "", "", list[str]()
    for block, below in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language == "text":
            after += before[end : block.start] + printed
            end = block.start + len(block.text)
            if is_compared and not write:
                assert plain(block.text) == plain(printed), f"{page.name}, after:\n{shown}"
        elif block.language in FILES:
            (folder / FILES[block.language]).write_text(block.text)
        elif block.is_run:
            shown = block.text
            printed, code = _printed(block, folder, environment)
            outputs.append(printed)
            assert "Traceback" not in printed, f"{page.name}:\n{shown}\n{printed}"
            is_text = below is not None and below.language == "text"
            has_failed = bool(re.search(r"^error: ", printed, re.MULTILINE)) and is_text
            assert bool(code) == has_failed, f"{page.name}:\n{shown}exit {code}\n{printed}"
    if write:
        page.write_text(after + before[end:])
    return outputs


def _printed(block: Block, folder: Path, environment: Mapping[str, str]) -> tuple[str, int]:
    """What a terminal shows, and the exit code."""
    done = subprocess.run(
        [*SCRIPTS[block.language], block.text],
        cwd=folder,
        env=environment_of(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return NOISE.sub("", done.stdout).replace(str(folder), "/home/me"), done.returncode


def plain(text: str) -> str:
    for pattern, stands_for in RULES:
        text = re.sub(pattern, stands_for, text)
    return text
