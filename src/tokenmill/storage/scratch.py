"""Scratch folders: local folders for temporary files, such as those to be uploaded."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import tempfile
import time
from collections.abc import Iterator

from tokenmill.errors import OutputError
from tokenmill.storage import disk

# With the machine's name: several may share the folder, and locks may hold on one machine only.
_MACHINE = re.sub(r"\W", "_", platform.node())
_SCRATCH_PREFIX = f"tokenmill-scratch-{_MACHINE}-"
_NEW_SECONDS = 60.0
_ELSEWHERE = "name a folder with room: mkdir -p ~/tmp && export TMPDIR=~/tmp"


def temporary_folder() -> str:
    """The machine's folder for temporary files. Raises OutputError if there is none."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:  # its message lists the folders that it tried
        raise OutputError(
            f"cannot write temporary files: {error.strerror}", hint=_ELSEWHERE
        ) from error


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """A local folder for temporary files. Each call removes the folders of this machine's killed
    processes, whose locks the kernel has released."""
    parent = temporary_folder()
    for name in disk.names_in(parent):
        if name.startswith(_SCRATCH_PREFIX):
            _remove_if_abandoned(os.path.join(parent, name))
    # Named first, so that a signal between the two steps leaves no folder.
    folder, fd = os.path.join(parent, _SCRATCH_PREFIX + os.urandom(8).hex()), -1
    try:
        disk.make_private_folder(folder, _ELSEWHERE)
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # no locks on this file system
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield folder
    finally:
        with contextlib.suppress(OutputError):
            disk.remove_folder(folder)
        if fd >= 0:
            os.close(fd)


def _remove_if_abandoned(folder: str) -> None:
    with contextlib.suppress(OSError, OutputError):  # another user's folder, or already removed
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A folder that was just created has no lock yet.
            if time.time() - os.fstat(fd).st_mtime > _NEW_SECONDS:
                disk.remove_folder(folder)
        finally:
            os.close(fd)
