"""`tokenmill view` as a user starts and ends it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from tokenmill.cli import main, parser
from tokenmill.cli.view import require_consistent

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path) -> str:
    np.array([464, 3290, 50256, 464, 50256], "<u2").tofile(tmp_path / "train.bin")
    (tmp_path / "val.bin").write_bytes(b"")
    return str(tmp_path)


OPTIONS = ["--tokenizer", "gpt2", "--dtype", "uint16", "--no-browser"]


def documented() -> list[str]:
    pages = (ROOT / "README.md").read_text() + (ROOT / "docs" / "view.md").read_text()
    return re.findall(r"^tokenmill view [^#\n]*", pages, flags=re.MULTILINE)


def test_documented_commands_are_understood():
    assert len(documented()) > 4
    for line in documented():
        assert parser().parse_args(shlex.split(line)[1:]).command == "view"
    for place in ("train/doc/17", "train/step/7?reader=shards&batch=8&seq_len=64&m=0a1b"):
        arguments = parser().parse_args(["view", "out", "--at", place])
        require_consistent(arguments)


def test_view_prints_its_address_serves_and_ends_on_ctrl_c(folder):
    with subprocess.Popen(
        [sys.executable, "-m", "tokenmill", "view", folder, *OPTIONS, "--split", "val"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"},
    ) as process:
        assert process.stdout is not None
        url, _, place = process.stdout.readline().strip().partition("#")
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{22}/", url) and place == "val/doc/0"
        with urllib.request.urlopen(url) as answer:
            assert b"view.js" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(url[:-2] + "/")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors and "ssh -L" in errors and "ended" in errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "{used}"], "port {used} of 127.0.0.1 is in use"),
        (["--port", "70000"], "--port must be 0 to 65535"),
        (["--split", "nope"], "unknown split 'nope'"),
        (["--at", "nope/doc/1"], "unknown split 'nope'"),
        (["--at", "17"], "--at takes a place, got '17'"),
        (["--at", "train/doc/1", "--split", "val"], "--at already names the split"),
    ],
)
def test_mistakes_get_a_message(folder, options, message, capsys):
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = str(used.getsockname()[1])
        words = [word.format(used=port) for word in options]
        assert main(["view", folder, *OPTIONS, *words]) == 2
    errors = capsys.readouterr().err
    assert message.format(used=port) in errors and ("hint: " in errors or "known: " in errors)


def test_folder_that_is_no_dataset_gets_a_message(tmp_path, capsys):
    assert main(["view", str(tmp_path / "nowhere"), "--no-browser"]) != 0
    assert "error: " in capsys.readouterr().err
