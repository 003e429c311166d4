"""`tokenmill push`: the real huggingface_hub client against the tests' Hub."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import pytest
import yaml

import hub_client
import hub_server
import tokenmill
from corpora import made_texts
from hub_server import TOKEN
from hub_uploads import READER_TOKEN, UploadHub
from tokenmill.cli import main
from tokenmill.dataset.push import upload
from tokenmill.errors import ConflictError, IntegrityError, NetworkError
from tokenmill.formats import NAMES
from tokenmill.storage import hashing

# The client's own, of the HTTP library below it.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning")
REPO = "me/mine"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "docs.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in made_texts(60)))
    return path


def made(corpus: Path, out: Path, **options: object) -> Path:
    tokenmill.prepare(corpus, out, num_proc=1, **options)
    return out


@pytest.fixture
def out(corpus, tmp_path) -> Path:
    return made(corpus, tmp_path / "out")


@pytest.fixture
def connect(monkeypatch, tmp_path):
    """A function that makes a server the Hub of this process."""
    return lambda url, token=TOKEN: hub_client.connect(monkeypatch, url, tmp_path / "home", token)


@pytest.fixture
def hub(connect) -> Iterator[UploadHub]:
    with UploadHub(repo=REPO) as running:
        connect(running.url)
        yield running


def contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and ".cache" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("name", NAMES)
def test_pushed_dataset_is_downloaded_as_it_was_and_verified(name, hub, corpus, tmp_path):
    folder = made(corpus, tmp_path / "out", format=name)
    pushed = tokenmill.push(folder, REPO)
    there = hub.files_at()
    assert {k: v for k, v in there.items() if k != "README.md"} == contents(folder)
    assert (pushed.num_files, pushed.num_sent) == (len(there), len(there))

    copy = tmp_path / "copy"
    huggingface_hub.snapshot_download(REPO, repo_type="dataset", local_dir=copy)
    report = tokenmill.verify(copy)
    assert report.is_whole, report.failures
    card = there["README.md"].decode()
    header = yaml.safe_load(card.split("---")[1])
    assert header["tags"] == ["tokenmill", "tokenized", name] and "license" not in header
    assert f"hf download {REPO} --repo-type dataset --local-dir" in card
    assert f"tokenmill prepare SOURCE -o OUT --tokenizer gpt2 --format {name}\n" in card
    for block in re.findall(r"```python\n(.*?)```", card, re.DOTALL):
        compile(block, name, "exec")
        assert "{" not in block
    assert sum(name in card for name in ("train.py", "train_gpt2cu", "import ")) == 1


def test_card_says_how_the_dataset_was_made(hub, corpus, tmp_path):
    options = {"tokenizer": "o200k_base", "val_fraction": 0.25, "shuffle": True, "seed": 3}
    options |= {"where": "len(text) > 1", "sample": 0.9, "limit_tokens": 900, "keep": "text"}
    folder = made(corpus, tmp_path / "out", format="parquet", seq_len="document", **options)
    tokenmill.push(folder, REPO)
    card = hub.files_at()["README.md"].decode()
    command = re.search(r"tokenmill prepare SOURCE.*", card)[0]
    again = command.replace("SOURCE", str(corpus)).replace("OUT", str(tmp_path / "again"))
    assert main([*shlex.split(again)[1:], "--num-proc", "1", "-q"]) == 0
    assert contents(tmp_path / "again") == contents(folder)
    assert str(corpus) not in card and "local files" in card
    [config] = yaml.safe_load(card.split("---")[1])["configs"]
    assert [one["path"] for one in config["data_files"]] == ["train-*.parquet", "val-*.parquet"]
    assert r"`<\|endoftext\|>`" in card
    assert "__kept__/train-00000.pq" in hub.files_at() and "--keep text" in command


def test_interrupted_push_is_seen_by_nobody_and_continued(corpus, tmp_path):
    folder = made(corpus, tmp_path / "out", format="npy", shard_tokens=500)
    names = [name for name in contents(folder) if name.endswith(".npy")]
    total = sum((folder / name).stat().st_size for name in names)
    with UploadHub(repo=REPO, bytes_per_second=total / 8) as hub:
        environment = {
            **os.environ,
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path),
            "HF_TOKEN": TOKEN,
            "HF_HUB_DISABLE_XET": "1",
        }
        command = [sys.executable, "-m", "tokenmill", "push", str(folder), REPO]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(hub.objects) < 2:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not hub.files_at()
        hub.bytes_per_second = None
        time.sleep(0.3)  # until the server has noticed
        stored, before = sum(map(len, hub.objects.values())), hub.num_bytes_received
        assert 0 < stored < total
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert hub.num_bytes_received - before == total - stored
        assert set(hub.files_at()) == {*contents(folder), "README.md"}
        assert "sent in" in done.stderr and f"/datasets/{REPO}" in done.stderr


def test_pushing_again_sends_nothing(hub, out, capfd):
    tokenmill.push(out, REPO)
    num_commits = len(hub.asked("POST .*/commit/"))
    again = tokenmill.push(out, f"hf://datasets/{REPO}")
    assert again.repo == REPO
    assert (again.num_sent, again.num_files) == (0, 4)
    assert len(hub.asked("POST .*/commit/")) == num_commits
    assert main(["push", str(out), REPO]) == 0
    assert "nothing to do" in capfd.readouterr().err


def test_what_the_hub_lists_is_compared_with_the_manifest(hub, out):
    def damaged(right):
        hub.damage("train.bin")
        return right

    hub.fail("POST .*/commit/", damaged)
    with pytest.raises(IntegrityError, match=r"as train\.bin, expected .* sha256"):
        tokenmill.push(out, REPO)


def test_dataset_that_is_not_whole_is_not_sent(hub, out, tmp_path):
    data = bytearray((out / "train.bin").read_bytes())
    data[100] ^= 1
    (out / "train.bin").write_bytes(data)
    with pytest.raises(IntegrityError, match=r"nothing was sent: train\.bin"):
        tokenmill.push(out, REPO)
    (out / "tokenmill.json").unlink()
    with pytest.raises(IntegrityError, match=r"no tokenmill\.json"):
        tokenmill.push(out, REPO)
    (out / ".tokenmill").mkdir()
    with pytest.raises(IntegrityError, match="not finished"):
        tokenmill.push(out, REPO)
    assert not hub.asked("POST|PUT")


def test_file_that_changes_while_it_is_sent_is_not_committed(hub, out):
    def written(right):
        (out / "train.bin").write_bytes(b"x" * (out / "train.bin").stat().st_size)
        return right

    hub.fail("POST /api/repos/create", written)
    with pytest.raises(IntegrityError, match="has changed since it was verified"):
        tokenmill.push(out, REPO)
    assert not hub.asked("POST .*/commit/")


def test_another_dataset_is_replaced_only_if_asked_to_and_completely(hub, out, corpus, tmp_path):
    other = made(corpus, tmp_path / "other", format="npy", shard_tokens=2000)
    tokenmill.push(other, REPO)
    before = hub.files_at()
    with pytest.raises(ConflictError, match=r"(?s)holds another dataset: <Manifest.*--overwrite"):
        tokenmill.push(out, REPO)
    assert hub.files_at() == before
    tokenmill.push(out, REPO, overwrite=True)
    assert {*hub.files_at()} == {*contents(out), "README.md"}
    assert b"nanoGPT" in hub.files_at()["README.md"]


def test_file_of_the_same_name_is_not_replaced_and_other_files_stay(out, connect):
    with UploadHub({"train.bin": b"mine", "notes.txt": b"mine too"}, repo=REPO) as hub:
        connect(hub.url)
        with pytest.raises(ConflictError, match=r"1 other file of the same name: train\.bin"):
            tokenmill.push(out, REPO)
        tokenmill.push(out, REPO, overwrite=True)
        assert hub.files_at()["notes.txt"] == b"mine too"
        assert hub.files_at()["train.bin"] == (out / "train.bin").read_bytes()


def test_card_that_a_person_wrote_or_edited_is_kept(hub, out, corpus, tmp_path, capfd):
    tokenmill.push(out, REPO)
    edited = hub.files_at()["README.md"].replace(b"viewer", b"license: odc-by\nviewer")
    hub.push({**hub.files_at(), "README.md": edited}, "ab" * 20)
    other = made(corpus, tmp_path / "other", eot="prepend")
    assert main(["push", str(other), REPO, "--overwrite"]) == 0
    assert hub.files_at()["README.md"] == edited
    assert "README.md there is yours and was kept" in capfd.readouterr().err


def test_folder_that_is_no_dataset_is_said_before_a_token_is_asked_for(
    connect, hub, corpus, tmp_path, capfd
):
    connect(hub.url, None)
    assert main(["push", str(tmp_path / "nowhere"), REPO]) == 2
    assert "nowhere is not a folder" in capfd.readouterr().err
    assert main(["push", str(tmp_path), REPO]) == 5
    assert "was not written by tokenmill" in capfd.readouterr().err
    made(corpus, tmp_path / "mine")
    assert main(["push", str(tmp_path), REPO]) == 2
    assert f"name one of them: {tmp_path / 'mine'}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["mine"], 2, ["'mine' does not name a repository", "OWNER/NAME"]),
        (["me/mine", "no token"], 2, ["needs a token", "hf auth login", "/settings/tokens"]),
        (["me/mine", "hf_expired"], 4, ["does not know this token", "HF_TOKEN"]),
        (["me/mine", READER_TOKEN], 4, ["may not write me/mine", "`write`", "hf auth whoami"]),
        (["them/mine", TOKEN], 4, ["may not write them/mine", "OWNER is you"]),
        (["me/mine", "no network"], 8, ["cannot reach me/mine", "run the same command again"]),
    ],
)
def test_who_may_not_push_is_told_why(
    arguments, code, expected, hub, out, connect, capfd, monkeypatch
):
    monkeypatch.setattr("tokenmill.storage.retry.UNREACHABLE_SECONDS", 0.1)
    repo, token = (*arguments, TOKEN)[:2]
    url = "http://127.0.0.1:9" if token == "no network" else hub.url
    connect(url, None if token == "no token" else token)
    assert main(["push", str(out), repo]) == code
    said = capfd.readouterr().err
    assert all(words in said for words in expected) and "Traceback" not in said, said
    assert not hub.files_at()


def test_private_means_private(hub, out, connect):
    tokenmill.push(out, REPO, private=True)
    assert hub.is_private
    with UploadHub({"a.txt": b"x"}, repo=REPO) as public:
        connect(public.url)
        with pytest.raises(ConflictError, match="exists and is public"):
            tokenmill.push(out, REPO, private=True)
        assert set(public.files_at()) == {"a.txt"}


def test_branch_is_made_and_the_main_one_is_left_alone(hub, out, corpus, tmp_path):
    tokenmill.push(out, REPO)
    before = hub.files_at()
    other = made(corpus, tmp_path / "other", format="parquet")
    pushed = tokenmill.push(other, REPO, revision="parquet")
    assert pushed.revision == "parquet" and hub.files_at() == before
    there = hub.files_at("parquet")
    assert set(contents(other)) <= set(there)
    assert (
        b'revision="parquet"' in there["README.md"] and b"--revision parquet" in there["README.md"]
    )


def test_large_file_is_sent_in_parts_and_known_by_the_hash_of_all_of_it(
    corpus, tmp_path, connect, monkeypatch
):
    monkeypatch.setattr(hashing, "PIECE_BYTES", 4096)
    folder = made(corpus, tmp_path / "out")
    [train] = [f for f in tokenmill.Manifest.load(str(folder)).files if f.name == "train.bin"]
    assert isinstance(train.sha256, tuple) and len(train.sha256) > 1
    with UploadHub(repo=REPO, part_bytes=5000) as hub:
        connect(hub.url)
        tokenmill.push(folder, REPO)
        assert len(hub.asked("PUT /upload/.*/3")) == 1
        assert hub.files_at()["train.bin"] == (folder / "train.bin").read_bytes()


def test_many_files_take_several_commits_the_manifest_in_the_last(
    hub, corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(upload, "COMMIT_FILES", 2)
    folder = made(corpus, tmp_path / "out", format="npy", shard_tokens=2000)
    seen = []
    watch = [lambda right: seen.append("tokenmill.json" in hub.files_at()) or right] * 20
    hub.fail("POST .*/commit/", *watch)
    tokenmill.push(folder, REPO)
    assert len(seen) > 2 and seen == [False] * (len(seen) - 1) + [True]
    other = made(corpus, tmp_path / "other", format="npy", shard_tokens=3000)
    seen.clear()
    tokenmill.push(other, REPO, overwrite=True)
    assert seen == [False] * (len(seen) - 1) + [True]


@pytest.mark.parametrize(
    ("match", "fault"),
    [
        ("POST .*/commit/", hub_server.status(503)),
        ("POST .*/commit/", hub_server.cut()),  # it was made, and the answer was lost
        ("PUT /upload/", hub_server.status(500)),
        ("PUT /upload/", hub_server.refused_address()),
        ("GET .*/tree/", hub_server.status(502)),
    ],
)
def test_what_passes_is_tried_again(match, fault, hub, out):
    hub.fail(match, fault)
    tokenmill.push(out, REPO)
    assert set(hub.files_at()) == {*contents(out), "README.md"}
    assert len(hub.asked("POST .*/commit/main")) <= 2


def test_hub_without_xet_gets_the_files_over_http(hub, out, monkeypatch, capfd):
    pytest.importorskip("hf_xet")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", False)
    assert main(["push", str(out), REPO]) == 0
    assert "plain HTTP is used from now on" in capfd.readouterr().err
    assert hub.asked("xet-write-token") and set(hub.files_at()) == {*contents(out), "README.md"}
    assert huggingface_hub.constants.HF_HUB_DISABLE_XET is False


def test_commit_of_somebody_else_meanwhile_is_not_lost(hub, out):
    def meanwhile(right):
        hub.push({"train.bin": b"theirs"}, "ab" * 20)
        return right

    hub.fail("POST .*/preupload/", meanwhile)
    with pytest.raises(ConflictError, match="has changed while this was pushing"):
        tokenmill.push(out, REPO)
    assert hub.files_at() == {"train.bin": b"theirs"}


def test_offline_mode_is_said(hub, out, monkeypatch):
    hub_client.disconnect(monkeypatch)
    with pytest.raises(NetworkError, match="HF_HUB_OFFLINE"):
        tokenmill.push(out, REPO)
