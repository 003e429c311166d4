"""What the README tells people to type, typed."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill
from conftest import made_texts
from hub_server import HubServer
from tokenmill.cli.formats import defaults_of
from tokenmill.corpus.fineweb import REPOS, REVISIONS
from tokenmill.formats import NAMES, get_format

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
SHELL_LINES = [
    line.split("   #")[0].split(" # ")[0].strip()
    for language, block in BLOCKS
    if language == "sh"
    for line in block.splitlines()
]
TOKENMILL_LINES = list(dict.fromkeys(line for line in SHELL_LINES if line.startswith("tokenmill ")))
# What belongs together: tasks of one run, and what finishes it.
TASK_LINES = [line for line in TOKENMILL_LINES if "--partition" in line or " finish " in line]
PYTHON_BLOCKS = [block for language, block in BLOCKS if language == "python"]


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with what the README's commands read."""
    texts = made_texts(2000)
    (tmp_path / "corpus" / "notes").mkdir(parents=True)
    pq.write_table(pa.table({"text": texts}), tmp_path / "corpus" / "a.parquet", row_group_size=500)
    (tmp_path / "corpus" / "notes" / "a.md").write_text("# A note\n\nof some words\n")
    (tmp_path / "giant.txt").write_text("<|endoftext|>".join(texts))
    return tmp_path


@pytest.fixture(scope="module")
def datasets(tmp_path_factory) -> Path:
    """What commands that read a finished dataset find: one of ours, and someone's llm.c shards."""
    folder = tmp_path_factory.mktemp("datasets")
    (folder / "corpus").mkdir()
    pq.write_table(pa.table({"text": made_texts(300)}), folder / "corpus" / "a.parquet")
    with _chdir(folder):
        tokenmill.prepare("corpus/", "data/nano", num_proc=1)
        tokenmill.prepare("corpus/", "fineweb10B", format="llmc", num_proc=1)
    (folder / "fineweb10B" / "tokenmill.json").unlink()
    return folder


@contextlib.contextmanager
def _chdir(folder: Path):
    before = os.getcwd()
    os.chdir(folder)
    yield
    os.chdir(before)


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        **more,
    }


def hub_for(line: str) -> HubServer:
    """A Hub that holds what the line asks for."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": made_texts(200)}), sink)
    if "OWNER/NAME" in line:
        return HubServer({"data/a.parquet": sink.getvalue()}, repo="OWNER/NAME")
    is_edu = "--no-edu" not in line
    name = f"sample/{'100BT' if '100B' in line else '10BT'}/000_00000.parquet"
    return HubServer({name: sink.getvalue()}, repo=REPOS[is_edu], commit=REVISIONS[is_edu])


def fill_bucket(client, folder: Path) -> None:
    """Put the corpus and the dataset where the README's URLs say they are."""
    with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
        client.create_bucket(Bucket="bucket")
    for place in ("corpus", "data/nano"):
        for path in (folder / place).rglob("*"):
            if path.is_file():
                key = f"{os.path.basename(place)}/{path.relative_to(folder / place)}"
                client.upload_file(str(path), "bucket", key)


@pytest.mark.parametrize("line", [line for line in TOKENMILL_LINES if line not in TASK_LINES])
def test_readme_command_works_as_written(line, folder, datasets, request):
    if line.split()[1] in ("verify", "inspect", "convert"):
        shutil.copytree(datasets, folder, dirs_exist_ok=True)
    if "s3://bucket/" in line:
        fill_bucket(request.getfixturevalue("s3").client(), folder)
    with hub_for(line) as hub:
        done = subprocess.run(
            shlex.split(line),
            cwd=folder,
            env=environment(folder, HF_ENDPOINT=hub.url),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    if line.split()[1] != "estimate":
        assert list((folder / "data").rglob("tokenmill.json"))


def test_readme_tasks_one_after_the_other_make_what_one_run_makes(folder):
    out, alone = TASK_LINES[-1].split()[-1], "data/alone"
    for line in [*TASK_LINES, f"tokenmill prepare corpus/ -o {alone}"]:
        command = shlex.split(line)
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    names = {path.name for path in (folder / alone).iterdir()}
    assert names == {path.name for path in (folder / out).iterdir()} >= {"tokenmill.json"}
    for name in names:
        assert (folder / out / name).read_bytes() == (folder / alone / name).read_bytes()


@pytest.mark.parametrize("block", PYTHON_BLOCKS)
def test_readme_python_works_as_written(block, folder):
    (folder / "script.py").write_text(block)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env=environment(folder, HF_HUB_OFFLINE="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_readme_names_make_targets_and_files_that_exist():
    targets = set(re.findall(r"^make (\w+)", "\n".join(SHELL_LINES), flags=re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    assert targets and all(f"\n{target}:" in makefile for target in targets)
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / link).exists(), link


def test_readme_tells_enough_to_be_worth_running():
    assert len(TOKENMILL_LINES) >= 6 and len(PYTHON_BLOCKS) >= 2


def test_readme_lists_the_formats_as_they_are():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", README, flags=re.MULTILINE)
    listed = {name: (files.replace("`", ""), readers, said) for name, files, readers, said in rows}
    assert listed == {
        name: (get_format(name).files, get_format(name).trainers, ", ".join(defaults_of(name)))
        for name in NAMES
    }
