"""What the README and the guides in docs/ tell people to type, typed."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pages
import tokenmill
import warm
from corpora import made_texts
from hub_server import TOKEN, HubServer
from hub_uploads import UploadHub
from tokenmill.cli.formats import defaults_of
from tokenmill.corpus.fineweb import REPOS, REVISIONS
from tokenmill.formats import NAMES, get_format

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
# Whose blocks are run here; test_guide.py and test_how_to.py follow others from top to bottom.
GUIDES = {
    name: (ROOT / "docs" / name).read_text()
    for name in (
        "inputs.md",
        "formats.md",
        "commands.md",
        "python.md",
        "reliability.md",
        "report.md",
    )
}
SCALE = (ROOT / "docs" / "scale.md").read_text()
PAGES = [
    ROOT / "README.md",
    *ROOT.glob("docs/**/*.md"),
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
]


def shell_lines(page: str) -> list[str]:
    lines = "".join(pages.texts_of(page, "sh")).splitlines()
    return [line.split("   #")[0].split(" # ")[0].strip() for line in lines]


def tokenmill_lines(page: str) -> list[str]:
    """Without `view`, which does not end by itself: tests/look/view/test_cli.py starts that."""
    lines = [line for line in shell_lines(page) if line.startswith("tokenmill ")]
    return [line for line in lines if not line.startswith("tokenmill view ")]


def unique(lines: list[str]) -> list[str]:
    return list(dict.fromkeys(lines))


TOKENMILL_LINES = unique(
    [line for page in (README, *GUIDES.values()) for line in tokenmill_lines(page)]
)
PYTHON_BLOCKS = unique(
    [block for page in (README, *GUIDES.values()) for block in pages.texts_of(page, "python")]
)
# One run, its tasks, and what finishes them: docs/scale.md has them one after the other.
SINGLE_LINE, *TASK_LINES = tokenmill_lines(SCALE)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder with what the commands read."""
    texts = made_texts(2000)
    (tmp_path / "corpus" / "notes").mkdir(parents=True)
    pq.write_table(pa.table({"text": texts}), tmp_path / "corpus" / "a.parquet", row_group_size=500)
    (tmp_path / "corpus" / "notes" / "a.md").write_text("# A note\n\nof some words\n")
    (tmp_path / "giant.txt").write_text("<|endoftext|>".join(texts))
    (tmp_path / "corpus.txt").write_text("\n\n".join(texts))
    return tmp_path


@pytest.fixture(scope="module")
def datasets(tmp_path_factory) -> Path:
    """What commands that read a finished dataset find: one of ours, and someone's llm.c shards."""
    folder = tmp_path_factory.mktemp("datasets")
    (folder / "corpus").mkdir()
    pq.write_table(pa.table({"text": made_texts(300)}), folder / "corpus" / "a.parquet")
    with _chdir(folder):
        tokenmill.prepare("corpus/", "data/mine", num_proc=1)
        tokenmill.prepare("corpus/", "data/half", sample=0.5, num_proc=1)
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
        "HF_TOKEN": TOKEN,
        **more,
    }


FINEWEB_2_CARD = b"""---
configs:
- config_name: deu_Latn
  data_files:
  - split: train
    path: data/deu_Latn/train/*
---
"""


def hub_for(line: str) -> HubServer:
    """A Hub that holds what the line asks for, or takes what it sends."""
    if line.startswith("tokenmill push "):
        return UploadHub(repo=line.split()[3])
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": made_texts(200)}), sink)
    if "OWNER/NAME" in line:
        return HubServer({"data/a.parquet": sink.getvalue()}, repo="OWNER/NAME")
    if "fineweb-2:" in line:
        files = {"data/deu_Latn/train/a.parquet": sink.getvalue(), "README.md": FINEWEB_2_CARD}
        return HubServer(files, repo="HuggingFaceFW/fineweb-2")
    is_edu = "--no-edu" not in line
    name = f"sample/{'100BT' if '100B' in line else '10BT'}/000_00000.parquet"
    return HubServer({name: sink.getvalue()}, repo=REPOS[is_edu], commit=REVISIONS[is_edu])


def fill_bucket(client, folder: Path) -> None:
    """Put the corpus and the dataset where the URLs say they are."""
    with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
        client.create_bucket(Bucket="bucket")
    for place in ("corpus", "data/mine"):
        for path in (folder / place).rglob("*"):
            if path.is_file():
                key = f"{os.path.basename(place)}/{path.relative_to(folder / place)}"
                client.upload_file(str(path), "bucket", key)


