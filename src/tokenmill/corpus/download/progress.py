"""What can be seen of a download while it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """A download at one moment. Bytes that earlier attempts left here count as arrived."""

    num_bytes: int  # arrived
    total_bytes: int
    num_files: int  # complete, hash compared
    total_files: int
    num_connections: int  # that bytes arrive over now
    bytes_per_second: float  # of late; 0: nothing arrives
