"""Seals: a JSON file of ours that was changed, by a disk or by hand, is not taken for what it was.

The file begins with the sha256 of the rest, byte for byte, so that checking a plan of 100 MB costs
a hash and not a second encoding. Against accidents, not against people who can compute one.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

SEAL_BYTES = 79  # what `seal_of` looks at
_HEAD = re.compile(rb'\{"sha256": "([0-9a-f]{64})", ')


def sealed(body: bytes) -> bytes:
    """The JSON object `body` with its seal in it."""
    return b'{"sha256": "%s", ' % hashlib.sha256(body).hexdigest().encode() + body[1:]


def unsealed(data: bytes) -> dict[str, Any]:
    """The object that was sealed; ValueError if this is not what was written."""
    plain: dict[str, Any] = json.loads(_body(data).decode())  # faster than of bytes
    return plain


def is_sealed(data: bytes) -> bool:
    """Whether this is what was written."""
    try:
        _body(data)
    except ValueError:
        return False
    return True


def _body(data: bytes) -> bytes:
    seal = seal_of(data)
    body = b"{" + data[SEAL_BYTES:]
    if hashlib.sha256(body).hexdigest() != seal:
        raise ValueError("it was changed since it was written")
    return body


def seal_of(data: bytes) -> str:
    """The sha256 in the seal: that of the body as it was before it was sealed."""
    head = _HEAD.match(data)
    if head is None:
        raise ValueError("it has no seal")
    return head[1].decode()
