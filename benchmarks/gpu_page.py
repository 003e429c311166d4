"""docs/training-gpu.md and its curve, made from benchmarks/gpu.json: nothing is typed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "training-gpu.md"
RUNS = {"undisturbed": "#c9cdd2", "elastic": "#9aa0a6", "resumed": "#2b7a4b"}


def write(found: Mapping[str, Any]) -> None:
    GUIDE.write_text(page(found))
    GUIDE.with_suffix(".svg").write_text(curve(found))


def page(found: Mapping[str, Any]) -> str:
    return "\n\n".join([opening(found), table(found), data(found), masks(found)]) + "\n"


def opening(found: Mapping[str, Any]) -> str:
    about, sizes = found["about"], found["sizes"]
    return f"""\
# Killed and resumed on a GPU

<!-- Made from benchmarks/gpu.json by `python benchmarks/gpu.py --render`. -->
[examples/train_gpt2.py](../examples/train_gpt2.py) trains GPT-2 124M on {about["gpu"]}, torch
{about["torch"]}, bf16: {about["tokens"]:,} tokens, {sizes["batch"]} rows of 1,024 a
step, {about["date"]}. Runs were ended by SIGKILL at a random step and went on from their last
checkpoint. `python benchmarks/gpu.py --corpus FILE` repeats it."""


def table(found: Mapping[str, Any]) -> str:
    other = {"killed_at": "never", **found["other_micro_batch"]}
    return f"""\
| run | killed at step | rows of every step | largest difference of a loss |
|---|--:|---|--:|
{row("the same command again", found["resumed"])}
{row("another micro-batch, 4 simulated ranks", found["elastic"])}
{row("another micro-batch from the start", other)}
{row("`--exact`: 2 simulated ranks, then 4, against 1", found["exact"])}

The same command gives the same bits, with torch's deterministic algorithms. Another micro-batch
adds the same numbers up in another order: the last bits differ, with or without a kill, and with
them what follows. With `--exact` gradients are added up as integers, row by row, and the number of
ranks makes no difference either. Here one GPU plays the ranks; in the tests, processes do.

![The losses of the three runs](training-gpu.svg)"""


def row(name: str, found: Mapping[str, Any]) -> str:
    rows = {True: "the same", False: "**others**", None: "-"}[found.get("same_rows")]
    return f"| {name} | {found['killed_at']} | {rows} | {shown(found['difference'])} |"


def shown(difference: float) -> str:
    return "0, bit for bit" if difference == 0 else f"{difference:.1e}"


def data(found: Mapping[str, Any]) -> str:
    rows, names = found["sizes"]["speed_batch"], {"speed": "causal", "masked": "within documents"}
    timings = "\n".join(timing(names[key], found[key]) for key in names if key in found)
    return f"""\
**Waiting for data.** Compiled, {rows} rows a step. Data is the time to take the next batch and to
send it to the GPU, which has work meanwhile; MFU is of 989 TFLOP/s.

| attention | tokens a second | MFU | step | data | share | at worst |
|---|--:|--:|--:|--:|--:|--:|
{timings}"""


def timing(name: str, found: Mapping[str, Any]) -> str:
    step, data = f"{found['seconds'] * 1e3:.0f} ms", f"{found['data_seconds'] * 1e3:.1f} ms"
    shares = f"{found['data_share']:.2%} | {found['largest_data_share']:.2%}"
    speed = f"{found['tokens_per_second'] / 1e6:.2f}M | {found['mfu']:.1%}"
    return f"| {name} | {speed} | {step} | {data} | {shares} |"


def masks(found: Mapping[str, Any]) -> str:
    mask = found["masks"]
    return f"""\
**Masks.** Attention over {mask["rows"]} rows with {mask["documents"]} documents, in bf16. The
largest error against a dense block mask in float64: with the dense mask {mask["dense"]:.1e}, flex
attention by `document_ids` {mask["flex"]:.1e}, torch's `varlen_attn` by `cu_seqlens`
{mask["varlen"]:.1e}."""


def curve(found: Mapping[str, Any]) -> str:
    """The losses of the runs, one above the other, with a line where each was killed."""
    losses = [loss for name in RUNS for loss in found[name]["losses"]]
    low, high = min(losses), max(losses)
    last = len(found["undisturbed"]["losses"]) - 1

    def x(step: int) -> float:
        return round(40 + 640 * step / last, 1)

    def y(loss: float) -> float:
        return round(20 + 200 * (high - loss) / (high - low), 1)

    pieces = []
    for place, (name, colour) in enumerate(RUNS.items()):
        points = " ".join(f"{x(step)},{y(loss)}" for step, loss in enumerate(found[name]["losses"]))
        style = f'stroke="{colour}" stroke-width="{5 - 1.8 * place:.1f}"'
        pieces.append(f'<polyline points="{points}" fill="none" {style}/>')
        killed = found[name].get("killed_at")
        if killed is not None:
            line = f'x1="{x(killed)}" x2="{x(killed)}" y1="20" y2="220" stroke="{colour}"'
            pieces.append(f'<line {line} stroke-dasharray="3"/>')
        label = name if killed is None else f"{name}, killed at step {killed}"
        pieces.append(f'<text x="480" y="{40 + 16 * place}" fill="{colour}">{label}</text>')
    for loss in (low, high):
        pieces.append(f'<text x="34" y="{y(loss) + 4}" text-anchor="end">{loss:.1f}</text>')
    pieces.append('<text x="40" y="238">step 0</text>')
    pieces.append(f'<text x="680" y="238" text-anchor="end">{last}</text>')
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="700" height="248" font-family="sans-serif" '
        f'font-size="12" fill="#57606a">{"".join(pieces)}</svg>\n'
    )
