"""A branch of the Hub moves; a run reads the commit that the branch stood for when it began."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import hub_server
import oracle
import tokenmill
from hub_client import connect, disconnect, share_blobs
from hub_corpus import TEXTS, is_download, parquet
from hub_server import CONVERTED_COMMIT, HubServer
from tokenmill.cli import main
from tokenmill.corpus.hub_inputs import HubInputs
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.pinned_revisions import is_surely_made_from

NAME = "some/corpus"
FIRST, SECOND = "ab" * 20, "cd" * 20
OLD = {"a.parquet": parquet(TEXTS[0]), "b.parquet": parquet(TEXTS[1])}
NEW = {"a.parquet": parquet(TEXTS[2]), "c.parquet": parquet(TEXTS[3])}
CSV = {"a.csv": b"text\nhello"}
CONVERTED = {"default/train/0.parquet": parquet(TEXTS[2])}


class Machine:
    """This process, with a Hub and a cache of its own."""

    def __init__(self, monkeypatch, capfd, server: HubServer, home: Path) -> None:
        connect(monkeypatch, server.url, home)
        self._capfd = capfd
        self.said = ""

    def run(self, *arguments: object) -> int:
        self._capfd.readouterr()
        code = main([*map(str, arguments)])
        self.said = self._capfd.readouterr().err
        return code

    def prepared(self, out: Path, *options: object) -> int:
        return self.run("prepare", NAME, "-o", out, "--no-val", "--num-proc", 1, *options)


@pytest.fixture
def here(monkeypatch, capfd, tmp_path):
    """A function: the machine whose Hub is a server."""
    monkeypatch.chdir(tmp_path)
    return lambda server: Machine(monkeypatch, capfd, server, tmp_path / "home")


def tokens_of(*texts: list[str]) -> bytes:
    return oracle.stream(oracle.ids([text for part in texts for text in part]))


def interrupted(server: HubServer, machine: Machine, out: Path, *options: object) -> None:
    """A run that made its plan, and ended when its second file came damaged twice."""
    twice = [hub_server.wrong_bytes(), hub_server.wrong_bytes()]
    server.fail(r"^GET /cdn/.*b\.parquet", *twice, only=is_download)
    assert machine.prepared(out, *options) == 8, machine.said
    assert (out / ".tokenmill" / "plan.json").exists()


@pytest.mark.parametrize("options", [(), ("--overwrite",), ("--partition", "1/1")], ids=str)
def test_run_that_is_resumed_reads_the_commit_with_which_it_began(options, here, tmp_path):
    out = tmp_path / "out"
    with HubServer(OLD, repo=NAME, commit=FIRST) as server:
        machine = here(server)
        interrupted(server, machine, out, *options)
        server.push(NEW, SECOND)
        assert machine.prepared(out, *options) == 0, machine.said
        if "--partition" in options:
            assert machine.run("finish", out) == 0
        assert (out / "train.bin").read_bytes() == tokens_of(TEXTS[0], TEXTS[1])
        manifest = json.loads((out / "tokenmill.json").read_text())
        assert manifest["revisions"] == {f"{NAME}@main": FIRST}
        assert all(f"@{FIRST}/" in source["path"] for source in manifest["inputs"])
        assert machine.prepared(out) == 0  # finished: it needs no newer commit, either
        assert "is already complete" in machine.said
        assert machine.prepared(out, "--overwrite") == 0, machine.said
        assert (out / "train.bin").read_bytes() == tokens_of(TEXTS[2], TEXTS[3])


def test_unfinished_run_with_other_options_is_not_asked_for_its_commit(here, tmp_path):
    out = tmp_path / "out"
    with HubServer(OLD, repo=NAME, commit=FIRST) as server:
        machine = here(server)
        interrupted(server, machine, out)
        server.push(NEW, SECOND)
        assert machine.prepared(out, "--overwrite", "--seed", 7) == 0, machine.said
    assert (out / "train.bin").read_bytes() == tokens_of(TEXTS[2], TEXTS[3])


def test_unfinished_run_of_other_files_is_not_asked_for_its_commit(here, tmp_path):
    out = tmp_path / "out"
    with HubServer(OLD, repo=NAME, commit=FIRST) as server:
        machine = here(server)
        interrupted(server, machine, out)
        server.push(NEW, SECOND)
        source = f"hf://datasets/{NAME}/a.parquet"
        options = ("--no-val", "--num-proc", 1, "--overwrite")
        assert machine.run("prepare", source, "-o", out, *options) == 0, machine.said
    assert (out / "train.bin").read_bytes() == tokens_of(TEXTS[2])


def test_offline_mode_finds_a_name_in_the_cache_and_resumes_at_the_commit_of_the_plan(
    here, tmp_path, monkeypatch
):
    out, cache = tmp_path / "out", tmp_path / "home" / "hub" / "datasets--some--corpus"
    with HubServer(OLD, repo=NAME, commit=FIRST) as server:
        machine = here(server)
        interrupted(server, machine, out)
        assert not (cache / "refs").exists()  # half of the files are not to be taken for all
        assert machine.prepared(tmp_path / "whole") == 0
    assert (cache / "refs" / "main").read_text() == FIRST
    disconnect(monkeypatch)
    assert machine.prepared(tmp_path / "by_name") == 0, machine.said
    assert "this reads the 2 files in the cache; the Hub may have more" in machine.said
    (cache / "refs" / "main").write_text(SECOND)  # by another program, which knows a newer one
    link = cache / "snapshots" / FIRST / "b.parquet"
    target = os.readlink(link)
    link.unlink()
    assert machine.prepared(out) == 8 and f"@{FIRST}/b.parquet" in machine.said
    # Whether a finished dataset has all files that its name means, nobody can say now.
    assert machine.prepared(tmp_path / "by_name") == 8
    link.symlink_to(target)
    assert machine.prepared(out) == 0, machine.said
    assert "may have more" not in machine.said
    for name in (out, tmp_path / "by_name"):
        assert (name / "train.bin").read_bytes() == tokens_of(TEXTS[0], TEXTS[1])


@pytest.mark.parametrize("is_shared", [False, True], ids=["own blobs", "shared store"])
def test_offline_run_reads_what_the_cache_has_of_an_incomplete_snapshot_with_the_hubs_digests(
    is_shared, here, tmp_path, monkeypatch
):
    cache = tmp_path / "home" / "hub"
    with HubServer(OLD, repo=NAME, commit=FIRST) as server:
        machine = here(server)
        assert machine.prepared(tmp_path / "online") == 0, machine.said
    if is_shared:
        share_blobs(cache)
    # What `snapshot_download(allow_patterns=...)` leaves: the names of all files of the commit.
    trees = cache / "datasets--some--corpus" / "trees"
    trees.mkdir()
    entry = {"size": 1, "blob_id": "0" * 40}
    tree = {"format_version": 1, "files": dict.fromkeys([*OLD, "not-here.parquet"], entry)}
    (trees / f"{FIRST}.json").write_text(json.dumps(tree))
    disconnect(monkeypatch)
    assert machine.prepared(tmp_path / "offline") == 0, machine.said
    found = [Manifest.load(str(tmp_path / name)).inputs for name in ("online", "offline")]
    assert [source.digest for source in found[0]] == [source.digest for source in found[1]]


def test_the_hubs_own_conversion_is_kept_and_found_offline_too(here, tmp_path, monkeypatch):
    with HubServer(CSV, repo=NAME, commit=FIRST, converted=CONVERTED) as server:
        machine = here(server)
        assert machine.prepared(tmp_path / "one") == 0, machine.said
    disconnect(monkeypatch)
    assert machine.prepared(tmp_path / "two") == 0, machine.said
    manifest = json.loads((tmp_path / "two" / "tokenmill.json").read_text())
    assert manifest["revisions"][f"{NAME}@refs/convert/parquet"] == CONVERTED_COMMIT
    assert (tmp_path / "two" / "train.bin").read_bytes() == tokens_of(TEXTS[2])


def test_name_is_not_complete_without_the_hub_because_one_of_its_configs_is(
    here, tmp_path, monkeypatch
):
    two = "- config_name: two\n  default: true\n  data_files: b.parquet\n"
    card = f"---\nconfigs:\n- config_name: one\n  data_files: a.parquet\n{two}---\n".encode()
    opened: list[HubInputs] = []
    closed: list[HubInputs] = []
    begin, close = HubInputs.__init__, HubInputs.close
    monkeypatch.setattr(HubInputs, "__init__", lambda s, *a: (begin(s, *a), opened.append(s))[0])
    monkeypatch.setattr(HubInputs, "close", lambda self: (close(self), closed.append(self))[0])
    with HubServer({**OLD, "README.md": card}, repo=NAME) as server:
        machine, out = here(server), tmp_path / "out"
        command = ("-o", out, "--no-val", "--num-proc", 1)
        assert machine.run("prepare", f"{NAME}:one", *command) == 0, machine.said
        assert machine.run("prepare", f"{NAME}:one", *command) == 0
        assert "is already complete" in machine.said
        assert opened and set(opened) == set(closed)  # also if there was nothing to do
    manifest = Manifest.load(str(out))
    assert not is_surely_made_from(tokenmill.Config(sources=(NAME,), out="o"), manifest)
    glob = tokenmill.Config(sources=(f"hf://datasets/{NAME}/a.parquet",), out="o")
    assert is_surely_made_from(glob, manifest)
