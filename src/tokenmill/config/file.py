"""`tokenmill.toml`: the options of a run in a file, for `--config`.

    tokenizer = "gpt2"                  the options of Config; numbers may be "100M"
    shuffle = true

    [source.web]                        a named source: its paths, repeat, and its own options
    paths = "corpus/web/"

Errors name the line. tomllib does not report the lines of values, so `line_of` searches for a key
only when there is an error: the last line that contains the key's text, and above which the file
parses without that key.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenmill.config.kinds import ESCAPE, unescaped
from tokenmill.config.names import option_meant
from tokenmill.config.options import (
    OPTIONS,
    SOURCE_KEYS,
    SOURCE_NAME,
    NamedSource,
    unknown_key,
)
from tokenmill.errors import ConfigError

MAX_BYTES = 2 << 20  # the limit of a Linux command line: any list of sources fits
_COMMAND_LINE_ONLY = ("config", "partition", "dry_run", "json", "quiet", "verbose")
_MOST_LINES = 100  # candidates tried for the line of a key
_MOST_BYTES = 1 << 20  # parsed while trying them
# tomllib takes quadratic time for a key of many parts; ours have at most three.
_DEEP_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){20}""")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    path: str
    text: str
    options: dict[str, Any]  # of Config
    tables: dict[str, dict[str, Any]]  # of named sources, in order

    @staticmethod
    def read(path: str) -> ConfigFile:
        """Raises ConfigError with the line at fault."""
        text = _text_of(path)
        plain = _parsed(path, text)
        sources = plain.pop("source", {})
        file = ConfigFile(path, text, plain, {})
        for key, value in plain.items():
            file._require_option(key, value)
        if not isinstance(sources, dict):
            raise file.error(("source",), "source must be a table", "[source.web]")
        for name, table in sources.items():
            file.tables[name] = file._source(name, table)
        if sources and "sources" in plain:
            what = "some sources have a name and some have none"
            raise file.error(("sources",), what, "name each source: [source.web]")
        return file

    def completed(self, typed: Mapping[str, Any]) -> dict[str, Any]:
        """The options that were typed, and the file's for the rest. Sources are a list, or a
        mapping if they have names."""
        instead_of = {OPTIONS[name].instead_of for name in typed} - {""}
        kept = {n: v for n, v in self.options.items() if OPTIONS[n].instead_of not in instead_of}
        given = {**kept, **typed}
        sources = typed.get("sources")
        if self.tables and sources and not isinstance(sources, Mapping):
            raise ConfigError(
                f"{sources[0]} has no name, and {self.path} has named sources",
                hint=f"name it: {next(iter(self.tables))}={sources[0]}",
            )
        if self.tables:
            tables = {n: {**self.tables.get(n, {}), **t} for n, t in (sources or {}).items()}
            given["sources"] = {
                **tables,
                **{n: t for n, t in self.tables.items() if n not in tables},
            }
        return given

    def error(self, keys: tuple[str, ...], what: str, hint: str | None = None) -> ConfigError:
        line = self.line_of(keys)
        return ConfigError(f"{self.path}{f', line {line}' if line else ''}: {what}", hint=hint)

    def line_of(self, keys: tuple[str, ...]) -> int | None:
        """The line of a key, counted from 1; None if it is not found."""
        lines = self.text.split("\n")
        found = [number for number, line in enumerate(lines) if keys[-1] in line]
        num_bytes = 0
        for number in reversed(found[:_MOST_LINES]):
            text = "\n".join(lines[:number])
            num_bytes += len(text)
            if num_bytes > _MOST_BYTES:
                break
            with contextlib.suppress(ConfigError):
                if _value_at(_parsed(self.path, text), keys) is None:
                    return number + 1
        return None

    def _source(self, name: str, table: Any) -> dict[str, Any]:
        keys = ("source", name)
        if not SOURCE_NAME.fullmatch(name):
            raise self.error(keys, f"a source cannot be named {name!r}", "[source.web]")
        own: dict[str, Any] = table if isinstance(table, dict) else {"paths": table}
        for key, value in own.items():
            if key not in SOURCE_KEYS:
                error = unknown_key(name, key)
                raise self.error((*keys, key), error.message, error.hint)
            try:
                NamedSource.from_user(name, {"paths": "-", key: value})
            except ConfigError as error:
                raise self.error((*keys, key), error.message, error.hint) from None
            self._require_escapes((*keys, key), value)
        return own

    def _require_option(self, key: str, value: Any) -> None:
        hint = None
        for option in OPTIONS.values():
            for flag, meant, _ in option.switches:
                if key == flag[2:].replace("-", "_"):
                    hint = f'write val = "{meant}"'
        if key == "pack":  # packing comes after the run
            found = value.get("seq_len") if isinstance(value, dict) else value
            seq_len = found if type(found) is int and found.bit_length() <= 64 else "N"
            hint = f"after the run: tokenmill pack OUT --seq-len {seq_len}"
        elif key in _COMMAND_LINE_ONLY:
            hint = f"--{key.replace('_', '-')} belongs on the command line"
        elif key not in OPTIONS and hint is None:
            meant_key = option_meant(key, [*OPTIONS, "source"])
            hint = (
                f"did you mean {meant_key!r}?" if meant_key else f"there are {', '.join(OPTIONS)}"
            )
        if hint is not None:
            raise self.error((key,), f"unknown key {key!r}", hint)
        if key == "sources" and isinstance(value, dict):
            raise self.error((key,), "sources must be a list", "did you mean [source.NAME]?")
        try:
            OPTIONS[key].kind.checked(key, value)
        except ConfigError as error:
            raise self.error((key,), error.message, error.hint) from None
        self._require_escapes((key,), value)

    def _require_escapes(self, keys: tuple[str, ...], value: Any) -> None:
        """Refuse an escape in single quotes, where TOML reads none: a template that is copied from
        a shell would put a backslash and an n into every document."""
        option = OPTIONS.get(keys[-1])
        if option is None or option.kind.typed is not unescaped:
            return
        found = ESCAPE.search(value)
        literal = rf"""(?m)^[^#\n]*\b{keys[-1]}["']?[ \t]*=[ \t]*'(?:''\n?)?{re.escape(value)}'"""
        if found and re.search(literal, self.text):
            what = f"{keys[-1]}: {found[0]} in single quotes is a backslash and what follows it"
            shown = "..." if '"' in value else value
            raise self.error(
                keys, what, f'TOML reads escapes in double quotes: {keys[-1]} = "{shown}"'
            )


def _text_of(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}",
            hint="`tokenmill inspect OUT --config` prints the configuration of a dataset",
        ) from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path} is not a configuration file: it is over {MAX_BYTES:,} bytes")
    try:
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: not UTF-8") from None


def _parsed(path: str, text: str) -> dict[str, Any]:
    try:
        if _DEEP_KEY.search(text):
            raise RecursionError
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply for a configuration") from None
    except ValueError as error:  # TOMLDecodeError, or a number of 5,000 digits
        place = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", str(error), re.DOTALL)
        if place is None:
            what = str(error).replace(" (at end of document)", " at its end")
            raise ConfigError(f"{path}: not TOML: {what}") from None
        hint = 'text is in quotes: tokenizer = "gpt2"' if place[1] == "Invalid value" else None
        raise ConfigError(f"{path}, line {place[2]}: not TOML: {place[1]}", hint=hint) from None


def _value_at(plain: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        plain = plain.get(key) if isinstance(plain, Mapping) else None
    return plain
