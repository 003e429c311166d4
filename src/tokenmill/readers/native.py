"""Inputs opened for pyarrow: files of the disk by its own means, objects through ranged.py.

pyarrow hands an exception of a Python file on as it is, so a network's failure arrives as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager

import pyarrow as pa

from tokenmill.corpus import Input
from tokenmill.objectstore import is_url
from tokenmill.ranged import Range, RangedFile, unreadable

Expect = Callable[[Iterable[Range]], None]


@contextmanager
def native_file(source: Input, is_mapped: bool = False) -> Iterator[tuple[pa.NativeFile, Expect]]:
    """The file, and how to say which ranges of it will be read."""
    if is_url(source.path):
        with closing(RangedFile(source)) as ranged, pa.PythonFile(ranged, mode="r") as file:
            yield file, ranged.expect
        return
    try:
        file = pa.memory_map(source.path) if is_mapped else pa.OSFile(source.path)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(source, error) from error
    with file:
        yield file, lambda ranges: None
