"""Numbers as people write and read them: 100M, 1.5B, 100_000, 1e8; 12.3 MB, 1.23B."""

from __future__ import annotations

import re
from numbers import Real
from typing import SupportsIndex

from tokenmill.errors import ConfigError

_POWERS = {"": 0, "K": 3, "M": 6, "B": 9, "G": 9, "T": 12}
Quantity = int | str  # a number, or one as people write it


def parsed_count(text: str) -> int:
    """A number as people type it: 100M, 1.5B, 100_000, 100,000, 1e8. A decimal comma is none."""
    match = re.fullmatch(
        r"([0-9][0-9_]*|[0-9]{1,3}(?:,[0-9]{3})+)(?:\.([0-9]+))?(?:E([0-9]{1,2}))?\s*([KMBGT]?)",
        text.strip().upper(),
    )
    if match is None:
        raise ConfigError(f"not a number: {text!r}", hint="write 100M, 1.5B or 100000000")
    whole, part = re.sub("[_,]", "", match[1]), (match[2] or "").rstrip("0")
    power = int(match[3] or 0) + _POWERS[match[4]] - len(part)
    if power < 0:
        raise ConfigError(f"not a whole number: {text!r}")
    return int(whole + part) * int(10**power)


def count_of(option: str, value: object) -> int:
    """A count from the values that Python callers pass: 8, 1e8, "100M", a NumPy integer."""
    if isinstance(value, str):
        try:
            return parsed_count(value)
        except ConfigError as error:
            if re.fullmatch(r"-[\d.]+\w?", value.strip()):
                raise ConfigError(f"{option} must be positive, got {value.strip()}") from None
            raise ConfigError(f"{option}: {error.message}", hint=error.hint) from None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise ConfigError(
            f"{option} takes a whole number, got {value!r}", hint="100_000_000, 1e8 or '100M'"
        )
    return int(value)


def share_of(option: str, value: object) -> float:
    """A fraction as people write it: 0.1, "0.1" or "10%"."""
    if isinstance(value, str):
        digits = value.strip()
        try:
            return float(digits[:-1]) / 100 if digits.endswith("%") else float(digits)
        except ValueError:
            value = digits
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(f"{option} takes a number, got {value!r}", hint=f"{option} 0.1, or 10%")
    return float(value)


def shown_bytes(num_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if num_bytes < 1000 or unit == "TB":
            break
        num_bytes /= 1000
    return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"


def shown_count(number: float) -> str:
    """A large number in three or four digits: 1.23B."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if number >= size:
            return f"{number / size:{'.3g' if number < 999.5 * size else '.0f'}}{unit}"
    return f"{number:.0f}"


def shown_rate(bytes_per_second: float) -> str:
    """A speed in megabytes, with only significant digits: 250 MB/s, 3.1 MB/s."""
    if bytes_per_second >= 10e6:
        return f"{bytes_per_second / 1e6:,.0f} MB/s"
    return f"{shown_bytes(bytes_per_second)}/s"


def shown_duration(seconds: float) -> str:
    """A time in its two largest units: 4.2 s, 12 min 3 s, 2 h 5 min, 3 d 4 h."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    for name, size, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60)):
        if round(seconds / part) * part >= size:
            whole, rest = divmod(round(seconds / part), size // part)
            return f"{whole:,} {name} {rest} {smaller}" if rest else f"{whole:,} {name}"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
