"""GPT-2 124M on a GPU, killed and resumed: are the losses those of the undisturbed run?

python benchmarks/gpu.py --data DIR | --corpus FILE... [--out DIR] [--tiny]
python benchmarks/gpu.py --render          docs/training-gpu.md and .svg, from benchmarks/gpu.json

It runs examples/train_gpt2.py, in about 6 minutes on an H200. --tiny: some seconds, on a CPU.

undisturbed    the run to compare with, with torch's deterministic algorithms
resumed        killed at a random step, the same command again: the same bits
elastic        killed, resumed with another micro-batch and four simulated ranks: the same rows; the
               losses differ by as much as another micro-batch alone makes them differ (rounding)
exact          the same with --exact, which adds gradients up as integers: the same bits
masks          attention by cu_seqlens, by a block mask and by a dense mask
speed          compiled, 512 rows a step: MFU, and the share of the step spent waiting for data
masked         the same with attention within documents
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gpu_page

HERE = Path(__file__).resolve().parent
TRAINER = HERE.parent / "examples" / "train_gpt2.py"
PARTS = ["losses", "exact", "masks", "speed", "masked"]
RESULTS = HERE / "gpu.json"

Losses = dict[int, list[float]]  # of each step, by attempt
TINY = {"seq-len": 32, "layers": 2, "heads": 2, "width": 16, "lr": 0.01, "cpu": True}
FULL = {"steps": 120, "batch": 64, "micro": 16, "checkpoint": 25, "warmup": 20, "exact_steps": 24}
FULL |= {"exact_batch": 16, "exact_checkpoint": 5}
FULL |= {"speed_batch": 512, "speed_micro": 64, "speed_steps": 25}
SMALL = {"steps": 8, "batch": 8, "micro": 4, "checkpoint": 3, "warmup": 2, "exact_steps": 8}
SMALL |= {"exact_batch": 8, "exact_checkpoint": 3}
SMALL |= {"speed_batch": 8, "speed_micro": 4, "speed_steps": 6}


class Trials:
    """Runs of the trainer, each in a folder of its own."""

    def __init__(self, data: str, below: Path, shape: Mapping[str, Any] | None = None) -> None:
        self.data, self.below, self.shape = data, below, dict(shape or {})

    def command(self, name: str, options: Mapping[str, Any]) -> list[str]:
        words = [sys.executable, str(TRAINER), self.data, "--out", str(self.below / name)]
        for key, value in {**options, **self.shape}.items():
            words += [f"--{key}"] if value is True else [f"--{key}", str(value)]
        return words

    def run(self, name: str, options: Mapping[str, Any]) -> Losses:
        subprocess.run(self.command(name, options), check=True, stdout=subprocess.DEVNULL)
        return losses_of(self.below / name)

    def run_killed(
        self, name: str, options: Mapping[str, Any], step: int, command: Sequence[str] = ()
    ) -> None:
        """Kill it, with all its processes, by SIGKILL as soon as it has logged this step."""
        words = list(command) or self.command(name, options)
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        while process.poll() is None and step not in losses_of(self.below / name):
            time.sleep(0.005)
        if process.poll() is not None:
            raise SystemExit(f"{name} ended with exit code {process.returncode} before step {step}")
        family = [
            process.pid,
            *descendants(process.pid),
        ]  # torchrun's workers lead their own groups
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if process.wait() == 0:
            raise SystemExit(f"{name} was complete before it could be killed")
        while any(Path(f"/proc/{pid}").exists() for pid in family):
            time.sleep(0.005)


def descendants(pid: int) -> list[int]:
    children = [child for child, parent in parents().items() if parent == pid]
    return children + [one for child in children for one in descendants(child)]


def parents() -> dict[int, int]:
    """The parent of each process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()  # after its name
            found[int(path.parent.name)] = int(fields[1])
    return found


def attempts(folder: Path) -> list[int]:
    """The step that each began with."""
    return sorted(int(path.stem.removeprefix("log-")) for path in folder.glob("log-*.jsonl"))


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """What all attempts logged, without a line that a kill cut off."""
    found = []
    for first in attempts(folder):
        path = folder / f"log-{first}.jsonl"
        whole = [line for line in path.read_text().splitlines(True) if line.endswith("\n")]
        found += map(json.loads, whole)
    return found


def losses_of(folder: Path) -> Losses:
    found: Losses = {}
    for line in lines_of(folder):
        found.setdefault(line["step"], []).append(line["loss"])
    return found


def difference(found: Losses, expected: Losses) -> float:
    """The largest of any attempt's loss from the expected one: 0.0 is the same bits."""
    if set(found) != set(expected):
        raise SystemExit(f"steps {sorted(set(found) ^ set(expected))} are not in both runs")
    return max(abs(loss - expected[step][0]) for step, losses in found.items() for loss in losses)


