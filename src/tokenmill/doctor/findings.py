"""A finding: one thing about this machine, whether it is fine, and what to do if not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level  # note: may hurt; problem: will
    topic: str
    what: str
    advice: str = ""


def gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
