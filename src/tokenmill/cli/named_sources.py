"""`web=corpus/web/`: sources with a name, as they are typed.

A word that is a file, a folder or a glob here is that, as `year=2024/` often is; a name is only
what could be nothing else.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence

from tokenmill.config.named_source import NAME
from tokenmill.errors import ConfigError


def typed_sources(words: Sequence[str]) -> dict[str, dict[str, str]] | list[str]:
    """Named sources as tables, or a list of sources without names."""
    found: dict[str, dict[str, str]] = {}
    others: list[str] = []
    for word in words:
        name, path = _parted(word)
        if not name:
            others.append(word)
            continue
        if name in found:
            raise ConfigError(
                f"two sources are named {name}: {found[name]['paths']} and {path}",
                hint=f"two names, or in a tokenmill.toml: [source.{name}] "
                f'paths = ["{found[name]["paths"]}", "{path}"]',
            )
        found[name] = {"paths": path}
    if found and others:
        raise ConfigError(
            f"{others[0]} has no name, and other sources have one",
            hint=f"give it one: NAME={others[0]}",
        )
    return found or others


def _parted(word: str) -> tuple[str, str]:
    """The name and what it stands for; no name if there is none."""
    name, equals, path = word.partition("=")
    if not equals or not NAME.fullmatch(name) or (_is_here(word) and not _is_here(path)):
        return "", word
    if not path:
        raise ConfigError(f"source {name} has no path", hint=f"{name}=corpus/{name}/")
    if _is_here(word):
        raise ConfigError(
            f"{word} may be the file of that name, or {path} as a source named {name}",
            hint=f"for the file: ./{word}; for the source: {name}=./{path}",
        )
    return name, path


def _is_here(path: str) -> bool:
    return os.path.lexists(path) or (glob.has_magic(path) and any(glob.iglob(path)))
