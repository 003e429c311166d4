"""What a hostile corpus, tokenizer or dataset could try (SECURITY.md): each tried here."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import tokenmill
import warm
from corpora import made_texts, write_corpus
from hub_server import HubServer
from tokenmill.cli import main
from tokenmill.storage.store import new_file

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

ESCAPES = {
    "colour": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "C1": "\x9b31m",
    "bidi": "\u202ecod.exe",
    "carriage": "safe\rrm -rf /",
    "backspace": "x\b\b\bowned",
    "bell": "\x07",
    "null": "a\x00b",
}
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command line, in this process: a hundred of them in subprocesses would take a minute."""
    kept = {signum: signal.getsignal(signum) for signum in SIGNALS}
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(argument) for argument in arguments])
    finally:
        for signum, handler in kept.items():
            signal.signal(signum, handler)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


# Terminals


@pytest.mark.parametrize("name", ESCAPES)
def test_no_escape_in_a_document_reaches_the_terminal(name, scratch, tally):
    texts = [f"before {ESCAPES[name]} after", *made_texts(5)]
    source = write_corpus("jsonl", scratch, texts)
    tokenmill.prepare(source, scratch / "out", num_proc=1, val="none")
    for arguments in (
        ("inspect", scratch / "out", "--doc", 0),
        ("inspect", scratch / "out", "--doc", 0, "--boundaries"),
        ("inspect", scratch / "out", "--grep", "before"),
        ("inspect", scratch / "out", "--token-offset", 1, "--ids"),
    ):
        found = run(*arguments)
        assert found.returncode == 0, found.stderr
        assert not CONTROL.search(found.stdout + found.stderr), arguments
        tally.add("hostile text", "harmless")


@pytest.mark.parametrize("name", [n for n in ESCAPES if n != "null"])
def test_no_escape_in_a_name_reaches_the_terminal(name, scratch, tally):
    folder = scratch / f"in {ESCAPES[name].replace('/', '')}"
    folder.mkdir()
    bad = folder / "bad.parquet"
    bad.write_bytes(b"PAR1 is not enough PAR1")
    lines = folder / "lines.jsonl"
    lines.write_text('{"text": "fine"}\n{"text": broken\n')
    for arguments in (
        ("prepare", bad, "-o", scratch / "a", "--num-proc", 1),
        ("prepare", lines, "-o", folder / "b", "--on-bad-document", "error", "--num-proc", 1),
        ("prepare", lines, "-o", folder / "c", "--max-bad-fraction", 1, "--num-proc", 1),
        ("prepare", folder / "none.jsonl", "-o", scratch / "d", "--num-proc", 1),
        ("estimate", bad),
        ("verify", folder),
        ("inspect", folder),
        ("convert", folder, scratch / "e", "--format", "npy"),
    ):
        found = run(*arguments)
        assert "Traceback" not in found.stderr, (arguments, found.stderr)
        assert not CONTROL.search(found.stdout + found.stderr), (arguments, found.stderr)
        tally.add("hostile names", "harmless")


# Paths


def test_links_in_an_output_folder_are_never_followed(scratch, tally):
    source = write_corpus("jsonl", scratch, made_texts(30))
    victim = scratch / "victim.bin"
    out = scratch / "out"
    tokenmill.prepare(source, out, num_proc=1, val="none")
    data = (out / "train.bin").read_bytes()
    victim.write_bytes(data)
    (out / "train.bin").unlink()
    (out / "train.bin").symlink_to(victim)
    for arguments in (
        ("verify", out),
        ("inspect", out, "--doc", 0),
        ("convert", out, scratch / "npy", "--format", "npy"),
    ):
        found = run(*arguments)
        assert found.returncode == 5, (arguments, found.stderr)
        assert "train.bin" in found.stderr
        tally.add("hostile paths", "refused")
    found = run("prepare", source, "-o", out, "--no-val", "--overwrite", "-q", "--num-proc", 1)
    assert found.returncode == 0, found.stderr
    assert victim.read_bytes() == data and not (out / "train.bin").is_symlink()
    tally.add("hostile paths", "refused")


@pytest.mark.parametrize(
    "name", ["../victim.bin", "/etc/passwd", "a/../../victim.bin", "train.bin/../../victim.bin"]
)
def test_a_manifest_cannot_name_files_outside(name, scratch, tally):
    source = write_corpus("jsonl", scratch, made_texts(30))
    out, victim = scratch / "out", scratch / "victim.bin"
    tokenmill.prepare(source, out, num_proc=1, val="none")
    victim.write_bytes((out / "train.bin").read_bytes())
    manifest = json.loads((out / "tokenmill.json").read_text())
    manifest["files"][0]["name"] = name
    manifest.pop("sha256", None)  # as an attacker who knows the format would
    (out / "tokenmill.json").write_text(json.dumps(manifest))
    for arguments in (
        ("verify", out),
        ("inspect", out),
        ("convert", out, scratch / "npy", "--format", "npy"),
        ("prepare", source, "-o", out, "--no-val", "--overwrite", "-q", "--num-proc", 1),
    ):
        found = run(*arguments)
        assert found.returncode == (0 if arguments[0] == "prepare" else 5), found.stderr
        assert victim.exists()
        tally.add("hostile paths", "refused")


