"""What was left on disk, compared with what must be there: documents, not words of the tool.

The tool's own reader opens the folder and hands over the tokens. They are cut at the end-of-text
token and looked up among the oracle's documents; whatever is not one of those is extra.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

EOT = 50256
MAX_LINE = 240
# What a line must say to name the cause of a fault.
CAUSES = {
    "byte": r"UnicodeDecodeError|invalid UTF-8|[1-9]\d* quarantined",
    "worker": r"SIGKILL|signal 9|\bwas killed|out of memory|\bOOM\b",
    "disk": r"No space left|disk full|disk is full|File too large|ENOSPC",
    "exception": r"the user's code cannot handle \[document \d+\]",
}


@dataclass(frozen=True)
class Left:
    """What a reader makes of an output folder."""

    opens: bool
    refusal: str = ""
    num_tokens: int = 0
    num_eot: int = 0
    num_missing: int = 0  # documents
    num_extra: int = 0
    missing_tokens: float = 0.0  # share
    sha256: str = ""

    @property
    def is_whole(self) -> bool:
        return self.opens and not self.num_missing and not self.num_extra

    @property
    def is_half(self) -> bool:
        return self.opens and not self.is_whole

    def to_plain(self) -> dict[str, Any]:
        plain = {name: value for name, value in asdict(self).items() if value or name == "opens"}
        return plain | {"is_whole": self.is_whole}


def documents_of(tokens: np.ndarray) -> Counter[bytes]:
    ends = np.flatnonzero(tokens == EOT) + 1
    raw, found, start = tokens.tobytes(), Counter[bytes](), 0
    for end in ends.tolist():
        found[raw[2 * start : 2 * end]] += 1
        start = end
    if start < len(tokens):
        found[raw[2 * start :]] += 1
    return found


def look(
    command: list[str], environment: dict[str, str], tokens: str, expected: Counter[bytes]
) -> Left:
    """Run the reader, which writes what it reads as uint16 to `tokens`, and compare."""
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        return Left(False, last_lines(done.stdout + done.stderr, 1)[0])
    ids = np.fromfile(tokens, np.uint16)
    os.unlink(tokens)
    found = documents_of(ids)
    missing, extra = expected - found, found - expected
    all_bytes = sum(len(document) * count for document, count in expected.items())
    lost_bytes = sum(len(document) * count for document, count in missing.items())
    return Left(
        opens=True,
        num_tokens=len(ids),
        num_eot=int((ids == EOT).sum()),
        num_missing=missing.total(),
        num_extra=extra.total(),
        missing_tokens=lost_bytes / all_bytes,
        sha256=hashlib.sha256(ids.tobytes()).hexdigest()[:16],
    )


def last_lines(said: str, count: int) -> list[str]:
    """The end of what was printed, legible: no colours, no progress bars, no endless lines."""
    said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)
    lines = [line.rsplit("\r", 1)[-1].rstrip() for line in said.splitlines()]
    lines = [line[:MAX_LINE] for line in lines if line.strip() and "%|" not in line]
    return lines[-count:] or [""]


def naming_line(cause: str | None, said: str) -> str:
    """The last line that names the cause; empty if there is none."""
    lines = [line for line in said.splitlines() if cause and re.search(cause, line)]
    return last_lines(lines[-1], 1)[0] if lines else ""
