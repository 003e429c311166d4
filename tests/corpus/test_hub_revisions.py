"""A branch of the Hub moves; a run reads the commit that the branch stood for when it began."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hub_server
import oracle
from hub_corpus import LET_THE_PLAN_THROUGH, TEXTS, Here, parquet
from hub_server import CONVERTED_COMMIT, HubServer

NAME = "some/corpus"
FIRST, SECOND = "ab" * 20, "cd" * 20
OLD = {"a.parquet": parquet(TEXTS[0]), "b.parquet": parquet(TEXTS[1])}
NEW = {"a.parquet": parquet(TEXTS[2]), "c.parquet": parquet(TEXTS[3])}
CSV = {"a.csv": b"text\nhello"}
CONVERTED = {"default/train/0.parquet": parquet(TEXTS[2])}
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}


def prepared(here: Here, out: Path, *options: object, **env: str):
    return here.tokenmill("prepare", NAME, "-o", out, "--no-val", "--num-proc", 1, *options, **env)


def tokens_of(*texts: list[str]) -> bytes:
    return oracle.stream(oracle.ids([text for part in texts for text in part]))


def interrupted(server: HubServer, here: Here, out: Path, *options: object) -> None:
    """A run that made its plan, and ended when its second file came damaged twice."""
    twice = [hub_server.wrong_bytes(), hub_server.wrong_bytes()]
    plans = 2 if "--overwrite" in options else 1  # it rehearses
    server.fail(r"^GET /cdn/.*b\.parquet", *LET_THE_PLAN_THROUGH * plans, *twice)
    done = prepared(here, out, *options)
    assert done.returncode == 8 and (out / ".tokenmill" / "plan.json").exists(), done.stderr


@pytest.mark.parametrize("options", [(), ("--overwrite",), ("--partition", "1/1")], ids=str)
def test_run_that_is_resumed_reads_the_commit_with_which_it_began(options, tmp_path):
    out = tmp_path / "out"
    with HubServer(OLD, repo=NAME, commit=FIRST) as server:
        here = Here(server, tmp_path / "home")
        interrupted(server, here, out, *options)
        server.push(NEW, SECOND)
        done = prepared(here, out, *options)
        assert done.returncode == 0, done.stderr
        if "--partition" in options:
            assert here.tokenmill("finish", out).returncode == 0
        assert (out / "train.bin").read_bytes() == tokens_of(TEXTS[0], TEXTS[1])
        manifest = json.loads((out / "tokenmill.json").read_text())
        assert manifest["revisions"] == {f"{NAME}@main": FIRST}
        assert all(f"@{FIRST}/" in source["path"] for source in manifest["inputs"])
        if options:
            return
        done = prepared(here, out)  # finished: it needs no newer commit, either
        assert done.returncode == 0 and "is complete already" in done.stderr
        done = prepared(here, out, "--overwrite")
        assert done.returncode == 0, done.stderr
        assert (out / "train.bin").read_bytes() == tokens_of(TEXTS[2], TEXTS[3])


def test_unfinished_run_with_other_options_is_not_asked_for_its_commit(tmp_path):
    out = tmp_path / "out"
    with HubServer(OLD, repo=NAME, commit=FIRST) as server:
        here = Here(server, tmp_path / "home")
        interrupted(server, here, out)
        server.push(NEW, SECOND)
        done = prepared(here, out, "--overwrite", "--seed", 7)
        assert done.returncode == 0, done.stderr
    assert (out / "train.bin").read_bytes() == tokens_of(TEXTS[2], TEXTS[3])


def test_offline_mode_finds_a_name_in_the_cache_and_resumes_at_the_commit_of_the_plan(tmp_path):
    out, cache = tmp_path / "out", tmp_path / "home" / "hub" / "datasets--some--corpus"
    with HubServer(OLD, repo=NAME, commit=FIRST) as server:
        here = Here(server, tmp_path / "home")
        interrupted(server, here, out)
        assert not (cache / "refs").exists()  # half of the files are not to be taken for all
        assert prepared(here, tmp_path / "whole").returncode == 0
    assert (cache / "refs" / "main").read_text() == FIRST
    done = prepared(here, tmp_path / "by_name", **OFFLINE)
    assert done.returncode == 0, done.stderr
    assert "this reads the 2 files in the cache; the Hub may have more" in done.stderr
    (cache / "refs" / "main").write_text(SECOND)  # by another program, which knows a newer one
    done = prepared(here, out, **OFFLINE)
    assert done.returncode == 0, done.stderr
    assert "may have more" not in done.stderr
    for name in (out, tmp_path / "by_name"):
        assert (name / "train.bin").read_bytes() == tokens_of(TEXTS[0], TEXTS[1])


def test_the_hubs_own_conversion_is_kept_and_found_offline_too(tmp_path):
    with HubServer(CSV, repo=NAME, commit=FIRST, converted=CONVERTED) as server:
        here = Here(server, tmp_path / "home")
        assert prepared(here, tmp_path / "one").returncode == 0
    done = prepared(here, tmp_path / "two", **OFFLINE)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "two" / "tokenmill.json").read_text())
    assert manifest["revisions"][f"{NAME}@refs/convert/parquet"] == CONVERTED_COMMIT
    assert (tmp_path / "two" / "train.bin").read_bytes() == tokens_of(TEXTS[2])
