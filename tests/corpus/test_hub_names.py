"""Datasets on the Hub by the names that people write, and what they are told about wrong ones."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pytest

import hub_server
import oracle
from hub_corpus import (
    COMMIT,
    EXPECTED,
    FINEWEB,
    REPO,
    TEXTS,
    Here,
    answer,
    is_download,
    parquet,
)
from hub_server import CONVERTED_COMMIT, TOKEN, HubServer, Line
from tokenmill.corpus.dataset_card import CardConfig, card_configs, meant_globs
from tokenmill.corpus.hub_names import DatasetName, HubSource, hub_source, local_note
from tokenmill.corpus.presets import PRESETS
from tokenmill.errors import ConfigError

CARD = """---
license: odc-by
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*/*
- config_name: sample-10BT
  data_files:
  - split: train
    path: sample/10BT/*
- config_name: sample-100BT
  data_files:
  - split: train
    path:
    - sample/100BT/a*
    - sample/100BT/b*
  - split: test
    path: sample/100BT/test*
---
# A corpus
"""
FILES = {
    "README.md": CARD.encode(),
    "data/one/000.parquet": parquet(TEXTS[0]),
    "sample/10BT/000.parquet": parquet(TEXTS[1]),
    "sample/100BT/a.parquet": parquet(TEXTS[2]),
    "sample/100BT/b.parquet": parquet(TEXTS[3]),
    "sample/100BT/test.parquet": parquet(["held out"]),
}
NAME = "some/corpus"


def prepared(here: Here, source: str, out: Path, *options: object, **env: str):
    """A run in an empty folder, where no name is a path."""
    out.parent.mkdir(parents=True, exist_ok=True)
    words = ("prepare", source, "-o", out, "--no-val", "--num-proc", 1, *options)
    return here.tokenmill(*words, cwd=out.parent, **env)


def tokens_of(*texts: list[str]) -> bytes:
    return oracle.stream(oracle.ids([text for part in texts for text in part]))


def inputs_in(out: Path) -> list[str]:
    return [source["path"] for source in json.loads((out / "tokenmill.json").read_text())["inputs"]]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a/b", DatasetName("a/b", may_be_path=True)),
        ("a/b:c", DatasetName("a/b", config="c")),
        ("a/b:c/train", DatasetName("a/b", config="c", split="train")),
        ("a/b@v1", DatasetName("a/b", "v1")),
        ("a/b@refs/convert/parquet", DatasetName("a/b", "refs/convert/parquet")),
        ("a/b@v1:c/test", DatasetName("a/b", "v1", "c", "test")),
        ("a/b:c/test@v1", DatasetName("a/b", "v1", "c", "test")),
        ("datasets/a/b:c", DatasetName("a/b", config="c")),
        ("hf://datasets/a/b", DatasetName("a/b")),
        ("hf://datasets/a/b:c/test@v1", DatasetName("a/b", "v1", "c", "test")),
        ("hf://datasets/a/b@v1/c/test", HubSource("a/b", "v1", "c/test")),
        ("hf://datasets/a/b/c:d", HubSource("a/b", "main", "c:d")),
        ("a", None),
        ("a/b/c", None),
        ("a/b.jsonl", None),
        ("a/*", None),
        ("./a/b", None),
        ("../b", None),
        ("s3://a/b", None),
        ("/a/b", None),
    ],
)
def test_source_is_understood_as_it_is_written(source, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert hub_source(source) == expected


def test_path_that_is_here_wins_and_a_known_name_is_noted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("data/mine", "roneneldan/TinyStories", "a/b:c"):
        (tmp_path / folder).mkdir(parents=True)
        assert hub_source(folder) is None
    assert local_note("data/mine") is None
    for name in ("roneneldan/TinyStories", "a/b:c"):
        assert f"{name} was read from the disk" in str(local_note(name))
        assert f"hf://datasets/{name}" in str(local_note(name))
    assert hub_source("data/mien") is None  # a mistyped path: its folder is here
    assert hub_source("data/mien:config") == DatasetName("data/mien", config="config")


def test_local_folder_with_a_name_of_the_hub_is_read_and_said(tmp_path):
    folder = tmp_path / "roneneldan" / "TinyStories"
    folder.mkdir(parents=True)
    (folder / "a.parquet").write_bytes(parquet(TEXTS[0]))
    done = prepared(Here(None, tmp_path / "home"), "roneneldan/TinyStories", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "for the dataset on the Hub: hf://datasets/roneneldan/TinyStories" in done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == tokens_of(TEXTS[0])


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        (NAME, TEXTS[:1]),
        (f"{NAME}:sample-10BT", TEXTS[1:2]),
        (f"{NAME}:sample-100BT", TEXTS[2:4]),
        (f"{NAME}:sample-100BT/test", [["held out"]]),
        (f"{NAME}:sample-10BT/train@{'ab' * 20}", TEXTS[1:2]),
        (f"{NAME}@{'ab' * 20}:sample-10BT", TEXTS[1:2]),
        (f"hf://datasets/{NAME}:sample-10BT", TEXTS[1:2]),
    ],
)
def test_config_and_split_are_those_of_the_card(source, texts, tmp_path):
    with HubServer(FILES, repo=NAME, commit="ab" * 20) as server:
        if "@" in source:
            server.push({"README.md": b"# moved on"}, "cd" * 20)
        done = prepared(Here(server, tmp_path / "home"), source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == tokens_of(*texts)
    assert all(f"hf://datasets/{NAME}@{'ab' * 20}/" in path for path in inputs_in(tmp_path / "out"))


@pytest.mark.parametrize("option", ["--keep-downloads", "--no-keep-downloads"])
def test_name_works_with_and_without_a_cache_and_from_it_offline(option, tmp_path):
    with HubServer(FILES, repo=NAME) as server:
        here = Here(server, tmp_path / "home")
        source = f"{NAME}:sample-10BT"
        done = prepared(here, source, tmp_path / "one", option)
        assert done.returncode == 0, done.stderr
    if option == "--keep-downloads":
        at = f"{source}@{hub_server.COMMIT}"
        done = prepared(here, at, tmp_path / "two", HF_HUB_OFFLINE="1")
        assert done.returncode == 0, done.stderr
        assert inputs_in(tmp_path / "one") == inputs_in(tmp_path / "two")
    else:
        assert not list((tmp_path / "home").rglob("*.parquet"))


def test_card_that_lists_nothing_is_divided_by_the_names_of_its_files(tmp_path):
    files = {
        "README.md": b"# plain",
        "dataset_infos.json": b"{}",
        "data/train-0.parquet": parquet(TEXTS[0]),
        "data/validation-0.parquet": parquet(TEXTS[1]),
    }
    with HubServer(files, repo=NAME) as server:
        here = Here(server, tmp_path / "home")
        for source, texts in ((NAME, TEXTS[0]), (f"{NAME}:default/validation", TEXTS[1])):
            out = tmp_path / str(len(source))
            done = prepared(here, source, out)
            assert done.returncode == 0, done.stderr
            assert (out / "train.bin").read_bytes() == tokens_of(texts)
        done = prepared(here, f"{NAME}:default/test", tmp_path / "no")
        assert done.returncode == 2
        assert "no split 'test'; there are: " in done.stderr


CONVERTED = {
    "default/train/0000.parquet": parquet(TEXTS[0]),
    "default/test/0000.parquet": parquet(["held out"]),
    "extra/partial-train/0000.parquet": parquet(TEXTS[1]),
}


def test_dataset_that_no_reader_takes_is_read_through_the_converted_branch(tmp_path):
    csv = {"README.md": b"# csv", "train.csv": b"text\na\n"}
    with HubServer(csv, repo=NAME, converted=CONVERTED) as server:
        here = Here(server, tmp_path / "home")
        done = prepared(here, NAME, tmp_path / "out")
        assert done.returncode == 0, done.stderr
        assert "no files that tokenmill reads (there are: 1 .csv)" in done.stderr
        assert "refs/convert/parquet" in done.stderr
        assert (tmp_path / "out" / "train.bin").read_bytes() == tokens_of(TEXTS[0])
        [name] = inputs_in(tmp_path / "out")
        assert name == f"hf://datasets/{NAME}@{CONVERTED_COMMIT}/default/train/0000.parquet"

        done = prepared(here, f"{NAME}:extra", tmp_path / "part")
        assert done.returncode == 3 and "only its first 5 GB" in done.stderr
        [better] = re.findall(r"'(hf://[^']+)'", done.stderr)
        done = prepared(here, better, tmp_path / "part")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "part" / "train.bin").read_bytes() == tokens_of(TEXTS[1])

        done = prepared(here, f"{NAME}@{hub_server.COMMIT}", tmp_path / "no")
        assert done.returncode == 3 and "converts only @main" in done.stderr
    with HubServer(csv, repo=NAME) as server:
        done = prepared(Here(server, tmp_path / "home"), NAME, tmp_path / "no")
        assert done.returncode == 3 and "has no parquet copy" in done.stderr
        [better] = re.findall(r"'(hf://[^']+)'", done.stderr)
        done = prepared(Here(server, tmp_path / "home"), better, tmp_path / "no")
        assert done.returncode == 0 and "1 row = 1 written" in done.stderr


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        (f"{NAME}:sample10BT", 2, ["sample-10BT, sample-100BT, default", f"{NAME}:sample-10BT?"]),
        (f"{NAME}:sample-100BT/tset", 2, ["there are: test, train", f"{NAME}:sample-100BT/test"]),
        (f"{NAME}@v9", 3, ["has no revision 'v9'", "@main"]),
        (f"{NAME}:x", 2, [f"name one: {NAME}:"]),
        ("some/corpsu", 3, ["no file or folder some/corpsu here", "did you mean some/corpus?"]),
        ("sme/corpus:sample-10BT", 3, ["does not exist", "did you mean some/corpus?"]),
        ("roneneldan/TinyStorys", 3, ["did you mean roneneldan/TinyStories?"]),
        ("zzzz/qqqq", 3, ["does not exist on the Hub, or is private", "hf auth login", "HF_TOKEN"]),
    ],
)
def test_wrong_name_suggests_the_right_one(source, code, said, tmp_path):
    with HubServer(FILES, repo=NAME, other_repos=["other/corpora", "some/thing"]) as server:
        done = prepared(Here(server, tmp_path / "home"), source, tmp_path / "work" / "out")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for text in said:
        assert text in done.stderr
    assert not (tmp_path / "work" / "out").exists()


def test_configs_without_a_default_are_listed_unless_a_preset_recommends_some(tmp_path):
    card = "---\nconfigs:\n" + "".join(
        f"- config_name: {name}\n  data_files: {name}/c4-train.*.jsonl\n" for name in ("no", "en")
    )
    files = {"README.md": f"{card}---\n".encode(), "en/c4-train.0.jsonl": b'{"text": "a"}\n'}
    with HubServer(files, repo=NAME) as server:
        done = prepared(Here(server, tmp_path / "home"), NAME, tmp_path / "out")
    assert done.returncode == 2
    assert "has 2 configs, and none is the default: no, en" in done.stderr
    with HubServer(files, repo="allenai/c4") as server:
        done = prepared(Here(server, tmp_path / "home"), "allenai/c4", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "allenai/c4 has 2 configs; reading en" in done.stderr
    configs = card_configs(f"{card}---\n")
    assert meant_globs(DatasetName("allenai/C4"), configs) == ("en/c4-train.*.jsonl",)


def test_gated_dataset_says_how_to_get_access_and_is_read_with_it(tmp_path):
    with HubServer(FILES, repo=NAME, is_gated=True) as server:
        here = Here(server, tmp_path / "home")
        done = prepared(here, NAME, tmp_path / "out")
        assert done.returncode == 3 and f"{NAME} is gated" in done.stderr
        assert f"open {server.url}/datasets/{NAME} and ask for access" in done.stderr
        assert "hf auth login" in done.stderr and "HF_TOKEN" in done.stderr
        done = prepared(here, NAME, tmp_path / "out", HF_TOKEN="hf_of_somebody_else")
        assert done.returncode == 3 and "`hf auth whoami`" in done.stderr
        done = prepared(here, NAME, tmp_path / "out", HF_TOKEN=TOKEN)
        assert done.returncode == 0, done.stderr


def test_private_dataset_is_read_with_a_token_and_not_named_without(tmp_path):
    with HubServer(FILES, repo=NAME, is_private=True) as server:
        here = Here(server, tmp_path / "home")
        for token in ({}, {"HF_TOKEN": "hf_of_somebody_else"}):
            done = prepared(here, NAME, tmp_path / "out", **token)
            assert (
                done.returncode == 3 and "does not exist on the Hub, or is private" in done.stderr
            )
        done = prepared(here, NAME, tmp_path / "out", HF_TOKEN=TOKEN)
        assert done.returncode == 0, done.stderr


# What the cards and trees of these repositories hold, as presets.py has them.
PRESET_FILES = {
    "HuggingFaceFW/fineweb-edu": ("sample-10BT", "sample/10BT/000_00000.parquet"),
    "HuggingFaceFW/fineweb": ("sample-10BT/train", "sample/10BT/000_00000.parquet"),
    "HuggingFaceFW/fineweb-2": ("deu_Latn", "data/deu_Latn/train/000_00000.parquet"),
    "mlfoundations/dclm-baseline-1.0": (
        None,
        "global-shard_01_of_10/local-shard_0_of_10/shard_00000000_processed.jsonl.zst",
    ),
    "mlfoundations/dclm-baseline-1.0-parquet": (None, "filtered/x/processed_data/a.parquet"),
    "HuggingFaceTB/cosmopedia": ("stories", "data/stories/train-00000-of-00043.parquet"),
    "HuggingFaceTB/smollm-corpus": ("cosmopedia-v2", "cosmopedia-v2/train-00000.parquet"),
    "Skylion007/openwebtext": (None, "plain_text/train-00000-of-00080.parquet"),
    "roneneldan/TinyStories": (None, "data/train-00000-of-00004.parquet"),
    "allenai/c4": ("en", "en/c4-train.00000-of-01024.json.gz"),
}


def content_of(path: str, texts: list[str]) -> bytes:
    if path.endswith(".parquet"):
        return parquet(texts)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    codec = "gzip" if path.endswith(".gz") else "zstd"
    return bytes(pa.compress(lines, codec, asbytes=True))


@pytest.mark.parametrize("repo", PRESETS)
def test_preset_resolves_on_a_repository_that_is_laid_out_like_its_own(repo, tmp_path):
    config, path = PRESET_FILES[repo]
    card = ""
    if config:
        folder, name = os.path.dirname(path), config.removesuffix("/train")
        card = f"---\nconfigs:\n- config_name: {name}\n  data_files: {folder}/*\n---\n"
    files = {"README.md": card.encode(), path: content_of(path, TEXTS[0])}
    files["TinyStories-train.txt"] = b"text"
    with HubServer(files, repo=repo) as server:
        source = f"{repo}:{config}" if config else repo
        done = prepared(Here(server, tmp_path / "home"), source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == tokens_of(TEXTS[0])


def test_presets_say_where_they_were_found_and_recommend_configs_in_their_cards():
    assert all(preset.source for preset in PRESETS.values())
    configs = [CardConfig(name, {"train": (name,)}) for name in ("cosmopedia-v2", "python-edu")]
    with pytest.raises(ConfigError, match="2 configs"):  # the card has changed since
        meant_globs(DatasetName("HuggingFaceTB/smollm-corpus"), configs)
    configs.append(CardConfig("fineweb-edu-dedup", {"train": ("f",)}))
    found = meant_globs(DatasetName("HuggingFaceTB/smollm-corpus"), configs)
    assert found == ("cosmopedia-v2", "f")


@pytest.mark.parametrize(
    ("card", "configs"),
    [
        ("# none", []),
        ("---\nconfigs: 3\n---\n", []),
        ("---\nconfigs: [1, {config_name: [a]}]\n---\n", []),
        ("---\nnot: [yaml\n---\n", []),
        ("---\nconfigs:\n- config_name: no\n  data_dir: x/\n---\n", [("no", {"train": ("x/**",)})]),
        (
            "\ufeff---\r\nconfigs:\r\n- config_name: a\r\n"
            "  data_files: {test: t, train: [b, c]}\r\n---\r\n",
            [("a", {"test": ("t",), "train": ("b", "c")})],
        ),
        ("---\nconfigs:\n- config_name: a\n---\n", [("a", {})]),
    ],
)
def test_card_is_read_as_far_as_it_makes_sense(card, configs):
    assert [(config.name, config.splits) for config in card_configs(card)] == configs


# Faults of the CDN


FINEWEB_FILES = {f"sample/10BT/{i:03d}_00000.parquet": parquet(t) for i, t in enumerate(TEXTS)}


@pytest.fixture
def server():
    with HubServer(FINEWEB_FILES, repo=REPO, commit=COMMIT) as running:
        yield running


@pytest.mark.parametrize("num_refusals", [1, 3])
def test_address_that_expired_is_asked_for_again(num_refusals, server, tmp_path):
    faults = [hub_server.refused_address()] * num_refusals
    server.fail(r"^GET /cdn/.*001_00000", *faults, only=is_download)
    done = Here(server, tmp_path / "home").tokenmill(*FINEWEB, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "gated" not in done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == EXPECTED
    asked = server.asked(r"^HEAD /datasets.*001_00000")
    assert len(asked) == 1 + num_refusals  # one for the plan and the download, then fresh ones


def test_address_that_lives_for_a_moment_is_good_for_every_request(tmp_path):
    line = Line(latency_seconds=0.1)  # so that it takes longer
    with HubServer(FINEWEB_FILES, REPO, COMMIT, address_seconds=0.4, line=line) as server:
        path = f"/datasets/{REPO}/resolve/main/{next(iter(FINEWEB_FILES))}"
        old = answer(server.url, path)[1]["Location"].removeprefix(server.cdn_url)
        assert answer(server.cdn_url, old)[0] == 200
        done = Here(server, tmp_path / "home").tokenmill(*FINEWEB, tmp_path / "out")
        assert answer(server.cdn_url, old)[0] == 403
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == EXPECTED


@pytest.mark.parametrize("path", ["../x.parquet", "a/../../x.parquet", "/x.parquet"])
def test_path_that_leaves_the_folder_of_downloads_is_never_listed(path, tmp_path):
    with HubServer({path: parquet(TEXTS[0])}, repo=NAME) as server:
        done = prepared(Here(server, tmp_path / "home"), f"hf://datasets/{NAME}/**", tmp_path / "o")
    assert done.returncode == 3, done.stderr
    assert not list(tmp_path.rglob("*.parquet"))


def test_cdn_that_refuses_every_address_is_not_a_question_of_rights(server, tmp_path):
    server.fail(r"^GET /cdn/.*000_00000", *[hub_server.refused_address()] * 20)
    done = Here(server, tmp_path / "home").tokenmill(*FINEWEB, tmp_path / "out")
    assert done.returncode == 8, done.stderr
    assert "the CDN refused the address" in done.stderr and "gated" not in done.stderr


def test_ranges_are_asked_for_uncompressed(server, tmp_path):
    done = Here(server, tmp_path / "home").tokenmill(*FINEWEB, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    ranges = [request for request in server.requests if request.range]
    assert ranges and all(request.accept_encoding == "identity" for request in ranges)


def test_file_that_changes_during_its_download_is_fetched_from_its_start(server, tmp_path):
    faults = [hub_server.cut(2_000), hub_server.changed_file()]
    server.fail(r"^GET /cdn/.*001_00000", *faults, only=is_download)
    done = Here(server, tmp_path / "home").tokenmill(*FINEWEB, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "001_00000.parquet: its hash is sha256:" in done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == EXPECTED


def test_footer_that_changes_between_two_requests_is_read_from_the_whole_file(tmp_path):
    texts = TEXTS[0] * 4
    with HubServer({"wide.parquet": parquet(texts, row_group_size=1)}, repo=NAME) as server:
        # The end, which says how long the footer is, and then all of that.
        server.fail(r"^GET /cdn/", lambda right: right, hub_server.changed_file())
        # With a limit, nothing else is asked for meanwhile.
        options = ("--limit-docs", len(texts))
        done = prepared(Here(server, tmp_path / "home"), NAME, tmp_path / "out", *options)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == oracle.stream(oracle.ids(texts))
