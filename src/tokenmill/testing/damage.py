"""Damage to files, as bad disks and bad software cause it."""

from __future__ import annotations

import random


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The data with a bit flipped, a piece cut out, doubled, zeroed or garbled, or cut short."""
    if not data:
        return b"\0"
    at = rng.randrange(len(data))
    size = rng.randrange(1, 64)
    flipped = bytes([data[at] ^ (1 << rng.randrange(8))])
    return rng.choice(
        [
            data[:at] + flipped + data[at + 1 :],
            data[:at],
            data[:at] + data[at + size :],
            data[: at + size] + data[at:],
            data[:at] + bytes(size) + data[at + size :],
            data[:at] + rng.randbytes(size) + data[at + size :],
        ]
    )
