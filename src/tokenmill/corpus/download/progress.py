"""The progress of a download."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """A download at one moment. Bytes that earlier attempts left here count as arrived."""

    num_bytes: int  # arrived
    total_bytes: int
    num_files: int  # complete, hash compared
    total_files: int
    num_connections: int  # with a request in flight
    bytes_per_second: float  # recently; 0: nothing arrives
