"""Files by path or URL: each call goes to the store of its path.

store.py states what each call promises. All paths of a list belong to one store.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tokenmill.storage.new_file import NewFile
from tokenmill.storage.store import RangeRead, store_of


def read_file(path: str) -> bytes:
    return store_of(path).read_file(path)


def read_files(paths: Sequence[str]) -> Iterator[bytes | None]:
    return store_of(paths[0]).read_files(paths) if paths else iter(())


def read_in_order(path: str, start: int, stop: int, block_bytes: int) -> Iterator[bytes]:
    return store_of(path).read_in_order(path, start, stop, block_bytes)


def read_ranges(path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    with range_reader(path) as read:
        return read(ranges)


def range_reader(path: str) -> AbstractContextManager[RangeRead]:
    return store_of(path).range_reader(path)


def wait_for(path: str) -> None:
    store_of(path).wait_for(path)


def size(path: str) -> int | None:
    return store_of(path).size(path)


def sizes(paths: Sequence[str]) -> list[int | None]:
    return list(store_of(paths[0]).mapped(size, paths)) if paths else []


def modified_ns(path: str) -> int:
    return store_of(path).modified_ns(path)


def exists(path: str) -> bool:
    return store_of(path).exists(path)


def is_irregular(path: str) -> bool:
    return store_of(path).is_irregular(path)


def names_below(folder: str) -> list[str]:
    return store_of(folder).names_below(folder)


def entries(folder: str) -> list[str]:
    return store_of(folder).entries(folder)


def new_file(folder: str, name: str, hasher: Any = None, is_durable: bool = True) -> NewFile:
    return store_of(folder).new_file(folder, name, hasher, is_durable)


def write_file(path: str, data: bytes, is_durable: bool = True) -> None:
    store_of(path).write_file(path, data, is_durable)


def create_file(path: str, data: bytes) -> bool:
    return store_of(path).create_file(path, data)


def swap_file(path: str, old: bytes | None, data: bytes) -> bool:
    return store_of(path).swap_file(path, old, data)


def write_record(path: str, data: bytes, is_durable: bool = True) -> None:
    store_of(path).write_record(path, data, is_durable)


def sync_files(folder: str, names: Iterable[str]) -> None:
    store_of(folder).sync_files(folder, names)


def make_folder(path: str) -> None:
    store_of(path).make_folder(path)


def make_folder_of(path: str) -> None:
    """Make the folder of a local file, if it is missing. One that is there costs no sync, which may
    have to wait for all that is being written to the disk."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        make_folder(folder)


def make_work_folders(work: str, names: Iterable[str]) -> None:
    store_of(work).make_work_folders(work, names)


def remove(path: str) -> None:
    store_of(path).remove(path)


def remove_all(paths: Sequence[str]) -> None:
    if paths:
        store_of(paths[0]).remove_all(paths)


def remove_folder(path: str) -> None:
    store_of(path).remove_folder(path)


def remove_empty_folder(path: str) -> None:
    store_of(path).remove_empty_folder(path)
