"""The area of a chart: scales, axes and ticks, and the marks that all charts are made of.

Every chart is drawn twice, for wide and for narrow screens, and the style sheet shows one: text in
a drawing that shrinks to a phone would be too small to read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tokenmill.look.web import Element, element
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
