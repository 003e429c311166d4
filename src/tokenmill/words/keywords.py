"""An error for a wrong keyword argument that suggests the right one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tokenmill.words.synonyms import option_meant

_P = ParamSpec("_P")
_R = TypeVar("_R")
# Options that exist only on the command line.
_SPELLED = {
    "no_val": "val='none'",
    "val_first_shard": "val='first-shard'",
    "no_keep_downloads": "keep_downloads=False",
}


def suggesting(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same function; an unknown keyword raises a TypeError that suggests one."""
    parameters = inspect.signature(function).parameters
    name = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def checked(*args: _P.args, **options: _P.kwargs) -> _R:
        for option in options:
            if option not in parameters:
                raise TypeError(_message(name, option, [p for p in parameters if p != "self"]))
        return function(*args, **options)

    return checked


def _message(name: str, option: str, known: list[str]) -> str:
    message = f"{name}() has no argument {option!r}"
    if option in _SPELLED and "val" in known:
        return f"{message}; write {_SPELLED[option]}"
    meant = option_meant(option, known)
    if meant is not None:
        return f"{message}; did you mean {meant!r}?"
    return f"{message}; there are {', '.join(known)}"
