"""The doctor: what it finds on made-up machines, and what it says of scripts that really die.

The scripts are what people run: the real `datasets` and `tiktoken`, without a network. tiktoken's
encoders are made of the vocabularies that come with the package, as `tiktoken.get_encoding` would.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenmill.doctor import causes_of, examine, machine_findings, proc, vocabulary
from tokenmill.doctor.process_tree import Member
from tokenmill.doctor.signs import Signs
from tokenmill.doctor.watch import Hang, Watched
from tokenmill.encodings.vocabulary_file import VOCAB_FOLDER

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks through /proc")

DOCTOR = [sys.executable, "-m", "tokenmill", "doctor"]
ABRUPTLY = "One of the subprocesses has abruptly died during map operation"

PLAIN_TIKTOKEN = """
import os, signal, sys
import datasets, multiprocess, tiktoken
from tiktoken.load import load_tiktoken_bpe
from tokenmill.encodings.patterns import PATTERNS
from tokenmill.encodings.builtin import BUILTIN_ENCODINGS
from tokenmill.encodings.vocabulary_file import VOCAB_FOLDER

def plain_tiktoken(name):
    shipped = BUILTIN_ENCODINGS[name]
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


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def in_a_cgroup(root: Path, **files: str) -> str:
    write(root, "proc/self/cgroup", "0::/job\n")
    write(root, "proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\n")
    for name, text in files.items():
        write(root, f"sys/fs/cgroup/job/{name.replace('_', '.', 1)}", text)
    return str(root)


