"""A real dataset of Python's own library, its report, and pictures of the viewer on it.

Everything is made here with the commands that the page shows. Pictures need a Chromium; without
one the page says that they are missing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

PLACE = "example.md"
COMMANDS = (
    "tokenmill prepare 'modules=library/*.py' 'packages=library/*/**/*.py' --input-format text "
    "--val-fraction 0.05 --num-proc 1 -o data/library",
    "tokenmill report data/library",
)
_PACKAGES = ("asyncio", "email", "json", "unittest")
_WIDE, _NARROW = (1200, 760), (390, 760)


def example_page(work: Path, target: Path) -> tuple[str, list[str]]:
    """The page, and what it had to leave out. Writes the report and the pictures into `target`."""
    _copy_library(work / "library")
    for command in COMMANDS:
        _run(command, work)
    shutil.copy(work / "report.html", target / "example-report.html")
    card = _run("tokenmill report data/library --markdown", work)
    shown, missing = pictures(work, target)
    lines = ["# An example", "", "A report and the viewer, on a dataset of Python's own library. "]
    lines[-1] += "Both were made when this site was built, by these commands:"
    lines += ["", "```sh", *_as_typed(COMMANDS), "```", "", "## The report", ""]
    lines += ["[Open it on its own page](example-report.html), as you would from your disk:", ""]
    lines += ['<iframe class="report" title="The report" src="example-report.html"></iframe>', ""]
    lines += [
        "`tokenmill report data/library --markdown` prints a short version, for a README:",
        "",
    ]
    lines += [re.sub(r"^#+ ", "### ", card.strip(), flags=re.MULTILINE), "", "## The viewer", ""]
    lines += ["```sh", f"tokenmill view data/library{_COMPARE}", "```", "", *shown, ""]
    return "\n".join(lines), missing


_COMPARE = " --compare o200k_base"


def _as_typed(commands: tuple[str, ...]) -> list[str]:
    return [
        command.replace(" --num-proc 1", "").replace("--val", "\\\n  --val") for command in commands
    ]


def _copy_library(folder: Path) -> None:
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    folder.mkdir(parents=True)
    for module in sorted(stdlib.glob("*.py")):
        shutil.copy(module, folder)
    for package in _PACKAGES:
        shutil.copytree(
            stdlib / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )


def _program() -> str:
    return str(Path(sys.executable).parent / "tokenmill")


def _run(command: str, work: Path) -> str:
    words = [_program(), *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command} failed:\n{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def _viewer(work: Path) -> Iterator[str]:
    words = [_program(), "view", "data/library", "--no-browser", *_COMPARE.split()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(words, cwd=work, **pipes) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def pictures(work: Path, target: Path) -> tuple[list[str], list[str]]:
    """The lines that show them, and what is missing."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if chromium is None:
        why = "pictures of the viewer: no chromium (make browser, or apt install chromium)"
        return ["*Pictures are missing: there was no browser where this was built.*"], [why]
    with _viewer(work) as url:
        _take(chromium, url, target)
    described = {"viewer": "The viewer: tokens in colour", "viewer-narrow": "On a phone"}
    return [
        f"![{text}](pictures/{name}-{scheme}.png#only-{scheme}){{ .{name} }}"
        for name, text in described.items()
        for scheme in ("light", "dark")
    ], []


def _take(chromium: str, url: str, target: Path) -> None:
    from playwright.sync_api import sync_playwright

    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=options)
        for scheme in ("light", "dark"):
            for name, (width, height) in {"viewer": _WIDE, "viewer-narrow": _NARROW}.items():
                page = browser.new_page(
                    color_scheme=scheme, viewport={"width": width, "height": height}
                )
                page.goto(f"{url}#train/doc/12", wait_until="networkidle")
                page.wait_for_selector(".doc b")
                page.screenshot(path=target / "pictures" / f"{name}-{scheme}.png")
        browser.close()
