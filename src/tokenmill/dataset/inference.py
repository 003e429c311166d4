"""Infers what shards without a manifest do not state: the width of a token, and where EOT ids are.
`inspect`, `verify` and `convert` all use this module, so that they agree.

    dtype     The widest reading whose ids are all in the vocabulary. Tokens
              read twice as wide as they are give ids far beyond any vocabulary; tokens read half as
              wide have 0 or nearly 0 in every second place. Of 16 different ids (DNA, chess) the
              first is untrue, so that uint32 must be shown by the second, too.
    EOT       Only edges distinguish `append` from `prepend`: a whole split ends with an EOT id, or
              begins with one. In between both look the same. A split may also begin or end in the
              middle of a document (npy and llmc cut validation off there; samples leave out a
              tail), and an empty document puts an EOT id at the other edge. Where the edges
              contradict each other or say nothing, the answer is unknown.

An inference names its evidence. If it is not sure, it says so, and a caller that needs certainty
asks the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokenmill.dataset.stream import Stream, Tokens
from tokenmill.errors import IntegrityError
from tokenmill.formats import DTYPE_BYTES, Format, ShardReader

# The bound on ids if no tokenizer is named: no vocabulary is larger.
MAX_VOCAB = 1 << 20
# Tokens read at a shard's beginning, middle and end to find out how wide its tokens are.
_PROBE_TOKENS = 1 << 12
# With fewer tokens than this, two readings that both make sense may do so by chance.
_FEW_TOKENS = 16
_MOST, _HALF = 0.95, 0.5
# At most this many tokens of a split are read to see how EOT ids separate documents.
_LOOK_TOKENS = 16 << 20
_FIRST_LOOK_TOKENS = 1 << 15
# The first number of gaps between documents is enough; with fewer than the second, pairs may be
# chance.
_ENOUGH_GAPS, _FEW_GAPS = 64, 3
# If the format stores boundaries, documents are examined in a shard of up to this size.
_INDEX_TOKENS = 1 << 24


@dataclass(frozen=True, slots=True)
class Inference:
    """`value` is None if nothing can be inferred. `why` is a clause for a message."""

    value: str | None
    why: str
    is_sure: bool = True


def inferred_dtype(
    opens: Sequence[Callable[[str | None], ShardReader]], max_id: int | None
) -> Inference | None:
    """How wide the tokens of shards are; None if the files state it.

    `opens` open some of the shards as a dtype; `max_id` is the tokenizer's largest id.
    """
    readings: dict[str, list[Tokens]] = {}
    for open_as in opens:
        for dtype, tokens in _readings(open_as).items():
            readings.setdefault(dtype, []).append(tokens)
    if not readings:
        return None
    joined = {dtype: np.concatenate(pieces) for dtype, pieces in readings.items()}
    return _widest_that_fits(joined, max_id)


def _readings(open_as: Callable[[str | None], ShardReader]) -> dict[str, Tokens]:
    """Some tokens of a shard, read as each possible dtype; empty if the file names its dtype."""
    found: dict[str, Tokens] = {}
    is_said = True
    for asked in (None, *DTYPE_BYTES):
        try:
            reader = open_as(asked)
        except IntegrityError:  # it is not whole as that dtype, or damaged
            is_said = False
            continue
        if reader.dtype not in found and reader.num_tokens:
            found[reader.dtype] = _probe(reader)
    return {} if is_said and len(found) == 1 else found


def _probe(reader: ShardReader) -> Tokens:
    last = max(0, reader.num_tokens - _PROBE_TOKENS)
    starts = sorted({0, last // 2, last})
    pieces = [np.array(reader.tokens(start, start + _PROBE_TOKENS)) for start in starts]
    return np.concatenate(pieces)


def _widest_that_fits(readings: dict[str, Tokens], max_id: int | None) -> Inference:
    most = MAX_VOCAB - 1 if max_id is None else max_id
    can_be = [dtype for dtype in readings if max_id is None or max_id <= np.iinfo(dtype).max]
    in_order = sorted(can_be, key=lambda dtype: -np.dtype(dtype).itemsize)
    shares = {d: float(np.mean((readings[d] >= 0) & (readings[d] <= most))) for d in in_order}
    if len(readings) == 1 and in_order:
        return Inference(in_order[0], "no other width fits the size of the files")
    for position, dtype in enumerate(in_order):
        if dtype == "uint32" and "uint16" in can_be and _may_be_pairs(readings[dtype]):
            continue
        is_narrowest = position == len(in_order) - 1
        if shares[dtype] >= _MOST or (is_narrowest and shares[dtype] > _HALF):
            is_sure = len(readings[dtype]) >= _FEW_TOKENS or is_narrowest
            return Inference(dtype, f"read that way, ids are at most {most:,}", is_sure)
        if shares[dtype] > _HALF:
            break
    seen = " and ".join(sorted(readings))
    why = f"read as {seen}, they do not fit ids up to {most:,}"
    return Inference(None, why, is_sure=False)


def _may_be_pairs(tokens: Tokens) -> bool:
    """Whether uint32 ids may be pairs of uint16 ids of a small alphabet: the upper halves are not 0
    throughout, and the lower ones are hardly ever larger than they are."""
    halves = np.ascontiguousarray(tokens, "<u4").view("<u2")
    low, high = halves[0::2], halves[1::2]
    if not high.any():
        return not low.any()
    return float(np.mean(low > MAX_VOCAB >> 16)) < _HALF


def inferred_eot(
    streams: Sequence[Stream], format_: Format, eot_id: int, name: str = "EOT"
) -> Inference:
    """Where EOT ids are, or BOS ids: append, prepend, both or none."""
    found = _inferred(streams, format_, eot_id)
    return replace(found, why=found.why.replace("EOT", name))


def _inferred(streams: Sequence[Stream], format_: Format, eot_id: int) -> Inference:
    filled = [stream for stream in streams if stream.num_tokens]
    if not filled:
        return Inference(None, "there are no tokens", is_sure=False)
    small = [stream for stream in filled if stream.shards[0].num_tokens <= _INDEX_TOKENS]
    if small and all(stream.has_boundaries for stream in filled):
        return _by_documents(small, eot_id)
    return _by_edges(filled, format_, eot_id)


def _by_documents(streams: Sequence[Stream], eot_id: int) -> Inference:
    """If the format stores boundaries: from the first and last token of each document."""
    begins, ends, inside = [], [], 0
    for stream in streams:
        for tokens in _some_documents(stream):
            is_eot = np.asarray(tokens) == eot_id
            inside += int(np.count_nonzero(is_eot[1:-1]))
            if len(tokens) > 1:  # an empty document looks the same with either side's EOT id
                begins.append(bool(is_eot[0]))
                ends.append(bool(is_eot[-1]))
    if not begins:
        return Inference(None, "every document is empty", is_sure=False)
    # The first document may lack its beginning, and the last one its end.
    many = len(begins) > 2
    all_begin, all_end = all(begins[many:]), all(ends[: len(ends) - many])
    if all_begin or all_end:
        value = "both" if all_begin and all_end else "prepend" if all_begin else "append"
        words = {"both": "begins and ends", "prepend": "begins", "append": "ends"}[value]
        return Inference(value, f"every document {words} with EOT id {eot_id}")
    if not any(begins) and not any(ends) and not inside:
        return Inference("none", f"no document begins or ends with EOT id {eot_id}")
    why = f"some documents begin or end with EOT id {eot_id}, and others do not"
    return Inference(None, why, is_sure=False)


def _some_documents(stream: Stream) -> Iterator[Tokens]:
    """Documents of the first shard, all whole except perhaps the first and last."""
    first = next(iter(stream.documents(_FIRST_LOOK_TOKENS)), None)
    if first is None or first.lengths is None:
        return
    start = 0
    for length in first.lengths.tolist():
        yield first.tokens[start : start + length]
        start += length


def _by_edges(streams: Sequence[Stream], format_: Format, eot_id: int) -> Inference:
    firsts, lasts = _outer_edges(streams)
    begins = [s.split for s in firsts if int(s.tokens(0, 1)[0]) == eot_id]
    ends = [s.split for s in lasts if int(s.tokens(s.num_tokens - 1, s.num_tokens)[0]) == eot_id]
    gaps = [gap for stream in streams for gap in _gaps(stream, eot_id)]
    if not gaps and not begins and not ends:
        is_sure = all(stream.num_tokens <= _LOOK_TOKENS for stream in streams)
        return Inference("none" if is_sure else None, f"EOT id {eot_id} does not occur", is_sure)
    if gaps and all(gap % 2 == 0 for gap in gaps):
        is_sure = len(gaps) >= _FEW_GAPS
        why = f"between documents there are two EOT ids {eot_id}"
        return Inference("both" if is_sure else None, why, is_sure)
    if begins and ends:
        why = f"{begins[0]} begins with EOT id {eot_id}, and {ends[0]} ends with it"
        return Inference(None, why, is_sure=False)
    return _by_one_edge(format_, begins, ends)


def _outer_edges(streams: Sequence[Stream]) -> tuple[list[Stream], list[Stream]]:
    """The splits that begin where a document begins, and those that end where one ends. If train's
    shard numbers continue val's, val was cut off the beginning of one stream."""
    by_split = {stream.split: stream for stream in streams}
    if set(by_split) == {"train", "val"}:
        val, train = by_split["val"], by_split["train"]
        if _number_of(train.shards[0].name) == (_number_of(val.shards[-1].name) or 0) + 1:
            return [val], [train]
    return list(streams), list(streams)


