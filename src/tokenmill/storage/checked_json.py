"""JSON files with a checksum, so that damage and edits are noticed.

The file begins with the sha256 of the rest, byte for byte, so that checking a plan of 100 MB costs
a hash and not a second encoding. It guards against accidents, not against attackers.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

CHECKSUM_BYTES = 79  # the prefix that `checksum_of` reads
_HEAD = re.compile(rb'\{"sha256": "([0-9a-f]{64})", ')


def checksummed(body: bytes) -> bytes:
    """The JSON object `body` with its checksum in front."""
    return b'{"sha256": "%s", ' % hashlib.sha256(body).hexdigest().encode() + body[1:]


def checked_object(data: bytes) -> dict[str, Any]:
    """The object without its checksum; ValueError if this is not what was written."""
    plain: dict[str, Any] = json.loads(_body(data).decode())  # faster than from bytes
    return plain


def is_intact(data: bytes) -> bool:
    """Whether this is what was written."""
    try:
        _body(data)
    except ValueError:
        return False
    return True


def _body(data: bytes) -> bytes:
    checksum = checksum_of(data)
    body = b"{" + data[CHECKSUM_BYTES:]
    if hashlib.sha256(body).hexdigest() != checksum:
        raise ValueError("it has changed since it was written")
    return body


def checksum_of(data: bytes) -> str:
    """The sha256 of the body, which the file begins with."""
    head = _HEAD.match(data)
    if head is None:
        raise ValueError("it has no checksum")
    return head[1].decode()
