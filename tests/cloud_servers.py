"""Google's and Azure's stores on loopback, behind the proxy of s3_server.py that fails requests.

gcp-storage-emulator (PyPI, requirements/dev.in) stands for Google. Azurite (npm) stands for Azure:
`make azurite` installs it, which `make test-cluster` does by itself.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import logging
import socket
import subprocess
import threading
import time
import urllib.parse
import uuid
from email.utils import formatdate
from http.server import HTTPServer
from pathlib import Path

import pytest

from s3_server import S3Server

Answer = tuple[int, list[tuple[str, str]], bytes]
AZURITE = Path(__file__).parent.parent / ".azurite/node_modules/azurite/dist/src/blob/main.js"
DENIED = "denied"  # the bucket that nobody may write to


class GoogleServer(S3Server):
    scheme = "gs"

    def _start_backend(self) -> tuple[str, int]:
        from gcp_storage_emulator import server
        from gcp_storage_emulator.storage import Storage

        storage = Storage(use_memory_fs=True)
        logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
        self._creating = threading.Lock()

        class Handler(server.RequestHandler):
            disable_nagle_algorithm = True  # 40 ms a request

        self._emulator = _Emulator(("127.0.0.1", 0), functools.partial(Handler, storage))
        threading.Thread(target=self._emulator.serve_forever, args=(0.05,), daemon=True).start()
        return "127.0.0.1", self._emulator.server_port

    def _stop_backend(self) -> None:
        self._emulator.shutdown()
        self._emulator.server_close()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "STORAGE_EMULATOR_HOST": self.endpoint,
            "FSSPEC_GS_TOKEN": "anon",
            "NO_PROXY": "127.0.0.1",
        }

    def new_bucket(self) -> str:
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        header = {"Content-Type": "application/json"}
        body = json.dumps({"name": name}).encode()
        status, _, answer = super().forward("POST", "/storage/v1/b", header, body)
        assert status == 200, answer
        return name

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if f"/b/{DENIED}/" in path and method == "POST":
            return 403, [], b'{"error": {"message": "you may not"}}'
        if method == "DELETE" and "upload_id=" in path:  # the emulator knows no such request
            return 499, [], b""
        query = urllib.parse.parse_qs(path.partition("?")[2])
        if "ifGenerationMatch" not in query:
            return super().forward(method, path, headers, body)
        with self._creating:  # the emulator does not look at conditions
            if "name" not in query:
                query["name"] = [json.loads(body[body.index(b"{") : body.index(b"}") + 1])["name"]]
            bucket = path.partition("/b/")[2].partition("/")[0]
            place = f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(query['name'][0], safe='')}"
            status, _, answer = super().forward("GET", place, {}, b"")
            generation = json.loads(answer)["generation"] if status == 200 else "0"
            if [generation] != query["ifGenerationMatch"]:
                return 412, [], b'{"error": {"message": "conditionNotMet"}}'
            return super().forward(method, path, headers, body)


class _Emulator(HTTPServer):
    request_queue_size = 256  # with 5, a connection more waits for seconds


class AzureServer(S3Server):
    scheme = "az"
    account = "devstoreaccount1"  # Azurite's own, whose key is published
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def _start_backend(self) -> tuple[str, int]:
        if not AZURITE.exists():
            pytest.skip("Azurite is not installed: make azurite (needs npm)")
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = free.getsockname()
        command = [
            "node",
            str(AZURITE),
            "--inMemoryPersistence",
            "--skipApiVersionCheck",
            "--silent",
        ]
        command += ["--silent", "--disableTelemetry", "--blobPort", str(address[1])]
        self._azurite = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(100):
            try:
                socket.create_connection(address).close()
                return address
            except ConnectionRefusedError:
                time.sleep(0.1)
        raise TimeoutError("Azurite did not start")

    def _stop_backend(self) -> None:
        self._azurite.kill()
        self._azurite.wait()

    @property
    def environment(self) -> dict[str, str]:
        settings = {
            "DefaultEndpointsProtocol": "http",
            "AccountName": self.account,
            "AccountKey": self.key,
            "BlobEndpoint": f"{self.endpoint}/{self.account}",
        }
        connection = ";".join(f"{name}={value}" for name, value in settings.items())
        return {"AZURE_STORAGE_CONNECTION_STRING": connection, "NO_PROXY": "127.0.0.1"}

    def new_bucket(self) -> str:
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        date, version = formatdate(usegmt=True), "2021-12-02"
        signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n"
        signed += f"/{self.account}/{self.account}/{name}\nrestype:container"
        mac = hmac.digest(base64.b64decode(self.key), signed.encode(), hashlib.sha256)
        signature = f"SharedKey {self.account}:{base64.b64encode(mac).decode()}"
        headers = {"x-ms-date": date, "x-ms-version": version, "Authorization": signature}
        path = f"/{self.account}/{name}?restype=container"
        status, _, answer = self.forward("PUT", path, headers, b"")
        assert status == 201, answer
        return name

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if f"/{DENIED}/" in path and method == "PUT":
            return 403, [("x-ms-error-code", "AuthorizationFailure")], b""
        return super().forward(method, path, headers, body)
