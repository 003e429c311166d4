"""kill -9 of the real command while it downloads: no file that is here is asked for again."""

from __future__ import annotations

import hashlib
import io
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import oracle
from corpora import made_texts
from hub_corpus import COMMIT, FINEWEB, REPO, Here, is_download
from hub_server import HubServer, Line, Request

TEXTS = [made_texts(30, seed=seed) for seed in range(4)]
EXPECTED = oracle.stream(oracle.ids([text for texts in TEXTS for text in texts]))
NUM_KILLS = 20
SECONDS_TO_KILL = 0.4  # at most, from the first byte on


def parquet(texts: list[str]) -> bytes:
    """Little to encode and much to fetch."""
    sink = io.BytesIO()
    rows = random.Random(texts[0])
    pq.write_table(
        pa.table({"text": texts, "unread": [rows.randbytes(200_000) for _ in texts]}), sink
    )
    return sink.getvalue()


FILES = {f"sample/10BT/{i:03d}_00000.parquet": parquet(texts) for i, texts in enumerate(TEXTS)}
SIZE = sum(map(len, FILES.values()))


def whole_files(home: Path) -> set[str]:
    """The sha256 of each file that is here."""
    found = {hashlib.sha256(path.read_bytes()).hexdigest() for path in home.rglob("*.parquet")}
    assert found <= {hashlib.sha256(data).hexdigest() for data in FILES.values()}
    return found


def test_fineweb_killed_while_it_downloads_then_fetches_no_whole_file_again_and_the_same_output(
    tmp_path, share
):
    out, home = tmp_path / "out", tmp_path / "home"
    num_kills = NUM_KILLS // share
    chance = random.Random(share)
    # A file comes now and then.
    line = Line(bytes_per_second=SIZE / (num_kills * SECONDS_TO_KILL / 2))
    plan = out / ".tokenmill" / "plan.json"
    for kill in range(num_kills + 1):
        is_last = kill == num_kills
        before = whole_files(home)
        for path in home.rglob("*.incomplete"):
            os.utime(path, (0, 0))  # of a kill long ago
        with HubServer(FILES, REPO, COMMIT, line=Line() if is_last else line) as server:
            command = [sys.executable, "-m", "tokenmill", *FINEWEB, str(out), "-q"]
            process = subprocess.Popen(command, env=Here(server, home).environment)
            while not is_last and not (plan.exists() and any(downloads(server))):
                if process.poll() is not None:
                    break
                time.sleep(0.005)
            if not is_last:
                time.sleep(chance.uniform(0, SECONDS_TO_KILL))
                process.kill()
            process.wait()
            assert not before & {request.path.split("/")[2] for request in downloads(server)}
        assert process.returncode in ((0,) if is_last else (0, -signal.SIGKILL))
    assert (out / "train.bin").read_bytes() == EXPECTED
    assert not [path for path in home.rglob("*.incomplete") if not path.stat().st_mtime]


def downloads(server: HubServer) -> list[Request]:
    return list(filter(is_download, server.asked(r"^GET /cdn/")))
