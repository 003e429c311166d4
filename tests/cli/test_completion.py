"""Completion scripts, tried in the shells they are for, where these are installed."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenmill.cli import main, parser
from tokenmill.cli.usage import commands_of

# What is typed before Tab -> what is offered, and what is not.
CASES = [
    ("tokenmill pre", {"prepare"}, {"verify"}),
    ("tokenmill help ver", {"verify"}, {"prepare"}),
    ("tokenmill completion ", {"bash", "zsh", "fish"}, set()),
    ("tokenmill prepare --over", {"--overwrite"}, {"--out"}),
    ("tokenmill prepare x.txt --eot ", {"append", "prepend", "both", "none"}, {"--out"}),
    ("tokenmill prepare --tokenizer p", {"p50k_base"}, {"gpt2"}),
    ("tokenmill convert a b --format meg", {"megatron"}, {"nanogpt"}),
    ("tokenmill verify data --fu", {"--full"}, {"--overwrite"}),
]


@pytest.fixture
def script(tmp_path, capsys) -> Callable[[str], Path]:
    def made(shell: str) -> Path:
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed")
        assert main(["completion", shell]) == 0
        path = tmp_path / f"tokenmill.{shell}"
        path.write_text(capsys.readouterr().out)
        return path

    return made


def in_bash(path: Path, typed: str) -> set[str]:
    words = ["", *shlex.split(typed)][1:] + ([""] if typed.endswith(" ") else [])
    lines = f"""
        source {path}
        COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}
        _shtab_tokenmill
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "--norc", "-c", lines], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(("typed", "offered", "absent"), CASES)
def test_bash(typed, offered, absent, script):
    found = in_bash(script("bash"), typed)
    assert offered <= found and not absent & found


def test_bash_completes_files_where_it_knows_no_values(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my corpus.txt").touch()
    path = script("bash")
    assert in_bash(path, "tokenmill prepare my") >= {"my", "corpus.txt"}
    assert in_bash(path, "tokenmill prepare x.txt --out my") >= {"my", "corpus.txt"}


@pytest.mark.parametrize(("typed", "offered", "absent"), CASES)
def test_fish(typed, offered, absent, script):
    lines = f"source {script('fish')}; complete -C {shlex.quote(typed)}"
    done = subprocess.run(["fish", "--no-config", "-c", lines], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    found = {line.partition("\t")[0] for line in done.stdout.splitlines()}
    assert offered <= found and not absent & found


@pytest.mark.parametrize(("typed", "offered", "absent"), CASES)
def test_zsh(typed, offered, absent, script, tmp_path):
    """A single offer is put into the line; of several, the list is shown."""
    path = script("zsh")
    start = f'autoload -Uz compinit; compinit -D -u; eval "$(cat {path})"'
    shown = zsh_shows(start, typed, tmp_path)
    assert offered <= set(shown.split()), shown
    assert not absent & set(shown.split()) and "command not found" not in shown


def test_zsh_finds_the_script_in_its_fpath(script, tmp_path):
    shutil.copy(script("zsh"), tmp_path / "_tokenmill")
    start = f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -D -u"
    assert "--overwrite" in zsh_shows(start, "tokenmill prepare --over", tmp_path)


def zsh_shows(start: str, typed: str, folder: Path) -> str:
    """What appears after `typed` and Tab, in a real zsh on a real terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", HOME=str(folder), ZDOTDIR=str(folder))
        os.chdir(folder)
        os.execvp("zsh", ["zsh", "-f", "-i"])
    try:
        os.write(terminal, f"PS1='%%'; unsetopt prompt_sp; {start}; echo be''gin\n".encode())
        _read_until(terminal, r"\bbegin\b")
        # ^A: then make the line one that does nothing, and run another that says that it is done.
        os.write(terminal, typed.encode() + b"\t\x01: \necho en''d\n")
        return _read_until(terminal, r"\bend\b").replace("%", " ")
    finally:
        os.close(terminal)
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def _read_until(terminal: int, pattern: str) -> str:
    seen, deadline = "", time.monotonic() + 20
    while not re.search(pattern, seen):
        left = deadline - time.monotonic()
        assert select.select([terminal], [], [], max(0, left))[0], seen
        seen += os.read(terminal, 65536).decode(errors="replace")
    return seen


def test_every_command_and_option_is_completed(script):
    path = script("bash")
    commands = commands_of(parser())
    assert in_bash(path, "tokenmill ") == {*commands}
    assert in_bash(path, "tokenmill -") == {"-h", "--help", "--version"}
    for name, command in commands.items():
        names = {n for a in command._actions if a.help != "==SUPPRESS==" for n in a.option_strings}
        assert in_bash(path, f"tokenmill {name} -") == names
