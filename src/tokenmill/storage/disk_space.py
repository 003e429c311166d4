"""Free space on the disks of this machine."""

from __future__ import annotations

import os
import shutil

from tokenmill.storage.scratch import temporary_folder
from tokenmill.storage.store import store_of


def disk_folder(path: str) -> str:
    """The folder whose disk fills up when `path` is written; for an object store, where its uploads
    are staged."""
    return path if store_of(path).is_local else temporary_folder()


def free_bytes(path: str) -> int:
    """Free space where `path` is or would be."""
    return shutil.disk_usage(_nearest(disk_folder(path))).free


def on_one_disk(path: str, other: str) -> bool:
    """Whether both paths are, or would be, on the same file system."""
    if not (store_of(path).is_local and store_of(other).is_local):
        return False
    return os.stat(_nearest(path)).st_dev == os.stat(_nearest(other)).st_dev


def _nearest(path: str) -> str:
    """The path, or its nearest existing parent."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