def same_rows(folder: Path, expected: Path) -> bool:
    """Whether each step of each attempt had the rows of the undisturbed run."""
    rows = {line["step"]: line["rows"] for line in lines_of(expected)}
    return all(line["rows"] == rows[line["step"]] for line in lines_of(folder))


def compared(trials: Trials, sizes: Mapping[str, int], found: dict[str, Any], keep) -> None:
    """The runs that are killed, beside the undisturbed one."""
    base = {"steps": sizes["steps"], "batch-size": sizes["batch"], "warmup": sizes["warmup"]}
    base |= {"checkpoint-every": sizes["checkpoint"], "deterministic": True}
    own = {**base, "micro-batch": sizes["micro"]}
    other = {**base, "micro-batch": sizes["micro"] // 2, "ranks": 4}
    undisturbed = trials.run("undisturbed", own)
    found["undisturbed"] = {"losses": [undisturbed[step][0] for step in sorted(undisturbed)]}
    for name, after in (("resumed", own), ("elastic", other)):
        step = random.SystemRandom().randrange(sizes["checkpoint"], sizes["steps"] - 1)
        trials.run_killed(name, own, step)
        losses = trials.run(name, after)
        found[name] = {
            "killed_at": step,
            "resumed_at": attempts(trials.below / name)[-1],
            "same_rows": same_rows(trials.below / name, trials.below / "undisturbed"),
            "difference": difference(losses, undisturbed),
            "losses": [losses[step][-1] for step in sorted(losses)],
        }
        keep()
    losses = trials.run("other-micro-batch", {**other, "ranks": 1})
    found["other_micro_batch"] = {
        "same_rows": same_rows(trials.below / "other-micro-batch", trials.below / "undisturbed"),
        "difference": difference(losses, undisturbed),
    }


def exact(trials: Trials, sizes: Mapping[str, int]) -> dict[str, Any]:
    base = {"steps": sizes["exact_steps"], "batch-size": sizes["exact_batch"], "exact": True}
    base |= {"warmup": sizes["warmup"], "checkpoint-every": sizes["exact_checkpoint"]}
    undisturbed = trials.run("exact-undisturbed", base)
    step = random.SystemRandom().randrange(sizes["exact_checkpoint"], sizes["exact_steps"] - 1)
    trials.run_killed("exact", {**base, "ranks": 2}, step)
    losses = trials.run("exact", {**base, "ranks": 4, "micro-batch": 3})
    return {
        "killed_at": step,
        "same_rows": same_rows(trials.below / "exact", trials.below / "exact-undisturbed"),
        "difference": difference(losses, undisturbed),
    }


def speed(trials: Trials, sizes: Mapping[str, int], name: str, **more: bool) -> dict[str, Any]:
    options = {"steps": sizes["speed_steps"], "checkpoint-every": 1000, **more}
    options |= {"batch-size": sizes["speed_batch"], "micro-batch": sizes["speed_micro"]}
    trials.run(name, options)
    lines = lines_of(trials.below / name)[5:]
    middle = {key: statistics.median(line[key] for line in lines) for key in lines[0]}
    return {
        "mfu": middle["mfu"],
        "tokens_per_second": middle["tokens_per_second"],
        "seconds": middle["seconds"],
        "data_seconds": middle["data_seconds"],
        "data_share": sum(line["data_seconds"] for line in lines)
        / sum(line["seconds"] for line in lines),
        "largest_data_share": max(line["data_seconds"] / line["seconds"] for line in lines),
    }


def masks(data: str, is_tiny: bool) -> dict[str, Any]:
    """One batch's attention, of random queries, keys and values, within documents."""
    import torch

    import tokenmill

    sys.path.insert(0, str(TRAINER.parent))
    from gpt2_model import attention, mask_of

    device, dtype = ("cpu", torch.float32) if is_tiny else ("cuda", torch.bfloat16)
    seq_len, rows, heads = (512, 16, 2) if is_tiny else (1024, 32, 12)
    loader = tokenmill.Loader(
        data, seq_len=seq_len, batch_size=rows, extras=("cu_seqlens", "document_ids")
    )
    batches = itertools.islice(loader, 40)  # the one with the most documents
    batch = max(batches, key=lambda batch: int(batch.document_ids[:, -1].sum()))
    ids = torch.from_numpy(batch.document_ids)
    torch.manual_seed(0)
    shape = (rows, heads, seq_len, 64)
    q, k, v = (torch.randn(shape, device=device, dtype=dtype) for _ in range(3))
    dense = mask_of(ids).to(device)
    truth = torch.nn.functional.scaled_dot_product_attention(
        *(each.double() for each in (q, k, v)), dense
    )

    def error(found) -> float:
        return (found.double() - truth).abs().max().item()

    found = {"documents": int((ids[:, -1] + 1).sum()), "rows": rows, "dtype": str(dtype)}
    found["dense"] = error(attention(q, k, v, dense))
    found["by_hand"] = error(by_cu_seqlens(q, k, v, batch.cu_seqlens))
    if not is_tiny:
        found["flex"] = error(attention(q, k, v, mask_of(ids.to(device))))
        found["varlen"] = error(by_varlen(q, k, v, batch))
    return found


def flat(each):
    """(rows, heads, length, width) as cu_seqlens counts: rows one after the other."""
    return each.transpose(1, 2).flatten(0, 1).contiguous()


def by_cu_seqlens(q, k, v, cu_seqlens):
    """Document by document, with torch's own causal attention."""
    import torch

    parts = []
    for start, end in zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True):
        if start < end:  # not the padding
            one = [flat(each)[start:end].transpose(0, 1)[None] for each in (q, k, v)]
            seen = torch.nn.functional.scaled_dot_product_attention(*one, is_causal=True)
            parts.append(seen[0].transpose(0, 1))
    return torch.cat(parts).unflatten(0, (len(q), -1)).transpose(1, 2)


