"""Xet storage in a folder: the real `hf_xet` puts files there and gets them from there.

`hf_xet` can be sent to a `local://` folder instead of a server. That has the chunks, xorbs and
shards of the real storage; only hf_xet's HTTP client is not in use. A xorb holds 64 MB. So that a
small file consists of several, its pieces are put there first, one by one, and hf_xet notices that
the file repeats them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PIECE_BYTES = 750_000
_UPLOAD = f"""
import sys, hf_xet
def hash_of(data):
    with hf_xet.XetSession().new_upload_commit(endpoint=sys.argv[1]) as commit:
        upload = commit.start_upload_bytes(data)
    return upload.result().xet_info.hash
for path in sys.argv[2:]:
    data = open(path, "rb").read()
    for start in range(0, len(data), {PIECE_BYTES}):
        hash_of(data[start : start + {PIECE_BYTES}])
    print(hash_of(data))
"""


class XetStore:
    """A store in a folder. `known`: hashes of contents that are there already."""

    def __init__(self, folder: Path, known: Mapping[bytes, str] | None = None) -> None:
        self.folder = folder
        self.endpoint = f"local://{folder}"
        self._known = dict(known or {})
        self._silent: list[socket.socket] = []

    def hashes(self, contents: Sequence[bytes]) -> list[str]:
        """By which the contents can be had from now on."""
        new = [content for content in contents if content not in self._known]
        if new:
            self._known |= zip(new, self.upload(new), strict=True)
        return [self._known[content] for content in contents]

    def upload(self, contents: Sequence[bytes]) -> list[str]:
        paths = [self.folder / f"upload-{number}" for number in range(len(contents))]
        self.folder.mkdir(parents=True, exist_ok=True)
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        # Not in this process, where its threads would stay.
        done = subprocess.run(
            [sys.executable, "-c", _UPLOAD, self.endpoint, *map(str, paths)],
            env={**os.environ, "HF_XET_LOG_DEST": os.devnull},
            check=True,
            capture_output=True,
            text=True,
        )
        for path in paths:
            path.unlink()
        return done.stdout.split()

    @property
    def xorbs(self) -> list[Path]:
        """The files that hold the data, each about PIECE_BYTES of it, in the order of upload."""
        found = (self.folder / "xet/xorbs/xorbs").glob("default.*")
        kept = [path for path in found if not path.name.endswith(".tagset")]
        return sorted(kept, key=lambda path: path.stat().st_mtime_ns)

    def hang_at(self, xorb: Path) -> None:
        """Who reads this one waits for ever."""
        xorb.unlink()
        os.mkfifo(xorb)

    def silent_server(self) -> str:
        """The address of a server that takes connections and says nothing."""
        self._silent.append(socket.create_server(("127.0.0.1", 0)))
        return "http://{}:{}".format(*self._silent[-1].getsockname())

    def request(self) -> bytes:
        """The first request that such a server was sent."""
        with self._silent[0].accept()[0] as connection:
            return connection.recv(1 << 16)

    def close(self) -> None:
        for listener in self._silent:
            listener.close()
