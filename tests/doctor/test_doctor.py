"""The doctor: what it says of scripts that really die, and of what was seen of made-up ones.

The scripts are what people run: the real `datasets` and `tiktoken`, without a network. tiktoken's
encoders are made of the vocabularies that come with the package, as `tiktoken.get_encoding` would.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenmill.cli import main
from tokenmill.doctor import CAUSES, Member, Watched, _stat, examination, report
from tokenmill.encodings.vocabulary_file import VOCAB_FOLDER

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks through /proc")

DOCTOR = [sys.executable, "-m", "tokenmill", "doctor"]
ABRUPTLY = "One of the subprocesses has abruptly died during map operation"

PLAIN_TIKTOKEN = """
import os, signal, sys
import datasets, multiprocess, tiktoken
from tiktoken.load import load_tiktoken_bpe
from tokenmill.encodings.patterns import PATTERNS
from tokenmill.encodings.published import BUILTIN
from tokenmill.encodings.vocabulary_file import VOCAB_FOLDER

def plain_tiktoken(name):
    shipped = BUILTIN[name]
    return tiktoken.Encoding(
        name=name + "_local",
        pat_str=PATTERNS[shipped.pattern].expression,
        mergeable_ranks=load_tiktoken_bpe(str(VOCAB_FOLDER / shipped.file)),
        special_tokens=dict(shipped.special_tokens),
    )

def a_dataset():
    return datasets.Dataset.from_dict({"text": ["hello world"] * 2000 + ["bad"] + ["more"] * 999})
