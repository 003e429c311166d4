"""A named source: a part of the corpus that is counted separately and may override options.

A user writes a path, several paths, or a table of `paths`, `repeat` and options.
`Config.by_source` resolves the options.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenmill.errors import ConfigError
from tokenmill.wording.quantities import share_of
from tokenmill.wording.synonyms import option_meant

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
MAX_REPEAT = 1000  # each copy adds its own slices to the plan
# Fields of Config that a source may override.
OWN_OPTIONS = ("text_column", "template", "lists", "separator", "input_format", "where", "sample")
# Values that unset an option of the whole run for one source: TOML has no null.
UNSET: dict[str, Any] = {"template": "", "separator": "", "where": "", "sample": 1.0}
KEYS = ("paths", "repeat", *OWN_OPTIONS)


@dataclass(frozen=True, slots=True)
class NamedSource:
    name: str
    paths: tuple[str, ...] = ()  # files, folders, globs, URLs; `finish` and `verify` have none
    repeat: int = 1  # how many times each of its documents is written
    options: tuple[tuple[str, Any], ...] = ()  # (name, value) of overridden options

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ConfigError(
                f"a source cannot be named {self.name!r}",
                hint="a letter, then letters, digits, - and _: web=corpus/web/",
            )
        if type(self.repeat) is not int or not 1 <= self.repeat <= MAX_REPEAT:
            raise ConfigError(
                f"source {self.name}: repeat is a whole number from 1 to {MAX_REPEAT:,}, got "
                f"{self.repeat!r}",
                hint="repeat = 2 writes every document twice; sample = 0.5 takes half of the rows",
            )

    @staticmethod
    def from_user(name: str, given: Any) -> NamedSource:
        """The source that a user wrote as a path, several paths, or a table."""
        table = dict(given) if isinstance(given, Mapping) else {"paths": given}
        for key in table:
            if key not in KEYS:
                raise unknown_key(name, key)
        paths = table.pop("paths", None)
        if paths is None or paths in ("", []):
            raise ConfigError(
                f"source {name} has no paths",
                hint=f'{name}=corpus/{name}/ on the command line, or paths = "corpus/{name}/"',
            )
        is_one = isinstance(paths, (str, os.PathLike)) or not isinstance(paths, Iterable)
        some: list[Any] = [paths] if is_one else list(paths)
        if not all(isinstance(path, (str, os.PathLike)) for path in some):
            raise ConfigError(
                f"source {name} is a path, several paths or a table, got {paths!r}",
                hint=f'{{"{name}": "corpus/{name}/"}}',
            )
        repeat = table.pop("repeat", 1)
        if table.get("sample") is not None:
            table["sample"] = _share(name, table["sample"])
        options = tuple((key, value) for key, value in table.items() if value is not None)
        return NamedSource(name, tuple(map(os.fspath, some)), repeat, options)

    @staticmethod
    def all_from(plain: Any) -> tuple[NamedSource, ...]:
        """The sources of an identity, or of `dataclasses.asdict`."""
        if not isinstance(plain, Mapping):
            return tuple(
                one
                if isinstance(one, NamedSource)
                else NamedSource(
                    one["name"], tuple(one["paths"]), one["repeat"], _pairs(one["options"])
                )
                for one in plain
            )
        tables = {name: dict(table) for name, table in plain.items()}
        found = sorted(tables, key=lambda name: int(tables[name].pop("place")))
        repeats = {name: tables[name].pop("repeat", 1) for name in found}
        return tuple(
            NamedSource(name, (), repeats[name], _pairs(tables[name].items())) for name in found
        )

    def identity(self, place: int) -> dict[str, Any]:
        """What determines the bytes, besides the inputs."""
        repeat = {"repeat": self.repeat} if self.repeat > 1 else {}
        return {"place": place, **repeat, **dict(self.options)}


def _share(name: str, value: Any) -> float:
    try:
        return share_of("--sample", value)
    except ConfigError as error:
        raise ConfigError(f"source {name}: {error.message}", hint=error.hint) from None


def _pairs(options: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((str(name), value) for name, value in options if name in OWN_OPTIONS)


def unknown_key(name: str, key: str) -> ConfigError:
    meant = option_meant(key, KEYS)
    return ConfigError(
        f"source {name}: unknown option {key!r}",
        hint=f"did you mean {meant!r}?" if meant else f"a source has {', '.join(KEYS)}",
    )
