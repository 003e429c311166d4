"""A special token as a user names it: TEXT, ID, or TEXT=ID."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tokenmill.errors import ConfigError


def parsed_special(asked: str) -> tuple[str | None, int | None]:
    """The text and the id that were given; None for the one that was not."""
    if asked.isdecimal():
        return None, int(asked)
    if both := re.fullmatch(r"(.+)=(\d{1,9})", asked, re.DOTALL):
        return both[1], int(both[2])
    return asked, None


def special_named(
    asked: str, special_tokens: Mapping[str, int], where: str, option: str = "--eot-token"
) -> str:
    """The text of the special token that was asked for. Raises ConfigError if there is none."""
    if asked in special_tokens:
        return asked
    text, token = parsed_special(asked)
    for known, its_id in special_tokens.items():
        if text in (None, known) and token == its_id:
            return known
    if text is not None and text in special_tokens:
        raise ConfigError(
            f"{where}: {text} has the id {special_tokens[text]}, not {token}",
            hint=f"{option} '{text}'",
        )
    known_names = ", ".join(list(special_tokens)[:40]) or "none"
    raise ConfigError(f"{where}: no special token {asked!r}; it has: {known_names}")


def eot_named(asked: str | None, specials: Mapping[str, int], where: str) -> str:
    """The text of the special token that ends a document. `asked`: the one that the user names, by
    text or id, or a usual one. Raises ConfigError if it is None or not a special token."""
    if asked is None:
        known = ", ".join(list(specials)[:40]) or "none"
        raise ConfigError(
            f"{where}: which special token ends a document? none has a usual name; it has: {known}",
            hint="--eot-token TEXT (or get_encoding(path, eot=TEXT))",
        )
    return special_named(asked, specials, where)
