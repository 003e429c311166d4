"""examples/nanogpt: its five lines, put into a loop of nanoGPT's shape, give exact resume."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
LINES = Path(__file__).parents[2] / "examples" / "nanogpt" / "five_lines.sed"
LOOP = Path(__file__).parent / "nanogpt_shape.py"


def losses_in(printed: str) -> dict[int, str]:
    return {int(step): loss for step, loss in re.findall(r"iter (\d+): loss (.*)\n", printed)}


@pytest.fixture
def script(tmp_path) -> Path:
    """The loop with the five lines, and 4,001 tokens for it."""
    shutil.copy(LOOP, tmp_path / "train.py")
    subprocess.run(["sed", "-i", "-f", LINES, tmp_path / "train.py"], check=True)
    (tmp_path / "data").mkdir()
    tokens = np.random.default_rng(0).integers(0, 512, 4001, np.uint16)
    for split in ("train", "val"):
        tokens.tofile(tmp_path / "data" / f"{split}.bin")
    return tmp_path / "train.py"


@pytest.fixture
def run(script, monkeypatch, capsys):
    def run(out: str, *arguments: object) -> dict[int, str]:
        (script.parent / out).mkdir(exist_ok=True)
        words = [str(script), str(script.parent / out), *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", words)
        runpy.run_path(str(script))["batches"].close()
        return losses_in(capsys.readouterr().out)

    return run


def killed_at(iteration: int, script: Path, *arguments: object) -> dict[int, str]:
    (script.parent / "b").mkdir()
    command = [sys.executable, str(script), str(script.parent / "b"), *map(str, arguments)]
    printed = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            printed += line
            if f"iter {iteration}:" in line:
                process.kill()
    assert process.returncode == -9
    return losses_in(printed)


def test_five_lines_give_a_loop_of_nanogpts_shape_exact_resume(script, run):
    before, after = LOOP.read_text().splitlines(), script.read_text().splitlines()
    assert len(after) - len(before) == len(set(after) - set(before)) == 5

    undisturbed = run("a", "scratch", 4, 2)
    killed = killed_at(9, script, "scratch", 4, 2)
    shutil.copytree(script.parent / "b", script.parent / "c")
    resumed = run("b", "resume", 4, 2)
    run("c", "resume", 2, 4)
    assert list(resumed) == list(range(8, 13)) and undisturbed | killed | resumed == undisturbed

    a, b, c = (torch.load(script.parent / name / "ckpt.pt") for name in "abc")
    assert a["loader"] == b["loader"] == c["loader"] and a["loader"]["rows"] == 12 * 8
    assert torch.equal(a["model"]["weight"], b["model"]["weight"])
    torch.testing.assert_close(a["model"]["weight"], c["model"]["weight"])  # sums in another order
