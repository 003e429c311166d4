"""Plugins: formats, readers and encodings of other packages, found by their entry points.

    [project.entry-points."tokenmill.formats"]
    mine = "my_package:MyFormat"

The groups are `tokenmill.formats`, `tokenmill.readers` and `tokenmill.encodings`. A package's code
is imported only when its name is used; builtin names cannot be overridden.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tokenmill.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def plugin_names(group: str) -> tuple[str, ...]:
    return tuple(sorted(_found(group)))


def loaded_plugin(group: str, name: str) -> Any:
    """The object that an entry point names. Raises ConfigError if its package does not load."""
    entry = _found(group)[name]
    try:
        return entry.load()
    except Exception as error:
        raise ConfigError(
            f"{name} ({entry.value}, entry point group {group}) does not load: {error!r}",
            hint="fix or uninstall the package that adds it",
        ) from error


@functools.cache
def _found(group: str) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # 15 ms, in each worker

    return {entry.name: entry for entry in entry_points(group=group)}
