"""How far a command without slices is, for a person: one moving line on a terminal, an occasional
line elsewhere. A run's own is progress.py.
"""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from tokenmill.cli.screen import shown_seconds

_SHOW_SECONDS = {True: 0.1, False: 5.0}  # how often, on a terminal and elsewhere


class MovingLine:
    def __init__(self, stream: TextIO, quiet: bool) -> None:
        self._stream = stream
        self._quiet = quiet
        self._is_terminal = stream.isatty()
        self._began = self._shown_at = time.monotonic()
        self._what = ""
        self._is_shown = False

    def show(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self._what:
            self._what, self._began = what, now
        if self._quiet or now - self._shown_at < _SHOW_SECONDS[self._is_terminal]:
            return
        self._shown_at = now
        share = min(1.0, done / total) if total else 0.0
        left = (now - self._began) * (1 - share) / share if share else 0.0
        line = f"{what}  {share:4.0%}  {shown_seconds(left)} left"
        if self._is_terminal:
            line = line[: shutil.get_terminal_size().columns - 1]
            self._stream.write(f"\r{line}\x1b[K")
            self._is_shown = True
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def end(self) -> None:
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_shown = False
