"""Datasets from the Hub: the real huggingface_hub client against a Hub on loopback, with faults."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hub_server
import oracle
from hub_corpus import (
    ALL,
    COMMIT,
    EXPECTED,
    FILES,
    FINEWEB,
    OTHERS,
    REPO,
    TEXTS,
    Here,
    is_download,
)
from hub_server import HubServer
from tokenmill.corpus.fineweb import fineweb_source
from tokenmill.corpus.hub_listing import matches
from tokenmill.corpus.hub_names import HubSource
from tokenmill.errors import ConfigError
from tokenmill.storage.hub import Hub, HubFile


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer({**FILES, **OTHERS}, repo=REPO, commit=COMMIT) as running:
        yield running


@pytest.fixture
def here(server, tmp_path) -> Here:
    return Here(server, tmp_path / "home")


def test_fineweb_downloads_the_pinned_sample_and_prepares_it(here, tmp_path, server):
    done = here.tokenmill(*FINEWEB, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == EXPECTED
    assert not server.asked("100BT") and not server.asked("README")
    manifest = json.loads((tmp_path / "out" / "tokenmill.json").read_text())
    assert [source["path"] for source in manifest["inputs"]] == [
        f"hf://datasets/{REPO}@{COMMIT}/{name}" for name in sorted(FILES)
    ]
    assert all(source["digest"].startswith("sha256:") for source in manifest["inputs"])


def test_hub_glob_gives_the_same_bytes_as_the_files(here, tmp_path):
    source = f"hf://datasets/{REPO}/sample/10BT/00[0-1]_*.parquet"
    done = here.tokenmill("prepare", source, "-o", tmp_path / "out", "--no-val", "--num-proc", 1)
    assert done.returncode == 0, done.stderr
    expected = oracle.stream(oracle.ids(TEXTS[0] + TEXTS[1]))
    assert (tmp_path / "out" / "train.bin").read_bytes() == expected


def test_named_sources_on_the_hub_are_read_counted_and_pinned(here, tmp_path):
    """One file is in both sources, and one source is there twice and is not kept."""
    glob = f"hf://datasets/{REPO}/sample/10BT/00"
    (tmp_path / "tokenmill.toml").write_text(
        f'[source.b]\npaths = "{glob}[01]_*.parquet"\nrepeat = 2\nwhere = "number == 1"\n'
    )
    options = ("--config", tmp_path / "tokenmill.toml", "--no-val", "--num-proc", 2)
    command = ("prepare", f"a={glob}[12]_*", *options, "--no-keep-downloads", "-o")
    done = here.tokenmill(*command, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    expected = oracle.stream(oracle.ids(TEXTS[1] + TEXTS[2] + TEXTS[1] + TEXTS[1]))
    assert (tmp_path / "out" / "train.bin").read_bytes() == expected
    assert "    b  1,200 rows = 600 written + 600 filtered + " in done.stderr
    assert not list((tmp_path / "home").rglob("*.parquet"))
    done = here.tokenmill(*command, tmp_path / "out", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 0 and "is already complete" in done.stderr
    done = here.tokenmill("inspect", tmp_path / "out", "--config")
    assert f'  "{glob}[12]_*",\n'.replace(REPO, f"{REPO}@{COMMIT}") in done.stdout
    (tmp_path / "tokenmill.toml").write_text(done.stdout)
    done = here.tokenmill(
        "prepare", "--config", tmp_path / "tokenmill.toml", "-o", tmp_path / "two"
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "two" / "train.bin").read_bytes() == expected


def test_limit_docs_downloads_only_the_files_it_needs(here, tmp_path, server):
    done = here.tokenmill(*FINEWEB, tmp_path / "out", "--limit-docs", 350)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == oracle.stream(oracle.ids(ALL[:350]))
    assert len(list((tmp_path / "home").rglob("*.parquet"))) == 2


def test_where_downloads_only_files_in_which_a_row_can_pass(here, tmp_path, server):
    done = here.tokenmill(*FINEWEB, tmp_path / "out", "--where", "number == 2 and id >= ''")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == oracle.stream(oracle.ids(TEXTS[2]))
    assert "1,200 rows = 300 written + 900 filtered + " in done.stderr
    [file] = (tmp_path / "home").rglob("*.parquet")
    assert file.name == "002_00000.parquet"


def test_limit_tokens_reads_its_last_file_again_before_it_is_removed(here, tmp_path):
    documents = oracle.ids(ALL)
    limit = sum(map(len, documents[:450])) - 1
    options = ("--limit-tokens", limit, "--no-keep-downloads")
    done = here.tokenmill(*FINEWEB, tmp_path / "out", *options)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == oracle.stream(documents[:450])
    assert "001_00000.parquet, row 149" in done.stderr
    assert not list((tmp_path / "home").rglob("*.parquet"))


def test_jsonl_on_the_hub_is_fetched_before_it_is_cut(tmp_path):
    files = {
        f"data/{name}.jsonl": "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
        for name, texts in zip("abc", TEXTS, strict=False)
    }
    with HubServer(files, repo="some/one") as server:
        here = Here(server, tmp_path / "home")
        source = "hf://datasets/some/one@main/data/*.jsonl"
        done = here.tokenmill(
            "prepare", source, "-o", tmp_path / "out", "--no-val", "--num-proc", 1
        )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == oracle.stream(
        oracle.ids(TEXTS[0] + TEXTS[1] + TEXTS[2])
    )


@pytest.mark.parametrize("num_proc", [1, 2])
def test_footer_on_the_hub_that_cannot_be_read_is_named_by_its_url(num_proc, tmp_path):
    table = pa.table({"other": TEXTS[0]})
    pq.write_table(table, tmp_path / "a.parquet")
    with HubServer({"a.parquet": (tmp_path / "a.parquet").read_bytes()}, repo="some/one") as server:
        here = Here(server, tmp_path / "home")
        source = "hf://datasets/some/one/*.parquet"
        done = here.tokenmill("prepare", source, "-o", tmp_path / "out", "--num-proc", num_proc)
    assert done.returncode == 2, done.stderr
    assert "hf://datasets/some/one@" in done.stderr
    assert ".tokenmill" not in done.stderr


def test_keep_downloads_leaves_them_in_the_cache_where_offline_mode_finds_them(here, tmp_path):
    assert here.tokenmill(*FINEWEB, tmp_path / "one").returncode == 0
    cached = list((tmp_path / "home" / "hub").rglob("*.parquet"))
    assert len(cached) == len(FILES)
    done = here.tokenmill(
        *FINEWEB, tmp_path / "two", HF_HUB_OFFLINE="1", HF_ENDPOINT="http://127.0.0.1:9"
    )
    assert done.returncode == 0, done.stderr
    for name in ("train.bin", "tokenmill.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_blob_without_its_link_is_linked_and_not_fetched_again(here, tmp_path, server):
    assert here.tokenmill(*FINEWEB, tmp_path / "one").returncode == 0
    links = sorted((tmp_path / "home" / "hub").rglob("*.parquet"))
    links[1].unlink()  # as if killed just before
    links[2].unlink()
    blob = tmp_path / "home" / "hub" / f"datasets--{REPO.replace('/', '--')}" / "blobs"
    blob /= sha256_of("002_00000")
    blob.write_bytes(blob.read_bytes()[::-1])  # of the right size, and not what its name says
    before = server.num_file_bytes_sent
    done = here.tokenmill(*FINEWEB, tmp_path / "two")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "two" / "train.bin").read_bytes() == EXPECTED
    whole = len(FILES["sample/10BT/002_00000.parquet"])
    assert whole <= server.num_file_bytes_sent - before < 1.5 * whole  # and two footers
    assert sorted((tmp_path / "home" / "hub").rglob("*.parquet")) == links


def test_no_keep_downloads_leaves_nothing_behind(here, tmp_path):
    done = here.tokenmill(*FINEWEB, tmp_path / "out", "--no-keep-downloads")
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(tmp_path / "out")) == ["tokenmill.json", "train.bin"]
    assert not list((tmp_path / "home").rglob("*.parquet"))
    assert (tmp_path / "out" / "train.bin").read_bytes() == EXPECTED


def test_local_dir_needs_no_network(tmp_path):
    for name, data in FILES.items():
        path = tmp_path / "elsewhere" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    here = Here(None, tmp_path / "home")
    for folder in ("elsewhere", "elsewhere/sample/10BT"):
        out = tmp_path / folder.replace("/", "-")
        done = here.tokenmill(*FINEWEB, out, "--local-dir", tmp_path / folder)
        assert done.returncode == 0, done.stderr
        assert (out / "train.bin").read_bytes() == EXPECTED
    done = here.tokenmill(*FINEWEB, tmp_path / "no", "--local-dir", tmp_path / "home")
    assert done.returncode == 3 and "--local-dir" in done.stderr


def test_no_network_is_exit_8_with_the_commands_to_type(tmp_path):
    done = Here(None, tmp_path / "home").tokenmill(*FINEWEB, tmp_path / "out")
    assert done.returncode == 8
    assert f"hf download {REPO} --repo-type dataset --revision {COMMIT}" in done.stderr
    assert "--include 'sample/10BT/*.parquet' --local-dir DIR" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "include"),
    [
        (f"{REPO}:sample-10BT", "--include 'sample/10BT/*.parquet' --local-dir DIR;"),
        ("roneneldan/TinyStories", "--include 'data/train-*.parquet' --local-dir DIR;"),
        ("some/corpus:de", "--include 'GLOB' --local-dir DIR, where GLOB matches the files of its"),
    ],
)
def test_no_network_then_the_command_never_fetches_a_whole_repository(name, include, tmp_path):
    done = Here(None, tmp_path / "home").tokenmill("prepare", name, "-o", tmp_path / "out")
    assert done.returncode == 8 and include in done.stderr, done.stderr


def test_offline_mode_without_a_cache_is_exit_8(tmp_path):
    done = Here(None, tmp_path / "home").tokenmill(*FINEWEB, tmp_path / "out", HF_HUB_OFFLINE="1")
    assert done.returncode == 8 and "HF_HUB_OFFLINE" in done.stderr


def test_unknown_repo_revision_and_pattern_are_exit_3(here, tmp_path):
    for source in (
        "hf://datasets/nobody/nothing/*.parquet",
        f"hf://datasets/{REPO}@{'0' * 40}/sample/10BT/*.parquet",
        f"hf://datasets/{REPO}/nowhere/*.parquet",
        f"hf://datasets/{REPO}/sample/10BT/*.arrow",
    ):
        done = here.tokenmill("prepare", source, "-o", tmp_path / "out")
        assert done.returncode == 3, (source, done.stderr)
        assert "hint:" in done.stderr and "Traceback" not in done.stderr


def test_pattern_without_a_match_gets_one_that_matches(here, tmp_path):
    source = f"hf://datasets/{REPO}/**/*.arrow"
    done = here.tokenmill("prepare", source, "-o", tmp_path / "out")
    assert done.returncode == 3
    [better] = shlex.split(done.stderr.partition("hint: ")[2])[:1]
    assert better == f"hf://datasets/{REPO}/**/*.parquet"
    done = here.tokenmill("prepare", better, "-o", tmp_path / "out", "--no-val", "--num-proc", 1)
    assert done.returncode == 0, done.stderr


def test_file_that_two_patterns_match_is_read_once_and_said(here, tmp_path):
    sources = [f"hf://datasets/{REPO}/sample/10BT/00{n}_*.parquet" for n in ("[0-1]", "0")]
    done = here.tokenmill("prepare", *sources, "-o", tmp_path / "out", "--no-val", "--num-proc", 1)
    assert done.returncode == 0, done.stderr
    expected = oracle.stream(oracle.ids(TEXTS[0] + TEXTS[1]))
    assert (tmp_path / "out" / "train.bin").read_bytes() == expected
    assert "1 path was named more than once and read once" in done.stderr


@pytest.mark.parametrize(
    "faults",
    [
        [hub_server.rate_limited(1)],
        [hub_server.rate_limited_until_date(1.5)],
        [hub_server.status(503), hub_server.status(500)],
        [hub_server.cut(20_000)],
        [hub_server.cut(20_000, resets=True)],
        [hub_server.cut()],
        [hub_server.short_body(1000)],
        [hub_server.wrong_bytes()],
        [hub_server.changed_file()],
        [hub_server.refused_address()] * 4,
        [hub_server.stall(1.5, 20_000)],
    ],
    ids=lambda faults: None,
)
def test_a_download_that_fails_for_a_while_ends_in_the_right_bytes(faults, here, tmp_path, server):
    server.fail(r"^GET /cdn/.*001_00000", *faults, only=is_download)
    done = here.tokenmill(*FINEWEB, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == EXPECTED


@pytest.mark.parametrize(
    "faults",
    [
        [hub_server.cut(resets=True)] * 2,
        [hub_server.status(503)] * 2,
        [hub_server.rate_limited(1)] * 2,
    ],
    ids=["reset", "503", "429"],
)
def test_a_question_about_a_file_that_fails_is_asked_again(faults, here, tmp_path, server):
    server.fail("^HEAD .*001_00000", *faults)
    done = here.tokenmill(*FINEWEB, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == EXPECTED


def test_addresses_that_expire_while_others_are_used_are_asked_for_again(tmp_path):
    with HubServer(FILES, repo=REPO, commit=COMMIT, address_seconds=0.05) as server:
        server.fail("^HEAD .*00[12]_00000", hub_server.stall(0.2))
        done = Here(server, tmp_path / "home").tokenmill(*FINEWEB, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == EXPECTED


def flipped_writer(right: hub_server.Response) -> hub_server.Response:
    """A footer that reads as well as the right one, but is not that of the file."""
    body = bytes(right.body)
    assert body.count(b"parquet-cpp-arrow") == 1
    return replace(right, body=memoryview(body.replace(b"parquet-cpp-arrow", b"parquet-cpp-brrow")))


@pytest.mark.parametrize("is_resumed", [False, True])
def test_plan_that_was_made_from_a_wrong_footer_is_refused(is_resumed, here, tmp_path, server):
    footer = [flipped_writer] * 2  # its length, and then all of it
    server.fail(r"^GET /cdn/.*002_00000", *footer, only=lambda r: not is_download(r))
    if is_resumed:
        server.fail(r"^GET /cdn/.*002_00000", *[hub_server.wrong_bytes()] * 2, only=is_download)
    command = (*FINEWEB, tmp_path / "out", "--limit-tokens", "10M")  # plans first
    done = here.tokenmill(*command)
    assert done.returncode == 8, done.stderr
    if is_resumed:
        done = here.tokenmill(*command)
    assert "the plan was made from other bytes" in done.stderr
    assert not (tmp_path / "out" / "tokenmill.json").exists()
    [_, _, folder] = done.stderr.partition("hint: ")[2].partition(",")[0].split()
    shutil.rmtree(folder)
    done = here.tokenmill(*command)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == EXPECTED


@pytest.mark.parametrize("options", [(), ("--no-keep-downloads",)], ids=str)
def test_wrong_bytes_in_the_cache_are_fetched_again(options, here, tmp_path, server):
    assert here.tokenmill(*FINEWEB, tmp_path / "one").returncode == 0
    links = sorted((tmp_path / "home" / "hub").rglob("*.parquet"))
    data = bytearray(links[1].read_bytes())
    data[1000] ^= 1
    links[1].resolve().write_bytes(data)
    before = server.num_file_bytes_sent
    done = here.tokenmill(*FINEWEB, tmp_path / "two", *options)
    assert done.returncode == 0, done.stderr
    assert "001_00000.parquet: other bytes in the cache; downloading it again" in done.stderr
    assert (tmp_path / "two" / "train.bin").read_bytes() == EXPECTED
    assert server.num_file_bytes_sent - before == len(data)
    assert links[1].read_bytes() == FILES["sample/10BT/001_00000.parquet"]


def test_no_keep_downloads_reads_what_the_cache_has_and_leaves_it_there(here, tmp_path, server):
    glob = f"hf://datasets/{REPO}/sample/10BT/00[01]_*.parquet"
    assert here.tokenmill("prepare", glob, "-o", tmp_path / "some").returncode == 0
    cached = sorted((tmp_path / "home").rglob("*.parquet"))
    assert len(cached) == 2
    before = len(server.asked("^GET /cdn/"))
    done = here.tokenmill(*FINEWEB, tmp_path / "out", "--no-keep-downloads")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == EXPECTED
    asked = [request for request in server.asked("^GET /cdn/")[before:] if is_download(request)]
    assert len(asked) == 2
    assert sorted((tmp_path / "home").rglob("*.parquet")) == cached
    assert sorted(os.listdir(tmp_path / "out")) == ["tokenmill.json", "train.bin"]


def test_temporary_files_of_downloads_that_were_killed_long_ago_are_removed(here, tmp_path):
    blobs = tmp_path / "home" / "hub" / f"datasets--{REPO.replace('/', '--')}" / "blobs"
    blobs.mkdir(parents=True)
    old, new, other = (blobs / f"{name}.incomplete" for name in ("a.0123abcd", "b.0123abcd", "c"))
    for path in (old, new, other):
        path.write_bytes(b"some")
    for path in (old, other):  # the last one an older client would continue
        os.utime(path, (1, 1))
    assert here.tokenmill(*FINEWEB, tmp_path / "out").returncode == 0
    assert sorted(blobs.glob("*.incomplete")) == [new, other]


def test_two_runs_at_once_fetch_each_file_once(here, tmp_path):
    line = hub_server.Line(bytes_per_second_each=200_000)
    with HubServer(FILES, repo=REPO, commit=COMMIT, line=line) as server:
        environment = Here(server, tmp_path / "home").environment
        program = [sys.executable, "-m", "tokenmill", *FINEWEB]
        runs = [subprocess.Popen([*program, tmp_path / n], env=environment) for n in ("a", "b")]
        assert [run.wait() for run in runs] == [0, 0]
        assert len(list(filter(is_download, server.asked("^GET /cdn/")))) == len(FILES)
    for name in ("a", "b"):
        assert (tmp_path / name / "train.bin").read_bytes() == EXPECTED


def sha256_of(name: str) -> str:
    [data] = [data for path, data in FILES.items() if name in path]
    return hashlib.sha256(data).hexdigest()


def test_listing_that_fails_for_a_while_is_repeated(here, tmp_path, server):
    server.fail(r"^GET /api/datasets", hub_server.status(502), hub_server.rate_limited(1))
    done = here.tokenmill(*FINEWEB, tmp_path / "out")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("options", [(), ("--no-keep-downloads",)], ids=str)
def test_wrong_bytes_for_good_are_exit_8_naming_both_hashes(options, here, tmp_path, server):
    faults = [hub_server.wrong_bytes()] * 20
    server.fail(r"^GET /cdn/.*002_00000", *faults, only=is_download)
    done = here.tokenmill(*FINEWEB, tmp_path / "out", *options)
    assert done.returncode == 8, done.stderr
    hashes = set(re.findall(r"sha256:[0-9a-f]{64}", done.stderr))
    assert len(hashes) == 2 and f"sha256:{sha256_of('002_00000')}" in hashes
    assert not (tmp_path / "out" / "tokenmill.json").exists()
    assert not list(tmp_path.rglob("002_00000.parquet"))  # nobody takes it for right


@pytest.mark.parametrize("num_proc", [1, 2])
def test_ctrl_c_while_waiting_for_a_download_ends_at_once(num_proc, tmp_path):
    size = sum(map(len, FILES.values()))
    with HubServer(FILES, repo=REPO, commit=COMMIT, bytes_per_second=size / 60) as server:
        here = Here(server, tmp_path / "home")
        command = [sys.executable, "-m", "tokenmill", *FINEWEB, str(tmp_path / "out")]
        command[command.index("2")] = str(num_proc)
        process = subprocess.Popen(command, env=here.environment, stderr=subprocess.PIPE, text=True)
        while not (tmp_path / "out" / ".tokenmill" / "plan.json").exists():
            time.sleep(0.02)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=120)[1]
        assert process.returncode == -signal.SIGINT, errors
        assert server.num_file_bytes_sent < size, "it has waited for the whole download"
        assert "whole files and the tokens made from them are kept" in errors


def test_a_token_reaches_the_hub_and_no_other_place(here, tmp_path, server):
    canary = "hf_CANARYcanaryCANARY0123456789"
    server.fail(r"^GET /cdn/.*001_00000", hub_server.status(503))
    done = here.tokenmill(*FINEWEB, tmp_path / "out", "-v", HF_TOKEN=canary)
    assert done.returncode == 0, done.stderr
    assert any(canary in (r.authorization or "") for r in server.requests if r.origin == "hub")
    assert not any(r.has_authorization for r in server.requests if r.origin == "cdn")
    assert canary not in done.stdout + done.stderr
    for path in (tmp_path / "out").rglob("*"):
        assert not path.is_file() or canary.encode() not in path.read_bytes()


def test_fineweb_names_shards_as_the_scripts_do(here, tmp_path):
    done = here.tokenmill(
        "fineweb",
        "--format",
        "llmc",
        "--shard-tokens",
        "50K",
        "-o",
        tmp_path / "out",
        "--num-proc",
        1,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "edu_fineweb_val_000000.bin").exists()


def test_fineweb_versions_and_hub_urls_are_checked():
    with pytest.raises(ConfigError, match="10B, 100B, 350B"):
        fineweb_source("1B")
    with pytest.raises(ConfigError, match="hf://datasets/OWNER/NAME"):
        HubSource.parsed("hf://models/gpt2")
    assert HubSource.parsed("hf://datasets/a/b@v1/x/**/*.parquet") == HubSource(
        "a/b", "v1", "x/**/*.parquet"
    )


@pytest.mark.parametrize(
    ("path", "pattern", "is_match"),
    [
        ("a/b.parquet", "a/*.parquet", True),
        ("a/c/b.parquet", "a/*.parquet", False),
        ("a/c/b.parquet", "a/**/*.parquet", True),
        ("a/b.parquet", "a/**/*.parquet", True),
        ("a/b1.parquet", "a/b[0-9].parquet", True),
        ("a/bx.parquet", "a/b[0-9].parquet", False),
        ("a/b.parquet", "a/?.parquet", True),
    ],
)
def test_patterns_match_as_a_shell_would(path, pattern, is_match):
    assert matches(path, pattern) is is_match


SCRIPTS = Path(__file__).parents[2] / "data" / "fineweb"


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A nanoGPT checkout with our scripts copied into it."""
    folder = tmp_path / "nanoGPT" / "data" / "fineweb"
    folder.mkdir(parents=True)
    for script in SCRIPTS.glob("*.py"):
        (folder / script.name).write_bytes(script.read_bytes())
    return tmp_path / "nanoGPT"


