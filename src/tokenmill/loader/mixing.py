"""Which source comes at a place of the run: by weight, deterministic and stateless.

Weights are shares of tokens, converted to rows: a packed source needs more rows, because they have
padding. The heaviest source takes its share of all places, the next one its share of the places
left, and so on: of k places, source 1 has round(k * w1 / W). This is a closed form: the counts at
any place follow from its number. They are exact integers, and no prefix of a stage is off by two
rows (tested with up to 100 sources).

Such a regular order could always give one rank the same source. Therefore the four places of a
window are put in random order. Larger windows would cost accuracy.

A stage begins at a token of the run, with its own weights; sources continue where they were.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tokenmill.errors import ConfigError, unknown_name
from tokenmill.loader.order import Numbers, hashed, key_words

WINDOW = 4
_ORDERS = np.array(list(itertools.permutations(range(WINDOW))), np.int64)
# Products of a weight and a number of places within a batch stay below 2^63.
MAX_TOTAL_WEIGHT = 1 << 40
MAX_PLACES = 1 << 20  # a call


@dataclass(frozen=True, slots=True)
class Stage:
    start: int  # the first row of the run that belongs to it
    weights: tuple[tuple[str, int], ...]  # by source, the heaviest first; none is 0

    @property
    def total(self) -> int:
        return sum(weight for _, weight in self.weights)


def stage_of(
    start: int,
    weights: Mapping[str, float | Fraction],
    sources: Sequence[str],
    row_tokens: Mapping[str, Fraction] | None = None,
) -> Stage:
    """`row_tokens`: tokens in an average row of each source, if they differ. Raises ConfigError for
    weights that do not match the sources."""
    for name in weights:
        if name not in sources:
            raise unknown_name("source in weights", name, tuple(sources))
    if missing := [name for name in sources if name not in weights]:
        raise ConfigError(
            f"the weights from row {start:,} on have none for {missing[0]}",
            hint=f"weights={{..., {missing[0]!r}: 0}} leaves it out",
        )
    for name, weight in weights.items():
        if isinstance(weight, bool) or not math.isfinite(weight) or weight < 0:
            raise ConfigError(f"the weight of {name} is {weight!r}, expected 0 or more")
    if row_tokens is not None:
        weights = {name: Fraction(str(w)) / row_tokens[name] for name, w in weights.items()}
    whole = whole_weights(weights)
    if not whole:
        raise ConfigError("all weights are 0", hint="give at least one source a weight")
    ordered = sorted(whole.items(), key=lambda item: (-item[1], item[0]))
    return Stage(start, tuple(ordered))


def whole_weights(weights: Mapping[str, float | Fraction]) -> dict[str, int]:
    """Integers in the same ratio, without zeros: 0.7 and 0.3 are exactly 7 and 3, because decimals
    are taken as written. Ratios that need more than 2^40 are rounded to that."""
    parts = {name: Fraction(str(weight)) for name, weight in weights.items() if weight}
    scale = math.lcm(*(part.denominator for part in parts.values()))
    whole = {name: int(part * scale) for name, part in parts.items()}
    divisor = math.gcd(*whole.values())
    whole = {name: number // divisor for name, number in whole.items()}
    total = sum(whole.values())
    if total <= MAX_TOTAL_WEIGHT:
        return whole
    room = MAX_TOTAL_WEIGHT - len(whole)
    return {name: max(1, number * room // total) for name, number in whole.items()}


class Mixture:
    """Sources are numbered in the order of `names`, which does not affect the mixture."""

    def __init__(self, names: Sequence[str], stages: Sequence[Stage], seed: int) -> None:
        self.names = tuple(names)
        self.stages = tuple(stages)
        self._plans = []
        base = [0] * len(names)
        for number, stage in enumerate(stages):
            plan = _StagePlan(stage, self.names, tuple(base), seed)
            self._plans.append(plan)
            if number + 1 < len(stages):
                base = plan.counts(stages[number + 1].start - stage.start)

    def at(self, start: int, stop: int) -> tuple[Numbers, Numbers]:
        """The source of each place, and which row of that source it is, counted from 0."""
        if len(self.names) == 1:
            return np.zeros(stop - start, np.int64), np.arange(start, stop)
        found = [
            plan.at(max(start, first) - first, min(stop, last) - first)
            for plan, first, last in self._overlaps(start, stop)
        ]
        sources, turns = zip(*found, strict=True)
        return np.concatenate(sources), np.concatenate(turns)

    def counts(self, place: int) -> list[int]:
        """The number of rows of each source before a place."""
        plan = self._plan_at(place)
        return plan.counts(place - plan.stage.start)

    def planned(self, place: int) -> list[Fraction]:
        """The exact number of rows that the weights ask for before a place."""
        shares = [Fraction(0)] * len(self.names)
        for plan, first, last in self._overlaps(0, place):
            num_rows = min(place, last) - first
            for name, weight in plan.stage.weights:
                shares[self.names.index(name)] += Fraction(weight * num_rows, plan.stage.total)
        return shares

    def end(self, limits: Sequence[int]) -> int:
        """The last place before which no source gives more rows than its limit."""
        low, high = 0, 1
        while self._is_within(high, limits):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_within(middle, limits) else (low, middle)
        return low

    def _is_within(self, place: int, limits: Sequence[int]) -> bool:
        return all(n <= most for n, most in zip(self.counts(place), limits, strict=True))

    def _plan_at(self, place: int) -> _StagePlan:
        return next(p for p in reversed(self._plans) if p.stage.start <= place)

    def _overlaps(self, start: int, stop: int) -> list[tuple[_StagePlan, int, int]]:
        """The stages that overlap these places, with their first and last place."""
        starts = [stage.start for stage in self.stages]
        bounds = zip(self._plans, starts, [*starts[1:], max(stop, starts[-1]) + 1], strict=True)
        return [(p, first, last) for p, first, last in bounds if first < stop and last > start]


class _StagePlan:
    def __init__(
        self, stage: Stage, names: tuple[str, ...], base: tuple[int, ...], seed: int
    ) -> None:
        self.stage = stage
        self._base = base  # rows of each source before the stage
        self._numbers = [names.index(name) for name, _ in stage.weights]
        self._key = key_words(1, seed, "mixture", stage.start)[0]

    def at(self, start: int, stop: int) -> tuple[Numbers, Numbers]:
        """Like `Mixture.at`, for places counted from the start of the stage."""
        first = start // WINDOW
        last = -(-stop // WINDOW)
        counts = self._regular(first * WINDOW, np.arange((last - first) * WINDOW + 1))
        regular = np.argmax(np.diff(counts, axis=1), axis=0).reshape(-1, WINDOW)
        orders = _ORDERS[self._draws(first, last)]
        ranked = np.take_along_axis(regular, orders, axis=1)
        earlier = np.zeros_like(ranked)
        for place, before in itertools.combinations(range(WINDOW - 1, -1, -1), 2):
            earlier[:, place] += ranked[:, place] == ranked[:, before]
        windows = np.arange(0, (last - first) * WINDOW, WINDOW)[:, None]
        turns = counts[ranked, windows] + earlier
        numbers, base = np.array(self._numbers), np.array(self._base)
        sources = numbers[ranked].reshape(-1)
        wanted = slice(start - first * WINDOW, stop - first * WINDOW)
        return sources[wanted], (base[sources] + turns.reshape(-1))[wanted]

    def counts(self, place: int) -> list[int]:
        whole = place // WINDOW * WINDOW
        regular = self._regular(whole, np.zeros(1, np.int64))[:, 0].tolist()
        found = list(self._base)
        for number, count in zip(self._numbers, regular, strict=True):
            found[number] += count
        if whole < place:
            for number in self.at(whole, place)[0].tolist():
                found[number] += 1
        return found

    def _regular(self, base: int, places: Numbers) -> Numbers:
        """The rows of each source among the first `base + places`, before windows are shuffled.
        `base` may be any integer; `places` must be small."""
        found = np.empty((len(self._numbers), len(places)), np.int64)
        total = self.stage.total
        for row, (_, weight) in enumerate(self.stage.weights[:-1]):
            count, rest = divmod(base * weight + total // 2, total)
            more = (rest + places * weight) // total
            found[row] = count + more
            base, places, total = base - count, places - more, total - weight
        found[-1] = base + places
        return found

    def _draws(self, first: int, last: int) -> Numbers:
        numbers = hashed(np.arange(first, last).astype(np.uint64), self._key)
        draws: Numbers = (numbers >> np.uint64(40)).astype(np.int64) % len(_ORDERS)
        return draws
