"""Opens inputs for pyarrow: local files directly, objects in ranges.

pyarrow does not wrap exceptions from a Python file, so a network failure stays one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager

import pyarrow as pa

from tokenmill.corpus.opening import ranged_file, unreadable_input
from tokenmill.corpus.spans import Input
from tokenmill.storage.range_reader import Range

Expect = Callable[[Iterable[Range]], None]


@contextmanager
def native_file(source: Input, is_mapped: bool = False) -> Iterator[tuple[pa.NativeFile, Expect]]:
    """The file, and a function that announces the ranges to be read."""
    ranged = ranged_file(source)
    if ranged is not None:
        with closing(ranged), pa.PythonFile(ranged, mode="r") as file:
            yield file, ranged.expect
        return
    try:
        file = pa.memory_map(source.path) if is_mapped else pa.OSFile(source.path)
    except (OSError, pa.ArrowException) as error:
        raise unreadable_input(source, error) from error
    with file:
        yield file, lambda ranges: None
