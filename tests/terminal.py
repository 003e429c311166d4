"""A program on a terminal that a test reads to its end."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence


def shown_on_terminal(
    command: Sequence[str], stream: str, environment: Mapping[str, str] | None = None
) -> str:
    """What a program writes if its `stream`, stdout or stderr, is a terminal. It must succeed."""
    leader, follower = pty.openpty()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: follower}
    env = {**os.environ, **(environment or {})}
    process = subprocess.Popen([*command], env=env, **streams)
    os.close(follower)
    seen = b""
    while data := _some(leader):
        seen += data
    os.close(leader)
    assert process.wait() == 0
    return seen.decode()


def _some(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that nobody writes to it any more
        return b""