def _number_of(name: str) -> int | None:
    """The last number in a shard's name."""
    found = re.search(r"(\d{1,18})\D*$", name)
    return int(found[1]) if found else None


def _by_one_edge(format_: Format, begins: list[str], ends: list[str]) -> Inference:
    usual = format_.defaults.eot
    # Where samples leave out a tail, no split ends with the EOT id of its last document.
    has_tails = format_.traits.samples and format_.traits.boundaries
    if ends:
        return Inference(
            "append", f"{' and '.join(ends)} ends with an EOT id, none begins with one"
        )
    if begins and (usual == "prepend" or not has_tails):
        return Inference("prepend", f"{' and '.join(begins)} begins with an EOT id")
    if not begins and usual == "append":
        return Inference(
            "append",
            f"no split begins with an EOT id, and {format_.name} has them at the end of documents",
        )
    if begins:
        why = f"{begins[0]} begins with an EOT id, which may be an empty document"
    else:
        why = "every split begins and ends in the middle of a document"
    return Inference(None, why, is_sure=False)


def _gaps(stream: Stream, eot_id: int) -> list[int]:
    """The number of adjacent EOT ids in each gap between two texts."""
    found: list[int] = []
    start, step = 0, _FIRST_LOOK_TOKENS
    is_first, length = True, 0  # of the EOT ids before `start`; the leading ones are no gap
    while start < min(stream.num_tokens, _LOOK_TOKENS) and len(found) < _ENOUGH_GAPS:
        tokens = np.asarray(stream.tokens(start, start + step))
        at = np.flatnonzero(np.append(tokens != eot_id, True))  # texts, and the end
        lengths = np.diff(at, prepend=-1) - 1
        lengths[0] += length
        length = int(lengths[-1])
        inner = lengths[:-1]
        if is_first and len(inner):
            inner, is_first = inner[1:], False
        found += inner[inner > 0].tolist()
        start, step = start + len(tokens), 2 * step
    return found
