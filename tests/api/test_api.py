"""The public functions as a caller in Python meets them; what they do is tested elsewhere."""

from __future__ import annotations

import dataclasses
import inspect
import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tokenmill
from tokenmill import errors
from tokenmill.cli import main
from tokenmill.config import kinds
from tokenmill.config.options import ESTIMATE, OPTIONS, options_of
from tokenmill.dataset.manifest import Manifest, manifest_sha256_of
from tokenmill.errors import ConfigError


def test_the_signature_of_prepare_has_the_fields_of_config_and_their_defaults():
    parameters = inspect.signature(tokenmill.prepare).parameters
    fields = {field.name: field.default for field in dataclasses.fields(tokenmill.Config)}
    del fields["named"]  # a mapping of sources
    assert list(parameters) == [*fields, "pack", "progress", "watch"]
    for name in fields.keys() - {"sources", "out"}:
        assert parameters[name].default == fields[name], name
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    assert all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def test_what_estimate_takes_are_fields_of_config_with_their_defaults():
    fields = {field.name: field.default for field in dataclasses.fields(tokenmill.Config)}
    parameters = inspect.signature(tokenmill.estimate).parameters
    assert list(parameters) == ["sources", "out", *options_of(ESTIMATE)]
    for name, parameter in parameters.items():
        assert name == "sources" or parameter.default == fields[name]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tokenmill.prepare("a", "b", num_workers=2), "prepare.*'num_proc'"),
        (lambda: tokenmill.prepare("a", "b", tokeniser="gpt2"), "did you mean 'tokenizer'"),
        (lambda: tokenmill.prepare("a", "b", shard_size=2), "did you mean 'shard_tokens'"),
        (lambda: tokenmill.prepare("a", "b", no_val=True), "write val='none'"),
        (lambda: tokenmill.prepare("a", "b", xyzzy=1), "there are sources, out, text_column"),
        (lambda: tokenmill.prepare(input="a", out="b"), "did you mean 'sources'"),
        (lambda: tokenmill.Tokenize("gpt2", column="t"), "Tokenize.*'text_column'"),
        (lambda: tokenmill.verify("a", all=True), "verify.*'full'"),
        (lambda: tokenmill.convert("a", "b", output_format="npy"), "convert.*'format'"),
        (lambda: tokenmill.estimate("a", encoding="gpt2"), "estimate.*'tokenizer'"),
    ],
)
def test_a_wrong_name_raises_and_suggests_the_right_one(call, message):
    with pytest.raises(TypeError, match=message):
        call()


COUNTED = (kinds.COUNT, kinds.WORKERS, kinds.MEMORY, kinds.SEQ_LEN)
COUNTS = [name for name, option in OPTIONS.items() if option.kind in COUNTED]


@pytest.mark.parametrize("option", COUNTS)
@pytest.mark.parametrize("value", ["1K", "1_000", 1000, 1e3])
def test_counts_are_taken_as_people_write_them(option, value):
    config = tokenmill.Config(sources="a", runner="ray", **{option: value})
    assert getattr(config, option) == 1000 and type(getattr(config, option)) is int


@pytest.mark.parametrize(
    "value", ["many", 1.5, True, [1], float("nan"), pytest.param(10**5000, id="huge")]
)
def test_counts_that_are_none_are_refused(value):
    with pytest.raises(ConfigError, match="--shard-tokens"):
        tokenmill.Config(sources="a", shard_tokens=value)


def test_seq_len_may_be_document():
    assert tokenmill.Config(sources="a", seq_len="document").seq_len == 0


def test_paths_are_taken_one_or_many():
    assert tokenmill.Config(sources=Path("a"), out=Path("b")).sources == ("a",)
    config = tokenmill.Config(sources=[Path("a"), "b"], out=Path("c"), tokenizer=Path("d.json"))
    assert (config.sources, config.out, config.tokenizer) == (("a", "b"), "c", "d.json")


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".json"}