def by_varlen(q, k, v, batch):
    """torch's attention with variable lengths, which takes cu_seqlens as they are."""
    import inspect

    import torch
    from torch.nn.attention.varlen import varlen_attn

    ends = torch.from_numpy(batch.cu_seqlens).to(q.device)
    known = inspect.signature(varlen_attn).parameters
    causal = {"is_causal": True} if "is_causal" in known else {"window_size": (-1, 0)}
    longest = batch.max_seqlen
    found = varlen_attn(flat(q), flat(k), flat(v), ends, ends, longest, longest, **causal)
    return found.unflatten(0, (len(q), -1)).transpose(1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="a dataset that tokenmill prepared with gpt2")
    parser.add_argument("--corpus", nargs="+", help="or the texts to make one of")
    parser.add_argument("--out", help="folder of gpu.json (default: benchmarks)")
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the CPU")
    parser.add_argument("--only", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--render", action="store_true", help="the page in docs, from gpu.json")
    options = parser.parse_args()
    if options.render:
        gpu_page.write(json.loads(RESULTS.read_text()))
        return
    if not options.data and not options.corpus:
        parser.error("--data DIR, a dataset, or --corpus FILE..., texts to make one of")
    if options.tiny is False:
        require_gpu()
    with tempfile.TemporaryDirectory() as below:
        measure(options, Path(below), Path(options.out or HERE) / "gpu.json")


def measure(options: argparse.Namespace, below: Path, path: Path) -> None:
    """Each part is kept as soon as it is there. A part that fails does not end the others."""
    data = options.data or prepared(options.corpus, below)
    sizes = SMALL if options.tiny else FULL
    trials = Trials(data, below, TINY if options.tiny else {})
    found: dict[str, Any] = {"about": about(data, options.tiny), "sizes": dict(sizes)}

    def keep() -> None:
        path.write_text(json.dumps(found, indent=1) + "\n")

    compiled = {} if options.tiny else {"compile": True}
    masked = {**compiled, "mask-documents": True}
    parts = {
        "losses": lambda: compared(trials, sizes, found, keep),
        "exact": lambda: found.update(exact=exact(trials, sizes)),
        "masks": lambda: found.update(masks=masks(data, options.tiny)),
        "speed": lambda: found.update(speed=speed(trials, sizes, "speed", **compiled)),
        "masked": lambda: found.update(masked=speed(trials, sizes, "masked", **masked)),
    }
    failed = []
    for name in options.only:
        begin = time.perf_counter()
        try:
            parts[name]()
        except (Exception, SystemExit) as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")
        found["about"]["seconds_of_parts"][name] = round(time.perf_counter() - begin, 1)
        found["failed"] = failed
        keep()
    print(json.dumps({key: without_losses(value) for key, value in found.items()}, indent=1))
    if failed:
        raise SystemExit("\n".join(failed))


def without_losses(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: each for key, each in value.items() if key != "losses"}
    return value


def require_gpu() -> None:
    try:
        import torch
    except ImportError:
        raise SystemExit("torch is not installed here; --tiny needs it, too") from None
    if not torch.cuda.is_available():
        raise SystemExit(f"torch {torch.__version__} sees no GPU here; --tiny runs on the CPU")


def prepared(corpus: Sequence[str], below: Path) -> str:
    import tokenmill

    tokenmill.prepare(corpus, below / "data", tokenizer="gpt2", val="none")
    return os.fspath(below / "data")


def about(data: str, is_tiny: bool) -> dict[str, Any]:
    import torch

    import tokenmill

    with tokenmill.open(data) as dataset:
        num_tokens = dataset["train"].num_tokens
    return {
        "gpu": "none" if is_tiny else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "tokens": num_tokens,
        "date": time.strftime("%Y-%m-%d"),
        "seconds_of_parts": {},
    }


if __name__ == "__main__":
    main()