"""


# ---- the machine, without a script


def test_doctor_alone_says_what_the_machine_allows():
    done = subprocess.run(DOCTOR, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for topic, found in examination().items():
        assert topic in done.stdout and found
    assert "tokenmill doctor -- python prepare.py" in done.stdout


# ---- what was seen, and what it means


def watched(*children: Member, code: int = 1, **facts: object) -> Watched:
    head = Member(10, 1, "python a.py", ended=3.0, code=code)
    return Watched(("python", "a.py"), [head, *children], **facts)


def child(code: int | None, command: str = "python a.py", began: float = 1.0) -> Member:
    return Member(11, 10, command, began, ended=2.0, code=code)


def names(found: Watched) -> list[str]:
    by_title = {cause.title: name for name, cause in CAUSES.items()}
    return [by_title[cause.title] for cause, _ in found.causes()]


def test_sigkill_is_out_of_memory_only_when_the_kernel_counted_it():
    assert names(watched(child(-9), oom_kills=1)) == ["out of memory"]
    assert names(watched(child(None), oom_kills=1)) == ["out of memory"]
    assert names(watched(child(-9))) == ["killed"]
    assert names(watched(child(-15), oom_kills=1)) == []
    shown = "\n".join(report(watched(child(-9), oom_kills=1)))
    assert "the kernel's oom_kill count rose by 1 meanwhile" in shown


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("thread '<unnamed>' panicked at src/lib.rs:366:29:", "panic"),
        ("thread '<unnamed>' (355) panicked at src/lib.rs:366:29:", "panic"),
        ("TypeError: cannot pickle 'builtins.CoreBPE' object", "pickle"),
        ("AttributeError: Can't pickle local object 'main.<locals>.f'", "pickle"),
        ("OSError: [Errno 28] No space left on device: '/x/cache.arrow'", "disk"),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/x'", "shared memory"),
        ("OSError: [Errno 24] Too many open files", "open files"),
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "processes"),
        ("MemoryError", "memory refused"),
        ("Fatal Python error: Segmentation fault", "native crash"),
        ("HTTPSConnectionPool(host='openaipublic.blob.core.windows.net', port=443)", "vocabulary"),
        (
            "This process is multi-threaded, use of fork() may lead to deadlocks in the child.",
            "fork with threads",
        ),
        ("huggingface_hub.errors.LocalEntryNotFoundError: Cannot find it", "hub"),
    ],
)
def test_a_line_of_stderr_names_the_cause(line, name):
    found = watched()
    for said in (b"begins", line.encode(), b"ends"):
        found.see(said)
    assert names(found) == [name]
    assert f"  seen: stderr: {line}" in report(found)


@pytest.mark.parametrize(
    ("code", "name"), [(-11, "native crash"), (-6, "native crash"), (-7, "shared memory")]
)
def test_a_signal_names_the_cause(code, name):
    assert names(watched(child(code))) == [name]
    assert names(watched(code=code)) == [name]


def test_every_cause_says_what_to_type():
    for cause in CAUSES.values():
        assert cause.title and cause.advice


def test_worker_that_left_silently_is_the_vocabulary_only_when_spawned():
    spawned = "python -c from multiprocess.spawn import spawn_main; spawn_main(1)"
    assert names(watched(child(0, spawned), is_worker_gone=True)) == ["vocabulary"]
    assert names(watched(child(0), is_worker_gone=True)) == []
    assert names(watched(child(0, spawned))) == []


def test_tools_that_fail_and_workers_that_their_parent_ends_are_no_deaths():
    assert watched(child(1, "/usr/bin/grep x")).dead == []
    assert watched(child(-15)).dead == []
    assert [member.code for member in watched(child(1)).dead] == [1]
    # A newborn's command is its parent's, until it has another.
    assert watched(child(1, began=1.99)).dead == []
    assert [member.code for member in watched(child(-9, began=1.99)).dead] == [-9]


def test_unknown_cause_shows_the_last_lines_without_control_characters():
    found = watched()
    found.see(b"what \x1b]0;evil\x07")
    assert report(found)[-2:] == [
        "none of the known causes fits; its last output:",
        "  | what \\x1b]0;evil\\x07",
    ]


def test_stat_of_a_process_with_a_hostile_name_is_read(monkeypatch):
    fields = ["Z", "42", *["0"] * 47, "9"]
    data = f"7 (a) R 1 (b) {' '.join(fields)}\n".encode()
    monkeypatch.setattr("tokenmill.doctor._proc", lambda pid, name: data)
    assert _stat(7) == (42, "Z", 9)


# ---- scripts that really die


@pytest.fixture
def doctored(tmp_path: Path):
    """Run a script under the doctor, in a folder and caches of its own."""

    def run(text: str, *options: str, **settings: object) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "prepare.py"
        script.write_text(text)
        environment = {
            **os.environ,
            "HF_HOME": str(tmp_path / "huggingface"),
            "HF_HUB_OFFLINE": "1",
            "RUST_BACKTRACE": "0",
            "TIKTOKEN_CACHE_DIR": str(tmp_path / "tiktoken"),
            # Whatever the machine has: no network for this test.
            "https_proxy": "http://127.0.0.1:9",
        }
        command = [*DOCTOR, *options, "--", sys.executable, str(script)]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
            **settings,
        )

    return run


def diagnosis(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr[done.stderr.rindex("\ndoctor: ") :]


def knows_every_end() -> bool:
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return release is not None and tuple(map(int, release.groups())) >= (6, 15)


@pytest.fixture
def needs_datasets() -> None:
    pytest.importorskip("datasets")


@pytest.mark.usefixtures("needs_datasets")
def test_map_worker_that_is_killed_is_named_with_its_signal(doctored):
    done = doctored(
        PLAIN_TIKTOKEN
        + """
enc = plain_tiktoken("r50k_base")

def tokenize(example):
    if example["text"] == "bad":
        os.kill(os.getpid(), signal.SIGKILL)
    ids = enc.encode_ordinary(example["text"])
    return {"ids": ids, "len": len(ids)}

if __name__ == "__main__":
    multiprocess.set_start_method("fork", force=True)
    a_dataset().map(tokenize, num_proc=2)
"""
    )
    assert done.returncode == 1 and ABRUPTLY in done.stderr
    found = diagnosis(done)
    assert "ended with exit code 1" in found and "prepare.py) after" in found
    if knows_every_end():
        assert re.search(r"child \d+ .*: SIGKILL, someone killed it", found)
        assert "cause: killed by SIGKILL" in found and "no oom_kill was counted" in found
        assert re.search(r"doctor: child \d+ was ended by SIGKILL", done.stderr)


@pytest.mark.usefixtures("needs_datasets")
def test_tiktoken_panic_in_a_map_worker_is_named(doctored):
    done = doctored(
        PLAIN_TIKTOKEN
        + """
enc = plain_tiktoken("o200k_base")

def tokenize(example):
    text = " " * 1_000_000 + "x" if example["text"] == "bad" else example["text"]
    return {"ids": enc.encode_ordinary(text)}

