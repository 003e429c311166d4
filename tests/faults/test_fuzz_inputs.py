"""Hostile inputs: thousands of sound files with a lie in them, and bombs.

Each is read in full with every row counted, or refused by an error of ours that names it. Native
parsers may kill the process that reads: so most are tried in drivers (fuzz_driver.py) that may die,
and what killed a driver must, in the product, kill a worker and come out as an error. What was
read goes through the real command, with two workers, which must count the same rows.

One case again: `python tests/faults/fuzz_driver.py parquet 38 39 FOLDER`.
"""

from __future__ import annotations

import json
import resource
import selectors
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from bombs import (
    MB,
    arrow_compressed,
    arrow_dictionary,
    arrow_views,
    bzip2_of,
    deep_json,
    gzip_of,
    long_field,
    long_line,
    long_number,
    lz4_of,
    parquet_prefixes,
    parquet_rows,
    wide_csv,
    xz_dictionary,
    xz_of,
    zstd_of,
)
from fuzz_driver import READ, has_own_words, source_of
from mutations import sound_parquet_file

import warm
from tokenmill.corpus.readers import kind_of
from tokenmill.corpus.readers.parquet_pages import repeatable_bytes
from tokenmill.errors import TokenmillError
from tokenmill.run import SilentWatch
from tokenmill.runners.processes import ProcessesRunner

DRIVER = Path(__file__).with_name("fuzz_driver.py")
CRASHERS = Path(__file__).with_name("crashers")
SEEDS_APART = 1_000_000
HANG_SECONDS = 60.0  # by the clock, on a busy machine
MAX_CPU_SECONDS = 5.0
MAX_PEAK_MB = 1000
MAX_DEATHS = 40

INPUTS = {"parquet": 1300, "arrow": 700, "jsonl": 250, "json_array": 150, "text": 100}
INPUTS |= {"delimited": 250, "compressed": 450, "nested": 300}
OTHERS = {"tokenizer_json": 250, "ranks": 150, "state": 200, "manifest": 150}
OTHERS |= {"toml": 300, "where": 400}
REFUSALS = {
    **dict.fromkeys(INPUTS, ("InputError", "ConfigError")),
    **dict.fromkeys(("tokenizer_json", "ranks", "toml", "where"), ("ConfigError",)),
    **dict.fromkeys(("state", "manifest"), ("IntegrityError", "DamagedWorkError")),
}
NAMES = {"tokenizer_json": "a.json", "ranks": "a.tiktoken", "state": ".tokenmill"}
NAMES |= {"toml": "a.toml", "where": "--where"}

Found = dict[str, Any]


