"""`web=corpus/web/`: sources with a name, on the command line.

A word that exists as a file, a folder or a glob is that path, as `year=2024/` often is; only
otherwise does it name a source.
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
        name, path = _name_and_path(word)
        if not name:
            others.append(word)
            continue
        if name in found:
            raise ConfigError(
                f"two sources are named {name}: {found[name]['paths']} and {path}",
                hint=f"use two names, or in a tokenmill.toml: [source.{name}] "
                f'paths = ["{found[name]["paths"]}", "{path}"]',
            )
        found[name] = {"paths": path}
    if found and others:
        raise ConfigError(
            f"{others[0]} has no name, and other sources have one",
            hint=f"name it: NAME={others[0]}",
        )
    return found or others


def _name_and_path(word: str) -> tuple[str, str]:
    """The name and the path; the name is empty if there is none."""
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
