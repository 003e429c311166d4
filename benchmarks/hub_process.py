"""The tests' Hub in a process of its own, so that its CPU time can be told from a client's.

    python benchmarks/hub_process.py REPO COMMIT FOLDER LINE [CERTIFICATE]

serves the folder until stdin ends. LINE is a JSON object: the fields of `hub_server.Line`. Files
are mapped, not read. With a certificate (made by `self_signed`) it is served over TLS.
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

    def __init__(
        self,
        repo: str,
        commit: str,
        folder: str,
        line: Line,
        certificate: str | None = None,
        cpus: list[int] | None = None,
    ) -> None:
        fields = json.dumps(dataclasses.asdict(line))
        command = [sys.executable, __file__, repo, commit, folder, fields]
        command += [certificate] if certificate else []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if cpus:
            os.sched_setaffinity(self._process.pid, cpus)
        assert self._process.stdout is not None
        self.url = json.loads(self._process.stdout.readline())["url"]

    def __enter__(self) -> HubProcess:
        return self

    def __exit__(self, *_: object) -> None:
        said, _ = self._process.communicate()
        found = json.loads(said)
        self.cpu_seconds, self.num_file_bytes_sent = found["cpu_seconds"], found["sent"]
        self.sent_seconds = found["sent_seconds"]  # from the first request to the last byte


def self_signed(folder: str) -> str:
    """A PEM file with a key and a certificate for 127.0.0.1, to be trusted by SSL_CERT_FILE."""
    path = os.path.join(folder, "hub.pem")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext"
    extension = ["subjectAltName=IP:127.0.0.1", "-keyout", path, "-out", f"{path}.certificate"]
    subprocess.run([*command.split(), *extension], check=True, capture_output=True)
    with open(f"{path}.certificate") as certificate, open(path, "a") as both:
        both.write(certificate.read())
    return path


def mapped(path: Path) -> memoryview:
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def main() -> None:
    repo, commit, folder, line, *certificate = sys.argv[1:]
    found = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    files = {os.path.relpath(path, folder): mapped(path) for path in found}
    limits = Line(**json.loads(line))
    with HubServer(
        files, repo, commit, line=limits, certificate=next(iter(certificate), None)
    ) as server:
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