@pytest.mark.parametrize("kind", INPUTS)
def test_hostile_inputs_are_read_in_full_or_refused(kind, scratch, seed, share, tally):
    folder = scratch / "files"
    folder.mkdir()
    found = tried(kind, seed * SEEDS_APART, INPUTS[kind] // share, folder)
    wrong = [case for case in found if not is_fine(kind, case)]
    died = [case for case in wrong if case["outcome"] == "died"]
    assert [case for case in wrong if case not in died] == []
    assert len(died) <= MAX_DEATHS
    refused = [case for case in found if case["outcome"] in REFUSALS[kind]]
    read = [case for case in found if case["outcome"] == "ok"]
    assert (read and refused) or kind == "text"
    same = [case for case in refused if not has_own_words(kind, case["case"])]
    with ProcessesRunner(2, None) as runner:
        are_refused_by_workers(runner, folder, same)
        for case in died:
            kills_workers_only(runner, folder, case, scratch)
    plain = [case for case in read if case["name"]]
    rows_are_counted_by_command([folder / case["name"] for case in plain], scratch, plain)
    for case in same[:: 1 + len(same) // 2]:
        is_refused_by_command(file_of(folder, case), scratch, case)
    tally.add("fuzzed inputs", "read in full", len(read))
    tally.add("fuzzed inputs", "refused by name", len(refused) + len(died))


@pytest.mark.parametrize("kind", OTHERS)
def test_hostile_vocabularies_and_records_are_refused_or_harmless(
    kind, scratch, seed, share, tally
):
    found = tried(kind, seed * SEEDS_APART, OTHERS[kind] // share, scratch)
    assert [case for case in found if not is_fine(kind, case)] == []
    num_ok = sum(case["outcome"] == "ok" for case in found)
    outcome = "harmless" if kind in ("state", "manifest") else "read in full"
    tally.add("fuzzed inputs", outcome, num_ok)
    tally.add("fuzzed inputs", "refused by name", len(found) - num_ok)


def is_fine(kind: str, case: Found) -> bool:
    if case["outcome"] not in ("ok", *REFUSALS[kind]):
        return False
    if case["seconds"] > MAX_CPU_SECONDS or case["peak_mb"] > MAX_PEAK_MB:
        return False
    name = NAMES.get(kind, "tokenmill.json" if kind == "manifest" else f"{case['case']}.")
    if case["outcome"] == "ok" or is_all_empty(case):
        return True
    return name in case["message"] or case["message"].startswith("-: ")  # standard input


def is_all_empty(case: Found) -> bool:
    return str(case["message"]).startswith("nothing to write: of ")


def tried(kind: str, first: int, count: int, folder: Path) -> list[Found]:
    """What came of each case; a driver that dies or hangs is replaced."""
    found: list[Found] = []
    while len(found) < count:
        for case in driven(kind, first + len(found), first + count, folder):
            found.append(case)
        assert sum(case["outcome"] == "died" for case in found) <= MAX_DEATHS, found[-1]
    return found


def driven(kind: str, first: int, last: int, folder: Path) -> Iterator[Found]:
    """The cases of one driver, up to its end, whatever that is."""
    command = [sys.executable, str(DRIVER), kind, str(first), str(last), str(folder)]
    with open(folder / "stderr", "wb") as stderr:
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr)
    assert driver.stdout is not None
    case = first
    with driver, selectors.DefaultSelector() as selector:
        selector.register(driver.stdout, selectors.EVENT_READ)
        while case < last:
            # Lines come one by one, each flushed, so none waits in a buffer of ours.
            is_heard = selector.select(HANG_SECONDS)
            line = driver.stdout.readline() if is_heard else b""
            if not line:
                driver.kill()
                words = (folder / "stderr").read_bytes().decode(errors="replace")[-2000:]
                outcome = "died" if is_heard else "hung"
                yield {"case": case, "outcome": outcome, "code": driver.wait(), "message": words}
                return
            yield json.loads(line)
            case += 1


def file_of(folder: Path, case: Found) -> Path:
    return next(folder.glob(f"{case['case']}.*"))


def are_refused_by_workers(runner: ProcessesRunner, folder: Path, cases: Iterable[Found]) -> None:
    """What is refused when it is cut is refused in the same words where plans are made."""
    for case in cases:
        error = refusal(runner, file_of(folder, case))
        assert error is None or error.message == case["message"] or is_all_empty(case)


def kills_workers_only(runner: ProcessesRunner, folder: Path, case: Found, scratch: Path) -> None:
    path = file_of(folder, case)
    assert case["code"] < 0, case
    error = refusal(runner, path)
    if error is None:  # it was not its footer
        is_refused_by_command(path, scratch, {"exit": 7})
    else:
        assert error.exit_code == 3 and path.name in error.message
        assert "killed the process, twice" in error.message


def refusal(runner: ProcessesRunner, path: Path) -> TokenmillError | None:
    try:
        list(runner.cut([source_of(path)], READ, None, SilentWatch()))
    except TokenmillError as error:
        return error
    return None


def arguments(sources: Iterable[Path], scratch: Path) -> list[str]:
    """The real command, with two workers, into a folder that is not there yet."""
    out = scratch / "command"
    shutil.rmtree(out, ignore_errors=True)
    sources = list(sources)
    options = ["--num-proc", "2", "--no-val", "--max-bad-fraction", "1"]
    if any((kind_of(str(path)) or ("",))[0] == "text" for path in sources):
        options += ["--separator", r"\n\n"]
    return ["prepare", *map(str, sources), "-o", str(out), *options, "--json", "-q"]


def command(sources: Iterable[Path], scratch: Path) -> subprocess.CompletedProcess[str]:
    return warm.tokenmill(*arguments(sources, scratch))


def rows_are_counted_by_command(paths: list[Path], scratch: Path, cases: list[Found]) -> None:
    done = command(paths, scratch)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["counts"]
    kept = ("num_written", "num_empty", "num_null", "num_quarantined")
    assert counts["num_rows"] == sum(counts[name] for name in kept)
    assert counts["num_rows"] == sum(case["rows"] for case in cases)


def is_refused_by_command(path: Path, scratch: Path, case: Found) -> None:
    done = command([path], scratch)
    assert done.returncode == case["exit"], (path, done.stderr)
    assert "Traceback" not in done.stderr and "bug" not in done.stderr, done.stderr
    assert path.name in done.stderr or "nothing to write: of " in done.stderr
    assert not (scratch / "command" / "tokenmill.json").exists()


# Bombs.


@dataclass(frozen=True)
class Bomb:
    name: str
    make: Callable[[Path], object]
    max_mb: int  # of the largest process: what a document of 1 GiB takes is allowed
    exit: int = 0
    says: str = ""
    rows: int = 0
    options: tuple[str, ...] = ()
    is_slow: bool = False  # a gigabyte is decompressed at 100 MB/s: not in CI


TOO_LONG = "longer than 1073741824"
FIRST_FOUR = ("--limit-docs", "4")
BOMBS = [
    Bomb("z.jsonl.gz", partial(gzip_of, b"\0", 10_000 * MB), 1500, 3, TOO_LONG),
    Bomb("z.txt.zst", partial(zstd_of, b"\0", 10_000 * MB), 1500, 3, TOO_LONG),
    Bomb("n.jsonl.gz", partial(gzip_of, b"\n", 1024 * MB), 600, 3, "nothing to write: of 0 rows"),
    Bomb("z.jsonl.lz4", partial(lz4_of, b"", b"\0", 1040 * MB), 1500, 3, TOO_LONG),
    Bomb("z.jsonl.bz2", partial(bzip2_of, b"\0", 1088 * MB), 1500, 3, TOO_LONG, is_slow=True),
    Bomb("z.txt.xz", partial(xz_of, b"\0", 1088 * MB), 1500, 3, TOO_LONG, is_slow=True),
    Bomb("z.csv.bz2", partial(bzip2_of, b"a", 1024 * MB), 600, 3, "which names the columns, is"),
    Bomb("z.json.xz", partial(xz_of, b"[", 1024 * MB), 600, 3, "nested too deeply"),
    Bomb("d.jsonl.xz", xz_dictionary, 600, 3, "broken xz stream"),
    Bomb("q.csv.lz4", partial(lz4_of, b'text\n"', b"a\n", 560 * MB), 4500, 3, "line 2"),
    Bomb("w.csv", partial(wide_csv, 150_000, 4_000_000), 1500, rows=3),
    Bomb("f.csv", partial(long_field, 64 * MB), 1200, rows=2),
    Bomb("n.json", partial(long_number, 8 * MB), 600, rows=2),
    Bomb("d.json", partial(deep_json, b"[", b"]", 5_000_000), 600, rows=2),
    Bomb("a.jsonl", partial(deep_json, b"[", b"]", 5_000_000), 600, rows=2),
    Bomb("o.jsonl", partial(deep_json, b'{"a":', b"}", 3_000_000), 600, rows=2),
    Bomb("u.jsonl", partial(deep_json, b"[", b"", 10_000_000), 600, rows=2),
    Bomb("r40.parquet", partial(parquet_rows, 1 << 40), 600, 3, "announces 1099511627776 rows"),
    Bomb("r31.parquet", partial(parquet_rows, (1 << 31) - 1), 600, 3, "read 3 rows where"),
    Bomb("p.parquet", partial(parquet_prefixes, 4 * MB, 100), 1500, 0, "", 4, FIRST_FOUR),
    Bomb("z.arrow", partial(arrow_compressed, 300 * MB), 600, 3, "a bomb"),
    Bomb("v.arrow", partial(arrow_views, 8 * MB, 100_000), 1500, 0, "", 4, FIRST_FOUR),
    Bomb("d.arrow", partial(arrow_dictionary, 8 * MB, 100_000), 1500, 0, "", 4, FIRST_FOUR),
]


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.name)
def test_bombs_take_bounded_memory(bomb, scratch, share, tally):
    if bomb.is_slow and share > 1:
        pytest.skip("--all-faults: a gigabyte of bzip2 or xz takes 10 seconds")
    path = scratch / bomb.name
    bomb.make(path)
    goes_off_harmlessly(bomb, path, scratch)
    tally.add("bombs", "refused by name" if bomb.exit else "read in full")


def test_a_json_line_of_a_gigabyte_takes_bounded_memory(scratch, seed, tally):
    """256 MB of it in CI; all of it where the seed is not the usual one, which is in a soak."""
    num_mb = 1000 if seed else 256
    path = scratch / "line.jsonl"
    long_line(num_mb * 1_000_000, path)
    bomb = Bomb(path.name, lambda path: None, 400 + 8 * num_mb, rows=2)
    goes_off_harmlessly(bomb, path, scratch)
    tally.add("bombs", "read in full")


def goes_off_harmlessly(bomb: Bomb, path: Path, scratch: Path) -> None:
    code, peak_mb, stdout, stderr = measured_command(path, scratch, bomb.options)
    assert code == bomb.exit, stderr
    assert peak_mb < bomb.max_mb, stderr
    if code:
        assert bomb.says in stderr and "Traceback" not in stderr
        assert path.name in stderr or bomb.says.startswith("nothing to write")
        return
    counts = json.loads(stdout)["counts"]
    kept = ("num_written", "num_empty", "num_null", "num_quarantined")
    assert counts["num_rows"] == bomb.rows == sum(counts[name] for name in kept)


# On Linux a process's peak begins with that of the process that started it: a small one does.
STARTER = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(process.pid, 0)
with open(sys.argv[1], "w") as file:
    file.write(str(usage.ru_maxrss // 1024))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def measured_command(
    path: Path, scratch: Path, options: Iterable[str]
) -> tuple[int, int, str, str]:
    """(exit code, MB of the largest process of all, stdout, stderr)."""
    command = [sys.executable, "-m", "tokenmill", *arguments([path], scratch), *options]
    done = subprocess.run(
        [sys.executable, "-c", STARTER, str(scratch / "peak"), *command],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        # If it is not bounded after all, this machine is not to suffer.
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_DATA, (12_000 * MB,) * 2),
    )
    return done.returncode, int((scratch / "peak").read_text()), done.stdout, done.stderr


@pytest.mark.parametrize("variant", range(24))
def test_pages_of_sound_files_are_understood(variant, scratch):
    """Or they would be read a few rows at a time, for fear of a bomb: right, and slow."""
    path = scratch / "a.parquet"
    path.write_bytes(sound_parquet_file(variant))
    data, metadata = path.read_bytes(), pq.ParquetFile(path).metadata
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(1)
        starts = [chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset]
        most = repeatable_bytes(data, min(starts), min(starts) + chunk.total_compressed_size)
        assert most is not None and (most > 0) == chunk.has_dictionary_page


# What once did harm: files in crashers/, and what must come of each, in its README.


def crashers() -> list[tuple[str, int]]:
    """(file, exit code) by the README's table."""
    lines = (CRASHERS / "README.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    return [(row[0].strip("`"), int(row[1])) for row in rows if row[0].startswith("`")]


def test_every_crasher_is_in_the_list():
    files = {path.name for path in CRASHERS.iterdir()} - {"README.md"}
    assert files == {name for name, _ in crashers()}


@pytest.mark.parametrize(("name", "exit_code"), crashers())
def test_crashers_of_the_past_do_no_harm(name, exit_code, scratch, tally):
    path, options = CRASHERS / name, ["--limit-docs", "4"]
    if name.endswith((".json", ".tiktoken")):
        told = ["--pattern", "gpt2", "--eot-token", "1000000"] if "tik" in name else []
        options += ["--tokenizer", str(path), *told]
        path = scratch / "corpus.txt"
        path.write_text("the mill")
    code, peak_mb, _, stderr = measured_command(path, scratch, options)
    assert (code, "Traceback" in stderr) == (exit_code, False), stderr
    assert name in stderr or not code or "nothing to write" in stderr
    assert peak_mb < 4500
    tally.add("crashers of the past", "refused by name" if code else "harmless")
