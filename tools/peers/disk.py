"""A disk that is full at a chosen size: a small tmpfs where mounting is permitted, else a limit.

`in_own_namespace` starts the script again in mount and user namespaces of its own, in which anybody
may mount and nothing stays mounted afterwards. Where that is forbidden, RLIMIT_FSIZE caps the size
of each file: a write beyond it fails with EFBIG instead of ENOSPC.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable

NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
INSIDE = "PEER_FAULTS_NAMESPACE"


def in_own_namespace() -> None:
    """Returns only in the namespace, or where there cannot be one."""
    if INSIDE in os.environ or not shutil.which(NAMESPACE[0]):
        return
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0:
        os.environ[INSIDE] = "1"
        os.execvp(NAMESPACE[0], [*NAMESPACE, sys.executable, *sys.argv])


def kind() -> str:
    return "tmpfs" if INSIDE in os.environ else "RLIMIT_FSIZE"


class Disk:
    """A folder that holds `num_bytes`; None: as much as there is."""

    def __init__(self, folder: str, num_bytes: int | None) -> None:
        self.folder = folder
        self.num_bytes = num_bytes
        self.peak_bytes = 0
        os.makedirs(folder)
        if kind() == "tmpfs":
            size = "size=75%" if num_bytes is None else f"size={num_bytes}"
            subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], check=True)

    def make_room(self) -> None:
        self.num_bytes = None
        if kind() == "tmpfs":
            subprocess.run(["mount", "-o", "remount,size=75%", self.folder], check=True)

    def limit(self) -> Callable[[], None] | None:
        """To be called in the process before it begins."""
        if kind() == "tmpfs" or self.num_bytes is None:
            return None
        size = self.num_bytes
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    def look(self) -> None:
        """Keep what was in use at most: of the disk, or by the largest file."""
        if kind() == "tmpfs":
            found = os.statvfs(self.folder)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
        else:
            paths = (os.path.join(at, n) for at, _, names in os.walk(self.folder) for n in names)
            used = max((os.path.getsize(path) for path in paths if os.path.exists(path)), default=0)
        self.peak_bytes = max(self.peak_bytes, used)

    def remove(self) -> None:
        if kind() == "tmpfs":
            subprocess.run(["umount", self.folder], check=True)
        shutil.rmtree(self.folder)
