"""docs/abruptly-died.md: every command and script in it runs, as it stands, without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from corpora import made_texts, write_corpus

pytest.importorskip("datasets")

GUIDE = Path(__file__).parent.parent / "docs" / "abruptly-died.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
SCRIPTS = [text for language, text in BLOCKS if language == "python"]
COMMANDS = [text for language, text in BLOCKS if language == "sh"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a reader is: with data.parquet and a prepare.py."""
    Path(write_corpus("parquet", tmp_path, made_texts(300))).rename(tmp_path / "data.parquet")
    (tmp_path / "prepare.py").write_text(SCRIPTS[0])
    return tmp_path


def ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HF_HOME": str(folder / "huggingface"),
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_guide_has_only_blocks_that_are_run_or_plain_text():
    assert {language for language, _ in BLOCKS} == {"text", "sh", "python"}
    assert len(SCRIPTS) == 2 and len(COMMANDS) == 5


@pytest.mark.parametrize("text", COMMANDS, ids=lambda text: text.splitlines()[0])
def test_command_in_the_guide_runs(text, folder):
    ran(["bash", "-euc", text], folder)


@pytest.mark.parametrize("text", SCRIPTS, ids=["one changed line", "Tokenize"])
def test_script_in_the_guide_maps_every_document(text, folder):
    (folder / "script.py").write_text(text)
    done = ran([sys.executable, "script.py"], folder)
    assert "num_rows: 300" in done.stdout and "'ids', 'len'" in done.stdout
