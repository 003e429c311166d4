"""Every argument of every public function, with values that it cannot take: the error is ours and
names the argument, whatever the value."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenmill
from tokenmill.config.arguments import described, fits
from tokenmill.errors import ArgumentError, ConfigError

CALLS: dict[str, dict[str, Any]] = {
    "prepare": {"sources": "corpus", "out": "out"},
    "estimate": {"sources": "corpus"},
    "convert": {"source": "data", "out": "out", "format": "npy"},
    "verify": {"folder": "data"},
    "open": {"path": "data"},
    "pack": {"dataset": "data", "seq_len": 8},
    "push": {"folder": "data", "repo": "me/mine"},
    "Loader": {"sources": "data", "seq_len": 8, "batch_size": 2},
    "Tokenize": {"tokenizer": "gpt2"},
    "get_encoding": {"name": "gpt2"},
}
NOT_CALLED = {"Config", "Encoding", "Estimate", "Manifest", "VerifyReport", "__version__"}


class Strange:
    def __repr__(self) -> str:
        raise RuntimeError("a repr that fails")


# None of them is anything's: a wrong value for every argument, except where it takes None or bool.
WRONG = (3.25, b"bytes", object(), Strange(), [[1]], {1: 2}, int, None, True)


def hints(name: str) -> dict[str, Any]:
    function = getattr(tokenmill, name)
    found = function.__init__ if isinstance(function, type) else function
    given = typing.get_type_hints(inspect.unwrap(found))
    return {key: hint for key, hint in given.items() if key not in ("self", "return")}


def test_calls_when_a_public_function_is_new_then_it_is_here():
    errors = {name for name in tokenmill.__all__ if name.endswith("Error")}
    assert {*CALLS, *NOT_CALLED} == set(tokenmill.__all__) - errors


@pytest.mark.parametrize("name", CALLS)
def test_argument_when_its_type_is_wrong_then_the_error_names_it(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    num_refused = 0
    for argument, hint in hints(name).items():
        for value in WRONG:
            if fits(value, hint):
                continue
            with pytest.raises(ArgumentError) as caught:
                getattr(tokenmill, name)(**{**CALLS[name], argument: value})
            assert f"{name}(): {argument} takes " in str(caught.value)
            num_refused += 1
    assert num_refused >= 4 * len(hints(name))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: tokenmill.prepare(3, "out"),
            "sources takes a path or a list (of a path) or a dict",
        ),
        (lambda: tokenmill.Loader("a", seq_len=8, batch_size=1, weights=[1, 2]), "a dict of a num"),
        (lambda: tokenmill.open(None), "path takes a path, got None (NoneType)"),
        (lambda: tokenmill.prepare("a"), "missing a required argument: 'out'"),
        (lambda: tokenmill.prepare("a", "b", "gpt2"), "too many positional arguments"),
        (lambda: tokenmill.verify("a", num_proc="many"), "num_proc takes a whole number or None"),
        (lambda: tokenmill.get_encoding("gpt2", patern="x"), "did you mean 'pattern'"),
        (lambda: tokenmill.prepare("a", "b", keep=[1]), "keep takes text or a list (of text) or N"),
        (
            lambda: tokenmill.Config(sources=3, out="b"),
            "sources takes a path, or a list of paths",
        ),
        (lambda: tokenmill.Config(sources="a", out=3), "out takes a path, got 3"),
        (
            lambda: tokenmill.Config(sources="a", out="b", tokenizer=3),
            "--tokenizer takes a name or a path",
        ),
    ],
)
def test_mistake_when_made_then_it_is_said_in_words(call, said):
    with pytest.raises(ConfigError) as caught:
        call()
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (np.int64(3), int),
        (np.float32(0.5), float | None),
        (1e8, int | str),
        (Path("a"), hints("open")["path"]),
        (iter(["a"]), hints("prepare")["sources"]),
        ({"web": {"paths": "a"}}, hints("prepare")["sources"]),
        ([[0, 5], (7, 9)], hints("Loader")["skip"]),
        ([("50B", {"web": 1})], hints("Loader")["stages"]),
        ({"web": True}, hints("Loader")["packed"]),
    ],
)
def test_value_when_python_would_take_it_then_it_fits(value, hint):
    assert fits(value, hint), described(hint)
