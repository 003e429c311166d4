"""The tests' Hub in a process of its own, so that it takes no time from a client's threads.

    python benchmarks/hub_process.py REPO COMMIT FOLDER LINE

serves the folder until stdin ends. LINE is a JSON object: the fields of `hub_server.Line`. Files
are mapped, not read.
"""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from hub_server import HubServer, Line  # noqa: E402


class HubProcess:
    """A context manager; `url` is the HF_ENDPOINT."""

    def __init__(self, repo: str, commit: str, folder: str, line: Line) -> None:
        fields = json.dumps(dataclasses.asdict(line))
        self._process = subprocess.Popen(
            [sys.executable, __file__, repo, commit, folder, fields],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def __enter__(self) -> HubProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def mapped(path: Path) -> memoryview:
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def main() -> None:
    repo, commit, folder, line = sys.argv[1:]
    found = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    files = {os.path.relpath(path, folder): mapped(path) for path in found}
    with HubServer(files, repo, commit, line=Line(**json.loads(line))) as server:
        print(server.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
