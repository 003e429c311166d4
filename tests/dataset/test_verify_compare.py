"""Verify against the sources: what was asked for and not done is said, and is not success."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tokenmill
import warm
from corpora import made_texts, write_corpus
from tokenmill.dataset.convert import Target, convert
from tokenmill.dataset.dataset import open_dataset
from tokenmill.dataset.made_with import NamedTokenizer
from tokenmill.dataset.manifest import Manifest
from tokenmill.dataset.verify import Report, verify
from tokenmill.encodings import get_encoding
from tokenmill.errors import ConfigError, InputError, NetworkError

VOCABULARY = Path(tokenmill.__file__).parent / "encodings" / "vocab" / "r50k_base.tiktoken"
EOT = 50256


def prepared(source: object, out: Path, **options: object) -> Path:
    tokenmill.prepare(str(source), out, num_proc=1, **options)
    return out


def command(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return warm.tokenmill("verify", *arguments, cwd=cwd)


def status(report: Report) -> dict[str, str]:
    return {check.name: check.status for check in report.checks}


def detail(report: Report) -> dict[str, str]:
    return {check.name: check.detail for check in report.checks}


@pytest.fixture
def corpus(tmp_path) -> Path:
    return Path(write_corpus("jsonl", tmp_path / "corpus", made_texts(20)))


@pytest.fixture
def out(corpus, tmp_path) -> Path:
    return prepared(corpus, tmp_path / "out", val="none")


def changed(path: Path) -> None:
    path.write_text(path.read_text() + json.dumps({"text": "one more"}) + "\n")


def same_size_changed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"a", b"b", 1))


def moved(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def replaced_by_a_folder(path: Path) -> None:
    path.unlink()
    for name in ("one", "two"):
        write_corpus("jsonl", path / name, ["a", "b"])


# The exit code, on every stream


@pytest.mark.parametrize(
    "asked", [["--full"], ["--sample", "3"], ["--source", "{corpus}"]], ids=str
)
@pytest.mark.parametrize("damage", [changed, same_size_changed], ids=lambda one: one.__name__)
def test_command_when_a_source_has_changed_then_exit_9_also_when_quiet(damage, asked, out, corpus):
    damage(corpus)
    asked = [one.format(corpus=corpus.parent) for one in asked]
    for more in ([], ["-q"]):
        done = command(out, *asked, *more)
        assert (done.returncode, done.stdout) == (9, "")
        assert f"{corpus} has changed since it was read" in done.stderr
        assert "\nerror: " in done.stderr and "\nhint: --source DIR" in done.stderr
        assert "nothing wrong" not in done.stderr
    assert command(out).returncode == 0  # what was not asked for is not missed


@pytest.mark.parametrize("asked", [["--full"], ["--sample", "3"]], ids=str)
def test_command_when_a_source_has_moved_then_exit_9_until_it_is_named(asked, out, corpus):
    moved(corpus)
    done = command(out, *asked, "-q")
    assert done.returncode == 9 and f"{corpus} was not found where it was" in done.stderr
    found = command(out, *asked, "-q", "--source", corpus.parent.with_name("elsewhere"))
    assert (found.returncode, found.stderr) == (0, "")


def test_command_when_nothing_was_compared_then_json_says_so_as_data(out, corpus):
    moved(corpus)
    done = command(out, "--full", "--json")
    assert (done.returncode, done.stderr) == (9, "")
    plain = json.loads(done.stdout)
    assert (plain["is_whole"], plain["is_complete"], plain["num_failures"]) == (True, False, 0)
    undone = {c["name"]: c for c in plain["checks"] if c["status"] == "unable"}
    assert set(undone) == {"inputs", "sources"}
    assert "was not found" in undone["sources"]["detail"]
    assert "--source" in undone["sources"]["hint"]
    whole = command(out, "--json")
    assert whole.returncode == 0 and json.loads(whole.stdout)["is_complete"] is True


def test_command_when_wrong_and_not_compared_then_exit_5_and_both_are_said(out, corpus):
    moved(corpus)
    with open(out / "train.bin", "r+b") as file:
        file.write(b"\1\2")
    done = command(out, "--full", "-q")
    assert done.returncode == 5
    assert "wrong: train.bin" in done.stderr
    assert "not checked: inputs, sources: " in done.stderr


def test_verify_when_only_asked_for_the_inputs_then_documents_are_not_missed(out, corpus):
    report = verify(out, sources=[str(corpus.parent)])
    assert report.is_complete and status(report)["sources"] == "skipped"
    changed(corpus)
    report = verify(out, sources=[str(corpus.parent)])
    assert (status(report)["inputs"], status(report)["sources"]) == ("unable", "skipped")
    assert [check.name for check in report.undone] == ["inputs"]


# What became of a source


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (changed, "has changed since it was read: it has "),
        (same_size_changed, "has changed since it was read: the same size, but other bytes"),
        (replaced_by_a_folder, "is no longer a file"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_verify_when_a_source_is_not_as_it_was_then_it_is_said_how(damage, words, out, corpus):
    damage(corpus)
    assert f"{corpus} {words}" in detail(verify(out, full=True))["sources"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_verify_when_a_source_may_not_be_read_then_that_is_said(out, corpus):
    corpus.chmod(0)
    assert "Permission denied" in detail(verify(out, full=True))["sources"]


def test_verify_when_the_source_is_a_pipe_now_then_it_is_not_waited_for(out, corpus):
    corpus.unlink()
    os.mkfifo(corpus)
    assert "is not a regular file" in detail(verify(out, full=True))["sources"]


def test_verify_when_a_folder_is_named_then_changed_is_told_from_missing(tmp_path):
    folder = tmp_path / "corpus"
    for number in range(3):
        write_corpus("jsonl", folder / str(number), made_texts(9, seed=number))
    out = prepared(folder, tmp_path / "out", val="none")
    moved = folder.rename(tmp_path / "moved")
    where = {"full": True, "sources": [str(moved)]}
    assert verify(out, **where).is_complete
    other = moved / "1" / "corpus.jsonl"
    changed(other)
    found = detail(verify(out, **where))["sources"]
    assert f"{other} (then {folder}/1/corpus.jsonl) has changed since it was read" in found
    other.unlink()  # its namesakes are other inputs, unchanged
    found = detail(verify(out, **where))["sources"]
    assert f"{folder}/1/corpus.jsonl was not found at {moved}" in found
    shutil.rmtree(moved / "0")
    assert "and 1 more of 3 inputs are not" in detail(verify(out, **where))["sources"]


def test_command_when_the_named_folder_is_not_there_then_exit_9_names_it(out, tmp_path):
    done = command(out, "--full", "-q", "--source", tmp_path / "nowhere")
    assert done.returncode == 9 and f"no such file or folder: {tmp_path}/nowhere" in done.stderr


def test_verify_when_files_have_the_same_contents_then_each_is_found(tmp_path):
    for number in range(30):
        write_corpus("jsonl", tmp_path / "corpus" / str(number), ["the same", "in all"])
    out = prepared(tmp_path / "corpus", tmp_path / "out", val="none")
    (tmp_path / "corpus").rename(tmp_path / "moved")
    report = verify(out, full=True, sources=[str(tmp_path / "moved")])
    assert report.is_complete and "60 documents" in detail(report)["sources"]


def test_verify_when_the_input_was_an_object_then_a_file_is_not_called_missing(out, corpus):
    plain = Manifest.load(str(out)).to_plain()
    [entry] = plain["inputs"]
    plain["inputs"] = [{**entry, "path": "s3://bucket/corpus.jsonl", "digest": "tag:abc"}]
    (out / "tokenmill.json").write_bytes(Manifest.from_plain(plain).to_json())
    report = verify(out, full=True, sources=[str(corpus)])
    assert "cannot be compared with s3://bucket/corpus.jsonl" in detail(report)["sources"]
    assert {check.hint for check in report.undone} == {"--source s3://bucket"}


def test_verify_when_a_source_does_not_answer_then_what_is_wrong_is_reported_all_the_same(
    out, monkeypatch
):
    def unreachable(*arguments: object) -> None:
        raise NetworkError("the store does not answer")

    monkeypatch.setattr("tokenmill.dataset.verify.source_corpus.located_inputs", unreachable)
    with pytest.raises(NetworkError):
        verify(out, full=True)
    with open(out / "train.bin", "r+b") as file:
        file.write(b"\1\2")
    report = verify(out, full=True)
    assert not report.is_whole and "does not answer" in detail(report)["sources"]


# What cannot be compared, whatever is named


def test_verify_when_strangers_shards_were_converted_then_comparing_them_is_not_done(tmp_path):
    (tmp_path / "in").mkdir()
    np.array([5, 6, EOT, 7, EOT], "<u2").tofile(tmp_path / "in" / "train.bin")
    encoding = get_encoding("gpt2").identity
    convert(
        open_dataset(str(tmp_path / "in"), encoding=encoding),
        Target(out=str(tmp_path / "out"), format="megatron"),
        encoding,
    )
    report = verify(tmp_path / "out", full=True)
    assert report.is_whole and status(report)["sources"] == "unable"
    assert "converted from foreign shards" in detail(report)["sources"]


def test_verify_when_nothing_says_where_documents_stand_then_a_sample_is_not_done(corpus, tmp_path):
    out = prepared(corpus, tmp_path / "none", eot="none", val="none")
    report = verify(out, sample=5)
    assert not report.is_complete and "--full goes through them" in detail(report)["sources"]
    assert status(verify(out, full=True))["sources"] == "passed"
    out = prepared(corpus, tmp_path / "shuffled", eot="none", val="none", shuffle=True)
    assert not verify(out, full=True).is_complete


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (["--full"], "inputs, sources"),
        (["--sample", "3"], "inputs, sources"),
        (["--source", "."], "inputs"),
        (["--eot", "append"], "EOT"),
        (["--eot", "append", "--tokenizer", "gpt2"], "EOT"),
    ],
    ids=str,
)
def test_command_when_strangers_shards_cannot_tell_what_is_asked_for_then_exit_9(
    asked, names, tmp_path
):
    np.array([5, 6, EOT], "<u2").tofile(tmp_path / "train.bin")
    done = command(tmp_path, "--format", "nanogpt", *asked, "-q")
    assert done.returncode == 9 and f"not checked: {names}: " in done.stderr
    assert command(tmp_path, "--format", "nanogpt", "--tokenizer", "gpt2", "-q").returncode == 0


def test_verify_when_a_link_keeps_shards_closed_then_that_is_not_success(out, tmp_path):
    (out / "train.idx").symlink_to(tmp_path)
    (tmp_path / "elsewhere").write_text("x")
    (out / "train.extra").symlink_to(tmp_path / "elsewhere")
    report = verify(out)
    assert report.is_whole and not report.is_complete and not report
    assert status(report)["vocabulary"] == "unable"


# The tokenizer


@pytest.fixture
def of_a_file(corpus, tmp_path) -> tuple[Path, Path]:
    """A dataset made with a vocabulary file, and the file."""
    mine = tmp_path / "mine.tiktoken"
    shutil.copy(VOCABULARY, mine)
    options = {"tokenizer": str(mine), "pattern": "gpt2", "eot_token": "<|the end|>=50257"}
    return prepared(corpus, tmp_path / "mine", val="none", **options), mine


def test_command_when_the_tokenizer_is_a_file_then_exit_9_until_it_is_named(of_a_file, tmp_path):
    out, mine = of_a_file
    done = command(out, "--full", "-q")
    assert done.returncode == 9 and "mine, a .tiktoken file with sha256" in done.stderr
    assert "hint: --tokenizer FILE" in done.stderr
    elsewhere = mine.rename(tmp_path / "renamed.tiktoken")
    found = command(out, "--full", "-q", "--tokenizer", elsewhere)  # pattern and EOT are known
    assert (found.returncode, found.stderr) == (0, "")


def test_command_when_another_tokenizer_is_named_then_exit_2_also_without_comparing(of_a_file):
    out, mine = of_a_file
    another = "the tokens were made with"
    for named, says in (
        (["cl100k_base"], another),
        ([mine, "--pattern", "cl100k"], "has the pattern gpt2, not cl100k"),
        ([mine, "--eot-token", "<|no|>=50300"], another),
    ):
        for asked in ([], ["--full"]):
            done = command(out, "--tokenizer", *named, *asked)
            assert done.returncode == 2 and says in done.stderr, done.stderr
    with pytest.raises(ConfigError, match="were made with mine"):
        verify(out, encoding=get_encoding("cl100k_base").identity)


def test_verify_when_the_eot_is_an_id_then_the_file_alone_is_enough(corpus, tmp_path):
    mine = tmp_path / "mine.tiktoken"
    shutil.copy(VOCABULARY, mine)
    options = {"tokenizer": str(mine), "pattern": "gpt2", "eot_token": "<|mine|>=50300"}
    out = prepared(corpus, tmp_path / "mine", val="none", **options)
    report = verify(out, full=True, tokenizer=NamedTokenizer(str(mine)))
    assert report.is_complete and status(report)["sources"] == "passed"


# Tails and documents without tokens


@pytest.mark.parametrize("asked", [{"full": True}, {"sample": 4}], ids=str)
@pytest.mark.parametrize("shuffle", [False, True])
def test_verify_when_documents_are_in_the_tail_then_they_are_counted_apart(
    shuffle, asked, tmp_path
):
    corpus = write_corpus("jsonl", tmp_path, ["word " * 100, "one", "two", "three"])
    options = {"format": "parquet", "seq_len": 64, "val": "none", "shuffle": shuffle, "seed": 1}
    out = prepared(corpus, tmp_path / "out", **options)
    report = verify(out, **asked)
    assert report.is_whole and status(report)["sources"] == "passed", report
    found = detail(report)["sources"]
    counted = [int(word) for word in found.split() if word.isdecimal()]
    assert sum(counted) == 4 and found.endswith(" in the tail that was left out")


def test_verify_when_more_is_missing_than_the_tail_then_it_is_noticed(corpus, tmp_path):
    out = prepared(corpus, tmp_path / "s", format="parquet", seq_len=512, val="none")
    changed_manifest = Manifest.load(str(out)).to_plain()
    changed_manifest["splits"]["train"]["num_tail_tokens"] = 1
    (out / "tokenmill.json").write_bytes(Manifest.from_plain(changed_manifest).to_json())
    assert not verify(out, full=True).is_whole


def test_verify_when_most_documents_have_no_token_then_they_are_compared(tmp_path):
    lines = [json.dumps({"text": text}) for text in [*[""] * 200, "one"]]
    (tmp_path / "c.jsonl").write_text("\n".join(lines) + "\n")
    options = {"eot": "none", "empty": "keep", "val_fraction": 0.5}
    out = prepared(tmp_path / "c.jsonl", tmp_path / "out", **options)
    report = verify(out, full=True)
    assert report.is_whole and report.is_complete and report
    assert "201 documents" in detail(report)["sources"]


# Datasets without a token: refused, so that nobody has to verify them


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", ["mds", "parquet"])
def test_prepare_when_the_tokens_fill_no_sample_then_refused(name, shuffle, tmp_path):
    source = write_corpus("jsonl", tmp_path, ["short one", "short two"])
    options = {"format": name, "seq_len": 2048, "shuffle": shuffle}
    with pytest.raises(InputError, match=r"6 tokens fill no sample of 2,048") as caught:
        prepared(source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    assert "--seq-len document" in str(caught.value.hint)
    out = prepared(source, tmp_path / "out", **{**options, "seq_len": 0})
    assert verify(out, full=True).is_complete


@pytest.mark.parametrize("name", ["nanogpt", "llmc", "npy", "litdata"])
def test_prepare_when_no_document_has_a_token_then_refused(name, tmp_path):
    source = write_corpus("jsonl", tmp_path, ["", ""])
    with pytest.raises(InputError, match="none of them has text"):
        prepared(source, tmp_path / "out", format=name, eot="none", empty="keep")
    assert not (tmp_path / "out").exists()


def test_convert_when_nothing_would_be_left_then_refused(tmp_path):
    source = write_corpus("jsonl", tmp_path, ["short one"])
    made = prepared(source, tmp_path / "made", val="none")
    target = Target(out=str(tmp_path / "out"), format="parquet", seq_len=2048, drop=("tail",))
    with pytest.raises(ConfigError, match="no split fills a sample of 2,048"):
        convert(open_dataset(str(made)), target)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "train.bin").touch()
    encoding = get_encoding("gpt2").identity
    with pytest.raises(InputError, match="holds no tokens: there is nothing to convert"):
        strangers = open_dataset(str(tmp_path / "in"), encoding=encoding)
        convert(strangers, Target(out=str(tmp_path / "npy"), format="npy"), encoding)
    assert list(tmp_path.glob("*/tokenmill.json")) == [made / "tokenmill.json"]
