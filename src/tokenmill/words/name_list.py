"""Names of columns or fields, listed in a message."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice


def name_list(names: Iterable[str], most: int = 50) -> str:
    """The first names; one that is empty is shown as ''."""
    return ", ".join(name or "''" for name in islice(names, most)) or "none"
