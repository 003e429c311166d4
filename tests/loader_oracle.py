"""What a Loader must give, as lists and loops: its order, restated in plain Python.

Nothing here is shared with the loader but the definition. Slow and obvious by intent.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from fractions import Fraction
from pathlib import Path

import numpy as np

from tokenmill.formats.llmc import LlmcFormat

WORD = (1 << 64) - 1
ORDERS = list(itertools.permutations(range(4)))


def words(count: int, *parts) -> list[int]:
    data = json.dumps(["tokenmill permutation 1", *parts]).encode()
    digest = hashlib.shake_256(data).digest(8 * count)
    return [int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(count)]


def hashed(number: int, key: int) -> int:
    found = ((number ^ key) * 0x9E3779B97F4A7C15) & WORD
    found ^= found >> 32
    return (found * 0xD6E8FEB86659FD93) & WORD


def permuted(number: int, size: int, *parts) -> int:
    bits = max(2, (size - 1).bit_length())
    keys = words(24 if bits < 11 else 8, size, *parts)
    low = bits - bits // 2
    while True:
        left, right = number >> low, number & ((1 << low) - 1)
        for even, odd in zip(keys[::2], keys[1::2], strict=True):
            left ^= hashed(right, even) >> (64 - bits // 2)
            right ^= hashed(left, odd) >> (64 - low)
        number = left << low | right
        if number < size:
            return number


def row_at(turn: int, num_rows: int, shuffle, seed: int, source: str, block=256, window=64) -> int:
    epoch, place = divmod(turn, num_rows)
    if shuffle is None:
        return place
    if shuffle == "full":
        return permuted(place, num_rows, seed, source, "rows", epoch)
    size = block * window
    last = max(0, num_rows // size - 1)
    number = min(place // size, last)
    start, stop = number * size, num_rows if number == last else (number + 1) * size
    place = start + permuted(place - start, stop - start, seed, source, "window", epoch, number)
    blocks = num_rows // block
    if place >= blocks * block:
        return place
    moved = permuted(place // block, blocks, seed, source, "blocks", epoch)
    return moved * block + place % block


def sources_in_order(stages: list[tuple[int, dict[str, int]]], seed: int, count: int) -> list[str]:
    """The source of each of the first `count` places. Stages: (first row, whole weights)."""
    found: list[str] = []
    for number, (start, weights) in enumerate(stages):
        stop = stages[number + 1][0] if number + 1 < len(stages) else count
        [key] = words(1, seed, "mixture", start)
        for window in range(-(-max(0, stop - start) // 4)):
            regular = [source_at(place, weights) for place in range(4 * window, 4 * window + 4)]
            order = ORDERS[(hashed(window, key) >> 40) % 24]
            found += [regular[i] for i in order][: stop - start - 4 * window]
    return found[:count]


def source_at(place: int, weights: dict[str, int]) -> str:
    before, after = share(place, weights), share(place + 1, weights)
    [name] = [name for name in weights if after[name] > before[name]]
    return name


def share(place: int, weights: dict[str, int]) -> dict[str, int]:
    """Of so many places, those of each source: the heaviest takes its share of all, the next one
    of the rest."""
    found, rest, total = {}, place, sum(weights.values())
    for name, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        found[name] = (rest * weight + total // 2) // total if weight < total else rest
        rest, total = rest - found[name], total - weight
    return {name: found.get(name, 0) for name in weights}


def run(data: dict[str, list[int]], stages, seq_len, seed, shuffle, count) -> list[tuple[str, int]]:
    """(source, row) of the first `count` places."""
    turns = dict.fromkeys(data, 0)
    found = []
    for name in sources_in_order(stages, seed, count):
        num_rows = (len(data[name]) - 1) // seq_len
        found.append((name, row_at(turns[name], num_rows, shuffle, seed, name)))
        turns[name] += 1
    return found


def tokens_of(data: dict[str, list[int]], origin: tuple[str, int], seq_len: int) -> list[int]:
    name, row = origin
    return data[name][row * seq_len : row * seq_len + seq_len + 1]


def whole(weights: dict[str, float]) -> dict[str, int]:
    parts = {name: Fraction(str(weight)) for name, weight in weights.items() if weight}
    scale = int(np.lcm.reduce([part.denominator for part in parts.values()]))
    numbers = {name: int(part * scale) for name, part in parts.items()}
    divisor = int(np.gcd.reduce(list(numbers.values())))
    return {name: number // divisor for name, number in numbers.items()}


def write_shards(folder: Path, tokens: list[int], cuts=()) -> Path:
    """A stranger's dataset: the tokens as llm.c shards, cut at these places."""
    folder.mkdir(parents=True, exist_ok=True)
    bounds = sorted({0, len(tokens), *(cut for cut in cuts if cut < len(tokens))})
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        data = np.array(tokens[start:stop], "<u2").tobytes()
        name = folder / f"fineweb_train_{number:06d}.bin"
        name.write_bytes(LlmcFormat().header(stop - start, "uint16") + data)
    return folder
