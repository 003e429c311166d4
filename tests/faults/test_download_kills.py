"""kill -9 at random while files are downloaded: no byte that was noted is asked for again."""

from __future__ import annotations

import hashlib
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hub_corpus import COMMIT, EXPECTED, FINEWEB, REPO, Here
from hub_corpus import FILES as CORPUS
from hub_server import HubServer, Line
from tokenmill.storage.byte_ranges import ByteRanges
from tokenmill.storage.partial_file import JOURNAL_SUFFIX, PartialFile

CLIENT = Path(__file__).parents[1] / "download_client.py"
FILES = {f"{i}.bin": random.Random(i).randbytes(3_000_000 + i) for i in range(3)}
NUM_KILLS = 20


def noted(folder: Path, files: dict[str, bytes]) -> dict[str, ByteRanges]:
    """What the journals below a folder have, by the sha256 of the file; all of a file in place."""
    found = {}
    for data in files.values():
        sha256 = hashlib.sha256(data).hexdigest()
        ranges = ByteRanges()
        for journal in folder.rglob(f"{sha256}*{JOURNAL_SUFFIX}"):
            partial = PartialFile(str(journal).removesuffix(JOURNAL_SUFFIX))
            ranges = partial.ranges
            partial.close()
        places = (path for path in folder.rglob("*") if path.is_file())
        if any(path.stat().st_size == len(data) and path.read_bytes() == data for path in places):
            ranges.add(0, len(data))
        found[sha256] = ranges
    return found


def require_nothing_twice(server: HubServer, before: dict[str, ByteRanges]) -> None:
    for request in server.asked(r"^GET /cdn/"):
        start, last = map(int, re.findall(r"\d+", request.range))
        ranges = before[request.path.split("/")[2]]
        assert all(stop <= start or last < first for first, stop in ranges), request


@pytest.mark.parametrize("seed", range(3))
def test_download_killed_again_and_again_then_no_noted_byte_is_asked_for_again(
    seed, tmp_path, share
):
    if seed and share > 1:
        pytest.skip("one of three")
    chance = random.Random(seed)
    folder = tmp_path / "here"
    folder.mkdir()
    given = [f"{p}:{len(d)}:{hashlib.sha256(d).hexdigest()}" for p, d in FILES.items()]
    num_kills = 0
    while num_kills <= NUM_KILLS:
        before = noted(folder, FILES)
        line = Line(bytes_per_second=4e6) if num_kills < NUM_KILLS else Line()
        with HubServer(FILES, line=line) as server:
            command = [sys.executable, str(CLIENT), server.url, server.repo, str(folder), *given]
            process = subprocess.Popen(command)
            while process.poll() is None and not server.asked(r"^GET /cdn/"):
                time.sleep(0.005)
            if num_kills < NUM_KILLS:
                time.sleep(chance.uniform(0, 0.15))
                process.kill()
            process.wait()
        require_nothing_twice(server, before)
        num_kills += 1
        if process.returncode == 0:
            break
    assert num_kills > 10
    assert process.returncode == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES


def test_fineweb_killed_while_it_downloads_then_nothing_is_fetched_twice_and_the_same_output(
    tmp_path, share
):
    out, home = tmp_path / "out", tmp_path / "home"
    chance = random.Random(5)
    size = sum(map(len, CORPUS.values()))
    for attempt in range(60 // share):
        before = noted(home, CORPUS)
        with HubServer(CORPUS, repo=REPO, commit=COMMIT, bytes_per_second=size) as server:
            command = [sys.executable, "-m", "tokenmill", *FINEWEB, str(out), "-q"]
            process = subprocess.Popen(command, env=Here(server, home).environment)
            plan = out / ".tokenmill" / "plan.json"
            while process.poll() is None and not plan.exists():
                time.sleep(0.01)
            if attempt < NUM_KILLS // share**2:
                time.sleep(chance.uniform(0, 0.3))
                process.kill()
            process.wait()
        if plan.exists() and attempt:
            require_nothing_twice(server, before)
        if process.returncode == 0:
            break
    assert process.returncode == 0
    assert (out / "train.bin").read_bytes() == EXPECTED
    assert not list(home.rglob("*partial*"))