if __name__ == "__main__":
    multiprocess.set_start_method("fork", force=True)
    a_dataset().map(tokenize, num_proc=2)
"""
    )
    assert done.returncode == 1 and ABRUPTLY in done.stderr
    found = diagnosis(done)
    assert "cause: a Rust panic" in found and "panicked at src/lib.rs" in found
    assert "tokenmill.Tokenize(" in found


@pytest.mark.usefixtures("needs_datasets")
def test_script_without_a_main_guard_is_named(doctored):
    done = doctored(
        """
import multiprocess
multiprocess.set_start_method("spawn", force=True)
import datasets
dataset = datasets.Dataset.from_dict({"text": ["hello world"] * 100})
dataset.map(lambda example: {"len": len(example["text"])}, num_proc=2)
"""
    )
    assert done.returncode == 1
    assert "cause: the script has no if __name__ == '__main__': guard" in diagnosis(done)


@pytest.mark.usefixtures("needs_datasets")
def test_vocabulary_that_a_spawned_worker_cannot_load_is_named(doctored, tmp_path):
    """The parent has the vocabulary; its workers look in an empty cache, and then for a network."""
    cache = tmp_path / "tiktoken"
    cache.mkdir()
    name = "0ea1e91bbb3a60f729a8dc8f777fd2fc07cd8df4"  # the sha1 of its URL
    (cache / name).write_bytes((VOCAB_FOLDER / "r50k_base.tiktoken").read_bytes())
    done = doctored(
        f"""
import os
import datasets, multiprocess, tiktoken

def tokenize(example, enc):
    return {{"ids": enc.encode_ordinary(example["text"])}}

if __name__ == "__main__":
    multiprocess.set_start_method("spawn", force=True)
    enc = tiktoken.get_encoding("r50k_base")
    os.remove({str(cache / name)!r})
    dataset = datasets.Dataset.from_dict({{"text": ["hello world"] * 100}})
    dataset.map(tokenize, num_proc=2, fn_kwargs={{"enc": enc}})
"""
    )
    assert done.returncode == 1 and ABRUPTLY in done.stderr
    if knows_every_end():
        found = diagnosis(done)
        assert "cause: tiktoken could not load its vocabulary" in found
        assert "ended with code 0 and no message" in found


def test_vocabulary_that_the_script_itself_cannot_load_is_named(doctored):
    done = doctored("import tiktoken; tiktoken.get_encoding('cl100k_base')")
    found = diagnosis(done)
    assert done.returncode == 1 and "cause: tiktoken could not load its vocabulary" in found
    assert "openaipublic" in found and "tokenmill.get_encoding" in found


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A cgroup of 200 MB inside our own; only root may make one."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        parent = Path("/sys/fs/cgroup", controllers) / path.lstrip("/")
        group = parent / f"tokenmill-test-{os.getpid()}"
        limit = group / ("memory.limit_in_bytes" if controllers else "memory.max")
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if limit.exists():
                limit.write_text(str(200 << 20))
                with contextlib.suppress(OSError):
                    (group / "memory.swap.max").write_text("0")
                yield group
                return
        finally:
            group.rmdir()
    pytest.skip("no cgroup with a memory limit can be made here")


def test_worker_that_the_kernel_kills_for_memory_is_named_with_the_count(doctored, small_cgroup):
    def join() -> None:
        (small_cgroup / "cgroup.procs").write_text(str(os.getpid()))

    done = doctored(
        """
import multiprocessing, sys

def hog(number):
    held = [bytearray(10_000_000) for _ in range(100)]

if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=hog, args=(1,))
    process.start()
    process.join()
    sys.exit("a worker is gone" if process.exitcode else None)
""",
        preexec_fn=join,
    )
    assert done.returncode == 1
    found = diagnosis(done)
    assert "cause: the kernel killed it for lack of memory (OOM killer)" in found
    assert "oom_kill count rose by 1 meanwhile" in found and "of the 209.7 MB" in found
    assert "fewer processes: num_proc=2" in found
    if knows_every_end():
        assert re.search(r"child \d+ .*: SIGKILL, the kernel killed it for lack of memory", found)


def test_healthy_script_is_one_line_and_its_stdout_is_its_own(doctored):
    done = doctored(
        """
import multiprocessing, time
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(abs, [-1, -2]))
        time.sleep(0.1)