def run_script(here: Here, checkout: Path, script: str, *arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, f"data/fineweb/{script}", *map(str, arguments)],
        cwd=checkout,
        env=here.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_script_prepare_fineweb_leaves_train_and_val_beside_itself(here, checkout):
    run_script(here, checkout, "prepare_fineweb.py", "--version", "10B", "--val-fraction", "0.1")
    import torch

    for split in ("train", "val"):  # as nanoGPT's train.py reads them
        data = np.memmap(checkout / "data" / "fineweb" / f"{split}.bin", dtype=np.uint16, mode="r")
        block_size, batch_size = 128, 4
        ix = torch.randint(len(data) - block_size, (batch_size,))
        x, y = (
            torch.stack(
                [torch.from_numpy(data[i + k : i + k + block_size].astype(np.int64)) for i in ix]
            )
            for k in (0, 1)
        )
        assert x.shape == (batch_size, block_size) and torch.equal(x[:, 1:], y[:, :-1])
        assert int(x.max()) <= 50256


def test_script_prepare_without_arguments_prepares_fineweb(here, checkout):
    run_script(here, checkout, "prepare.py", "--no-val")
    assert (checkout / "data" / "fineweb" / "train.bin").read_bytes() == EXPECTED


@pytest.mark.parametrize("is_one_word", [False, True])
def test_script_prepare_with_input_reads_one_giant_txt_without_network(
    checkout, tmp_path, is_one_word
):
    here = Here(None, tmp_path / "home")
    giant = tmp_path / "giant.txt"
    texts = [text.replace("<|endoftext|>", "") for text in ALL]
    giant.write_text("<|endoftext|>".join(texts))
    words = [f"--input={giant}"] if is_one_word else ["--input", giant]
    run_script(here, checkout, "prepare.py", *words, "--separator", "<|endoftext|>", "--no-val")
    assert (checkout / "data" / "fineweb" / "train.bin").read_bytes() == oracle.stream(
        oracle.ids(texts)
    )


