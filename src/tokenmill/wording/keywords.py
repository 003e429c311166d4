"""Errors for arguments with a wrong name or type; for a wrong name, with a suggestion."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tokenmill.errors import ArgumentError
from tokenmill.wording.argument_types import described, fits, shown
from tokenmill.wording.synonyms import option_meant

_P = ParamSpec("_P")
_R = TypeVar("_R")
# Options that exist only on the command line, and how Python says the same.
_PYTHON_SPELLING = {
    "no_val": "val='none'",
    "val_first_shard": "val='first-shard'",
    "no_keep_downloads": "keep_downloads=False",
}


def suggesting(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorator: arguments with a wrong name or type raise an ArgumentError, with a suggestion."""
    signature = inspect.signature(function)
    name = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def checked(*args: _P.args, **options: _P.kwargs) -> _R:
        for option in options:
            if option not in signature.parameters:
                known = [p for p in signature.parameters if p != "self"]
                raise ArgumentError(_message(name, option, known))
        try:
            given = signature.bind(*args, **options).arguments
        except TypeError as error:
            raise ArgumentError(f"{name}(): {error}", hint=f"help(tokenmill.{name})") from None
        hints = _hints(function)
        for argument, value in given.items():
            if argument in hints and not fits(value, hints[argument]):
                what = f"{argument} takes {described(hints[argument])}, got {shown(value)}"
                raise ArgumentError(f"{name}(): {what}")
        return function(*args, **options)

    return checked


@functools.cache
def _hints(function: Callable[..., object]) -> dict[str, object]:
    return typing.get_type_hints(function)


def _message(name: str, option: str, known: list[str]) -> str:
    message = f"{name}() has no argument {option!r}"
    if option in _PYTHON_SPELLING and "val" in known:
        return f"{message}; write {_PYTHON_SPELLING[option]}"
    meant = option_meant(option, known)
    if meant is not None:
        return f"{message}; did you mean {meant!r}?"
    return f"{message}; there are {', '.join(known)}"
