"""The tests' Hub in a process of its own, so that its CPU time can be told from a client's.

    python benchmarks/hub_process.py REPO COMMIT FOLDER LINE    serves the folder until stdin ends

LINE is a JSON object: the fields of `hub_server.Line`. Files are mapped, not read.
"""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import resource
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from hub_server import HubServer, Line  # noqa: E402


class HubProcess:
    """A context manager; `url` is the HF_ENDPOINT, `cpu_seconds` is known after it was left."""

    def __init__(self, repo: str, commit: str, folder: str, line: Line) -> None:
        fields = json.dumps(dataclasses.asdict(line))
        command = [sys.executable, __file__, repo, commit, folder, fields]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url = json.loads(self._process.stdout.readline())["url"]

    def __enter__(self) -> HubProcess:
        return self

    def __exit__(self, *_: object) -> None:
        said, _ = self._process.communicate()
        found = json.loads(said)
        self.cpu_seconds, self.num_file_bytes_sent = found["cpu_seconds"], found["sent"]
        self.sent_seconds = found["sent_seconds"]  # from the first request to the last byte


def mapped(path: Path) -> memoryview:
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def main() -> None:
    repo, commit, folder, line = sys.argv[1:]
    found = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    files = {os.path.relpath(path, folder): mapped(path) for path in found}
    with HubServer(files, repo=repo, commit=commit, line=Line(**json.loads(line))) as server:
        before = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({"url": server.url}), flush=True)
        sys.stdin.read()
        used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    first_at = min((request.at_seconds for request in server.requests), default=0.0)
    sent = {"sent": server.num_file_bytes_sent, "sent_seconds": server.last_sent_at - first_at}
    print(json.dumps({"cpu_seconds": cpu, **sent}), flush=True)


if __name__ == "__main__":
    main()
