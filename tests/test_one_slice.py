"""docs/one-slice.md and docs/ARCHITECTURE.md: the files and names in them are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tokenmill

SOURCE = Path(tokenmill.__file__).parent
DOCS = Path(__file__).parent.parent / "docs"
PATH = r"`((?:[\w]+/)*\w+\.py)`"
ROWS = [
    (path, name)
    for line in (DOCS / "one-slice.md").read_text().splitlines()
    for path, names in re.findall(rf"^\| {PATH}((?:,? `\w+`)*) \|", line)
    for name in re.findall(r"`(\w+)`", names) or [None]
]


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_the_walk_is_not_empty():
    assert len(ROWS) > 25


@pytest.mark.parametrize(("path", "name"), ROWS)
def test_name_in_the_walk_is_in_its_file(path, name):
    assert name is None or name in names_in(SOURCE / path)


@pytest.mark.parametrize("page", ["one-slice.md", "ARCHITECTURE.md"])
def test_files_that_the_page_names_are_there(page):
    named = set(re.findall(PATH, (DOCS / page).read_text()))
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")}
    missing = {path for path in named if not any(f"/{one}".endswith(f"/{path}") for one in found)}
    missing = {path for path in missing if not (DOCS.parent / path).is_file()}
    assert not missing
