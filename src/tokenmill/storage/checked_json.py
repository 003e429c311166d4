"""JSON files of ours that carry their checksum, so that damage or an edit by hand is noticed.

The file begins with the sha256 of its remaining bytes, so that checking a plan of 100 MB costs one
hash and no second encoding. It protects against accidents, not against attackers.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

SEAL_BYTES = 79  # as many as `seal_of` needs
_HEAD = re.compile(rb'\{"sha256": "([0-9a-f]{64})", ')


def sealed(body: bytes) -> bytes:
    """The JSON object `body` with its seal in it."""
    return b'{"sha256": "%s", ' % hashlib.sha256(body).hexdigest().encode() + body[1:]


def unsealed(data: bytes) -> dict[str, Any]:
    """The object that was sealed. Raises ValueError if the bytes were changed."""
    plain: dict[str, Any] = json.loads(_body(data).decode())  # faster than parsing bytes
    return plain


def is_sealed(data: bytes) -> bool:
    """Whether the bytes are unchanged since they were sealed."""
    try:
        _body(data)
    except ValueError:
        return False
    return True


def _body(data: bytes) -> bytes:
    seal = seal_of(data)
    body = b"{" + data[SEAL_BYTES:]
    if hashlib.sha256(body).hexdigest() != seal:
        raise ValueError("it has changed since it was written")
    return body


def seal_of(data: bytes) -> str:
    """The sha256 in the seal, which is that of the body without its seal."""
    head = _HEAD.match(data)
    if head is None:
        raise ValueError("it has no seal")
    return head[1].decode()
