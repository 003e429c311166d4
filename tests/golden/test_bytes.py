"""The fence: every file that a trainer reads has the bytes of bytes.json, or the content, where a
library decides the bytes. Knows the command and the public Python API, nothing of the inside."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.golden import run, truth
from tests.golden.cases import PREPARE


@pytest.mark.parametrize("case", PREPARE)
def test_files_when_made_inline_then_the_golden_bytes_and_the_oracles_documents(
    case, place, tmp_path
):
    out = place.made(case, tmp_path / "out")
    assert run.differences(case, out) == []
    if case in truth.TEXTS:
        found, expected = truth.found(case, out)
        assert found == expected


def test_bytes_when_listed_then_of_every_case_and_no_other():
    assert run.golden("bytes.json")["cases"].keys() == PREPARE.keys()
    assert truth.TEXTS.keys() <= PREPARE.keys()


def test_fence_when_read_then_it_imports_nothing_of_the_inside():
    for path in Path(__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not [name for name in names if name.startswith("tokenmill.")], path.name
