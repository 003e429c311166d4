"""Where a file of bytes can be cut so that its pieces hold whole documents.

A cut is right after a separator at which `content.split(separator)` certainly splits. Split goes
left to right, so an occurrence counts unless an earlier one overlaps it (two newlines in a run of
three). An occurrence cannot be overlapped if no other one starts in the len - 1 bytes before it.
Cuts are searched at multiples of `span_bytes`, at most half a span ahead: if documents are longer
than that, spans get longer, and planning still reads at most half of the file (normally 64 KiB per
span).
"""

from __future__ import annotations

from tokenmill.corpus.opening import opened, unreadable_input
from tokenmill.corpus.spans import Input, Span
from tokenmill.storage.range_reader import ByteFile

_WINDOW_BYTES = 1 << 16
_MAX_CANDIDATES = 10_000  # in a run of overlapping occurrences, which may be the whole file


def cut_spans(source: Input, separator: bytes, span_bytes: int) -> list[Span]:
    """The file as byte ranges of about `span_bytes`; each ends after a separator, or at the end."""
    cuts = [0]
    windows = (
        (target - len(separator) + 1, target + _window_bytes(separator))
        for target in range(span_bytes, source.num_bytes, span_bytes)
    )
    try:
        with opened(source, windows) as file:
            target = span_bytes
            while target < source.num_bytes:
                cut = _first_cut(file, target, separator, max(span_bytes // 2, _WINDOW_BYTES))
                if cut is not None and cut < source.num_bytes:
                    cuts.append(cut)
                    target = max(target, cut)
                target += span_bytes - target % span_bytes
    except OSError as error:
        raise unreadable_input(source, error) from error
    edges = zip(cuts, [*cuts[1:], source.num_bytes], strict=True)
    return [Span(source, start, stop, stop - start) for start, stop in edges]


def _first_cut(file: ByteFile, start: int, separator: bytes, lookahead: int) -> int | None:
    """The end of the first safe separator that begins in [start, start + lookahead)."""
    overlap = len(separator) - 1
    window = _window_bytes(separator)
    position, candidates = start, 0
    while position < start + lookahead and candidates < _MAX_CANDIDATES:
        begin = max(0, position - overlap)
        file.seek(begin)
        data = file.read(position - begin + window)
        found = data.find(separator, position - begin)
        while found >= 0 and candidates < _MAX_CANDIDATES:
            earlier = data.find(separator, max(0, found - overlap), found + overlap)
            if earlier < 0:
                return begin + found + len(separator)
            candidates += 1
            found = data.find(separator, found + 1)
        if len(data) < position - begin + window:
            return None
        position = begin + len(data) - overlap
    return None


def _window_bytes(separator: bytes) -> int:
    return max(_WINDOW_BYTES, 4 * len(separator))
