"""A wrong command line: a line that says what is wrong, one that says what to type; exit code 2."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys

import pytest

from tokenmill.cli import main, parser
from tokenmill.cli.usage import commands_of

PREPARE = "tokenmill prepare corpus/*.parquet -o data/mine"


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        ("prepar x -o y", "unknown command 'prepar'", "did you mean `tokenmill prepare`?"),
        ("tokenize x -o y", "unknown command 'tokenize'", "did you mean `tokenmill prepare`?"),
        ("validate x", "unknown command 'validate'", "did you mean `tokenmill verify`?"),
        ("xyzzy", "unknown command 'xyzzy'", "tokenmill --help lists the commands"),
        (
            "a.txt -o y",
            "unknown command 'a.txt'",
            "did you mean `tokenmill prepare a.txt -o y`?",
        ),
        ("help verfy", "unknown command 'verfy'", "did you mean `tokenmill verify`?"),
        (
            "-q prepare x",
            "unknown option -q",
            "options follow the command: tokenmill COMMAND -q; see tokenmill --help",
        ),
        ("prepare x -o y --tokeniser z", "unknown option --tokeniser", "`--tokenizer`?"),
        ("prepare x -o y --num-workers 4", "unknown option --num-workers", "`--num-proc`?"),
        ("prepare x -o y --num-workers=4", "unknown option --num-workers", "`--num-proc`?"),
        ("prepare x -o y --nproc 4", "unknown option --nproc", "`--num-proc`?"),
        ("prepare x -o y -j4", "unknown option -j4", "`--num-proc`?"),
        ("prepare x -o y --block-size 4", "unknown option --block-size", "`--seq-len`?"),
        ("prepare x -o y --shard-size 4", "unknown option --shard-size", "`--shard-tokens`?"),
        ("prepare x -o y --text-key t", "unknown option --text-key", "`--text-column`?"),
        ("prepare x -o y --test-size .1", "unknown option --test-size", "`--val-fraction`?"),
        ("prepare x -o y --tokenizr z", "unknown option --tokenizr", "`--tokenizer`?"),
        ("prepare x -o y --val 1", "unknown option --val", "`--val-fraction` or `--val-first"),
        ("prepare x -o y --xyzzy", "unknown option --xyzzy", "tokenmill prepare --help lists"),
        ("prepare x -o y --resume", "unknown option --resume", "leave it out: the same command"),
        # What is misspelt is told before what is missing.
        ("prepare x --output y", "unknown option --output", "`--out`?"),
        # -out is not -o ut.
        ("prepare x -out y", "unknown option -out", "`--out`?"),
        ("prepare x -overwrite -o y", "unknown option -overwrite", "`--overwrite`?"),
        # --input is no abbreviation of --input-format.
        ("prepare --input x -o y", "unknown option --input", f"without an option: {PREPARE}"),
        ("convert a -o b --format npy", "unknown option -o", "OUT is given without an option"),
        ("verify d --samples 3", "unknown option --samples", "`--sample`?"),
        ("prepare x", "missing: -o, the output folder", "tokenmill prepare x -o data/mine"),
        (f"prepare {'x ' * 9}", "missing: -o, the output folder", "add `-o data/mine`"),
        ("fineweb data/x", "missing: -o, the output folder", "tokenmill fineweb -o data/x"),
        (
            "fineweb --version 10B",
            "missing: -o, the output folder",
            "tokenmill fineweb --version 10B -o data/mine",
        ),
        ("prepare -o y", "missing: SOURCE", PREPARE),
        ("prepare", "missing: SOURCE, -o/--out", PREPARE),
        ("verify", "missing: OUT", "tokenmill verify data/mine"),
        ("convert a b", "missing: --format", "--format megatron"),
        ("completion", "missing: SHELL", "tokenmill completion bash"),
        ("completion tcsh", "SHELL is one of bash, zsh, fish; got 'tcsh'", "completion bash"),
        ("verify a b", "unexpected argument 'b'", "tokenmill verify data/mine"),
        ("fineweb x -o y", "unexpected argument 'x'", "tokenmill fineweb --version 10B"),
        (
            "inspect d --doc 1 2",
            "unexpected argument '2'",
            "repeat the option for each: --doc 2",
        ),
        ("tokenizers compare", "unexpected argument 'compare'", "tokenmill tokenizers --help"),
        ("tokenizers x", "unexpected argument 'x'", "tokenmill tokenizers --help"),
        ("prepare x -o", "-o needs a value", "-o OUT"),
        ("prepare x -o y --dedup", "--dedup needs a value", "--dedup exact"),
        ("prepare x -o y --eot", "--eot needs a value", "--eot append|prepend|both|none"),
        (
            "prepare x -o y --separator ---",
            "--separator needs a value, got '---'",
            "write --separator=---",
        ),
        (
            "prepare x -o y --eot appnd",
            "--eot is one of append, prepend, both, none; got 'appnd'",
            "did you mean `--eot append`?",
        ),
        ("prepare x -o y --num-proc z", "--num-proc takes a whole number, got 'z'", "-proc 8"),
        ("prepare x -o y --val-fraction z", "--val-fraction takes a number, got 'z'", "0.01"),
        ("prepare x -o y --shuffle=1", "--shuffle takes no value, got '1'", "--shuffle alone"),
        (
            "prepare x -o y --no-val --val-fraction .1",
            "--val-fraction and --no-val exclude each other",
            "leave one of them out",
        ),
        ("tokenizer trian x", "unknown command 'trian'", "mean `tokenmill tokenizer train`?"),
        ("tokenizer xyzzy", "unknown command 'xyzzy'", "tokenmill tokenizer --help lists"),
        ("tokenizer -q train", "unknown option -q", "command: tokenmill tokenizer COMMAND -q;"),
        (
            "tokenizer train x --vocab-size 300",
            "missing: -o, the output file",
            "tokenmill tokenizer train x --vocab-size 300 -o my.json",
        ),
        ("formats --jsn", "unknown option --jsn", "`--json`?"),
    ],
)
def test_usage_errors_are_a_line_and_a_hint(line, error, hint, capsys):
    assert main(line.split()) == 2
    out, lines = (stream.splitlines() for stream in capsys.readouterr())
    assert (out, len(lines)) == ([], 2), lines
    assert lines[0] == f"error: {error}"
    assert lines[1].startswith("hint: ") and hint in lines[1]


def test_the_hint_can_be_typed(tmp_path, corpus, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["prepare", corpus]) == 2
    command = capsys.readouterr().err.rpartition("`: tokenmill ")[2].split()
    assert main([*command, "--num-proc", "1", "-q"]) == 0
    assert (tmp_path / "data" / "mine" / "train.bin").exists()


@pytest.mark.parametrize("name", list(commands_of(parser())))
def test_every_example_in_the_help_can_be_parsed(name):
    command = commands_of(parser())[name]
    for line in (command.epilog or "").replace("example: ", "").splitlines():
        example = line.strip().partition("    ")[0].partition(" > ")[0]
        if example.startswith("tokenmill "):
            parser().parse_args(shlex.split(example)[1:])


def test_a_source_may_follow_the_options():
    found = parser().parse_args(["prepare", "a.txt", "-o", "out", "b.txt"])
    assert (found.sources, found.out) == (["a.txt", "b.txt"], "out")


@pytest.mark.parametrize(
    ("words", "option", "value"),
    [
        (["--separator=---"], "separator", "---"),
        (["--separator", "- -"], "separator", "- -"),
        (["--where", "-1 < n"], "where", "-1 < n"),
        (["-oplace"], "out", "place"),
        (["-qv"], "quiet", True),
        (["--", "-x"], "sources", ["a", "-x"]),
    ],
)
def test_values_that_look_like_options_are_values(words, option, value):
    found = parser().parse_args(["prepare", "a", "-o", "out", *words])
    assert getattr(found, option) == value


def test_a_watched_script_keeps_its_own_options():
    found = parser().parse_args(["doctor", "python", "x.py", "--num-workers", "8", "-out", "y"])
    assert found.script == ["python", "x.py", "--num-workers", "8", "-out", "y"]
    found = parser().parse_args(["doctor", "--", "x", "--num-workers"])
    assert found.script == ["--", "x", "--num-workers"]


def test_help_is_that_of_the_command(capsys):
    assert main(["help", "prepare"]) == 0
    shown = capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["prepare", "--help"])
    assert shown == capsys.readouterr().out and "--tokenizer" in shown


def test_help_alone_lists_the_commands(capsys):
    assert main(["help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n    {name}" in shown for name in commands_of(parser()))


def on_a_terminal(*words: str, **environment: str) -> str:
    leader, follower = pty.openpty()
    variables = {**os.environ, "NO_COLOR": "", "TERM": "xterm", **environment}
    subprocess.run(
        [sys.executable, "-m", "tokenmill", *words], stderr=follower, env=variables, check=False
    )
    os.close(follower)
    seen = os.read(leader, 65536).decode()
    os.close(leader)
    return seen


def test_error_is_in_colour_on_a_terminal_alone(capsys):
    assert on_a_terminal("prepar").startswith("\x1b[1;31merror:\x1b[0m unknown")
    assert "\x1b" not in on_a_terminal("prepar", NO_COLOR="1")
    assert "\x1b" not in on_a_terminal("prepar", TERM="dumb")
    main(["prepar"])
    assert "\x1b" not in capsys.readouterr().err
