"""How fast the loader is, how soon it starts and what it takes, on this machine.

python benchmarks/loader.py [--folder DIR] [--gigabytes 1] [--json FILE]
python benchmarks/loader.py --peers .venv-loaders/bin/python --dataset DIR [--json FILE]

throughput   rows of a file in the page cache to batches, one thread, shuffled over the whole file
start        of a dataset of 1T tokens: 10,000 sparse shards with a manifest; to the first batch
resume       from a state in the middle of it
documents    by number and by token, once their unit is known
packed       rows of whole documents: how long the plan takes, and its rows to batches
--peers      ours and others' loaders (loader_peers.py), on the same tokens in each one's format;
             that Python needs requirements/loaders*.txt, grain, catalogue and bettermap
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SHARDS, SHARD_TOKENS = 10_000, 100_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="where to make the files")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--json", help="write the numbers to this file")
    parser.add_argument("--peers", metavar="PYTHON", help="with the loaders to compare with")
    parser.add_argument("--dataset", help="of tokenmill, in nanogpt's format, for --peers")
    parser.add_argument("--start", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start:
        print(json.dumps(started(options.start)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.peers:
            found = {"peers": peers(options.peers, options.dataset, Path(folder))}
        else:
            found = {
                "throughput": throughput(Path(folder), options.gigabytes),
                "start": start(Path(folder)),
                "documents": documents(Path(folder)),
                "packed": packed(Path(folder)),
            }
    print(json.dumps(found, indent=1))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")


def peers(python: str, dataset: str, folder: Path) -> list[dict]:
    """Each loader's numbers, or why there are none."""
    import tokenmill
    from loader_peers import LOADERS, SEQ_LEN

    (folder / "nanogpt").symlink_to(os.path.abspath(dataset))
    for name in ("litdata", "mds", "olmo", "megatron", "datatrove"):
        more = {"seq_len": SEQ_LEN, "drop": ["tail"]} if name == "mds" else {}
        tokenmill.convert(dataset, folder / name, format=name, **more)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "loader_peers.py")
    found = []
    for name in LOADERS:
        command = [python, "-W", "ignore", script, name, str(folder)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=with_source()
        )
        if done.returncode:
            found.append({"loader": name, "failed": done.stderr.strip().splitlines()[-1]})
        else:
            found.append(json.loads(done.stdout.splitlines()[-1]))
    return sorted(found, key=lambda row: -row.get("tokens_per_second", 0))


def with_source() -> dict[str, str]:
    import tokenmill

    return {**os.environ, "PYTHONPATH": str(Path(tokenmill.__file__).parent.parent)}


def throughput(folder: Path, gigabytes: float) -> list[dict]:
    import tokenmill

    (folder / "raw").mkdir()
    num_tokens = int(gigabytes * 5e8)
    tokens = np.random.default_rng(0).integers(0, 50257, num_tokens, np.uint16)
    tokens.tofile(folder / "raw" / "train.bin")
    np.fromfile(folder / "raw" / "train.bin", np.uint16).sum()
    source = tokenmill.open(folder / "raw", dtype="uint16", tokenizer="gpt2", eot="append")
    rows = []
    for seq_len in (1024, 2048, 4096):
        for dtype in ("uint16", "int32", "int64"):
            rows.append(measured(source, seq_len, dtype))
    rows.append({**measured(source, 1024, "int64", extras=("position_ids",)), "extras": True})
    rows.append({**measured(source, 1024, "int64", shuffle="block"), "shuffle": "block"})
    return rows


def measured(source, seq_len: int, dtype: str, **options) -> dict:
    import tokenmill

    batch_size = (1 << 19) // seq_len
    loader = tokenmill.Loader(
        source, seq_len=seq_len, batch_size=batch_size, dtype=dtype, prefetch=0, **options
    )
    batches = iter(loader)
    for _ in range(20):
        next(batches)
    times = []
    for _ in range(5):  # the best of five: others share the machine
        begin, count = time.process_time(), 0
        while time.process_time() - begin < 0.5:
            count += next(batches).tokens.size
        times.append(count / (time.process_time() - begin))
    best = max(times)
    return {
        "seq_len": seq_len,
        "dtype": dtype,
        "tokens_per_second": round(best),
        "stored_gigabytes_per_second": round(best * 2 / 1e9, 2),
    }


