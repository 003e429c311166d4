"""Dates and times in quotes, as numbers in the column's own unit."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pyarrow as pa

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MICROSECOND = timedelta(microseconds=1)
_FRACTION = re.compile(r"[.,]\d{6}(\d+)")  # the digits after the sixth, which datetime drops


def moment_of(text: str, type_: pa.DataType) -> Fraction:
    """The number that a date or timestamp column would hold. Without a time zone, a time is UTC if
    the column has a zone. Raises ValueError with a readable message."""
    fraction = _FRACTION.search(text)
    rest = fraction[1] if fraction else ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a date or a time") from None
    has_zone = pa.types.is_timestamp(type_) and type_.tz is not None
    if moment.tzinfo is not None and not has_zone:
        raise ValueError(f"{text!r} has a time zone, and the column has none")
    zone = moment.tzinfo or UTC
    since = moment.replace(tzinfo=zone) - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = Fraction(since // _MICROSECOND, 10**6)
    seconds += Fraction(int(rest or 0), 10 ** (6 + len(rest)))
    if pa.types.is_timestamp(type_):
        return seconds * _PER_SECOND[type_.unit]
    return seconds / 86_400 if pa.types.is_date32(type_) else seconds * 1000
