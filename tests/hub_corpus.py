"""A corpus on the tests' Hub: its files, a machine that asks for it, and what must come out."""

from __future__ import annotations

import http.client
import io
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import oracle
import warm
from corpora import made_texts
from hub_server import HubServer, Request
from tokenmill.corpus.fineweb import REPOS, REVISIONS

REPO, COMMIT = REPOS[True], REVISIONS[True]
TEXTS = [made_texts(300, seed=seed) for seed in range(4)]
ALL = [text for texts in TEXTS for text in texts]


def parquet(texts: list[str], row_group_size: int = 50, number: int = 0) -> bytes:
    sink = io.BytesIO()
    count = len(texts)
    ids = [f"<urn:{i}>" for i in range(count)]
    table = pa.table({"text": texts, "id": ids, "number": [number] * count})
    pq.write_table(table, sink, row_group_size=row_group_size)
    return sink.getvalue()


FILES = {
    f"sample/10BT/{i:03d}_00000.parquet": parquet(texts, number=i) for i, texts in enumerate(TEXTS)
}
OTHERS = {"README.md": b"# FineWeb", "sample/100BT/000_00000.parquet": parquet(["other"])}


# Not the minute, and the ten seconds, that a real network may need.
SHORT_PAUSES = {
    "tokenmill.storage.retry.LONGEST_PAUSE_SECONDS": 0.2,
    "tokenmill.storage.retry.UNREACHABLE_SECONDS": 0.5,
}


class Here:
    """A machine with its own HF_HOME, whose Hub is the server."""

    def __init__(self, server: HubServer | None, home: Path) -> None:
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HF_")},
            "HF_ENDPOINT": server.url if server else "http://127.0.0.1:9",
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }

    def tokenmill(
        self,
        *arguments: object,
        cwd: Path | None = None,
        **env: str,
    ) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **env}
        return warm.tokenmill(*arguments, cwd=cwd, env=environment, settings=SHORT_PAUSES)


FINEWEB = ("fineweb", "--version", "10B", "--no-val", "--num-proc", "2", "-o")
EXPECTED = oracle.stream(oracle.ids(ALL))


def is_download(request: Request) -> bool:
    """Not one of the plan, which reads the ends of these files, and is made meanwhile."""
    return request.range is None


def answer(url: str, path: str, range_: str | None = None) -> tuple[int, Mapping[str, str], bytes]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", path, headers={"Range": range_} if range_ else {})
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()
    finally:
        connection.close()
