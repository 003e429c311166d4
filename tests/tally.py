"""How often what was done to tokenmill, and how it ended: what the reliability table is made of."""

from __future__ import annotations


class Tally:
    """Trials by kind, and how each ended: resumed to identical bytes, or refused as it should."""

    def __init__(self) -> None:
        self.kinds: dict[str, dict[str, float]] = {}

    def add(self, kind: str, outcome: str, count: int = 1, seconds: float = 0.0) -> None:
        """`outcome`: identical, detected, or a name of its own; `seconds` is the recovery's."""
        found = self.kinds.setdefault(kind, {"trials": 0, "longest_seconds": 0.0})
        found["trials"] += count
        found[outcome] = found.get(outcome, 0) + count
        found["longest_seconds"] = max(found["longest_seconds"], round(seconds, 3))

    def merge(self, kinds: dict[str, dict[str, float]]) -> None:
        """Add what another process counted."""
        for kind, counted in kinds.items():
            found = self.kinds.setdefault(kind, {"trials": 0, "longest_seconds": 0.0})
            for name, value in counted.items():
                both = (found.get(name, 0), value)
                found[name] = max(both) if name == "longest_seconds" else sum(both)
