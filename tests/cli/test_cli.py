"""The command line as a person meets it: real processes, exit codes, what is on which stream."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import pytest

import oracle
import warm
from corpora import made_texts, write_corpus
from terminal import shown_on_terminal
from tokenmill import prepare
from tokenmill.cli import main, parser
from tokenmill.cli.screen import parsed_count, printable, shown_count
from tokenmill.config.kinds import unescaped
from tokenmill.errors import ConfigError

COMMAND = [sys.executable, "-m", "tokenmill"]


PREPARE_OPTIONS = """
    --out --text-column --separator --input-format --limit-docs --on-bad-document --max-bad-fraction
    --template --lists --where --sample --dedup --limit-tokens --config --keep
    --bos-token --bos
    --tokenizer --pattern --eot-token --eot --empty --format --name --shard-tokens --seq-len --dtype
    --val-fraction --val-first-shard --no-val --shuffle --seed --num-proc --stall-timeout
    --partition --runner --ray-address --worker-cpus --worker-memory --keep-downloads
    --no-keep-downloads --overwrite --no-overwrite --no-shuffle --pack
    --dry-run --json --quiet --verbose --help
"""


def test_prepare_options_are_the_documented_ones():
    help_text = warm.tokenmill("prepare", "--help").stdout
    assert set(re.findall(r"--[a-z][a-z-]+", help_text)) >= set(PREPARE_OPTIONS.split())
    prepare = next(a for a in parser()._actions if a.dest == "command").choices["prepare"]
    shown = [action for action in prepare._actions if action.help != argparse.SUPPRESS]
    found = {o for action in shown for o in action.option_strings if o.startswith("--")}
    assert found == set(PREPARE_OPTIONS.split())


def test_help_imports_none_of_the_heavy_libraries():
    script = (
        "import sys; from tokenmill.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'pyarrow', 'awkward', 'tiktoken', 'gigatoken'} & set(sys.modules)),"
        " file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "prepare" in done.stdout and done.stderr.strip() == "[]"


def test_commands_on_local_files_import_nothing_of_the_hub_or_of_options_not_used(tmp_path, corpus):
    """A move once brought 70 ms of HTTP back into every run."""
    out = str(tmp_path / "out")
    prepare = ["prepare", corpus, "-o", out, "--no-val", "-q", "--overwrite", "--num-proc"]
    convert = ["convert", out, str(tmp_path / "other"), "--format", "npy"]
    commands = [[*prepare, "1"], [*prepare, "2"], ["inspect", out], ["verify", out], convert]
    script = "import sys; from tokenmill.cli import main\nmain()\nprint('>', *sys.modules)"
    unneeded = {"http.client", "urllib.request", "huggingface_hub", "awkward"}
    unneeded |= {"tokenmill.storage.hub", "tokenmill.where.parser"}
    for words in commands:
        command = [sys.executable, "-c", script, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        imported = done.stdout.splitlines()[-1].split()
        assert "tokenmill.formats" in imported
        assert not unneeded.intersection(imported), words


def test_no_command_shows_the_help_and_exits_2():
    done = warm.tokenmill()
    assert (done.returncode, done.stdout) == (2, "") and "prepare" in done.stderr


def test_prepare_writes_shards_and_a_summary_on_stderr(tmp_path, corpus, texts):
    words = ("prepare", corpus, "-o", str(tmp_path / "out"), "--no-val", "--num-proc", "2")
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "400 documents" in done.stderr and "train.bin" in done.stderr
    assert "400 rows = 400 written + 0 empty + 0 null + 0 quarantined" in done.stderr
    assert (tmp_path / "out" / "train.bin").read_bytes() == oracle.stream(oracle.ids(texts))


def test_summary_says_which_bytes_of_a_large_file_its_sha256_is_of(tmp_path, corpus, texts):
    settings = {"tokenmill.storage.hashing.PIECE_BYTES": 3000}
    words = ("prepare", corpus, "-o", tmp_path / "out", "--no-val", "--num-proc", 1)
    data = oracle.stream(oracle.ids(texts))
    piece = hashlib.sha256(data[:3000]).hexdigest()[:12]
    done = warm.tokenmill(*words, settings=settings)
    assert f"sha256 {piece} of its first 3,000 bytes\n" in done.stderr
    done = warm.tokenmill(*words[:2], "-o", tmp_path / "whole", *words[4:])
    assert f"sha256 {hashlib.sha256(data).hexdigest()[:12]}\n" in done.stderr


def test_prepare_again_says_complete(tmp_path, corpus):
    warm.tokenmill("prepare", corpus, "-o", tmp_path / "out", "--num-proc", 1)
    done = warm.tokenmill("prepare", corpus, "-o", tmp_path / "out", "--num-proc", 1)
    assert done.returncode == 0 and "is already complete; nothing to do" in done.stderr


def test_json_is_on_stdout_and_is_the_manifest(tmp_path, corpus):
    done = warm.tokenmill(
        "prepare", corpus, "-o", tmp_path / "out", "--num-proc", 1, "--json", "-q"
    )
    found = json.loads(done.stdout)
    on_disk = json.loads((tmp_path / "out" / "tokenmill.json").read_text())
    del on_disk["sha256"]  # of the file itself
    assert on_disk.items() <= found.items() and found["seconds"] > 0
    assert done.stderr == ""


def test_quiet_prints_nothing(tmp_path, corpus):
    done = warm.tokenmill("prepare", corpus, "-o", tmp_path / "out", "--num-proc", 1, "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_dry_run_shows_the_plan_and_writes_nothing(tmp_path, corpus):
    done = warm.tokenmill("prepare", corpus, "-o", tmp_path / "out", "--dry-run")
    assert done.returncode == 0 and "1 input file," in done.stderr and "free" in done.stderr
    assert not (tmp_path / "out").exists()
    found = json.loads(
        warm.tokenmill("prepare", corpus, "-o", tmp_path / "out", "--dry-run", "--json").stdout
    )
    assert found["inputs"] == 1 and found["slices"] == 1 and found["free_bytes"] > 0
    where = ("--where", "text == 'no row has it' or len(text) > 100", "--dry-run", "--json")
    fewer = json.loads(warm.tokenmill("prepare", corpus, "-o", tmp_path / "out", *where).stdout)
    assert 0 < fewer["text_bytes"] < found["text_bytes"]
    warm.tokenmill("prepare", corpus, "-o", tmp_path / "out", "-q")
    written = sum(file.stat().st_size for file in (tmp_path / "out").glob("*.bin"))
    assert found["expected_bytes"] == written <= found["needed_bytes"]


def test_dry_run_says_each_note_once(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("one<|endoftext|>two<|endoftext|>")
    (tmp_path / "in/readme.md").write_text("skipped")
    for sources in ([tmp_path / "in"], [f"a={tmp_path}/in", f"b={tmp_path}/in/a.txt"]):
        done = warm.tokenmill("prepare", *sources, "-o", tmp_path / "out", "--dry-run")
        notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
        assert len(notes) >= 2 and len(set(notes)) == len(notes), notes
        assert any(".md" in note for note in notes)


def test_dry_run_plans_no_more_workers_than_slices(tmp_path, corpus):
    given = ("prepare", corpus, "-o", tmp_path / "out", "--dry-run", "--num-proc", 1000)
    assert "1 slice, 1 worker\n" in warm.tokenmill(*given).stderr
    assert json.loads(warm.tokenmill(*given, "--json").stdout)["workers"] == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--tokenizer", "gpt9"], 2),
        (["--format", "wrong"], 2),
        (["--shard-tokens", "many"], 2),
        (["--text-column", "nope"], 2),
        (["--val-fraction", "7"], 2),
        (["--tokenizer", "cl100k_base", "--dtype", "uint16"], 2),
    ],
)
def test_usage_errors_exit_2_with_a_message_and_no_traceback(arguments, code, tmp_path, corpus):
    done = warm.tokenmill("prepare", corpus, "-o", tmp_path / "out", "--num-proc", 1, *arguments)
    assert done.returncode == code
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr


def test_missing_input_exits_3_and_a_conflict_6(tmp_path, corpus):
    done = warm.tokenmill("prepare", tmp_path / "none", "-o", tmp_path / "out")
    assert done.returncode == 3 and "no such file" in done.stderr
    warm.tokenmill("prepare", corpus, "-o", tmp_path / "out", "--num-proc", 1)
    done = warm.tokenmill("prepare", corpus, "-o", tmp_path / "out", "--num-proc", 1, "--seed", 3)
    assert done.returncode == 6 and "seed: was 0, now 3" in done.stderr
    assert "--overwrite" in done.stderr


def test_control_characters_in_names_never_reach_the_terminal(tmp_path):
    done = warm.tokenmill("prepare", f"{tmp_path}/evil\x1b]0;title\x07.txt", "-o", tmp_path / "out")
    assert done.returncode == 3
    assert "\x1b" not in done.stderr and "\\x1b]0;title\\x07" in done.stderr


@pytest.fixture(scope="module")
def slow_corpus(tmp_path_factory) -> str:
    """Enough text that a signal finds the run in the middle."""
    texts = made_texts(2000, seed=5)
    return write_corpus("jsonl", tmp_path_factory.mktemp("slow"), texts * 40)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_a_command_without_a_run_and_leaves_no_temporary_files(
    signum, tmp_path, slow_corpus
):
    scratch, out = tmp_path / "scratch", tmp_path / "my.json"
    scratch.mkdir()
    options = ["train", slow_corpus, "-o", str(out), "--vocab-size", "5000"]
    process = subprocess.Popen(
        [*COMMAND, "tokenizer", *options], env={**os.environ, "TMPDIR": str(scratch)}
    )
    # Python itself tries the folder first, with a file of its own that a signal may leave.
    while not any(scratch.glob("tokenmill-*")) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signum)
    assert process.wait(timeout=120) == -signum
    assert sorted(os.listdir(tmp_path)) == ["scratch"] and not os.listdir(scratch)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("num_proc", [1, 2])
def test_signal_ends_the_run_by_that_signal_and_says_how_to_resume(
    signum, num_proc, tmp_path, slow_corpus
):
    out = tmp_path / "out"
    command = [*COMMAND, "prepare", slow_corpus, "-o", str(out), "--num-proc", str(num_proc)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (out / ".tokenmill" / "plan.json").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signum)
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == -signum, errors
    assert "run the same command again" in errors and "Traceback" not in errors
    done = warm.tokenmill(*command[len(COMMAND) :])
    assert done.returncode == 0, done.stderr


def test_second_ctrl_c_ends_at_once(tmp_path, slow_corpus):
    out = tmp_path / "out"
    command = [*COMMAND, "prepare", slow_corpus, "-o", str(out), "--num-proc", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (out / ".tokenmill" / "plan.json").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT


def test_progress_on_a_terminal_is_one_moving_line(tmp_path, slow_corpus):
    command = [*COMMAND, "prepare", slow_corpus, "-o", str(tmp_path / "out"), "--num-proc", "2"]
    text = shown_on_terminal(command, "stderr")
    assert re.search(
        r"\r +\d+%  [\d,]+ documents  \S+ tokens  [\d.]+ [kM]?B/s  2 workers  \S+ s left", text
    )
    assert "rows = " in text.rsplit("\r", 1)[-1] or "rows = " in text


def test_closed_stdout_is_no_traceback(tmp_path, corpus):
    command = (
        f"{sys.executable} -m tokenmill prepare {corpus} -o {tmp_path}/out --json --num-proc 1"
    )
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert (tmp_path / "out" / "tokenmill.json").exists()


def test_main_can_be_called_from_python(tmp_path, corpus, capsys):
    assert main(["prepare", corpus, "-o", str(tmp_path / "out"), "--dry-run"]) == 0
    assert "plan:" in capsys.readouterr().err


def test_demo_prepares_the_standard_library_and_shows_a_sample(tmp_path):
    done = warm.tokenmill("demo", "-o", tmp_path / "out", "--num-proc", 2)
    assert done.returncode == 0, done.stderr
    assert "the first tokens of" in done.stderr and "  | " in done.stderr
    assert (tmp_path / "out" / "train.bin").stat().st_size > 1_000_000


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("100M", 10**8),
        ("1.5b", 15 * 10**8),
        ("100_000", 100_000),
        ("1e8", 10**8),
        ("7", 7),
        ("2K", 2000),
        ("4.1B", 4_100_000_000),
        ("2.01M", 2_010_000),
        ("100,000", 100_000),
        ("9007199254740993", (1 << 53) + 1),
    ],
)
def test_counts_are_read_as_people_write_them(text, number):
    assert parsed_count(text) == number


@pytest.mark.parametrize("text", ["", "M", "1.5", "ten", "-3", "1e-3", "1,5B", "1,,0", "1.2345K"])
def test_counts_that_are_none_are_refused(text):
    with pytest.raises(ConfigError):
        parsed_count(text)


def test_separator_escapes_stand_for_what_they_say():
    assert unescaped(r"\n\n") == "\n\n"
    assert unescaped(r"a\tb\\n\x41") == "a\tb\\nA"
    assert unescaped("<|endoftext|>") == "<|endoftext|>"


def test_printable_shows_controls_and_keeps_letters():
    assert printable("naïve 東京\x1b[31m\u202e\n") == "naïve 東京\\x1b[31m\\u202e\\n"
    assert shown_count(1_234_567_890) == "1.23B"


def test_unguarded_script_and_a_shadowing_module_in_the_users_folder_work(tmp_path, corpus):
    (tmp_path / "random.py").write_text("raise SystemExit('the wrong random was imported')")
    script = tmp_path / "script.py"
    script.write_text(f"import tokenmill\ntokenmill.prepare({corpus!r}, 'out', num_proc=2)\n")
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(tmp_path, "out", "tokenmill.json").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_full_disk_behind_stdout_is_no_bug_and_loses_nothing(tmp_path, unbuffered):
    (tmp_path / "a.jsonl").write_text('{"text": "grain"}\n')
    command = [sys.executable, "-m", "tokenmill", "prepare", tmp_path / "a.jsonl", "--no-val"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*command, "-o", tmp_path / "out", "--num-proc", "1", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 4
    assert done.stderr.startswith("error: cannot write to standard output: No space left")
    assert "Exception" not in done.stderr
    assert (tmp_path / "out/tokenmill.json").exists()


@pytest.mark.parametrize("command", ["prepare", "convert"])
@pytest.mark.parametrize(
    ("out", "says", "hint"),
    [
        ("file:///somewhere/out", "is a local folder", "hint: /somewhere/out\n"),
        ("local://out", "is a local folder", "hint: out\n"),
        ("memory://out", "the memory of one process", "hint: a folder, or s3://"),
        ("https://example.com/out", "can be read, but not written", "hint: a folder, or s3://"),
    ],
)
def test_output_when_the_url_is_of_no_store_then_refused_without_a_word_of_buckets(
    corpus, tmp_path, capsys, command, out, says, hint
):
    if command == "prepare":
        arguments = ["prepare", corpus, "-o", out]
    else:
        prepare(corpus, tmp_path / "nano", num_proc=1)
        arguments = ["convert", str(tmp_path / "nano"), out, "--format", "npy"]
    capsys.readouterr()
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert f"error: {out}" in said and says in said and hint in said
    assert "the bucket" not in said


def test_output_in_memory_when_prepared_in_this_process_then_written(corpus):
    memory = fsspec.filesystem("memory")
    try:
        prepare(corpus, "memory://prepared/out", runner="inline")
        assert [path for path in memory.find("/prepared/out") if path.endswith("/train.bin")]
        with pytest.raises(ConfigError, match="memory of one process"):
            prepare(corpus, "memory://prepared/other", num_proc=2)
    finally:
        memory.rm("/prepared", recursive=True)


@pytest.mark.parametrize("source", ["file:///somewhere/c.jsonl", "memory://somewhere/c.jsonl"])
def test_source_when_the_url_has_no_bucket_then_no_word_of_it(source, tmp_path, capsys):
    assert main(["prepare", source, "-o", str(tmp_path / "out")]) == 3
    assert "bucket" not in capsys.readouterr().err