def start(folder: Path) -> dict:
    """In a process of its own."""
    data = sparse_dataset(folder)
    done = subprocess.run(
        [sys.executable, __file__, "--start", data], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def started(data: str) -> dict:
    begin = time.perf_counter()
    import tokenmill

    loader = tokenmill.Loader(data, seq_len=4096, batch_size=64, dtype="int32")
    made, peak = time.perf_counter() - begin, megabytes("VmHWM")
    batches = iter(loader)
    next(batches)
    first, first_cpu = time.perf_counter() - begin, time.process_time()
    state = {**loader.state_dict(), "rows": 200_000_000}
    begin = time.perf_counter()
    loader.load_state_dict(state)
    batches = iter(loader)
    next(batches)
    resumed = time.perf_counter() - begin
    return {
        "tokens": loader._sources[0].rows.split.num_tokens,
        "shards": SHARDS,
        "seconds_to_loader": round(made, 3),
        "seconds_to_first_batch": round(first, 3),
        "cpu_seconds_to_first_batch": round(first_cpu, 3),
        "seconds_to_resume": round(resumed, 3),
        "peak_megabytes_of_start": round(peak, 1),
        "peak_megabytes": round(megabytes("VmHWM"), 1),
        "own_megabytes": round(megabytes("RssAnon"), 1),  # without pages of mapped files
    }


def megabytes(name: str) -> float:
    """Of this process alone: ru_maxrss begins with that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1]) / 1024


def sparse_dataset(folder: Path) -> str:
    """1T tokens that take no space, and the manifest that a run would have written."""
    import tokenmill
    from tokenmill.dataset.manifest import OutputFile, SplitTotals
    from tokenmill.formats.llmc import LlmcFormat

    (folder / "one.txt").write_text("a text\n")
    made = tokenmill.prepare(
        folder / "one.txt", folder / "one", format="llmc", runner="inline", val="none"
    )
    out = folder / "sparse"
    out.mkdir()
    header = LlmcFormat().header(SHARD_TOKENS, "uint16")
    num_bytes = len(header) + 2 * SHARD_TOKENS
    files = []
    for number in range(SHARDS):
        name = LlmcFormat().shard_name("fineweb", "train", number)
        with open(out / name, "wb") as file:
            file.write(header)
            file.truncate(num_bytes)
        marks = tuple((0, at) for at in range(16 << 20, SHARD_TOKENS, 16 << 20))
        files.append(OutputFile(name, "train", SHARD_TOKENS, 0, num_bytes, f"{number:064x}", marks))
    manifest = dataclasses.replace(
        made, files=tuple(files), splits={"train": SplitTotals(SHARDS * SHARD_TOKENS, 0)}
    )
    (out / "tokenmill.json").write_bytes(manifest.to_json())
    return os.fspath(out)


def documents(folder: Path) -> dict:
    import tokenmill

    (folder / "documents").mkdir()
    tokens = np.random.default_rng(0).integers(0, 50000, 50_000_000, np.uint16)
    tokens[::1000] = 50256
    tokens.tofile(folder / "documents" / "train.bin")
    begin = time.perf_counter()
    part = tokenmill.open(folder / "documents", dtype="uint16", tokenizer="gpt2", eot="prepend")[
        "train"
    ]
    count = len(part)
    scanned = time.perf_counter() - begin
    numbers = np.random.default_rng(1).integers(0, count, 2000).tolist()
    begin = time.perf_counter()
    for number in numbers:
        part.document(number)
    return {
        "documents": count,
        "seconds_to_scan_50M_tokens": round(scanned, 3),
        "microseconds_each": round((time.perf_counter() - begin) / len(numbers) * 1e6, 1),
    }


def packed(folder: Path) -> dict:
    """Documents of web text's lengths (median 400 tokens), in rows of 2,048."""
    import tokenmill

    (folder / "packed").mkdir()
    random = np.random.default_rng(0)
    ends = np.cumsum(np.maximum(1, random.lognormal(6.0, 1.1, 200_000)).astype(np.int64))
    tokens = random.integers(0, 50000, int(ends[-1]), np.uint16)
    tokens[ends - 1] = 50256
    tokens.tofile(folder / "packed" / "train.bin")
    source = tokenmill.open(folder / "packed", dtype="uint16", tokenizer="gpt2", eot="append")
    len(source["train"])  # finds the ends of documents
    begin = time.process_time()
    report = tokenmill.pack(source, seq_len=2048)["train"]
    seconds = time.process_time() - begin
    return {
        "documents": report.num_documents,
        "cpu_seconds_to_pack": round(seconds, 2),
        "fill": round(report.fill, 5),
        **measured(source, 2048, "int32", packed=True),
    }


if __name__ == "__main__":
    main()
