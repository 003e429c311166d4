"""docs/speed.svg, made from benchmarks/results.json: nothing in it is typed by hand.

make chart
"""

from __future__ import annotations

import os
from html import escape
from typing import Any

import results as files
from table import speed

HERE = os.path.dirname(os.path.abspath(__file__))
SVG = os.path.join(HERE, "..", "docs", "speed.svg")
COLOURS = {"mill": "#2b7a4b", "peer": "#9aa0a6", "limit": "#c9cdd2"}
ROW, BAR, LEFT, WIDTH = 26, 18, 372, 300


def svg(rows: list[dict[str, Any]], title: str) -> str:
    longest = max(map(speed, rows))
    pieces = [f'<text x="8" y="18" font-weight="bold">{escape(title)}</text>']
    for position, row in enumerate(rows):
        rate = speed(row)
        y, width = 32 + ROW * position, max(1.5, WIDTH * rate / longest)
        label = row["label"].replace("**", "").replace("`", "")
        weight = ' font-weight="bold"' if row["role"] == "mill" else ""
        value = f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"
        pieces.append(
            f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end"{weight}>{escape(label)}</text>'
            f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" '
            f'fill="{COLOURS[row["role"]]}"/>'
            f'<text x="{LEFT + width + 6:.0f}" y="{y + 13}"{weight}>{value}</text>'
        )
    height = 40 + ROW * len(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 60}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="#57606a">{"".join(pieces)}</svg>\n'
    )


def main() -> None:
    found = files.load()
    if "table" not in found:
        return
    rows = [row for row in found["table"] if row["status"] == "same"]
    rows.sort(key=speed, reverse=True)
    about = found["about"]
    title = f"MB of text a second to gpt2 tokens, {about['num_proc']} cores"
    with open(SVG, "w") as file:
        file.write(svg(rows, title))


if __name__ == "__main__":
    main()
