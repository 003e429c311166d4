"""docs/guide.md, from `pip install` to a trained model, as a reader follows it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

import pages

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="no torch")
GUIDE = pages.DOCS / "guide.md"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A virtual environment without tokenmill, and an index that has it. Everything that it depends
    on is there already: these tests need no network."""
    build = ["hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "index")]
    subprocess.run([sys.executable, "-m", *build], cwd=pages.ROOT, check=True, capture_output=True)
    venv.create(tmp_path / "venv", symlinks=True)
    [site] = (tmp_path / "venv").glob("lib/python*/site-packages")
    for folder in sys.path:
        if folder.endswith("site-packages"):
            for found in Path(folder).iterdir():
                is_other = "tokenmill" not in found.name and found.suffix != ".pth"
                if is_other and not (site / found.name).exists():
                    (site / found.name).symlink_to(found)
    binaries = tmp_path / "venv" / "bin"
    (binaries / "pip").write_text('#!/bin/sh\nexec python -m pip "$@"\n')
    (binaries / "pip").chmod(0o755)
    return {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": "",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "index"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def losses_in(text: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+)  loss (\S+)", text)}


def test_guide_when_followed_then_shows_what_it_says(environment, tmp_path, pytestconfig):
    folder = tmp_path / "reader"
    folder.mkdir()
    for name in ("train_gpt2.py", "gpt2_model.py"):
        shutil.copy(pages.ROOT / "examples" / name, folder)
    printed = pages.follow(
        GUIDE,
        folder,
        pytestconfig.getoption("--write-pages"),
        is_compared=f"Python is not {platform.python_version()}," in GUIDE.read_text(),
        **environment,
    )
    assert list((tmp_path / "venv").glob("lib/python*/site-packages/tokenmill/__init__.py"))
    killed, resumed = filter(None, map(losses_in, printed))
    assert resumed[19] < killed[12] < killed[0] - 1
    assert (resumed[10], resumed[12]) == (killed[10], killed[12])
