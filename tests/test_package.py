"""What is uploaded to a package index: its page, what it installs, and that these agree with the
Makefile and the requirements."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
HOME = PROJECT["project"]["urls"]["Repository"]
# What is imported only where an extra, or Ray's or a store's own user, has brought it.
# huggingface_hub brings hf_xet, if it can
OPTIONAL = {"azure", "sentencepiece", "ray", "fsspec", "gcsfs", "hf_xet", "datasets", "torch"}


def built(folder: Path, target: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return BytesParser().parsebytes(archive.read(name))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """As an installer that has only the sdist builds it."""
    folder = tmp_path_factory.mktemp("package")
    built(ROOT, folder / "first")
    [sdist] = (folder / "first").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    built(folder / sdist.name.removesuffix(".tar.gz"), folder / "second")
    [first], [second] = (folder.glob(f"{name}/*.whl") for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
    return second


def links_of(markdown: str) -> list[str]:
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    inside = [child for token in tokens for child in token.children or ()]
    found = [child.attrGet("href") or child.attrGet("src") for child in inside]
    return [str(link) for link in found if link]


def test_wheel_holds_every_file_of_the_viewer_page(wheel):
    folder = ROOT / "src" / "tokenmill" / "look" / "view" / "page"
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith("tokenmill/look/view/page/")}
    assert held == {f"tokenmill/look/view/page/{path.name}" for path in folder.iterdir()}
    assert len(held) > 3


def test_page_when_shown_on_an_index_then_every_link_leads_somewhere(wheel):
    page = metadata_of(wheel).get_payload()
    links = links_of(page)
    assert len(links) == len(links_of((ROOT / "README.md").read_text())) > 10
    for link in links:
        assert link.startswith("https://"), link
        if link.startswith(HOME):
            path = re.fullmatch(rf"{HOME}(?:/(?:blob|raw)/HEAD/([^#]+))?(?:#(.+))?", link)
            assert path, link
            assert (ROOT / (path[1] or "")).exists(), link
    assert f"git clone {HOME} " in page and "<this repository>" not in page


def test_page_when_compared_with_the_readme_then_only_links_differ(wheel):
    page = metadata_of(wheel).get_payload()
    for piece in (f"{HOME}/blob/HEAD/", f"{HOME}/raw/HEAD/"):
        page = page.replace(piece, "")
    page = page.replace(f"({HOME}#", "(#").replace(HOME, "<this repository>")
    assert page == (ROOT / "README.md").read_text()


def test_project_urls_are_shown_and_all_in_one_place(wheel):
    shown = dict(entry.split(", ") for entry in metadata_of(wheel).get_all("Project-URL"))
    assert shown == PROJECT["project"]["urls"]
    assert {"Repository", "Documentation", "Changelog", "Issues"} <= set(shown)
    assert all(url.startswith(HOME) for url in shown.values())


def test_every_library_that_is_imported_is_a_dependency():
    """`pip install tokenmill` alone runs every command that needs no cluster and no store."""
    named = {re.split(r"[<>=]", need)[0] for need in PROJECT["project"]["dependencies"]}
    named.add("yaml" if "pyyaml" in named else "")
    known = named | {"tokenmill"} | OPTIONAL | set(sys.stdlib_module_names)
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules = [node.module]
            for module in modules:
                assert module.partition(".")[0] in known, (path, module)


def pins(name: str) -> set[str]:
    text = (ROOT / "requirements" / name).read_text()
    return {line.rstrip(" \\") for line in text.splitlines() if re.match(r"[a-z0-9]", line)}


def test_requirements_of_the_demo_are_the_dependencies_and_what_builds_them():
    assert pins("run.txt") <= pins("dev.txt")  # `make test` adds to what `make demo` installed
    names = {pin.partition("==")[0] for pin in pins("run.txt")}
    direct = {re.split(r"[<>=]", need)[0] for need in PROJECT["project"]["dependencies"]}
    assert {name.replace("_", "-") for name in direct} < names
    assert not names & {"torch", "ray", "moto", "pytest", "datasets", "s3fs"}
    for path in (ROOT / "requirements").glob("*.txt"):
        text = path.read_text()
        assert text.count("==") <= text.count("--hash=sha256:") and "://" not in text


def test_demo_when_nothing_is_there_then_only_its_requirements_are_installed(tmp_path):
    def planned(target: str) -> str:
        command = ["make", "-n", target, f"VENV={tmp_path}/venv", f"LOADERS={tmp_path}/loaders"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    demo = planned("demo")
    assert "requirements/run.txt" in demo and "tokenmill demo" in demo
    assert "dev.txt" not in demo and "torch" not in demo and "loaders" not in demo
    installs = [line for line in demo.splitlines() if "pip install" in line]
    assert installs and all(line in planned("test").splitlines() for line in installs)


def test_python_floor_is_the_same_everywhere():
    floor = PROJECT["project"]["requires-python"].removeprefix(">=")
    prefix = "Programming Language :: Python :: "
    named = [c.removeprefix(prefix) for c in PROJECT["project"]["classifiers"] if prefix in c]
    assert min((v for v in named if v[-1].isdigit()), key=lambda v: int(v[2:])) == floor
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{floor.replace('.', '')}"
    assert f"--python-version {floor} " in MAKEFILE
    assert f"sys.version_info < ({floor.replace('.', ', ')})" in MAKEFILE
    assert f"needs Python {floor} or later" in MAKEFILE


def test_planted_bugs_are_lines_of_the_product():
    """`make teeth` takes long, so nobody runs it after every change: what it plants stays right."""
    found = subprocess.run(
        [sys.executable, "tools/teeth.py", "--list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert len(found.stdout.splitlines()) > 30