def run(line: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    program, *words = shlex.split(line)
    assert program == "tokenmill"  # which tests/test_how_to.py starts by that name
    done = warm.tokenmill(*words, cwd=folder, env=environment(folder, **more))
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("line", TOKENMILL_LINES)
def test_command_works_as_written(line, folder, datasets, request):
    if line.split()[1] in ("verify", "inspect", "report", "convert", "push"):
        shutil.copytree(datasets, folder, dirs_exist_ok=True)
    if "s3://bucket/" in line:
        fill_bucket(request.getfixturevalue("s3").client(), folder)
    with hub_for(line) as hub:
        run(line, folder, HF_ENDPOINT=hub.url)
    if " -o s3://" in line:
        out = line.split(" -o ")[1].split()[0]
        run(f"tokenmill verify {out}", folder)
    elif line.split()[1] == "estimate" or "--dry-run" in line:
        assert not (folder / "data").exists()
    else:
        assert list((folder / "data").rglob("tokenmill.json"))


def test_readme_training_run_finds_what_the_command_before_it_wrote(folder):
    """nanoGPT's train.py maps data/DATASET/{train,val}.bin as uint16, and draws 1,024 tokens."""
    pairs = itertools.pairwise(shell_lines(README))
    [(prepare, train)] = [pair for pair in pairs if pair[1].startswith("python train.py")]
    run(prepare, folder)
    dataset = train.partition("--dataset=")[2]
    for split in ("train", "val"):
        tokens = np.memmap(folder / "data" / dataset / f"{split}.bin", dtype=np.uint16, mode="r")
        assert len(tokens) > 1024 and tokens.max() < 50304


def test_readme_commands_about_the_dataset_work_on_the_one_it_made_before(folder):
    first, *later = [line for line in tokenmill_lines(README) if "data/mine" in line]
    assert " prepare " in first and len(later) >= 3
    for line in [first, *later]:
        with hub_for(line) as hub:
            run(line, folder, HF_ENDPOINT=hub.url)


def test_tasks_one_after_the_other_make_what_one_run_makes(folder):
    out, alone = TASK_LINES[-1].split()[-1], "data/alone"
    assert [line.split()[1] for line in TASK_LINES] == ["prepare"] * 3 + ["finish"]
    for line in [*TASK_LINES, SINGLE_LINE.replace(f"-o {out}", f"-o {alone}")]:
        run(line, folder)
    names = {path.name for path in (folder / alone).iterdir()}
    assert names == {path.name for path in (folder / out).iterdir()} >= {"tokenmill.json"}
    for name in names:
        assert (folder / out / name).read_bytes() == (folder / alone / name).read_bytes()


@pytest.mark.parametrize("block", PYTHON_BLOCKS)
def test_python_works_as_written(block, folder):
    (folder / "script.py").write_text(block)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env=environment(folder, HF_HUB_OFFLINE="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout, done.stderr


def test_readme_names_make_targets_that_exist():
    targets = set(re.findall(r"^make (\w+)", "\n".join(shell_lines(README)), flags=re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    assert targets and all(f"\n{target}:" in makefile for target in targets)


def anchors_of(page: str) -> set[str]:
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_to_files_and_headings_that_exist(page):
    for link, anchor in re.findall(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        target = page.parent / link if link else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target.read_text()), (link, anchor)


def test_readme_links_to_every_page():
    linked = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", README)}
    assert {str(path.relative_to(ROOT)) for path in PAGES} - {"README.md"} <= linked


def test_readme_tells_enough_to_be_worth_running():
    assert len(unique(tokenmill_lines(README))) >= 6 and len(pages.texts_of(README, "python")) >= 2


def test_reliability_tables_are_those_of_the_results():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import reliability
    finally:
        sys.path.pop(0)
    for path, name, lines in reliability.blocks(json.loads(reliability.RESULTS.read_text())):
        assert len(lines) == 9 or path != ROOT / "README.md"  # a headline and five rows
        text = path.read_text()
        assert reliability.replaced(text, name, lines) == text, "tools/reliability.py --table-only"


def test_readme_lists_the_formats_and_who_reads_them():
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|$", README, flags=re.MULTILINE)
    assert dict(rows) == {name: get_format(name).trainers for name in NAMES}


def test_guide_lists_the_formats_as_they_are():
    page = GUIDES["formats.md"]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", page, flags=re.MULTILINE)
    listed = {name: (files.replace("`", ""), readers, said) for name, files, readers, said in rows}
    assert listed == {
        name: (get_format(name).files, get_format(name).trainers, ", ".join(defaults_of(name)))
        for name in NAMES
    }
