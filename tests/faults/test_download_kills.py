"""kill -9 of the real command while it downloads: no byte that is here is asked for again."""

from __future__ import annotations

import hashlib
import io
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import oracle
from corpora import made_texts
from hub_corpus import COMMIT, FINEWEB, REPO, Here
from hub_server import HubServer, Line
from tokenmill.storage.byte_ranges import ByteRanges
from tokenmill.storage.partial_file import JOURNAL_SUFFIX, PartialFile

TEXTS = [made_texts(30, seed=seed) for seed in range(4)]
EXPECTED = oracle.stream(oracle.ids([text for texts in TEXTS for text in texts]))
NUM_KILLS = 20
SECONDS_TO_KILL = 0.4  # at most, from the first byte on


def parquet(texts: list[str]) -> bytes:
    """Little to encode and much to fetch: several ranges for several connections."""
    sink = io.BytesIO()
    rows = random.Random(texts[0])
    pq.write_table(
        pa.table({"text": texts, "unread": [rows.randbytes(200_000) for _ in texts]}), sink
    )
    return sink.getvalue()


FILES = {f"sample/10BT/{i:03d}_00000.parquet": parquet(texts) for i, texts in enumerate(TEXTS)}
SIZE = sum(map(len, FILES.values()))


def noted(folder: Path) -> dict[str, ByteRanges]:
    """What the journals below a folder have, by the sha256 of the file; all of a file in place."""
    found = {}
    for data in FILES.values():
        sha256 = hashlib.sha256(data).hexdigest()
        ranges = ByteRanges()
        for journal in folder.rglob(f"{sha256}*{JOURNAL_SUFFIX}"):
            partial = PartialFile(str(journal).removesuffix(JOURNAL_SUFFIX))
            ranges = partial.ranges
            partial.close()
        for whole in folder.rglob(sha256):
            assert whole.read_bytes() == data
            ranges.add(0, len(data))
        found[sha256] = ranges
    return found


def require_nothing_twice(server: HubServer, before: dict[str, ByteRanges]) -> None:
    for request in server.asked(r"^GET /cdn/"):
        start, last = map(int, re.findall(r"\d+", request.range))
        ranges = before[request.path.split("/")[2]]
        assert all(stop <= start or last < first for first, stop in ranges), request


def test_fineweb_killed_while_it_downloads_then_nothing_is_fetched_twice_and_the_same_output(
    tmp_path, share
):
    out, home = tmp_path / "out", tmp_path / "home"
    num_kills = NUM_KILLS // share
    chance = random.Random(share)
    lines = [Line(bytes_per_second=SIZE / 30)]  # it begins before the plan, which takes its time
    # Half is here after all.
    lines += [Line(bytes_per_second=SIZE / (num_kills * SECONDS_TO_KILL))] * (num_kills - 1)
    plan = out / ".tokenmill" / "plan.json"
    for kill in range(num_kills + 1):
        is_last = kill == num_kills
        before = noted(home)
        with HubServer(FILES, REPO, COMMIT, line=Line() if is_last else lines[kill]) as server:
            command = [sys.executable, "-m", "tokenmill", *FINEWEB, str(out), "-q"]
            process = subprocess.Popen(command, env=Here(server, home).environment)
            while not is_last and not (plan.exists() and server.asked(r"^GET /cdn/")):
                assert process.poll() is None
                time.sleep(0.005)
            if not is_last:
                time.sleep(chance.uniform(0, SECONDS_TO_KILL))
                assert process.poll() is None
                process.kill()
            process.wait()
        if kill:  # before, the plan reads footers
            require_nothing_twice(server, before)
    assert process.returncode == 0
    assert sum(ranges.num_bytes for ranges in before.values()) > SIZE / 10
    assert (out / "train.bin").read_bytes() == EXPECTED
    assert not list(home.rglob("*partial*"))