@pytest.mark.parametrize("options", [{"name": "cl100k_base"}, {"name": "gpt2", "eot": 50256}])
def test_an_encoding_is_a_tokenizer(options, tmp_path, corpus):
    if "eot" in options:
        vocabulary = Path(tokenmill.__file__).parent / "encodings/vocab/r50k_base.tiktoken"
        path = tmp_path / "mine.tiktoken"
        path.write_bytes(vocabulary.read_bytes())
        given = {"pattern": "gpt2", "eot_token": "50256"}
        encoding = tokenmill.get_encoding(path, pattern="gpt2", eot=50256)
    else:
        path, given = "cl100k_base", {}
        encoding = tokenmill.get_encoding("cl100k_base")
    by_object = tokenmill.prepare(corpus, tmp_path / "a", tokenizer=encoding, num_proc=1)
    by_name = tokenmill.prepare(corpus, tmp_path / "b", tokenizer=path, num_proc=1, **given)
    assert by_object == by_name and shards(tmp_path / "a") == shards(tmp_path / "b")
    with pytest.raises(ConfigError, match="already has its pattern and eot_token"):
        tokenmill.prepare(corpus, tmp_path / "c", tokenizer=encoding, pattern="gpt2")


def test_convert_verify_and_estimate_do_what_the_commands_do(tmp_path, corpus):
    made = tokenmill.prepare(corpus, tmp_path / "a", num_proc=1, format="npy", shard_tokens="10K")
    found = tokenmill.estimate(corpus, tokenizer=tokenmill.get_encoding("gpt2"))
    assert isinstance(found, tokenmill.Estimate) and found.num_tokens == made.num_tokens
    converted = tokenmill.convert(tmp_path / "a", tmp_path / "b", format="llmc", shard_tokens="5K")
    assert isinstance(converted, Manifest) and converted.num_tokens == made.num_tokens
    report = tokenmill.verify(tmp_path / "b", sample="20", sources=corpus, num_proc=1)
    assert isinstance(report, tokenmill.VerifyReport) and report.is_whole
    status = {check.name: check.status for check in report.checks}
    assert status["sha256"] == status["sources"] == "passed"
    shard = tmp_path / "b" / converted.shards[0].name
    shard.write_bytes(shard.read_bytes()[:-2])
    assert not tokenmill.verify(tmp_path / "b").is_whole
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.num_tokens = 0


def test_strangers_shards_are_told_by_an_encoding(tmp_path, corpus):
    tokenmill.prepare(corpus, tmp_path / "a", num_proc=1, val="none")
    (tmp_path / "a" / "tokenmill.json").unlink()
    gpt2 = tokenmill.get_encoding("gpt2")
    report = tokenmill.verify(tmp_path / "a", format="nanogpt", tokenizer=gpt2)
    assert report.is_whole
    made = tokenmill.convert(tmp_path / "a", tmp_path / "b", format="megatron", tokenizer=gpt2)
    assert made.num_documents == 400
    for call in (tokenmill.verify, lambda a, **o: tokenmill.convert(a, "c", format="npy", **o)):
        with pytest.raises(ConfigError, match="already"):
            call(tmp_path / "a", tokenizer=gpt2, pattern="gpt2")
        with pytest.raises(ConfigError, match="need a tokenizer"):
            call(tmp_path / "a", pattern="gpt2")


def test_errors_when_raised_then_the_base_of_the_package_catches_them(tmp_path):
    """Every kind that `errors.py` has is one of those that users can name."""
    names = {name for name in tokenmill.__all__ if name.endswith("Error")}
    leaves = tuple(getattr(tokenmill, name) for name in names - {"TokenmillError"})
    kinds = [kind for kind in errors._KINDS.values() if kind is not errors.TokenmillError]
    assert len(leaves) == 8 and all(issubclass(kind, leaves) for kind in kinds)
    with pytest.raises(tokenmill.TokenmillError, match="no source given"):
        tokenmill.prepare([], tmp_path)
    code = "import sys, tokenmill; tokenmill.TokenmillError; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "pyarrow", "tokenmill.config"} & set(done.stdout.split())


