"""`tokenmill inspect`: no document commands the terminal."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest

from inspected import COMMAND, inspect, prepared
from terminal import shown_on_terminal

EVIL = (
    "\x1b[31mred\x1b]0;title\x07\x1bP payload\x1b\\ \x00\x01\x08\x7f \x80\x9b31m\x9d "
    "\u202ertl\u2066 \u200b\u200d\ufeff \u2028\u2029 \ue000 \U000e0041 tab\there\r\nnext line"
)
HARMLESS = re.compile(r"\x1b\[(0|1|4|38;5;\d+|48;5;\d+|;)*m")


def assert_harmless(text: str) -> None:
    """Nothing but printable characters and line breaks."""
    for char in text:
        assert char == "\n" or char.isprintable(), repr(char)


@pytest.fixture(scope="module")
def evil(tmp_path_factory) -> str:
    return prepared(tmp_path_factory.mktemp("evil"), [f"{EVIL} #{k}" for k in range(4)], val="none")


def test_documents_reach_the_terminal_escaped(evil):
    done = inspect(evil, "--doc", 0)
    assert_harmless(done.stdout)
    assert_harmless(done.stderr)
    for escape in (r"\x1b[31mred", r"\x00", r"\x9b31m", r"\u202ertl", r"\u200d", r"\ue000", r"\t"):
        assert escape in done.stdout
    assert done.stdout.count("\n") == 2 and "\nnext line #0" in done.stdout


def test_colours_are_our_own_and_nothing_else(evil):
    done = inspect(evil, "--doc", 0, "--color", "always")
    assert "\x1b[31m" not in done.stdout and HARMLESS.search(done.stdout)
    assert_harmless(HARMLESS.sub("", done.stdout))


@pytest.mark.parametrize("colour", ["always", "never"])
def test_snippets_reach_the_terminal_escaped(evil, colour):
    for search_option in (("--grep", "red"), ("--grep", "next"), ("--grep-ids", "50256")):
        done = inspect(evil, *search_option, "--color", colour)
        assert done.returncode == 0 and done.stdout
        assert_harmless(HARMLESS.sub("", done.stdout) if colour == "always" else done.stdout)
        assert "\x1b[31m" not in done.stdout
        assert_harmless(done.stderr)


def test_json_has_the_text_as_it_is_and_is_ascii(evil):
    done = inspect(evil, "--doc", 0, "--json")
    assert json.loads(done.stdout)["documents"][0]["text"] == f"{EVIL} #0"
    assert done.stdout.isascii()
    assert_harmless(done.stdout)


def test_names_and_errors_reach_the_terminal_escaped(tmp_path, small, evil):
    folder = tmp_path / "evil\x1b]0;t\x07\u202e\n"
    shutil.copytree(evil, folder)
    for arguments in (
        (),
        ("--doc", "0"),
        ("--doc", "99"),
        ("--split", "\x1bx"),
        ("--grep-ids", "\x1b"),
    ):
        done = inspect(folder, *arguments)
        assert_harmless(done.stdout + done.stderr)
    (folder / "train.bin").write_bytes(b"")
    done = inspect(folder)
    assert done.returncode == 5
    assert_harmless(done.stderr)


def on_a_terminal(*arguments: object, **environment: str) -> str:
    given = {"TERM": "xterm-256color", **environment}
    return shown_on_terminal([*COMMAND, *map(str, arguments)], "stdout", given)


def test_colours_follow_the_terminal_no_color_and_the_option(nano):
    assert "\x1b[" in on_a_terminal(nano, "--doc", 0, NO_COLOR="")
    assert "\x1b[" not in on_a_terminal(nano, "--doc", 0, NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal(nano, "--doc", 0, NO_COLOR="", TERM="dumb")
    assert "\x1b[" not in on_a_terminal(nano, "--doc", 0, "--color", "never", NO_COLOR="")
    assert "\x1b[" in on_a_terminal(nano, "--doc", 0, "--color", "always", NO_COLOR="1")


def test_stdout_that_is_not_utf8_gets_escapes(nano):
    done = inspect(nano, "--grep", "東京", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and "[[\\u6771\\u4eac]]" in done.stdout


def test_closed_pipe_is_no_traceback(nano):
    command = (
        f"{' '.join(COMMAND)} {nano} --doc 0 --doc 1 --doc 2 | head -c 1; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