def test_cpus_under_a_quota_are_named_with_the_num_proc_to_use(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    finding = machine_findings.cpu_finding(in_a_cgroup(tmp_path, cpu_max="200000 100000\n"))
    assert finding.level == "note" and "2 usable of 64" in finding.what
    assert "cgroup quota 2" in finding.what and "num_proc=2" in finding.advice


@pytest.mark.parametrize(
    ("limit_mb", "used_mb", "level", "words"),
    [(600, 100, "problem", "kill"), (4000, 1000, "note", "num_proc=3"), (80000, 0, "ok", "")],
)
def test_memory_in_a_cgroup_is_judged_by_its_limit(
    tmp_path, monkeypatch, limit_mb, used_mb, level, words
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    files = {"memory_max": f"{limit_mb * 10**6}\n", "memory_current": f"{used_mb * 10**6}\n"}
    finding = machine_findings.memory_finding(in_a_cgroup(tmp_path, **files))
    assert finding.level == level and words in finding.advice


def test_oom_kills_that_were_counted_are_a_note(tmp_path):
    root = in_a_cgroup(tmp_path, memory_events="oom 3\noom_kill 3\n")
    assert machine_findings.oom_finding(root).what.startswith("3 here")


def test_threads_of_the_process_that_asks_are_counted(tmp_path):
    write(tmp_path, f"proc/{os.getpid()}/status", "Name:\tpython\nThreads:\t9\n")
    finding = machine_findings.threads_finding({"OMP_NUM_THREADS": "4"}, str(tmp_path))
    assert finding.level == "note" and "9 in this process; OMP_NUM_THREADS=4" in finding.what


@pytest.mark.parametrize(
    ("version", "platform", "method"),
    [((3, 13), "linux", "fork:"), ((3, 14), "linux", "forkserver"), ((3, 12), "darwin", "spawn")],
)
def test_start_method_is_that_of_the_python_version(version, platform, method):
    assert machine_findings.start_method_finding(version, platform).what.startswith(method)


def test_disk_of_a_folder_that_is_not_there_yet_is_its_parents(tmp_path):
    finding = machine_findings.disk_finding("disk", str(tmp_path / "not" / "yet"))
    assert finding.what.endswith(f"free in {tmp_path}")


def test_tiktoken_cache_is_read_as_tiktoken_names_and_checks_it(tmp_path):
    cache = tmp_path / "the cache"
    command = vocabulary.fill_command("cl100k_base", str(cache))
    subprocess.run(["bash", "-euc", command], check=True)
    assert [path.name for path in cache.iterdir()] == ["9b5ad71b2ce5302211f9c61530b329a4922fc6a4"]
    [url] = vocabulary.FILES["o200k_base"]
    (cache / hashlib.sha1(url.encode()).hexdigest()).write_bytes(b"cut off")
    states = vocabulary.cached_states(str(cache))
    assert states["cl100k_base"] == "right" and states["o200k_base"] == "damaged"
    assert states["gpt2"] == "absent"
    finding = vocabulary.cache_finding({"TIKTOKEN_CACHE_DIR": str(cache)})
    assert finding.level == "note" and "damaged: o200k_base" in finding.what
    assert "downloads" in vocabulary.cache_finding({"TIKTOKEN_CACHE_DIR": ""}).what


def test_tiktoken_files_are_those_that_tiktoken_asks_for(monkeypatch):
    import tiktoken_ext.openai_public as public

    asked = {}

    def read(url, expected_hash=None):
        asked[url] = expected_hash
        raise OSError

    monkeypatch.setattr("tiktoken.load.read_file_cached", read)
    for name in vocabulary.FILES:
        with contextlib.suppress(OSError):
            getattr(public, name)()
    known = {url: sha for files in vocabulary.FILES.values() for url, sha in files.items()}
    assert (
        asked.items() <= known.items() and len(asked) == len(vocabulary.FILES) - 1
    )  # o200k_harmony's is o200k_base's


def test_vocabulary_host_is_not_tried_when_offline_is_asked_for():
    assert "not tried" in vocabulary.reach_finding({"HF_HUB_OFFLINE": "1"}).what


def test_vocabulary_host_behind_a_dead_proxy_cannot_be_reached():
    finding = vocabulary.reach_finding({"https_proxy": "http://user:secret@127.0.0.1:9"})
    assert finding.level == "note" and "127.0.0.1:9" in finding.what
    assert "secret" not in finding.what


def test_examination_never_shows_a_token_or_a_password():
    environment = {
        "HF_TOKEN": "hf_secret",
        "HF_ENDPOINT": "https://me:secret@hub.example/x",
        "HF_HUB_OFFLINE": "1",
    }
    shown = str(examine(environment))
    assert "secret" not in shown and "HF_TOKEN set" in shown and "hub.example" in shown


def test_doctor_alone_prints_findings_on_stdout_and_exits_0(tmp_path):
    environment = {**os.environ, "TIKTOKEN_CACHE_DIR": f"{tmp_path}/\x1b]0;evil\x07"}
    done = subprocess.run(DOCTOR, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout and "\\x1b]0;evil" in done.stdout
    for topic in ("CPUs", "memory", "/dev/shm", "open files", "start method", "versions"):
        assert topic in done.stdout
    found = json.loads(subprocess.check_output([*DOCTOR, "--json"]))
    assert {"level", "topic", "what", "advice"} == set(found[0])


# ---- what was seen, and what it means


def watched(**facts: object) -> Watched:
    head = Member(10, 1, "python a.py", 0.0, ended=3.0, code=1)
    return Watched(("python", "a.py"), head, members=[head], **facts)


def with_child(code: int | None, command: str = "python a.py", **facts: object) -> Watched:
    found = watched(**facts)
    found.members.append(Member(11, 10, command, 1.0, ended=2.0, code=code))
    return found


def names(found: Watched) -> list[str]:
    return [cause.name for cause in causes_of(found)]


def test_sigkill_is_out_of_memory_only_when_the_kernel_counted_it():
    assert names(with_child(-9, oom_kills=1)) == ["out of memory"]
    assert names(with_child(-9, machine_oom_kills=1)) == ["out of memory"]
    assert names(with_child(None, oom_kills=1)) == ["out of memory"]
    assert names(with_child(-9)) == ["killed"]
    assert names(with_child(-15, oom_kills=1)) == []


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
    ],
)
def test_last_words_name_the_cause(line, name):
    signs = Signs()
    # In pieces, because a pipe cuts anywhere, and before a progress bar.
    for at in range(0, len(line), 7):
        signs.feed(line[at : at + 7].encode())
    signs.feed(b"\n" + b"\r 50%|xxxx|" * 1000)
    signs.close()
    assert names(watched(signs=signs.lines)) == [name]


@pytest.mark.parametrize(
    ("code", "name"), [(-11, "native crash"), (-6, "native crash"), (-7, "shared memory")]
)
def test_signals_name_the_cause(code, name):
    assert names(with_child(code)) == [name]


def test_hang_after_a_death_is_a_lost_worker_and_else_a_deadlock():
    hang = Hang(60.0, 3, 2)
    assert names(with_child(-9, hang=hang)) == ["killed", "lost worker"]
    assert names(watched(hang=hang)) == ["hang"]


def test_worker_that_left_silently_is_the_vocabulary_only_when_spawned():
    gone = {"worker gone": ABRUPTLY}
    spawned = "python -c from multiprocess.spawn import spawn_main; spawn_main(1)"
    assert names(with_child(0, spawned, signs=gone)) == ["vocabulary"]
    assert names(with_child(0, signs=gone)) == []
    assert names(with_child(0, spawned)) == []


def test_tools_that_fail_and_workers_that_their_parent_ends_are_no_deaths():
    assert with_child(1, "/usr/bin/grep x").dead == []
    assert with_child(-15).dead == []
    assert [member.code for member in with_child(1).dead] == [1]


def test_stat_of_a_process_with_a_hostile_name_is_read(tmp_path):
    fields = ["Z", "42", *["0"] * 9, "100", "200", *["0"] * 36, "9"]
    write(tmp_path, "proc/7/stat", f"7 (a) R 1 (b) {' '.join(fields)}\n")
    stat = proc.process_stat(7, str(tmp_path))
    assert stat is not None
    assert (stat.parent, stat.state, stat.wait_status) == (42, "Z", 9)
    assert proc.process_stat(8, str(tmp_path)) is None


def test_newborn_that_fails_may_be_a_tool_and_one_that_is_killed_is_a_death():
    failed, killed = with_child(1), with_child(-9)
    for found in (failed, killed):
        found.members[-1].is_before_exec = True  # its command is its parent's, until it has another
    assert failed.dead == [] and [member.code for member in killed.dead] == [-9]


# ---- a tree, looked at step by step; in a process of its own, whose children it may reap

FAMILY = """
import json, os, select, subprocess, sys
from tokenmill.doctor.process_tree import ProcessTree

def started(script):
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
"""


def in_a_family(script: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", FAMILY + script], capture_output=True, text=True, check=True
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_birth_is_seen_without_a_list_of_all_processes():
    """The newest pids are looked at: a child of the command's is found, a thread of its is not."""
    found = in_a_family(
        """
head = started('''
import os, sys, threading, time
input()
thread = threading.Thread(target=time.sleep, args=(60,), daemon=True)
thread.start()
child = os.fork()
if child:
    print(child, thread.native_id, flush=True)
time.sleep(60)
''')
tree = ProcessTree(head.pid)
tree.find_new()
print("", file=head.stdin, flush=True)
while not select.select([head.stdout], [], [], 0.001)[0]:
    tree.find_new()
child, thread = map(int, head.stdout.readline().split())
for _ in range(5):
    tree.find_new()
seen = sorted(set(tree.living) - {head.pid})
command = tree.living[child].command if child in tree.living else ""
os.kill(child, 9)
head.kill()
print(json.dumps({"seen": seen, "child": child, "thread": thread, "command": command}))
"""
    )
    assert found["seen"] == [found["child"]] != [found["thread"]]
    assert "os.fork()" in str(found["command"])


def test_child_that_was_gone_before_any_look_is_not_passed_over():
    found = in_a_family(
        """
def has_unseen(script):
    head = started(script)
    tree = ProcessTree(head.pid)
    head.stdout.read()
    while tree.head.ended is None:
        tree.look({tree.head.pidfd})
    return tree.has_unseen_children

child = '''
import os
pid = os.fork()
if not pid:
    os._exit(3)
os.waitpid(pid, 0)
'''
print(json.dumps({"child": has_unseen(child), "no child": has_unseen("pass")}))
"""
    )
    assert found == {"child": True, "no child": False}


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
    [url] = vocabulary.FILES["r50k_base"]
    cache = tmp_path / "tiktoken"
    cache.mkdir()
    name = hashlib.sha1(url.encode()).hexdigest()
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
        assert "ended with code 0 and no message" in found and "lacks gpt2" in found


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
    assert "oom_kill count rose by 1 in this cgroup" in found and "of the 0.2 GB" in found
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
        r"doctor: fine after \S+ s: 3 processes, the largest held \S+ MB, all together .*\n",
        done.stderr,
    )


def test_child_that_is_killed_at_once_is_never_fine(doctored):
    """Seen, or, where this machine was too busy to look in time, said to have been missed."""
    done = doctored(
        """
import os, signal
for _ in range(5):
    child = os.fork()
    if not child:
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
"""
    )
    assert done.returncode == 0
    assert "was ended by SIGKILL" in done.stderr or "gone before they could" in done.stderr
    assert " 0 B" not in done.stderr


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


def test_hang_in_the_background_says_how_to_end_it():
    """A shell's & ignores SIGINT, for the doctor and for the command: Ctrl-C would do nothing."""
    background = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]
    process = subprocess.Popen(
        [*background, *DOCTOR, "--hang-seconds", "1", "--", "sleep", "60"],
        stderr=subprocess.PIPE,
        text=True,
    )
    line = process.stderr.readline()
    assert f"type `kill {process.pid}` to end it" in line, line
    process.send_signal(signal.SIGINT)  # ignored, and not passed on either
    process.terminate()
    errors = process.communicate(timeout=20)[1]
    assert process.returncode == -signal.SIGTERM, errors


