"""Charts as inline SVG: no script, no library, readable in both themes and by screen readers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tokenmill.look.report.axes import TOP, Axes, mark_text, px, svg
from tokenmill.look.report.figures import LengthBin, LengthFigures, SplitFigures
from tokenmill.look.web import Element, element
from tokenmill.wording.plural import counted

_MARKED = ("p1", "p10", "p50", "p90", "p99")
_CLASSES = ("bar", "bar2")
_LINES = ("line", "line2")


# Lengths


def length_chart(width: int, named: Sequence[tuple[str, LengthFigures]], label: str) -> Element:
    """Bars on a log scale; two datasets side by side, as shares of their documents."""
    low = min(lengths.bins[0].low for _, lengths in named)
    high = max(lengths.bins[-1].high for _, lengths in named)
    is_one = len(named) == 1
    frame = Axes(width, max(low, 0.7), high, 0, _most(named), is_log=True, has_counts=is_one)
    marks: list[Element] = [*frame.y_axis("documents" if is_one else "% of documents", not is_one)]
    for number, (name, lengths) in enumerate(named):
        for one in lengths.bins:
            if one.num_documents:
                marks.append(_bar(frame, one, lengths, name, number, len(named)))
    marks += frame.x_axis("tokens per document")
    if is_one:
        marks += _percentile_marks(frame, named[0][1])
    return svg(width, label, marks)


def _most(named: Sequence[tuple[str, LengthFigures]]) -> float:
    if len(named) == 1:
        return max(one.num_documents for one in named[0][1].bins)
    return max(
        100 * one.num_documents / lengths.num_documents
        for _, lengths in named
        for one in lengths.bins
    )


def _bar(
    frame: Axes, one: LengthBin, lengths: LengthFigures, name: str, number: int, of: int
) -> Element:
    left, right = frame.x(max(one.low, 0.7)), frame.x(one.high)
    step = (right - left) / of
    value = one.num_documents if of == 1 else 100 * one.num_documents / lengths.num_documents
    top = frame.y(value)
    said = f"{name}: {shown_range(one)}: {counted(one.num_documents, 'document')}"
    return element(
        "rect",
        element("title", said),
        class_=_CLASSES[number],
        x=px(left + number * step + 0.5),
        y=px(top),
        width=px(max(step - 1, 0.5)),
        height=px(max(frame.bottom - top, 0.5)),
    )


def shown_range(one: LengthBin) -> str:
    if one.high == one.low + 1:
        return counted(one.low, "token")
    return f"{one.low:,} to {one.high - 1:,} tokens"


def _percentile_marks(frame: Axes, lengths: LengthFigures) -> Iterator[Element]:
    last = -math.inf
    for name in _MARKED:
        value = lengths.percentiles[name]
        at = frame.x(max(value, 0.7))
        yield element(
            "line",
            element("title", f"{name}: {value:,} tokens"),
            class_="rank",
            x1=px(at),
            x2=px(at),
            y1=px(TOP - 4),
            y2=px(frame.bottom),
        )
        if at - last >= 30:
            yield mark_text(at, TOP - 10, name, "name", "middle")
            last = at


# Bytes per token along the corpus


def ratio_chart(width: int, splits: Sequence[tuple[str, SplitFigures]], label: str) -> Element:
    """A line over the split's length, with the stretches that stand out marked; two datasets share
    the axes, each over its own length."""
    ratios = [r.bytes_per_token or 0.0 for _, split in splits for r in split.stretches]
    low, high = _room(min(ratios), max(ratios))
    is_one = len(splits) == 1
    end = splits[0][1].num_tokens if is_one else 100
    frame = Axes(width, 0, end, low, high)
    marks: list[Element] = [*frame.y_axis("bytes per token", not is_one)]
    for number, (_, split) in enumerate(splits):
        marks.append(element("path", class_=_LINES[number], d=_path(frame, split, end)))
    marks += frame.x_axis("token of the split" if is_one else "% of the split")
    if is_one:
        marks += _outlier_marks(frame, splits[0][1])
    return svg(width, label, marks)


def _path(frame: Axes, split: SplitFigures, end: float) -> str:
    scale = end / split.num_tokens
    points = []
    for one in split.stretches:
        at, height = frame.x((one.start + one.stop) / 2 * scale), frame.y(one.bytes_per_token or 0)
        points.append(f"{px(at)} {px(height)}")
    if len(points) == 1:
        level = points[0].split()[1]
        points = [f"{px(frame.left)} {level}", f"{px(frame.right)} {level}"]
    return "M" + "L".join(points)


def _outlier_marks(frame: Axes, split: SplitFigures) -> Iterator[Element]:
    groups: list[tuple[float, float, str]] = []  # letters that would hide each other are one text
    for letter, (number, _) in zip("ABCDEFGH", split.outliers, strict=False):
        one = split.stretches[number]
        at, height = frame.x((one.start + one.stop) / 2), frame.y(one.bytes_per_token or 0)
        said = f"{letter}: {one.bytes_per_token:.2f} bytes per token at token {one.read_start:,}"
        yield element("circle", element("title", said), class_="out", cx=px(at), cy=px(height), r=4)
        near = bool(groups) and abs(at - groups[-1][0]) < 20 and abs(height - groups[-1][1]) < 16
        letters = f"{groups.pop()[2]}, {letter}" if near else letter
        groups.append((at, height, letters))
    for at, height, letters in groups:
        fits = at + 8 + 12 * len(letters) < frame.width
        yield mark_text(
            at + (8 if fits else -8), height + 4, letters, "far", "start" if fits else "end"
        )


def _room(low: float, high: float) -> tuple[float, float]:
    """The range with some margin, and not so narrow that noise looks significant."""
    middle = (low + high) / 2
    half = max((high - low) * 0.6, middle * 0.15, 0.1)
    return max(0.0, middle - half), middle + half


# A bar in a table


def share_bar(share: float, most: float) -> Element:
    width = 90 * share / most if most else 0
    return element(
        "svg",
        element("rect", class_="bar", width=px(max(width, 0.5)), height=10),
        viewBox="0 0 90 10",
        width=90,
        height=10,
        aria_hidden="true",
        class_="share",
    )