def test_functions_stay_functions_when_modules_of_their_name_are_imported():
    script = (
        "import tokenmill, tokenmill.dataset.convert, tokenmill.estimate\n"
        "from tokenmill import convert, estimate, prepare, verify\n"
        "from tokenmill.dataset.convert import Target\n"
        "print(*(getattr(tokenmill, f.__name__) is f for f in (convert, estimate, prepare)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["True"] * 3, done.stderr


# The manifest


@pytest.fixture
def noted(tmp_path, corpus) -> Path:
    """A dataset with two notes."""
    tokenmill.prepare(
        corpus, tmp_path / "noted", num_proc=1, tokenizer="cl100k_base", val_fraction=1e-9
    )
    return tmp_path / "noted"


def test_notes_are_in_the_summary_and_in_inspect(noted, corpus, capsys):
    manifest = Manifest.load(str(noted))
    assert [note.split(":")[0] for note in manifest.notes] == [
        "nanoGPT's train.py reads uint16 and makes a model of 50,304 ids, these tokens are uint32 "
        "with 100,277 ids. A copy of it that fits",
        "val is the last 1 token of the corpus",
    ]
    assert manifest.split_rule == "tokens"
    from tokenmill.cli import main

    options = ["--tokenizer", "cl100k_base", "--val-fraction", "1e-9", "--num-proc", "1"]
    assert main(["prepare", corpus, "-o", str(noted), *options]) == 0
    summary = capsys.readouterr().err
    assert main(["inspect", str(noted)]) == 0
    glance = capsys.readouterr().out
    for note in manifest.notes:
        shown = "  note: " + note.replace("\n", "\n    ") + "\n"
        assert shown in summary and shown in glance
    assert "the last tokens: there are too few documents to choose among" in glance
    assert main(["inspect", str(noted), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == list(manifest.notes)


def test_a_conversion_has_notes_of_its_own(noted, tmp_path):
    first, second = tokenmill.convert(noted, tmp_path / "npy", format="npy").notes
    assert first.startswith("build-nanogpt's train_gpt2.py")  # of npy; not nanoGPT's
    assert "val is the last 1 token" in second


def test_notes_are_no_part_of_the_manifests_file(noted):
    assert "notes" not in json.loads((noted / "tokenmill.json").read_text())


@pytest.mark.parametrize("kind", ["binary", "version", "dtype"])
def test_manifest_when_it_is_broken_then_the_message_is_short(noted, kind, capsys):
    path, long = noted / "tokenmill.json", "x" * 15_000
    plain = json.loads(path.read_text())
    if kind == "version":
        plain["tokenmill_manifest"] = long
    elif kind == "dtype":
        plain["identity"]["options"]["dtype"] = long
    text = json.dumps({**plain, "sha256": manifest_sha256_of(plain)})
    path.write_bytes(b"\x80\x04" * 7_500 if kind == "binary" else text.encode())
    for command in ("inspect", "verify"):
        assert main([command, str(noted)]) == 5
        said = "".join(capsys.readouterr())
        assert "is not a manifest" in said and len(said) < 2500
        assert command == "verify" or "hint: restore the original" in said


def test_the_repr_of_a_manifest_is_a_line(noted):
    shown = repr(Manifest.load(str(noted)))
    assert re.fullmatch(
        r"<Manifest: ([\d,]+) tokens \(train [\d,]+, val 1\) of 400 documents in 2 shards, "
        r"cl100k_base uint32, format nanogpt>",
        shown,
    )


# Progress

SCRIPT = """
import sys, tokenmill
tokenmill.prepare(sys.argv[1], sys.argv[2], num_proc=1, progress=True)
"""


def test_progress_that_nobody_watches_is_plain_lines(tmp_path, corpus):
    command = [sys.executable, "-c", SCRIPT, corpus, str(tmp_path / "out")]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    assert first.stdout == "" and "\x1b" not in first.stderr and "\r" not in first.stderr
    assert re.match(r"400 documents, .* tokens in ", first.stderr)
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "is already complete" in again.stderr


def test_progress_is_silent_unless_asked_for(tmp_path, corpus, capfd):
    tokenmill.prepare(corpus, tmp_path / "out", num_proc=1)
    assert capfd.readouterr() == ("", "")


class OutStream(io.StringIO):
    """What a notebook has for stdout, told by where its class comes from."""

    __module__ = "ipykernel.iostream"


def test_progress_in_a_notebook_moves_without_escape_codes(tmp_path, corpus, monkeypatch):
    from tokenmill.cli import moving_line

    monkeypatch.setattr(moving_line, "TERMINAL_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stdout", stream := OutStream())
    tokenmill.prepare(corpus, tmp_path / "out", num_proc=1, progress=True, slice_bytes=20_000)
    shown = stream.getvalue()
    assert "\x1b" not in shown
    assert shown.count("\n") == 1 + len(Manifest.load(str(tmp_path / "out")).notes)
    moving, _, last = shown.partition("\n")[0].rpartition("\r")
    assert re.search(r"\r +\d+%  [\d,]+ documents", moving)
    # What was there is overwritten to its end: this is what a person sees at last.
    assert last.startswith("400 documents, ")
    before = moving.rpartition("\r")[2]
    assert before.strip() == ""
    assert all(len(line) < moving_line.NOTEBOOK_COLUMNS for line in moving.split("\r"))


def test_no_signal_handler_of_the_callers_is_replaced(tmp_path, corpus):
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    tokenmill.prepare(corpus, tmp_path / "out", num_proc=1, progress=True)
    after = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert before == after
