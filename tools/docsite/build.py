"""`make docs`: docs/, the README and the code's own reference as a site in site/.

    page_sources.py     Markdown of the repository -> pages
    command_pages.py    the parsers                -> command-line/
    python_page.py      signatures and docstrings  -> python-api.md
    example.py          a dataset, made now        -> example.md, a report, pictures

All of it is written to build/site/, and Zensical makes the site of that: strictly, so that a
broken link or anchor fails. The site loads nothing from elsewhere and works from a disk (file://).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import command_pages
import example
import python_page
import yaml
from page_sources import SiteError, write, write_pages

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "site", help="default: site/")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "site", help="is emptied")
    parser.add_argument("--root", type=Path, default=ROOT, help="where README.md and docs/ are")
    parser.add_argument("--no-example", action="store_true", help="without report and pictures")
    arguments = parser.parse_args()
    try:
        missing = build(arguments.root, arguments.work, arguments.out, not arguments.no_example)
    except SiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for what in missing:
        print(f"left out: {what}", file=sys.stderr)
    print(f"{arguments.out / 'index.html'}: open it in a browser")
    return 0


def build(root: Path, work: Path, out: Path, with_example: bool = True) -> list[str]:
    """Build the site; return what had to be left out."""
    shutil.rmtree(work, ignore_errors=True)
    target = work / "pages"
    nav = write_pages(root, target)
    shutil.copytree(HERE / "assets", target / "assets")
    commands = command_pages.command_pages()
    for place, text in {**commands, python_page.PLACE: python_page.python_page()}.items():
        write(target / place, text)
    listed = [{Path(place).stem: place} for place in commands]
    listed[0] = {"All commands": "command-line/index.md"}
    nav["Reference"][:0] = [{"The command line": listed}, python_page.PLACE]
    text, missing = "# An example\n\n## The viewer\n", ["the example: --no-example"]
    if with_example:
        text, missing = example.example_page(work / "example", target)
    write(target / example.PLACE, text)
    nav["Looking at it"].append(example.PLACE)
    _run_zensical(work, out, nav)
    return missing


def _run_zensical(work: Path, out: Path, nav: dict[str, list[Any]]) -> None:
    config, listed = work / "mkdocs.yml", [{title: pages} for title, pages in nav.items()]
    made = yaml.safe_dump({"docs_dir": "pages", "site_dir": "site", "nav": listed})
    config.write_text((HERE / "mkdocs.yml").read_text() + made)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
        said = re.sub(r"Traceback.*Error: ", "", said, flags=re.DOTALL)
        raise SiteError(f"{said.strip()}\n(files and lines are those of {work / 'pages'})")
    shutil.rmtree(out, ignore_errors=True)
    shutil.move(work / "site", out)


if __name__ == "__main__":
    sys.exit(main())
