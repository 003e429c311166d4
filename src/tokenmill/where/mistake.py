"""The error for a mistake in an expression or a template."""

from __future__ import annotations

from tokenmill.errors import ConfigError

SHOWN = 100  # characters of the text around a mistake


def mistake(
    text: str, what: str, start: int, stop: int, hint: str | None = None, option: str = "--where"
) -> ConfigError:
    """A ConfigError that shows the option's text with carets under the mistake."""
    first = max(0, start - SHOWN // 2)
    shown = "".join(c if c.isprintable() else " " for c in text[first : first + SHOWN])
    before = "... " if first else ""
    carets = "^" * max(1, min(stop, first + SHOWN) - start)
    place = " " * (len(before) + start - first)
    return ConfigError(f"{option}: {what}\n  {before}{shown}\n  {place}{carets}", hint=hint)
