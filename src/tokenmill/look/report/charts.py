"""Charts as inline SVG: no script, no library, readable in both themes and by screen readers.

Every chart is drawn twice, for wide and for narrow screens, and the style sheet shows one: text in
a drawing that shrinks to a phone would be too small to read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tokenmill.look.report.figures import LengthBin, LengthFigures, SplitFigures
from tokenmill.look.web import Element, element
from tokenmill.wording.plural import counted
from tokenmill.wording.quantities import shown_count

WIDE, NARROW = 720, 340
TOP = 44
_LEFT, _RIGHT, _BOTTOM = 46, 14, 38
_HEIGHT = 240


def figure(draw: Callable[[int], Element], caption: str) -> Element:
    return element("figure", draw(WIDE), draw(NARROW), element("figcaption", caption))


@dataclass(frozen=True, slots=True)
class Axes:
    """The area of a chart and its scales."""

    width: int
    low_x: float
    high_x: float
    low_y: float
    high_y: float
    is_log: bool = False
    has_counts: bool = False  # on the y axis: no half documents

    @property
    def left(self) -> float:
        return _LEFT

    @property
    def right(self) -> float:
        return self.width - _RIGHT

    @property
    def bottom(self) -> float:
        return _HEIGHT - _BOTTOM

    def x(self, value: float) -> float:
        low, high, at = self.low_x, self.high_x, value
        if self.is_log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return self.left + (at - low) / (high - low or 1) * (self.right - self.left)

    def y(self, value: float) -> float:
        share = (value - self.low_y) / (self.high_y - self.low_y or 1)
        return self.bottom - share * (self.bottom - TOP)

    def y_axis(self, title: str, is_plain: bool) -> Iterator[Element]:
        for tick in ticks(self.low_y, self.high_y, 4):
            if self.has_counts and not tick.is_integer():
                continue
            at = self.y(tick)
            yield line(self.left, at, self.right, at, "grid")
            shown = f"{tick:g}" if is_plain or tick < 1000 else shown_count(tick)
            yield mark_text(self.left - 6, at + 4, shown, None, "end")
        yield mark_text(0, 12, title, None, "start")

    def x_axis(self, title: str, shown: Callable[[float], str] = shown_count) -> Iterator[Element]:
        yield line(self.left, self.bottom, self.right, self.bottom, "axis")
        found = self._log_ticks() if self.is_log else ticks(self.low_x, self.high_x, 5)
        for tick in found:
            at = self.x(tick)
            yield line(at, self.bottom, at, self.bottom + 5, "axis")
            yield mark_text(at, self.bottom + 18, shown(tick), None, "middle")
        yield mark_text((self.left + self.right) / 2, _HEIGHT - 4, title, None, "middle")

    def _log_ticks(self) -> list[float]:
        low, high = math.floor(math.log10(self.low_x)), math.ceil(math.log10(self.high_x))
        decades = range(low, high + 1)
        steps = (1, 2, 5) if self.high_x / self.low_x < 1000 else (1,)
        found = [step * 10.0**decade for decade in decades for step in steps]
        return [tick for tick in found if self.low_x <= tick <= self.high_x and tick >= 1]


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from `low` to `high`, at most about `most`."""
    span = high - low
    if span <= 0:
        return [low]
    rough = span / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
    first = math.ceil(low / step)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def svg(width: int, label: str, marks: Sequence[Element]) -> Element:
    return element(
        "svg",
        element("title", label),
        marks,
        viewBox=f"0 0 {width} {_HEIGHT}",
        role="img",
        aria_label=label,
        class_="wide" if width == WIDE else "narrow",
    )


def keys(named: Iterable[tuple[str, str]]) -> Element:
    """The legend: the class of each mark, and what it stands for."""
    return element(
        "p",
        [
            element(
                "span",
                element(
                    "svg",
                    element("rect", class_=mark, width=24, height=12)
                    if mark.startswith("bar")
                    else element("path", class_=mark, d="M0 6L24 6"),
                    viewBox="0 0 24 12",
                    class_="key",
                    aria_hidden="true",
                ),
                f"{what} ",
            )
            for mark, what in named
        ],
        class_="keys",
    )


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Element:
    return element("line", class_=class_, x1=px(x1), y1=px(y1), x2=px(x2), y2=px(y2))


def mark_text(x: float, y: float, text: str, class_: str | None, anchor: str) -> Element:
    return element("text", text, class_=class_, x=px(x), y=px(y), text_anchor=anchor)


def px(value: float) -> str:
    """A coordinate, rounded: the same bytes on every machine, and fewer."""
    return f"{value:.1f}".removesuffix(".0")


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
