"""How a manifest is laid out as JSON, and the sha256 of its content that it carries."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

_NUMBER_LIST = re.compile(r"\[\s+[\d,\s]+\]")


def manifest_sha256_of(plain: dict[str, Any]) -> str:
    """The sha256 that a manifest carries: of its other fields, independent of their layout."""
    rest = {name: value for name, value in plain.items() if name != "sha256"}
    found = hashlib.sha256()
    for piece in _dumped(rest):
        found.update(piece.encode())
    return found.hexdigest()


def _dumped(plain: dict[str, Any]) -> Iterator[str]:
    """`json.dumps(plain, sort_keys=True)` in pieces: that of 10,000 files at once takes 25 MB."""
    for number, (name, value) in enumerate(sorted(plain.items())):
        yield f"{', ' if number else '{'}{json.dumps(name)}: "
        if isinstance(value, (list, tuple)) and value:
            for place, item in enumerate(value):
                yield f"{', ' if place else '['}{json.dumps(item, sort_keys=True)}"
            yield "]"
        else:
            yield json.dumps(value, sort_keys=True)
    yield "}" if plain else "{}"


def laid_out(plain: dict[str, Any]) -> bytes:
    """The JSON bytes of the file. The same data always gives the same bytes."""
    numbers = plain.get("slice_documents") or {}
    # There may be a million numbers; an indenting encoder would take seconds.
    places = {split: f"\0{split}" for split in numbers}
    rest = {**plain, "slice_documents": places} if places else plain
    text = json.dumps(rest, indent=1, sort_keys=True)
    # Put each list of numbers on one line. JSON escapes line breaks in strings, so none is touched.
    text = _NUMBER_LIST.sub(lambda match: "".join(match[0].split()), text)
    for split, place in places.items():
        text = text.replace(json.dumps(place), json.dumps(numbers[split], separators=(",", ":")))
    return text.encode() + b"\n"
