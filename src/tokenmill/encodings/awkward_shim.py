"""A shim for awkward: the five functions that gigatoken calls, on Arrow buffers.

gigatoken's binding takes strings as an awkward array, and calls awkward to unpack it
(`without_parameters`, `flatten`, `num`, `to_numpy`) and to assemble the ids (`unflatten`). That
takes 0.8 ms per call, and importing awkward 0.1 to 0.2 s per process: 6 % of a run over 1 GB.

gigatoken imports awkward in every call, so the shim replaces that module only during a call. Even
so, only our own processes do that (`enable`): in a user's process, another thread might import
awkward at that moment. Without it, or if gigatoken calls another function, awkward itself is used.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_is_enabled = False


def enable() -> None:
    """Use the shim in this process. Only for processes that run nothing but our code."""
    global _is_enabled  # noqa: PLW0603
    _is_enabled = True


def encode_batch(
    tokenizer: Any, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """gigatoken's ids of the documents `data[offsets[i]:offsets[i + 1]]`, and their offsets.

    The ids are in gigatoken's buffer, which may be twice as large as needed.
    """
    if not _is_enabled:
        return _by_awkward(tokenizer, data, offsets)
    import numpy as np

    try:
        with _shimmed():
            ids, lengths = tokenizer.encode_batch(_Strings(data, offsets), parallel=False)
    except AttributeError:  # it called another function
        return _by_awkward(tokenizer, data, offsets)
    ends = np.zeros(len(offsets), np.int64)
    np.cumsum(lengths, out=ends[1:])
    return ids, ends


@contextlib.contextmanager
def _shimmed() -> Iterator[None]:
    before = sys.modules.get("awkward")
    sys.modules["awkward"] = _SHIM
    try:
        yield
    finally:
        if before is None:
            del sys.modules["awkward"]
        else:
            sys.modules["awkward"] = before


@dataclass(frozen=True, slots=True)
class _Strings:
    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    def lengths(self) -> npt.NDArray[np.int64]:
        import numpy as np

        return np.diff(self.offsets)

    def characters(self) -> npt.NDArray[np.uint8]:
        return self.data[self.offsets[0] : self.offsets[-1]]


def _shim() -> types.ModuleType:
    module = types.ModuleType("awkward")
    functions = {
        "Array": _Strings,
        "without_parameters": lambda strings: strings,
        "flatten": lambda strings: strings.characters(),
        "num": lambda strings: strings.lengths(),
        "to_numpy": lambda array: array,
        "unflatten": lambda ids, lengths: (ids, lengths),
    }
    module.__dict__.update(functions)
    return module


_SHIM = _shim()


def _by_awkward(
    tokenizer: Any, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    import awkward as ak

    characters = ak.contents.NumpyArray(
        data[offsets[0] : offsets[-1]], parameters={"__array__": "char"}
    )
    index = ak.index.Index64(offsets - offsets[0])
    strings = ak.contents.ListOffsetArray(index, characters, parameters={"__array__": "string"})
    layout = tokenizer.encode_batch(ak.Array(strings), parallel=False).layout
    return layout.content.data, layout.offsets.data.copy()
