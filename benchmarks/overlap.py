"""Download and encoding, overlapped: `tokenmill fineweb` against a throttled Hub on loopback.

    python benchmarks/overlap.py [--corpus DIR] [--bytes 300M]

T is how long the download takes by itself, E how long encoding the same files takes by itself. The
whole should take at most 1.15 x max(T, E) and the time of one file.
"""

from __future__ import annotations

import argparse
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import time

from corpus import Recipe

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests"))

from hub_server import HubServer  # noqa: E402
from tokenmill.cli.screen import parsed_count  # noqa: E402
from tokenmill.corpus.fineweb import REPOS, REVISIONS  # noqa: E402


def timed(arguments: list[str], environment: dict[str, str]) -> float:
    os.sync()
    began = time.perf_counter()
    command = [sys.executable, "-m", "tokenmill", *arguments, "-q"]
    subprocess.run(command, env={**os.environ, **environment}, check=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", help="folder of parquet files to take paragraphs from")
    parser.add_argument("--bytes", default="300M", help="how much text to make")
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument(
        "--num-proc",
        default="1",
        help="workers; as many as there are cores leave none for the server, which is here too",
    )
    arguments = parser.parse_args()
    workers = ["--num-proc", arguments.num_proc]
    text_bytes = parsed_count(arguments.bytes)
    recipe = Recipe(text_bytes, arguments.corpus, num_files=arguments.files)
    folder = recipe.corpus(os.path.join(HERE, "out", "corpora"))
    paths = sorted(glob.glob(os.path.join(folder, "*.parquet")))
    files = {}
    for path in paths:
        with open(path, "rb") as file:
            files[f"sample/10BT/{os.path.basename(path)}"] = file.read()
    size = sum(map(len, files.values()))
    out = tempfile.mkdtemp(dir=os.path.join(HERE, "out"))
    encoding = timed(["prepare", folder, "-o", os.path.join(out, "e"), *workers], {})
    for factor in (0.5, 1.0, 2.0):
        download = encoding * factor
        server = HubServer(
            files, repo=REPOS[True], commit=REVISIONS[True], bytes_per_second=size / download
        )
        with server:
            home = os.path.join(out, f"home{factor}")
            environment = {"HF_ENDPOINT": server.url, "HF_HOME": home, "HF_HUB_DISABLE_XET": "1"}
            whole = timed(["fineweb", "-o", os.path.join(out, f"o{factor}"), *workers], environment)
        longest = max(download, encoding)
        bound = 1.15 * longest + longest / len(files)
        print(
            f"E {encoding:.2f} s, T {download:.2f} s: the whole {whole:.2f} s, "
            f"{whole / longest:.2f} of the longer; bound {bound:.2f} s: "
            f"{'met' if whole <= bound else 'MISSED'}"
        )
    shutil.rmtree(out)


if __name__ == "__main__":
    main()
