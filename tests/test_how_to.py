"""docs/how-to: each page followed from top to bottom; docs/abruptly-died.md: each block on its own.

No network: the Hub is the tests' own, and so is `sbatch`. tests/test_everywhere.py follows
docs/how-to/ray-and-s3.md.
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pages
from corpora import made_texts, plain_texts, write_corpus
from hub_server import TOKEN, HubServer
from tokenmill.corpus.fineweb import REPOS, REVISIONS

HOW_TO = pages.DOCS / "how-to"
DIED = pages.DOCS / "abruptly-died.md"
SCRIPTS = pages.texts_of(DIED, "python")
SBATCH = Path(__file__).parent / "sbatch.py"
CARD = b"""---
configs:
- config_name: sample-10BT
  data_files: sample/10BT/*
- config_name: CC-MAIN-2024-10
  data_files: data/CC-MAIN-2024-10/*
---
"""


def command(folder: Path, name: str, script: str) -> str:
    """A PATH that has the script under this name."""
    binaries = folder.parent / "bin"
    binaries.mkdir()
    (binaries / name).write_text(f"#!{sys.executable}\n{script}")
    (binaries / name).chmod(0o755)
    return f"{binaries}{os.pathsep}{pages.environment_of({})['PATH']}"


@contextmanager
def fineweb(folder: Path) -> Iterator[dict[str, str]]:
    """Two files of the sample and one of a crawl, with the columns that the page names."""
    rng, files = random.Random(0), {"README.md": CARD}
    for number, name in enumerate(("sample/10BT/000", "sample/10BT/001", "data/CC-MAIN-2024-10/0")):
        scores = rng.choices([2, 3, 4, 5], k=200)
        sink = io.BytesIO()
        pq.write_table(pa.table({"text": plain_texts(200, seed=number), "int_score": scores}), sink)
        files[f"{name}_00000.parquet"] = sink.getvalue()
    settings = {"HF_HOME": str(folder / "huggingface"), "HF_TOKEN": TOKEN}
    settings["PATH"] = command(folder, "hf", "from huggingface_hub.cli.hf import main\nmain()\n")
    with HubServer(files, repo=REPOS[True], commit=REVISIONS[True]) as hub:
        yield {**settings, "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"}


@contextmanager
def one_giant_file(folder: Path) -> Iterator[dict[str, str]]:
    (folder / "giant.txt").write_text("<|endoftext|>".join(plain_texts(400)))
    yield {}


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    write_slices(folder)
    yield {"PATH": command(folder, "sbatch", SBATCH.read_text())}


@contextmanager
def resume(folder: Path) -> Iterator[dict[str, str]]:
    write_slices(folder)
    yield {}


def write_slices(folder: Path) -> None:
    """corpus/: three files, of a slice each."""
    (folder / "corpus").mkdir()
    texts = [" ".join(plain_texts(50, seed=seed)) for seed in range(50)]
    table = pa.table({"text": texts * ((34 << 20) // len("".join(texts)))})
    for name in "abc":
        pq.write_table(table, folder / "corpus" / f"{name}.parquet", use_dictionary=False)


@contextmanager
def mixing(folder: Path) -> Iterator[dict[str, str]]:
    for name in ("web", "code"):
        (folder / "corpus" / name).mkdir(parents=True)
    pq.write_table(pa.table({"text": plain_texts(400)}), folder / "corpus" / "web" / "a.parquet")
    lines = (json.dumps({"content": text}) + "\n" for text in plain_texts(100, seed=1))
    (folder / "corpus" / "code" / "a.jsonl").write_text("".join(lines))
    yield {}


READERS = {
    "fineweb.md": fineweb,
    "one-giant-file.md": one_giant_file,
    "slurm.md": slurm,
    "resume.md": resume,
    "mixing.md": mixing,
}


@pytest.mark.parametrize("name", READERS)
def test_page_when_followed_then_shows_what_it_says(name, tmp_path, pytestconfig):
    folder = tmp_path / "reader"
    folder.mkdir()
    with READERS[name](folder) as environment:
        write = pytestconfig.getoption("--write-pages")
        pages.follow(HOW_TO / name, folder, write, **environment)


def test_pages_are_short_and_all_of_them_are_followed():
    found = {path.name: path.read_text() for path in HOW_TO.glob("*.md")}
    assert found.keys() == {*READERS, "ray-and-s3.md"}
    for name, text in found.items():
        assert len(text.splitlines()) <= 80, name
        assert all(block.is_run for block in pages.blocks_of(text)) or name == "ray-and-s3.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a reader of docs/abruptly-died.md is: with data.parquet and a prepare.py."""
    Path(write_corpus("parquet", tmp_path, made_texts(300))).rename(tmp_path / "data.parquet")
    (tmp_path / "prepare.py").write_text(SCRIPTS[0])
    return tmp_path


OFFLINE = {"HF_HOME": "huggingface", "HF_HUB_OFFLINE": "1"}
needs_datasets = pytest.mark.skipif(find_spec("datasets") is None, reason="no datasets")


@needs_datasets
@pytest.mark.parametrize("text", pages.texts_of(DIED, "sh"), ids=lambda text: text.splitlines()[0])
def test_command_of_the_page_about_dead_subprocesses_runs(text, folder):
    pages.ran(["bash", "-euc", text], folder, **OFFLINE)


@needs_datasets
@pytest.mark.parametrize("text", SCRIPTS, ids=["one changed line", "Tokenize"])
def test_script_of_the_page_about_dead_subprocesses_maps_every_document(text, folder):
    (folder / "script.py").write_text(text)
    done = pages.ran([sys.executable, "script.py"], folder, **OFFLINE)
    assert "num_rows: 300" in done.stdout and "'ids', 'len'" in done.stdout
