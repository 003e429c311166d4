"""Errors for arguments with a wrong name or type, of functions that people call from notebooks.

A wrong name gets a suggestion. An argument is checked against its annotation, as leniently as
Python does: a NumPy integer is an int, an int is a float, a pair may be a list or a row of an
array. Only the first 100 elements of a list are checked.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import itertools
import os
import types
import typing
from collections.abc import Callable
from numbers import Real
from typing import Any, ParamSpec, SupportsIndex, TypeVar

from tokenmill.config.names import option_meant
from tokenmill.errors import ArgumentError

_MOST_ELEMENTS = 100
_WORDS: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    os.PathLike: "a path",
    types.NoneType: "None",
    Any: "anything",
}


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has the type of an annotation, which is already evaluated."""
    if hint is Any:
        return True
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in _CHECKS:
        return _CHECKS[kind](value, inner)
    if getattr(kind, "_is_protocol", False) and kind is not os.PathLike:
        return all(hasattr(value, name) for name in vars(kind) if not name.startswith("_"))
    return not isinstance(kind, type) or isinstance(value, kind)


def _fits_one(value: Any, inner: tuple[Any, ...]) -> bool:
    is_quantity = {int, str} <= set(inner) and isinstance(value, float)
    return any(fits(value, one) for one in inner) or (is_quantity and value.is_integer())


def _is_mapping(value: Any, inner: tuple[Any, ...]) -> bool:
    return isinstance(value, collections.abc.Mapping) and all(
        fits(key, inner[0]) and fits(one, inner[1]) for key, one in _first(value.items())
    )


def _is_pair(value: Any, inner: tuple[Any, ...]) -> bool:
    is_row = isinstance(value, (tuple, list)) or getattr(value, "ndim", 0) == 1  # of an array
    return is_row and len(value) == len(inner) and all(map(fits, value, inner))


def _are_all(value: Any, inner: tuple[Any, ...]) -> bool:
    is_some = isinstance(value, collections.abc.Iterable) and not isinstance(value, (str, bytes))
    is_stream = isinstance(value, collections.abc.Iterator)  # which is read once
    return is_some and (is_stream or all(fits(one, inner[0]) for one in _first(value)))


_CHECKS: dict[Any, Callable[[Any, tuple[Any, ...]], bool]] = {
    typing.Union: _fits_one,
    types.UnionType: _fits_one,
    bool: lambda value, _: type(value).__name__ in ("bool", "bool_"),
    int: lambda value, _: isinstance(value, SupportsIndex) and not isinstance(value, bool),
    float: lambda value, _: isinstance(value, Real) and not isinstance(value, bool),
    tuple: _is_pair,
    collections.abc.Mapping: _is_mapping,
    collections.abc.Iterable: _are_all,
    collections.abc.Sequence: _are_all,
}


def described(hint: Any) -> str:
    """The annotation in words, such as 'a path or None'."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, types.UnionType):
        if {str, os.PathLike} <= {typing.get_origin(one) or one for one in inner}:
            inner = tuple(one for one in inner if one is not str)
        return " or ".join(dict.fromkeys(map(described, inner)))
    if kind is collections.abc.Mapping:
        return f"a dict of {described(inner[1])} by name"
    if kind is tuple:
        return f"a pair ({', '.join(map(described, inner))})"
    if _CHECKS.get(kind) is _are_all:
        return f"a list (of {described(inner[0])})"
    return _WORDS.get(kind) or f"a {getattr(kind, '__name__', 'value')}"


def shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = "a value"
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return f"{text} ({type(value).__name__})"


def _first(values: Any) -> Any:
    return itertools.islice(values, _MOST_ELEMENTS)


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