def test_names_of_shards_never_come_from_names_of_inputs(scratch):
    folder = scratch / "in"
    folder.mkdir()
    for name in ("..%2f..%2fx.jsonl", "$(touch x).jsonl", "; rm -rf .jsonl", "-o.jsonl"):
        (folder / name).write_text('{"text": "some text"}\n')
    manifest = tokenmill.prepare(folder, scratch / "out", num_proc=1, val="none")
    assert [file.name for file in manifest.files] == ["train.bin"]
    assert sorted(os.listdir(scratch / "out")) == ["tokenmill.json", "train.bin"]


# No code from data, no secrets, nothing for other people to write


AUDITED = """
import sys

def watch(event, arguments):
    if event in ("pickle.find_class", "os.system", "marshal.loads") and not (
        event == "marshal.loads" and "importlib" in str(sys._getframe(1).f_code)
    ):
        print("FORBIDDEN", event, arguments, flush=True)
        import os; os._exit(99)
    if event == "socket.connect":
        print("FORBIDDEN", event, arguments, flush=True)
        import os; os._exit(99)

sys.addaudithook(watch)
from tokenmill.cli import main
from tokenmill.storage.store import new_file
sys.exit(main(sys.argv[1:]))
"""


def test_no_command_unpickles_connects_or_calls_a_shell(scratch, tally):
    source = write_corpus("parquet", scratch, made_texts(60))
    mine, other = scratch / "mine", scratch / "other"
    for arguments in (
        ("prepare", source, "-o", mine, "--num-proc", 2),
        ("verify", mine, "--sample", 5),
        ("inspect", mine, "--doc", 0),
        ("convert", mine, other, "--format", "parquet"),
        ("verify", other),
        ("estimate", source),
        ("formats",),
    ):
        command = [sys.executable, "-c", AUDITED, *map(str, arguments)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.returncode == 0, (arguments, found.stdout, found.stderr)
        tally.add("audited commands", "harmless")


def test_a_token_stands_in_no_output(scratch):
    canary = "hf_CanaryCanaryCanaryCanary"
    environment = {
        **os.environ,
        "HF_TOKEN": canary,
        "HF_HOME": str(scratch / "hf"),
        "HF_HUB_DISABLE_XET": "1",
    }
    data = Path(write_corpus("parquet", scratch, made_texts(50))).read_bytes()
    for held, name in (({"data/a.parquet": data}, "good"), ({}, "empty")):
        with HubServer(held, repo="OWNER/NAME") as hub:
            source = "hf://datasets/OWNER/NAME/data/*.parquet"
            command = ["prepare", source, "-v", "-o", str(scratch / name), "--num-proc", "1"]
            found = warm.tokenmill(*command, env={**environment, "HF_ENDPOINT": hub.url})
        assert canary not in found.stdout + found.stderr
        assert (found.returncode == 0) == bool(held), found.stderr
    for path in scratch.rglob("*"):
        if path.is_file():
            assert canary.encode() not in path.read_bytes(), path


def test_nothing_is_left_outside_of_the_output_folder_and_the_cache_of_the_hub(scratch):
    """SECURITY.md, "What is written elsewhere": what must be gone, and what may stay."""
    source = write_corpus("parquet", scratch, made_texts(60))
    elsewhere = [scratch / name for name in ("home", "temporary", "current")]
    for folder in elsewhere:
        folder.mkdir()
    home, temporary, current = map(str, elsewhere)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment = {
        **kept,
        **{"HOME": home, "TMPDIR": temporary, "HF_HOME": str(scratch / "hub")},
        "HF_HUB_DISABLE_XET": "1",
    }
    hub = HubServer({"data/a.parquet": Path(source).read_bytes()}, repo="OWNER/NAME")
    remote = "hf://datasets/OWNER/NAME/data/*.parquet"
    mine = scratch / "mine"
    with hub:
        for arguments in (
            ("prepare", source, "-o", mine, "--num-proc", 2),
            ("prepare", source, "-o", scratch / "dry", "--dry-run"),
            ("prepare", remote, "-o", scratch / "kept", "--num-proc", 1),
            ("prepare", remote, "-o", scratch / "not", "--num-proc", 1, "--no-keep-downloads"),
            ("prepare", remote, "-o", scratch / "part", "--partition", "1/1"),
            ("verify", mine, "--full"),
            ("inspect", mine, "--doc", 0),
            ("convert", mine, scratch / "other", "--format", "parquet"),
            ("estimate", remote),
            ("doctor",),
            ("doctor", "--", "true"),
        ):
            address = {**environment, "HF_ENDPOINT": hub.url}
            found = warm.tokenmill(*arguments, cwd=current, env=address)
            assert found.returncode == 0, (arguments, found.stderr)
            for folder in elsewhere:
                assert not list(folder.rglob("*")), (arguments, list(folder.rglob("*")))
    assert list((scratch / "hub").rglob("*.parquet"))
    assert not list((scratch / "hub").rglob("*.tokenmill-partial"))
    assert not (scratch / "dry").exists()


def test_what_waits_among_temporary_files_for_its_upload_is_for_nobody_else(scratch, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with new_file("memory://somewhere/0.part") as file:
        file.write(b"tokens")
        folder = Path(file.path).parent
        assert folder.parent == scratch and stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_what_is_written_has_the_permissions_that_the_umask_asks_for(mask, scratch):
    source = write_corpus("jsonl", scratch, made_texts(30))
    before = os.umask(mask)
    try:
        tokenmill.prepare(source, scratch / "out", num_proc=1, format="mds", seq_len=64)
    finally:
        os.umask(before)
    for path in (scratch / "out").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & mask == 0 and not mode & 0o002, (path, oct(mode))
        assert path.is_dir() or not mode & 0o111
