"""A progress line: rewritten in place on a terminal or in a notebook, printed now and then
elsewhere."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from tokenmill.cli.screen import shown_count, shown_seconds

TERMINAL_SECONDS = 0.1
LOG_SECONDS = 5.0
NOTEBOOK_COLUMNS = 100


class MovingLine:
    """Shows nothing in the first `quick_seconds`; and only on a terminal or in a notebook, unless
    `is_logged`."""

    def __init__(
        self, stream: TextIO, quiet: bool = False, quick_seconds: float = 0, is_logged: bool = True
    ) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._is_moving = self._is_terminal or is_notebook(stream)
        self._is_off = quiet or not (self._is_moving or is_logged)
        self._every_seconds = TERMINAL_SECONDS if self._is_moving else LOG_SECONDS
        self._began = time.monotonic()
        self.shown_at = self._began + max(0, quick_seconds - self._every_seconds)
        self._what = ""
        self._shown_width = 0  # of the moving line

    def is_due(self, now: float) -> bool:
        return not self._is_off and now - self.shown_at >= self._every_seconds

    def show(self, what: str, done: int, total: int) -> None:
        """Show the share that is done, and the time left."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._began = what, now
        if self.is_due(now):
            share = min(1.0, done / total) if total else 0.0
            left = (now - self._began) * (1 - share) / share if share else 0.0
            self.write(now, [f"{what}  {share:4.0%}  {shown_seconds(left)} left"])

    def show_tokens(self, done: int, total: int) -> None:
        """Show how many tokens are done, and how fast."""
        now = time.monotonic()
        if self.is_due(now):
            speed = f"{shown_count(done / (now - self._began))} tokens/s"
            self.write(now, [f"{done / max(1, total):4.0%}  {shown_count(done)} tokens  {speed}"])

    def write(self, now: float, fields: list[str]) -> None:
        self.shown_at = now
        if not self._is_moving:
            self._stream.write("  ".join(fields) + "\n")
            self._stream.flush()
            return
        width = shutil.get_terminal_size().columns if self._is_terminal else NOTEBOOK_COLUMNS
        while len("  ".join(fields)) >= width and len(fields) > 1:
            fields.pop(-2)  # keep the share and the time left
        self._move("  ".join(fields)[: width - 1])

    def end(self) -> None:
        """Erase the line."""
        if self._shown_width:
            self._move("")

    def _move(self, text: str) -> None:
        """Replace the line by the text. The only control code that a notebook knows is `\\r`."""
        if self._is_terminal:
            self._stream.write(f"\r{text}\x1b[K")
        else:
            self._stream.write(f"\r{text:{self._shown_width}}" + ("" if text else "\r"))
        self._shown_width = len(text)
        self._stream.flush()


def is_notebook(stream: TextIO) -> bool:
    """Whether the stream is shown below a notebook's cell: Jupyter, Colab, VS Code."""
    return type(stream).__module__.partition(".")[0] == "ipykernel"
