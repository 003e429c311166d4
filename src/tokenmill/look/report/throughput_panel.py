"""The section of the page about the throughput of the run."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tokenmill.look.report.axes import TOP, Axes, figure, keys, line, mark_text, px, svg
from tokenmill.look.report.blocks import details, paragraph, section, table
from tokenmill.look.report.figures import AttemptFigures, ThroughputBin, ThroughputFigures
from tokenmill.look.web import Element, Node, element
from tokenmill.wording.plural import counted
from tokenmill.wording.quantities import shown_count, shown_duration, shown_rate

# Of the time axis: seconds in a unit, and from how many seconds on it is used.
_UNITS = ((3600.0, "hours", 3 * 3600.0), (60.0, "minutes", 180.0), (1.0, "seconds", 0.0))
_ENDS = {
    "complete": "complete",
    "stopped": "by a signal",
    "failed": "by an error",
}


def throughput_section(found: ThroughputFigures) -> Element:
    return section(
        "throughput",
        "Throughput over the run",
        paragraph(run_in_words(found)),
        *([_chart(found), _numbers(found)] if found.bins else []),
        _attempts(found),
        [paragraph(note, soft=True) for note in _notes(found)],
    )


def run_in_words(found: ThroughputFigures) -> str:
    attempts = counted(found.num_attempts, "attempt")
    said = [f"{shown_duration(found.seconds)} from the plan on, in {attempts}"]
    if found.seconds:
        rate = found.num_tokens / found.seconds
        said.append(f"{shown_rate(found.text_bytes / found.seconds)} of text")
        said.append(f"{shown_count(rate)} tokens a second on average")
    if found.downloaded_bytes and found.seconds:
        said.append(f"{shown_rate(found.downloaded_bytes / found.seconds)} downloaded")
    return ", ".join(said) + "."


def _notes(found: ThroughputFigures) -> Iterator[str]:
    if found.writing_seconds is not None and found.writing_seconds >= 1:
        seconds = shown_duration(found.writing_seconds)
        yield f"Of that, {seconds} after the last slice, for shards and the manifest."
    if found.num_attempts > 1:
        yield "What an attempt had encoded of a slice when it ended was encoded again by the next."
    if found.num_earlier:
        number = counted(found.num_earlier, "attempt")
        yield f"{number} before these made the same dataset earlier, and are left out."
    if found.num_unreadable:
        yield f"{counted(found.num_unreadable, 'line')} of the timings could not be read."


# The chart


def _chart(found: ThroughputFigures) -> Element:
    has_downloads = any(one.downloaded_per_second for one in found.bins)
    unit, name = next((size, name) for size, name, least in _UNITS if found.seconds >= least)
    label = f"bytes of text encoded a second over the run: {run_in_words(found)}"
    seconds = shown_duration(found.bins[0].stop - found.bins[0].start)
    caption = f"Each bar is {seconds} of the run."
    if found.pauses:
        caption += " At a dashed line no attempt was running; the time until the next is above it."
    drawn = figure(lambda width: _drawn(width, found, unit, name, label), caption)
    if not has_downloads:
        return drawn
    legend = keys([("bar", "text encoded"), ("line2", "downloaded")])
    return element("div", legend, drawn)


def _drawn(width: int, found: ThroughputFigures, unit: float, name: str, label: str) -> Element:
    rates = [(one.text_bytes_per_second, one.downloaded_per_second) for one in found.bins]
    most = max(map(max, rates)) or 1
    scale, shown = next((s, n) for s, n in ((1e6, "MB"), (1e3, "kB"), (1, "B")) if most >= s)
    frame = Axes(width, 0, found.seconds / unit, 0, most / scale)
    has_downloads = any(downloaded for _, downloaded in rates)
    title = f"{shown} a second" if has_downloads else f"{shown} of text a second"
    marks = [*frame.y_axis(title, is_plain=False)]
    marks += [_bar(frame, one, unit, scale) for one in found.bins if one.text_bytes_per_second]
    if has_downloads:
        points = (
            f"{px(frame.x((one.start + one.stop) / 2 / unit))} "
            f"{px(frame.y(one.downloaded_per_second / scale))}"
            for one in found.bins
        )
        marks.append(element("path", class_="line2", d="M" + "L".join(points)))
    marks += frame.x_axis(f"running time in {name}", lambda tick: f"{tick:g}")
    return svg(width, label, [*marks, *_pauses(frame, found, unit)])


def _bar(frame: Axes, one: ThroughputBin, unit: float, scale: float) -> Element:
    left, right = frame.x(one.start / unit), frame.x(one.stop / unit)
    top = frame.y(one.text_bytes_per_second / scale)
    tokens = f"{shown_count(one.tokens_per_second)} tokens a second"
    said = f"at {shown_duration(one.start)}: {shown_rate(one.text_bytes_per_second)}, {tokens}"
    return element(
        "rect",
        element("title", said),
        class_="bar",
        x=px(left),
        y=px(top),
        width=px(max(right - left - 0.5, 0.5)),
        height=px(max(frame.bottom - top, 0.5)),
    )


def _pauses(frame: Axes, found: ThroughputFigures, unit: float) -> Iterator[Element]:
    last = -math.inf
    for pause in found.pauses:
        at = frame.x(pause.at / unit)
        yield line(at, TOP - 4, at, frame.bottom, "rank")
        if at - last >= 60:
            yield mark_text(at, TOP - 10, f"+{shown_duration(pause.seconds)}", "name", "middle")
            last = at


# The tables


def _numbers(found: ThroughputFigures) -> Element:
    has_downloads = any(one.downloaded_per_second for one in found.bins)
    heads = ("from", "text", "tokens a second", "documents a second")
    rows = [
        (
            shown_duration(one.start),
            shown_rate(one.text_bytes_per_second),
            f"{one.tokens_per_second:,}",
            f"{one.documents_per_second:,}",
            *([shown_rate(one.downloaded_per_second)] if has_downloads else []),
        )
        for one in found.bins
    ]
    more = ("downloaded",) if has_downloads else ()
    return details("the numbers: throughput", table((*heads, *more), rows, ()))


def _attempts(found: ThroughputFigures) -> Iterator[Node]:
    heads = ("began, UTC", "ran", "ended", "slices", "resumed", "tokens", "text")
    *before, last = found.attempts
    rows = [*(_row(one, "killed") for one in before), _row(last, "killed, or still running")]
    yield table(heads, rows, (0, 2))
    if found.num_attempts > len(found.attempts):
        earlier = found.num_attempts - len(found.attempts)
        yield paragraph(f"and {counted(earlier, 'attempt')} before these", soft=True)


def _row(one: AttemptFigures, without_end: str) -> tuple[Node, ...]:
    rate = shown_rate(one.text_bytes / one.seconds) if one.seconds else ""
    return (
        element("span", one.began, class_="keep"),
        shown_duration(one.seconds),
        without_end if one.end is None else _ENDS[one.end],
        f"{one.num_slices:,} of {one.total_slices:,}",
        f"{one.num_resumed:,}" if one.num_resumed else "",
        f"{one.num_tokens:,}",
        rate,
    )
