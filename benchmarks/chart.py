"""The README's chart, made from benchmarks/results.json: nothing in it is typed by hand.

make chart
"""

from __future__ import annotations

import json
import os
import re
from html import escape

HERE = os.path.dirname(os.path.abspath(__file__))
SVG = os.path.join(HERE, "..", "docs", "speed.svg")
README = os.path.join(HERE, "..", "README.md")
LABELS = {
    "pool": "Pool + tiktoken (build-nanogpt, llm.c)",
    "tokenmill": "tokenmill, everything on",
    "bare": "bare loop (no plan, checksum, fsync)",
}
COLOURS = {"pool": "#9aa0a6", "tokenmill": "#2b7a4b", "bare": "#c9cdd2"}


def bars(rates: dict[str, float]) -> str:
    longest, rows = max(rates.values()), []
    for row, (name, rate) in enumerate(rates.items()):
        y, width = 8 + 30 * row, 330 * rate / longest
        rows.append(
            f'<text x="262" y="{y + 15}" text-anchor="end">{escape(LABELS[name])}</text>'
            f'<rect x="272" y="{y}" width="{width:.0f}" height="20" fill="{COLOURS[name]}"/>'
            f'<text x="{278 + width:.0f}" y="{y + 15}">{rate:.0f} MB/s</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="700" height="{16 + 30 * len(rates)}" '
        f'font-family="sans-serif" font-size="13" fill="#57606a">{"".join(rows)}</svg>\n'
    )


def main() -> None:
    with open(os.path.join(HERE, "results.json")) as file:
        results = json.load(file)
    run, machine = results["runs"][0], results["machine"]
    rates = {
        name: run["text_mb"] / min(run["seconds"][name])
        for name in ("pool", "tokenmill", "bare")
        if name in run["seconds"]
    }
    with open(SVG, "w") as file:
        file.write(bars(rates))
    caption = (
        f"*{run['text_mb']:,} MB of English text (FineWeb's layout: snappy parquet, row groups of "
        f"1,000) to {run['encoding']} tokens on {run['num_proc']} cores of an {machine['cpu']}; "
        f"tokenmill {machine['tokenmill']}, gigatoken {machine['gigatoken']}, tiktoken "
        f"{machine['tiktoken']}, Python {machine['python']}, {machine['date']}. Best of "
        f"{len(run['seconds']['tokenmill'])} alternating runs (the Pool ran once); tokenmill takes "
        f"{1 / run['ratio_to_bare']:.2f} times as long as the bare loop. `make bench` repeats it.*"
    )
    block = f"![tokens prepared per second](docs/speed.svg)\n\n{caption}\n"
    with open(README) as file:
        text = file.read()
    pattern = r"(<!-- chart:begin[^>]*-->\n).*?(<!-- chart:end -->)"
    with open(README, "w") as file:
        file.write(re.sub(pattern, lambda m: m[1] + block + m[2], text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
