"""Lists names of columns or fields in a message."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice


def name_list(names: Iterable[str], most: int = 50) -> str:
    """The first `most` names, comma-separated; an empty one is shown as ''."""
    return ", ".join(name or "''" for name in islice(names, most)) or "none"
