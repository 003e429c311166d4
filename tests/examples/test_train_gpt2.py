"""examples/train_gpt2.py, killed and resumed, with the means of benchmarks/gpu.py."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import loader_oracle as oracle

torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]
SHAPE = {"seq-len": 16, "layers": 1, "heads": 2, "width": 8, "vocab": 512, "lr": 0.01, "cpu": True}
# Many more steps than those it is killed after: a step takes 3 ms, and the kill may come late.
RUN = {"steps": 120, "batch-size": 8, "micro-batch": 4, "warmup": 2, "checkpoint-every": 3}


@pytest.fixture(scope="module", autouse=True)
def on_path():
    """Of these, and torch's settings as they were."""
    threads, added = torch.get_num_threads(), [str(ROOT / "benchmarks"), str(ROOT / "examples")]
    sys.path[:0] = added
    yield
    for path in added:
        sys.path.remove(path)
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


@pytest.fixture
def trials(tmp_path):
    """Trials whose runs are in this process, except those to be killed."""
    import train_gpt2

    import gpu

    class InProcess(gpu.Trials):
        def run(self, name, options):
            train_gpt2.main(self.command(name, options)[2:])
            return gpu.losses_of(self.below / name)

    tokens = [(7919 * i) % 509 for i in range(16 * 100 + 1)]
    tokens[::37] = [50] * len(tokens[::37])
    data = oracle.write_shards(tmp_path / "data", tokens, [700, 901])
    return InProcess(str(data), tmp_path, SHAPE)


def test_run_killed_anywhere_goes_on_with_the_same_bits_and_with_the_same_rows(trials):
    import gpu

    options = {**RUN, "deterministic": True, "dropout": 0.1}
    step = random.randrange(4, 11)  # the checkpoint of step 3 is written after its line
    undisturbed = trials.run("a", options)
    trials.run_killed("b", options, step)
    shutil.copytree(trials.below / "b", trials.below / "c")
    assert gpu.difference(trials.run("b", options), undisturbed) == 0
    assert len(undisturbed) == 120 and gpu.attempts(trials.below / "b")[-1] > 0
    other = {**options, "micro-batch": 3, "ranks": 2, "dropout": 0.0}
    trials.run("c", other)
    assert gpu.same_rows(trials.below / "c", trials.below / "a")


def test_exact_run_has_the_same_bits_on_any_number_of_processes(trials):
    """Two processes of torchrun, killed; then one process, as four ranks."""
    import gpu

    exact = {**RUN, "exact": True, "dropout": 0.1}
    undisturbed = trials.run("a", exact)
    trials.run_killed("b", exact, random.randrange(3, 11), torchrun(trials, "b", exact))
    again = trials.run("b", {**exact, "ranks": 4, "micro-batch": 3})
    assert gpu.difference(again, undisturbed) == 0
    assert gpu.same_rows(trials.below / "b", trials.below / "a")


def test_ddp_run_has_the_losses_of_one_process(trials):
    import gpu

    plain = {**RUN, "deterministic": True}
    expected = trials.run("plain", plain)
    subprocess.run(torchrun(trials, "ddp", plain), check=True, timeout=600)
    assert gpu.difference(gpu.losses_of(trials.below / "ddp"), expected) < 1e-4
    assert gpu.same_rows(trials.below / "ddp", trials.below / "plain")


def torchrun(trials, name: str, options: dict[str, object]) -> list[str]:
    words = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [sys.executable, "-m", *words, *trials.command(name, options)[1:]]


def test_masked_loss_is_that_of_the_documents_one_by_one(monkeypatch):
    from gpt2_model import Gpt2, mask_of
    from train_gpt2 import options_of

    words = [word for key, value in SHAPE.items() if value is not True
             for word in (f"--{key}", str(value))]  # fmt: skip
    torch.manual_seed(0)
    model = Gpt2(options_of(["data", "--out", "out", *words]))
    tokens, targets = torch.randint(512, (2, 1, 16))
    ids = torch.tensor([[0] * 5 + [1] * 1 + [2] * 10])
    positions = torch.tensor([[*range(5), 0, *range(10)]])
    together = model(tokens, targets, mask_of(ids), positions)
    parts = [(0, 5), (5, 6), (6, 16)]
    alone = [model(tokens[:, a:b], targets[:, a:b]) * (b - a) / 16 for a, b in parts]
    torch.testing.assert_close(together, sum(alone))
    assert abs(model(tokens, targets) - together) > 1e-5


def test_benchmark_sees_another_loss_other_rows_and_a_missing_step(tmp_path):
    import gpu

    def logged(name: str, *lines: str) -> Path:
        (tmp_path / name).mkdir()
        (tmp_path / name / "log-0.jsonl").write_text("".join(lines))
        return tmp_path / name

    line = '{"step": %d, "loss": %s, "rows": %d}\n'
    a = logged("a", line % (0, "2.5", 7), line % (1, "2.25", 8), '{"step": 2, "lo')
    b = logged("b", line % (0, "2.5", 7), line % (1, "2.250000001", 9))
    assert gpu.losses_of(a) == {0: [2.5], 1: [2.25]}
    assert 0 < gpu.difference(gpu.losses_of(b), gpu.losses_of(a)) < 1e-8
    assert gpu.same_rows(a, a) and not gpu.same_rows(b, a)
    with pytest.raises(SystemExit, match="steps \\[1\\] are not in both"):
        gpu.difference({0: [2.5]}, gpu.losses_of(a))


def test_page_of_the_gpu_says_what_was_measured():
    import gpu
    import gpu_page

    found = json.loads(gpu.RESULTS.read_text())
    assert gpu_page.GUIDE.read_text() == gpu_page.page(found)
    assert gpu_page.GUIDE.with_suffix(".svg").read_text() == gpu_page.curve(found)
    assert found["resumed"]["difference"] == found["exact"]["difference"] == 0
