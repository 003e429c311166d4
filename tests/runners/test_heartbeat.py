"""Signs of life: a shard may take longer than a stall is waited for, as long as its bytes move."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tokenmill
from corpora import made_texts, write_corpus
from spoilt import sitecustomize
from tokenmill.storage import hashing, heartbeat
from tokenmill.storage.store import read_ranges, store_of

# Gets into every process from outside: one shard is written block by block, with pauses.
SITE = """
def slow_down(module):
    copy = module._Writing._copy_tokens
    def slowly(self, file):
        write = file.write
        def written(data):
            for at in range(0, len(data), 4096):
                write(data[at : at + 4096])
                {pause}
        if self._task.shard == 1:
            file.write = written
        copy(self, file)
    module._Writing._copy_tokens = slowly

SPOILT = {{"tokenmill.assemble.writing": slow_down}}
"""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(heartbeat, "_tell", None)
    monkeypatch.setattr(heartbeat, "_told_at", 0.0)
    heartbeat.listen(lambda: found.append(time.monotonic()), 0.05)
    return found


def test_beats_are_told_at_most_once_in_so_many_seconds(told):
    began = time.monotonic()
    while time.monotonic() < began + 0.3:
        heartbeat.beat()
    assert 2 <= len(told) <= 7


def test_bytes_that_are_written_read_or_hashed_are_signs_of_life(told, tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "_seconds", 0.0)
    path = str(tmp_path / "file")
    for work in (
        lambda: store_of(path).write(path, b"0123456789"),
        lambda: read_ranges(path, [(0, 10)]),
        lambda: hashing.sha256_at(path, 0, 10, False),
    ):
        told.clear()
        work()
        assert told


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked here only")
@pytest.mark.parametrize(
    ("pause", "is_stall"), [("time.sleep(1)", False), ("time.sleep(60)", True)]
)
def test_shard_that_is_slow_is_waited_for_and_one_that_hangs_is_not(tmp_path, pause, is_stall):
    corpus = write_corpus("jsonl", tmp_path, made_texts(100))
    once = f"not os.path.exists('once') and (open('once', 'w'), {pause})" if is_stall else pause
    (tmp_path / "sitecustomize.py").write_text(sitecustomize(SITE.format(pause=once)))
    command = [sys.executable, "-m", "tokenmill", "prepare", corpus, "-o", "out"]
    command += ["--format", "npy", "--shard-tokens", "12k", "--num-proc", "2"]
    paths = [str(tmp_path), str(Path(tokenmill.__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [*command, "--stall-timeout", "4"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"tokens in ([0-9.]+) s", done.stderr)[1]) > 4
    assert ("no progress for 4 s" in done.stderr) == is_stall


# Every chunk of an input takes half a second to read.
SLOW_READS = """
def slow_down(module):
    plain = module._plain
    def slowly(source, start, stop, chunk_bytes):
        for chunk in plain(source, start, stop, min(chunk_bytes, 1024)):
            time.sleep(0.5)
            yield chunk
    module._plain = slowly

SPOILT = {"tokenmill.corpus.readers.bytestream": slow_down}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked here only")
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_file_of_which_where_lets_only_the_end_in_is_no_stall(tmp_path, kind):
    rows = [{"text": "a" * 900, "n": n} for n in range(12)]
    lines = [json.dumps(row) for row in rows] if kind == "jsonl" else ["text,n"]
    lines += [f"{row['text']},{row['n']}" for row in rows if kind == "csv"]
    (tmp_path / f"corpus.{kind}").write_text("\n".join(lines) + "\n")
    (tmp_path / "sitecustomize.py").write_text(sitecustomize(SLOW_READS))
    command = [sys.executable, "-m", "tokenmill", "prepare", f"corpus.{kind}", "-o", "out"]
    paths = [str(tmp_path), str(Path(tokenmill.__file__).parents[1])]
    options = ["--where", "n == 11", "--num-proc", "2", "--stall-timeout", "3"]
    done = subprocess.run(
        [*command, *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "died" not in done.stderr and "1 written + 11 filtered" in done.stderr
