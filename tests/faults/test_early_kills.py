"""kill -9 while slices of an arriving file are encoded early: none of them counts."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from arriving_file import EXPECTED, FILE, NAME, is_near_end, wrong_text
from hub_corpus import Here
from hub_server import HubServer, Response
from tokenmill.storage.partial_file import JOURNAL_SUFFIX, PartialFile

# A slice for every row group, and the file in order.
TOKENMILL = """
import sys
from tokenmill.config import Config
from tokenmill.corpus.download import connection_count
Config.__init__.__kwdefaults__["slice_bytes"] = 1
connection_count.FIRST_CONNECTIONS = connection_count.MAX_CONNECTIONS = 1
from tokenmill.cli import main
sys.exit(main(sys.argv[1:]))
"""
NUM_PARTS = 3


def arrived(home: Path) -> list[tuple[int, int]]:
    """The ranges of the file that are here."""
    [journal] = home.rglob(f"*{JOURNAL_SUFFIX}")
    partial = PartialFile(str(journal).removesuffix(JOURNAL_SUFFIX))
    partial.close()
    return list(partial.ranges)


@pytest.mark.parametrize("is_wrong", [False, True])
def test_early_parts_do_not_count_after_a_kill(is_wrong, tmp_path):
    out, home = tmp_path / "out", tmp_path / "home"
    arguments = ("prepare", f"{NAME}", "--num-proc", "2", "--no-val", "-o", str(out))
    command = [sys.executable, "-c", TOKENMILL, *arguments]
    over = threading.Event()

    def held(right: Response) -> Response:
        over.wait(60)
        return right

    with HubServer({"data.parquet": FILE}, repo=NAME) as server:
        server.fail(r"^GET /cdn/", held, only=is_near_end)
        if is_wrong:
            server.fail(r"^GET /cdn/", wrong_text, only=lambda request: "=0-" in request.range)
        process = subprocess.Popen(command, env=Here(server, home).environment)
        while len(list(out.glob(".tokenmill/*/early/*/parts/*.part"))) < NUM_PARTS:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.wait()
        over.set()
    assert not list(out.glob(".tokenmill/*/records/*"))
    before = arrived(home)

    with HubServer({"data.parquet": FILE}, repo=NAME) as server:
        done = subprocess.run(
            command, env=Here(server, home).environment, capture_output=True, text=True
        )
        asked = [request.range for request in server.asked(r"^GET /cdn/")]
    assert done.returncode == 0, done.stderr
    assert (out / "train.bin").read_bytes() == EXPECTED
    assert ("again from its start" in done.stderr) == is_wrong
    for start, last in (map(int, re.findall(r"\d+", range_)) for range_ in asked):
        assert is_wrong or all(stop <= start or last < first for first, stop in before)