"""
    )
    assert (done.returncode, done.stdout) == (0, "[1, 2]\n"), done.stderr
    assert re.fullmatch(
        r"doctor: fine after \S+ s: 3 processes, the largest held \S+ MB\n",
        done.stderr,
    )


def test_exit_code_and_stdin_are_the_commands_own():
    command = [*DOCTOR, "--", sys.executable, "-c", "import sys; sys.exit(int(input()))"]
    done = subprocess.run(command, input="42\n", capture_output=True, text=True, check=False)
    assert done.returncode == 42 and "none of the known causes fits" in done.stderr


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_command_that_dies_by_a_signal_makes_the_doctor_die_by_it(doctored, signum):
    done = doctored(f"import os; os.kill(os.getpid(), {int(signum)})")
    assert done.returncode == -signum
    assert f"was ended by {signum.name}" in diagnosis(done)


def test_signal_to_the_doctor_reaches_the_command(tmp_path):
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    process = subprocess.Popen(
        [*DOCTOR, "--", sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"ready\n"
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 9


def test_processes_left_behind_are_named_and_do_not_hold_up_the_doctor(doctored):
    done = doctored(
        """
import os, signal, time
pid = os.fork()
if pid == 0:
    os.close(1)  # or the test would wait for it
    time.sleep(20)
    os._exit(0)
time.sleep(0.3)
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    [pid] = re.findall(r"still running, though their parent is gone: kill (\d+)", done.stderr)
    os.kill(int(pid), signal.SIGKILL)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("arguments", [["--json"], ["--", "/no/such/program"]])
def test_usage_errors_exit_2(arguments):
    done = subprocess.run([*DOCTOR, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("error: ")


@pytest.mark.skipif(not knows_every_end(), reason="a kernel that hides the ends of grandchildren")
def test_pool_that_lost_a_worker_hangs_and_ctrl_c_brings_the_report(tmp_path):
    """`multiprocessing.Pool` waits for ever; the doctor has said at once which child died."""
    script = """
import multiprocessing, os, signal, time

def work(number):
    time.sleep(0.5)
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)

pool = multiprocessing.get_context("fork").Pool(2)
try:
    pool.map(work, range(4))
except KeyboardInterrupt:
    os._exit(1)  # a pool may hang when it is told to end, too
"""
    said = tmp_path / "stderr"  # not a pipe, which a worker that is left would keep open
    with said.open("wb") as stderr:
        process = subprocess.Popen(
            [*DOCTOR, "--", sys.executable, "-c", script], stderr=stderr, start_new_session=True
        )
    try:
        while not re.search(r"doctor: child \d+ was ended by SIGKILL", said.read_text()):
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert "cause: killed by SIGKILL" in said.read_text()


def test_stderr_is_passed_on_byte_for_byte_and_ours_is_a_line_of_its_own():
    script = r"import sys; sys.stderr.write('50%|x\r100%|xx\rhalf a line')"
    done = subprocess.run(
        [*DOCTOR, "--", sys.executable, "-c", script], capture_output=True, check=True
    )
    assert done.stderr.startswith(b"50%|x\r100%|xx\rhalf a line\ndoctor: fine after ")


def test_run_of_tokenmill_is_fine_though_it_ends_its_workers(tmp_path):
    (tmp_path / "a.txt").write_text("a mill grinds\n" * 1000)
    command = ["tokenmill", "prepare", tmp_path / "a.txt", "--separator", "\\n", "--num-proc", "2"]
    done = subprocess.run(
        [*DOCTOR, "--", sys.executable, "-m", *command, "-q", "-o", tmp_path / "out"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.startswith("doctor: fine after "), done.stderr


def test_worker_that_fails_is_not_fine_though_the_script_is(doctored):
    done = doctored(
        """
import multiprocessing, os, time

def fail():
    time.sleep(2)
    os._exit(9)

worker = multiprocessing.get_context("fork").Process(target=fail)
worker.start()
worker.join()
"""
    )
    assert done.returncode == 0
    if knows_every_end():
        assert "a child process died" in done.stderr and "exit code 9" in done.stderr


def test_script_without_its_interpreter_is_refused_with_what_to_type(capsys):
    assert main(["doctor", "--", "prepare.py"]) == 2
    assert "tokenmill doctor -- python prepare.py" in capsys.readouterr().err