def test_finished_run_is_complete_also_when_the_hub_does_not_answer(here, tmp_path):
    assert here.tokenmill(*FINEWEB, tmp_path / "out").returncode == 0
    done = here.tokenmill(*FINEWEB, tmp_path / "out", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 0 and "is already complete" in done.stderr
    assert "the Hub does not answer: complete for the 4 files that it was made from" in done.stderr
    done = here.tokenmill(*FINEWEB, tmp_path / "out", "--seed", 3, HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 6
    # Another dataset is not complete because the Hub cannot say what is in it.
    for other in (["allenai/c4"], ["hf://datasets/allenai/c4/en/*.gz"], [tmp_path, "allenai/c4"]):
        options = ("--no-val", "--num-proc", "2", "-o", tmp_path / "out")
        done = here.tokenmill("prepare", *other, *options, HF_ENDPOINT="http://127.0.0.1:9")
        assert done.returncode == 8 and "complete" not in done.stderr, done.stderr
    done = here.tokenmill(
        *FINEWEB[:2], "100B", *FINEWEB[3:], tmp_path / "out", HF_ENDPOINT="http://127.0.0.1:9"
    )
    assert done.returncode == 8


def test_files_of_the_same_name_in_two_repositories_or_commits_have_a_place_each(tmp_path):
    hub = Hub(print, str(tmp_path))
    places = {
        hub.place(HubFile(repo, commit * 40, "data/0.parquet", 7, "sha256:"))
        for repo, commit in itertools.product(("a/corpus", "b/corpus"), "01")
    }
    assert len(places) == 4