def test_pool_that_lost_a_worker_is_called_a_hang_and_explained(doctored):
    """`multiprocessing.Pool` waits for ever; here a timer plays the user's Ctrl-C."""
    done = doctored(
        """
import multiprocessing, os, signal, threading, time

def work(number):
    time.sleep(0.2)
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT)).start()
        pool.map(work, range(4))
""",
        *("--hang-seconds", "1"),
    )
    assert re.search(r"no process of this command did anything for \d s", done.stderr)
    if knows_every_end():
        assert "cause: a worker died and its pool waits for its result forever" in done.stderr


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


def test_terminal_of_the_command_is_a_terminal_and_hostile_words_are_escaped():
    script = (
        "import os, sys\n"
        "print('a terminal:', os.isatty(2), file=sys.stderr)\n"
        "sys.exit('MemoryError \\x1b]0;evil\\x07')"
    )
    leader, follower = pty.openpty()
    process = subprocess.Popen([*DOCTOR, "--", sys.executable, "-c", script], stderr=follower)
    os.close(follower)
    seen = b""
    with contextlib.suppress(OSError):
        while data := os.read(leader, 65536):
            seen += data
    os.close(leader)
    assert process.wait() == 1
    passed_on, ours = seen.decode().split("doctor: ", 1)
    assert "a terminal: True" in passed_on and "\x1b]0;evil" in passed_on
    assert "\\x1b]0;evil\\x07" in ours and "\x1b" not in ours


@pytest.mark.parametrize("arguments", [["--json", "--", "true"], ["--", "/no/such/program"]])
def test_usage_errors_exit_2(arguments):
    done = subprocess.run([*DOCTOR, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("error: ")
