"""Runners: the same bytes whatever dies. Real processes, real signals.

Faults get into the workers from outside: PYTHONPATH points at a sitecustomize.py that wraps
`Encoding.encode_array`, so the product knows nothing of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tokenmill
from corpora import made_texts
from spoilt import sitecustomize
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.corpus.spans import Input, Slice
from tokenmill.encode.job import Caution, Job, Step
from tokenmill.encode.mill import encode_slice
from tokenmill.encode.record import PartRecord
from tokenmill.encodings import get_encoding
from tokenmill.errors import InputError, OutputError, TokenmillError, WorkerError
from tokenmill.runners import machine
from tokenmill.runners.attempts import Attempts
from tokenmill.runners.exit_diagnosis import Death, Exit, death_of, stderr_excerpt
from tokenmill.runners.inline import InlineRunner
from tokenmill.runners.processes import ProcessesRunner

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
    pytest.mark.timeout(60),
]

NUM_SLICES = 6
NUM_ROWS = 40
NEEDLE = "NEEDLE"
ENCODING = get_encoding("gpt2").identity

FAULTY = """
def fault(text):
    {fault}

def spoil(module):
    encode_array = module.Encoding.encode_array
    def faulty(self, texts, *rest):
        for text in texts.to_pylist():
            fault(text)
        return encode_array(self, texts, *rest)
    module.Encoding.encode_array = faulty

SPOILT = {"tokenmill.encodings.encoding": spoil}
"""

SEGFAULT = "'NEEDLE' in text and os.kill(os.getpid(), signal.SIGSEGV)"
SLOW = "time.sleep(0.005)"


@dataclass
class Onlooker:
    """A Watch that remembers."""

    notices: list[str] = field(default_factory=list)
    steps: list[tuple[int, Step]] = field(default_factory=list)
    thread: int = field(default_factory=threading.get_ident)
    stop: bool = False

    def step(self, slice_: Slice, step: Step) -> None:
        assert threading.get_ident() == self.thread
        self.steps.append((slice_.index, step))

    def notice(self, message: str) -> None:
        assert threading.get_ident() == self.thread
        self.notices.append(message)

    def should_stop(self) -> bool:
        return self.stop


@dataclass(frozen=True)
class Work:
    """A corpus of small slices, and a folder to encode it into."""

    folder: Path
    slices: list[Slice]

    def job(self, name: str, on_bad_document: str = "quarantine") -> Job:
        work = self.folder / name
        for part in ("parts", "records"):
            (work / part).mkdir(parents=True, exist_ok=True)
        options = ReadOptions(batch_bytes=4096)
        return Job(
            work=str(work),
            plan_id="plan",
            encoding=ENCODING,
            read=options,
            dtype="uint16",
            eot="append",
            bos=None,
            empty="drop",
            val_fraction=0.1,
            seed=0,
            num_buckets=0,
            on_bad_document=on_bad_document,
        )

    def files(self, name: str) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.folder / name)): path.read_bytes()
            for path in sorted((self.folder / name).rglob("*"))
            if path.is_file() and path.suffix != ".tmp"
        }

    def expected(self, skip: dict[int, Caution] | None = None) -> dict[str, bytes]:
        """What one process writes, without the documents that `skip` names."""
        job = self.job("expected")
        for slice_ in self.slices:
            encode_slice(job, slice_, caution=(skip or {}).get(slice_.index, Caution()))
        return self.files("expected")


def made_slice(index: int, path: Path, texts: list[str]) -> Slice:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    found = path.stat()
    source = Input(str(path), "jsonl", None, found.st_size, found.st_mtime_ns, "")
    return Slice(index, tuple(reader_for("jsonl", ReadOptions()).spans(source)))


def made_work(folder: Path, needles: dict[int, tuple[int, ...]] | None = None) -> Work:
    slices = []
    for index in range(NUM_SLICES):
        texts = made_texts(NUM_ROWS, seed=index)
        for row in (needles or {}).get(index, ()):
            texts[row] += " " + NEEDLE
        slices.append(made_slice(index, folder / f"{index}.jsonl", texts))
    return Work(folder, slices)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return made_work(tmp_path)


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Have every worker run a line of code before it encodes a `text`."""

    def install(fault: str) -> Path:
        folder = tmp_path / "faults"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(sitecustomize(FAULTY.replace("{fault}", fault)))
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        return folder

    return install


def run(
    work: Work, watch: Onlooker, num_proc: int = 2, stall_timeout: float = 30.0, **job: str
) -> list[PartRecord]:
    with ProcessesRunner(num_proc, ENCODING, stall_timeout) as runner:
        return list(runner.run(work.job("out", **job), iter(work.slices), watch))


# Children of this process from before the test: other tests leave multiprocessing's forkserver.
STRANGERS: set[int] = set()


def children() -> dict[int, str]:
    """The test's own child processes: pid and state (Z: nobody has reaped it)."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                if int(stat[1]) == os.getpid() and int(name) not in STRANGERS:
                    found[int(name)] = stat[0]
    return found


def marked(mark: str) -> list[int]:
    """Processes with this text in their environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
    return found


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """After every test: no child, no zombie, no open file, no thread more than before."""
    files, threads = open_files(), set(threading.enumerate())
    STRANGERS.update(children())
    yield
    assert children() == {}
    # By what they are: idle connections of earlier tests may be closed meanwhile.
    assert not open_files() - files
    assert not set(threading.enumerate()) - threads


def open_files() -> Counter[str]:
    found: Counter[str] = Counter()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found[os.readlink(f"/proc/self/fd/{fd}")] += 1
    return found


# Any number of workers; what every runner does is in test_contract.py


@pytest.mark.parametrize("num_proc", [0, 1, 2, 4])
def test_runner_with_any_number_of_processes_writes_the_same_bytes(work, num_proc):
    watch = Onlooker()
    runner = ProcessesRunner(num_proc, ENCODING) if num_proc else InlineRunner()
    with runner if num_proc else contextlib.nullcontext():
        records = list(runner.run(work.job("out"), iter(work.slices), watch))
    assert sorted(record.slice_index for record in records) == list(range(NUM_SLICES))
    assert work.files("out") == work.expected()
    assert {index for index, _ in watch.steps} == set(range(NUM_SLICES))
    assert watch.notices == []


# Deaths


def test_worker_killed_at_random_changes_no_byte(work, faulty):
    faulty(SLOW)
    watch, rng, is_done = Onlooker(), random.Random(0), threading.Event()

    def kill_one_whenever_there_is_progress() -> None:
        num_steps = num_kills = 0
        while not is_done.wait(0.3) and num_kills < 3:  # a fourth might end the run: see test_crash
            pids = list(children())
            if pids and len(watch.steps) > num_steps:
                num_steps = len(watch.steps)
                num_kills += 1
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(pids), signal.SIGKILL)

    killer = threading.Thread(target=kill_one_whenever_there_is_progress)
    killer.start()
    try:
        records = run(work, watch, num_proc=3)
    finally:
        is_done.set()
        killer.join()
    assert len(records) == NUM_SLICES
    assert work.files("out") == work.expected()
    assert watch.notices
    assert all("SIGKILL" in notice for notice in watch.notices)


def test_worker_killed_while_the_caller_is_busy_does_not_hold_up_the_work(work, faulty):
    faulty(SLOW)
    with ProcessesRunner(2, ENCODING) as runner:
        records = runner.run(work.job("out"), iter(work.slices), Onlooker())
        next(records)
        os.kill(max(children()), signal.SIGKILL)
        deadline = time.monotonic() + 20
        while len(os.listdir(work.folder / "out/records")) < NUM_SLICES:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(list(records)) == NUM_SLICES - 1
    assert work.files("out") == work.expected()


def test_worker_that_dies_is_explained_within_a_second(work, faulty):
    faulty(SLOW)
    watch = Onlooker()
    with ProcessesRunner(1, ENCODING) as runner:
        records = runner.run(work.job("out"), iter(work.slices), watch)
        noticed: list[float] = []
        watch.notice = lambda message: noticed.append(time.monotonic())  # type: ignore[method-assign]
        next(records)
        killed = time.monotonic()
        os.kill(max(children()), signal.SIGKILL)
        list(records)
    assert len(noticed) == 1
    assert noticed[0] - killed < 1.0


def test_document_that_segfaults_is_left_out_and_named(tmp_path, faulty):
    work = made_work(tmp_path, {2: (17,)})
    faulty(SEGFAULT)
    watch = Onlooker()
    records = {record.slice_index: record for record in run(work, watch)}
    reason = "kills the worker that encodes it (SIGSEGV)"
    [left_out] = records[2].quarantined
    assert (left_out.path, left_out.place) == (str(tmp_path / "2.jsonl"), "line 18")
    assert left_out.reason == reason
    assert all(not records[index].quarantined for index in range(NUM_SLICES) if index != 2)
    assert work.files("out") == work.expected({2: Caution({(0, 17): reason})})
    assert len(watch.notices) == 5  # 3 plain attempts, 2 to be sure
    assert "slice 2" in watch.notices[0]
    assert "2.jsonl" in watch.notices[0]
    assert "SIGSEGV: a crash in native code" in watch.notices[0]
    assert "Fatal Python error: Segmentation fault" in watch.notices[0]
    assert "attempt 2 of 3" in watch.notices[0]


def test_documents_that_segfault_in_one_slice_are_all_found(tmp_path, faulty):
    work = made_work(tmp_path, {0: (0, 1, 39)})
    faulty(SEGFAULT)
    records = {record.slice_index: record for record in run(work, Onlooker())}
    assert [left_out.place for left_out in records[0].quarantined] == [
        "line 1",
        "line 2",
        "line 40",
    ]
    reason = "kills the worker that encodes it (SIGSEGV)"
    assert work.files("out") == work.expected({0: Caution({(0, r): reason for r in (0, 1, 39)})})


def test_document_that_segfaults_when_bad_ones_are_errors_stops_the_run(tmp_path, faulty):
    work = made_work(tmp_path, {1: (5,)})
    faulty(SEGFAULT)
    with pytest.raises(WorkerError) as caught:
        run(work, Onlooker(), on_bad_document="error")
    assert caught.value.exit_code == 7
    assert f"{tmp_path / '1.jsonl'}, line 6: this document kills" in caught.value.message
    assert "SIGSEGV" in caught.value.message
    assert "--on-bad-document quarantine" in str(caught.value.hint)


def test_document_that_hangs_is_left_out(tmp_path, faulty):
    work = made_work(tmp_path, {3: (7,)})
    faulty("while 'NEEDLE' in text: pass")
    watch = Onlooker()
    records = {record.slice_index: record for record in run(work, watch, stall_timeout=1.5)}
    [left_out] = records[3].quarantined
    assert left_out.place == "line 8"
    assert left_out.reason == "hangs the worker that encodes it (no progress for 1.5 s)"
    assert len(watch.notices) == 3


def test_worker_that_is_stopped_is_replaced(work, faulty):
    faulty(SLOW)
    for attempt in range(5):  # on a busy machine all slices may be taken before the signal comes
        watch, out = Onlooker(), f"out{attempt}"
        with ProcessesRunner(2, ENCODING, stall_timeout=1.5) as runner:
            records = runner.run(work.job(out), iter(work.slices), watch)
            next(records)
            os.kill(max(children()), signal.SIGSTOP)
            assert len(list(records)) == NUM_SLICES - 1
        assert work.files(out) == work.expected()
        if watch.notices:
            break
    [notice] = watch.notices
    assert "no progress for 1.5 s" in notice


def test_memory_error_once_is_retried_on_a_fresh_worker(tmp_path, faulty):
    work = made_work(tmp_path, {0: (3,)})
    faulty("if 'NEEDLE' in text and times('memory') == 1: raise MemoryError")
    watch = Onlooker()
    run(work, watch)
    assert work.files("out") == work.expected()
    assert len(watch.notices) == 1
    assert "MemoryError" in watch.notices[0]


def test_memory_error_always_leaves_the_document_out_after_a_try_alone(tmp_path, faulty):
    work = made_work(tmp_path, {0: (3,)})
    folder = faulty("""
    with open(os.path.join(FOLDER, "log"), "a") as log:
        log.write(f"{os.getpid()} {int('NEEDLE' in text)}\\n")
    time.sleep(0.01)
    if 'NEEDLE' in text: raise MemoryError
    """)
    records = {record.slice_index: record for record in run(work, Onlooker(), num_proc=2)}
    [left_out] = records[0].quarantined
    assert (left_out.place, left_out.reason) == (
        "line 4",
        "needs more memory than there is (MemoryError)",
    )
    log = [line.split() for line in (folder / "log").read_text().splitlines()]
    needles = [i for i, (_, is_needle) in enumerate(log) if is_needle == "1"]
    assert len(needles) == 5
    for needle in needles[3:]:  # the careful attempts had the machine to themselves
        assert len({pid for pid, _ in log[needle - 3 : needle + 1]}) == 1


def test_worker_killed_for_memory_makes_the_run_go_on_with_fewer(tmp_path, faulty, monkeypatch):
    work = made_work(tmp_path, {0: (3,)})
    folder = faulty(
        "'NEEDLE' in text and times('kills') <= 3 and os.kill(os.getpid(), signal.SIGKILL)"
    )
    kills = folder / "kills"
    monkeypatch.setattr(
        machine, "oom_kill_count", lambda: min(3, kills.stat().st_size) if kills.exists() else 0
    )
    watch = Onlooker()
    run(work, watch, num_proc=3)
    assert work.files("out") == work.expected()
    assert len(watch.notices) == 3
    assert "the kernel killed it for lack of memory (oom_kill count +1)" in watch.notices[0]
    assert "continuing with one fewer worker: 2" in watch.notices[0]
    assert "continuing with one fewer worker: 1" in watch.notices[1]


def test_worker_killed_between_documents_blames_none(tmp_path, faulty):
    """Died when the next batch was read: the last document named is not the one to blame."""
    work = made_work(tmp_path)
    faulty("""
    import tokenmill.corpus.readers.jsonl as jsonl
    if not hasattr(jsonl.JsonlReader, "real"):
        jsonl.JsonlReader.real = jsonl.JsonlReader.rows
        def rows(self, span):
            for number, batch in enumerate(self.real(span)):
                if number == 2 and span.input.path.endswith("4.jsonl"):
                    os.kill(os.getpid(), signal.SIGBUS)
                yield batch
        jsonl.JsonlReader.rows = rows
    """)
    with pytest.raises(WorkerError, match=r"workers keep dying at slice 4 .*\n?.*SIGBUS"):
        run(work, Onlooker())


# Errors


@pytest.mark.parametrize("kind", [InputError, OutputError])
def test_error_in_a_worker_is_the_same_error_here(tmp_path, faulty, kind):
    work = made_work(tmp_path, {0: (3,)})
    faulty(
        f"""if 'NEEDLE' in text:
        from tokenmill.errors import {kind.__name__}
        raise {kind.__name__}('what', hint='how')"""
    )
    with pytest.raises(kind) as caught:
        run(work, Onlooker())
    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.hint) == ("what", "how")


def test_exception_in_a_worker_that_nobody_expected_comes_with_its_traceback(tmp_path, faulty):
    work = made_work(tmp_path, {0: (3,)})
    faulty("if 'NEEDLE' in text: raise BaseException('boom')")
    with pytest.raises(TokenmillError, match="boom") as caught:
        run(work, Onlooker())
    assert caught.value.exit_code == 1
    assert "Traceback" in caught.value.message


def test_worker_that_cannot_import_is_an_error_with_its_last_words(work, tmp_path, monkeypatch):
    (tmp_path / "faults").mkdir()
    blocked = "import sys; sys.modules['gigatoken'] = None; sys.modules['pyarrow'] = None"
    (tmp_path / "faults/sitecustomize.py").write_text(blocked)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "faults"))
    with pytest.raises(WorkerError, match="workers die while they start") as caught:
        run(work, Onlooker())
    assert "ModuleNotFoundError" in caught.value.message


def test_worker_killed_while_it_starts_is_replaced(work):
    watch = Onlooker()
    with ProcessesRunner(2, ENCODING) as runner:
        while not children():
            time.sleep(0.01)
        os.kill(min(children()), signal.SIGKILL)
        list(runner.run(work.job("out"), iter(work.slices), watch))
    assert work.files("out") == work.expected()
    assert len(watch.notices) == 1, watch.notices
    assert "died while it started: SIGKILL" in watch.notices[0]


def test_worker_that_never_starts_is_done_without(work, faulty):
    """The first to start lives; the others die before they are ready."""
    faulty("time.sleep(0.02); text == 'warm' and times('starts') > 1 and os._exit(3)")
    watch = Onlooker()
    assert len(run(work, watch, num_proc=2)) == NUM_SLICES
    assert work.files("out") == work.expected()
    assert 3 <= len(watch.notices) <= 5  # 3 in a row since the first one was ready
    assert "died while it started: exit code 3" in watch.notices[0]
    assert "continuing with one fewer worker: 1" in watch.notices[-1]


# The wire


def test_worker_that_prints_much_and_reads_stdin_does_no_harm(work, faulty):
    faulty("print('x' * 99999); os.write(1, b'[\"record\"]\\n'); sys.stdin.read()")
    run(work, Onlooker())
    assert work.files("out") == work.expected()


def test_slice_of_very_many_files_fits_through_the_pipe(work):
    folder = work.folder / ("long" * 50)
    folder.mkdir()
    texts = made_texts(1500)
    slices = [made_slice(0, folder / f"{i}.jsonl", [text]) for i, text in enumerate(texts)]
    many = Slice(0, tuple(span for slice_ in slices for span in slice_.spans))
    assert len(json.dumps(many.to_plain())) > 65536
    watch = Onlooker()
    with ProcessesRunner(1, ENCODING) as runner:
        [record] = runner.run(work.job("out"), [many], watch)
    assert record.counts.num_rows == 1500
    assert sum(step.done_rows for _, step in watch.steps) > 200
    assert len(watch.steps) < 500  # steps that follow closely are told as one


def test_slices_are_drawn_only_as_they_are_needed(work, faulty):
    faulty("time.sleep(0.02)")
    drawn = []
    slices = (drawn.append(slice_) or slice_ for slice_ in work.slices)
    with ProcessesRunner(1, ENCODING) as runner:
        next(runner.run(work.job("out"), slices, Onlooker()))
        assert len(drawn) <= 3


# Ends


def test_stop_ends_the_run_though_slices_are_slow(work, faulty):
    faulty("time.sleep(1)")
    watch = Onlooker()
    with ProcessesRunner(2, ENCODING) as runner:
        records = runner.run(work.job("out"), iter(work.slices), watch)
        threading.Timer(2.0, lambda: setattr(watch, "stop", True)).start()
        assert list(records) == []
        assert children() == {}


def test_stop_lets_slices_under_way_finish(work, faulty):
    faulty("time.sleep(0.02)")
    watch = Onlooker()
    with ProcessesRunner(2, ENCODING) as runner:
        done = []
        for record in runner.run(work.job("out"), iter(work.slices), watch):
            done.append(record)
            watch.stop = True
    assert 2 <= len(done) < NUM_SLICES


def test_generator_that_is_closed_early_leaves_no_process(work, faulty):
    faulty(SLOW)
    with ProcessesRunner(2, ENCODING) as runner:
        records = runner.run(work.job("out"), iter(work.slices), Onlooker())
        next(records)
        assert len(children()) == 2
        records.close()
        assert children() == {}
        # and the runner can run again
        assert len(list(runner.run(work.job("out"), iter(work.slices), Onlooker()))) == NUM_SLICES


def test_runner_that_is_left_in_the_middle_leaves_no_process(work, faulty):
    faulty(SLOW)
    with ProcessesRunner(2, ENCODING) as runner:
        records = runner.run(work.job("out"), iter(work.slices), Onlooker())
        next(records)
    assert children() == {}
    assert len(list(records)) < NUM_SLICES


def test_runner_that_never_ran_leaves_no_process():
    with ProcessesRunner(2, ENCODING):
        pass
    assert children() == {}


# The caller's process

SCRIPT = """
import sys, pickle
from tokenmill.corpus.spans import Slice
from tokenmill.encodings import get_encoding
from tokenmill.encode.job import Job
from tokenmill.runners.processes import ProcessesRunner
import json

class Watch:
    def step(self, slice_, step): pass
    def notice(self, message): print(message, file=sys.stderr)
    def should_stop(self): return False

job, slices = json.load(open(sys.argv[1]))
slices = [Slice.from_plain(plain) for plain in slices]
print("begun", flush=True)
with ProcessesRunner(2, get_encoding("gpt2").identity) as runner:
    for record in runner.run(Job.from_plain(job), slices, Watch()):
        print(record.slice_index, flush=True)
"""


@pytest.fixture
def script(work: Work) -> list[str]:
    """The command of a user's script, without a __main__ guard."""
    (work.folder / "script.py").write_text(SCRIPT)
    plain = [work.job("out").to_plain(), [slice_.to_plain() for slice_ in work.slices]]
    (work.folder / "work.json").write_text(json.dumps(plain))
    return [sys.executable, str(work.folder / "script.py"), str(work.folder / "work.json")]


def test_script_without_main_guard_in_a_folder_of_odd_names_works(work, script):
    odd = work.folder / "odd"
    odd.mkdir()
    for name in ("random", "queue", "json", "numpy", "tokenmill", "runpy", "sitecustomize"):
        (odd / f"{name}.py").write_text("raise SystemExit('imported from the current folder')")
    done = subprocess.run(script, cwd=odd, capture_output=True, text=True, timeout=40)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert sorted(done.stdout.split()) == ["0", "1", "2", "3", "4", "5", "begun"]
    assert work.files("out") == work.expected()


def test_script_that_found_the_package_by_itself_has_workers_that_find_it_too(work, script):
    """An interpreter that has nothing installed, and a script that knows where everything is."""
    bare = getattr(sys, "_base_executable", sys.executable)
    if subprocess.run([bare, "-c", "import pyarrow"], capture_output=True).returncode == 0:
        pytest.skip("the interpreter below this environment has pyarrow itself")
    paths = [path for path in sys.path if path] + [str(Path(tokenmill.__file__).parents[1])]
    source = Path(script[1]).read_text()
    Path(script[1]).write_text(f"import sys; sys.path += {paths!r}\n{source}")
    done = subprocess.run([bare, *script[1:]], capture_output=True, text=True, timeout=40)
    assert done.returncode == 0, done.stderr
    assert work.files("out") == work.expected()


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.2, 0.3, 1.5])
def test_caller_killed_at_any_time_leaves_no_worker(work, script, faulty, delay):
    faulty("time.sleep(0.2)")
    mark = f"TOKENMILL_TEST={os.urandom(8).hex()}"
    name, value = mark.split("=")
    with subprocess.Popen(
        script, stdout=subprocess.PIPE, env={**os.environ, name: value}, text=True
    ) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "begun\n"
        time.sleep(delay)
        if delay >= 0.3:
            assert len(marked(mark)) == 3
        caller.kill()
        caller.wait()
        deadline = time.monotonic() + 2
        while marked(mark) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert marked(mark) == []


# What is said, and what is tried next


def test_last_words_with_control_characters_cannot_steer_a_terminal():
    words = stderr_excerpt("\x1b]52;c;ZXZpbA==\x07 evil \x9b31m\u202e\r\nfine\n")
    assert "\x1b" not in words
    assert not set(words) & set("\x1b\x07\x9b\u202e\r")
    assert words.endswith("fine")


def test_last_words_of_a_crash_begin_with_the_crash():
    noise = "".join(f"noise {i}\n" for i in range(50))
    frames = "".join(f'  File "f.py", line {i} in f\n' for i in range(50))
    words = stderr_excerpt(f"{noise}Fatal Python error: Aborted\n\n{frames}")
    assert words.splitlines()[0] == "  | Fatal Python error: Aborted"
    assert len(words.splitlines()) == 8


@pytest.mark.parametrize(
    ("code", "oom_kills", "says"),
    [
        (-9, 1, "SIGKILL: the kernel killed it for lack of memory"),
        (-9, 0, "SIGKILL: someone killed it"),
        (-6, 1, "SIGABRT: a crash in native code"),
        (-25, 0, "SIGXFSZ: the file-size limit"),
        (-64, 0, "SIGRTMAX: someone ended it"),
        (-50, 0, "signal 50: someone ended it"),
        (3, 0, "exit code 3: it exited on its own"),
        (None, 0, "unknown end"),
    ],
)
def test_death_by_any_end_is_explained(code, oom_kills, says):
    death = death_of(Exit(1, code, None, ""), oom_kills)
    assert death.explained.startswith(says)
    assert death.is_memory == (code == -9 and oom_kills > 0)


def test_death_by_sigkill_when_memory_is_tight_is_probably_memory(monkeypatch):
    monkeypatch.setattr(machine, "memory_limit_bytes", lambda: 4_000_000_000)
    monkeypatch.setattr(machine, "memory_available_bytes", lambda: 3_000_000_000)
    death = death_of(Exit(1, -9, 2_800_000_000, ""), 0)
    assert "probably the kernel, for lack of memory; it held up to 2.8 GB of 4.0 GB" in death.likely
    assert death.is_memory


CRASH = Death(1, "SIGSEGV", "a crash in native code")


def careful(work: Work, **job: str) -> Attempts:
    """Attempts that have come to document by document."""
    attempts = Attempts(work.job("out", **job), work.slices[0])
    for _ in range(3):
        attempts.failed(CRASH)
    assert attempts.order()["caution"] == {"skip": [], "one_by_one": True}
    return attempts


def fail_at(attempts: Attempts, *rows: int) -> None:
    for row in rows:
        attempts.order()
        attempts.step = Step(0, row, 1)
        attempts.failed(CRASH)


def test_attempts_after_the_first_are_alone_in_their_worker(work):
    """Or a document could be blamed for a shard that was committed beside it."""
    attempts = Attempts(work.job("out"), work.slices[0])
    assert not attempts.is_alone
    attempts.failed(CRASH)
    assert attempts.is_alone
    assert careful(work).is_alone


def test_attempts_that_fail_at_other_documents_each_time_blame_none(work):
    with pytest.raises(WorkerError, match="not twice at the same document"):
        fail_at(careful(work), 5, 6, 7)


def test_attempts_that_fail_twice_at_one_document_leave_it_out(work):
    attempts = careful(work)
    fail_at(attempts, 4, 5, 5)
    [[span, row, reason]] = attempts.order()["caution"]["skip"]
    assert (span, row, reason) == (0, 5, "kills the worker that encodes it (SIGSEGV)")


def test_attempts_that_fail_before_a_document_that_was_left_out_blame_no_more(work):
    with pytest.raises(WorkerError, match="between documents"):
        fail_at(careful(work), 5, 5, 4, 4)


def test_attempts_that_fail_before_any_document_name_the_file(work):
    attempts = careful(work)
    attempts.failed(CRASH)
    with pytest.raises(WorkerError, match=r"slice 0 \(.*0\.jsonl, at its beginning\)"):
        attempts.failed(CRASH)


def test_attempts_that_leave_out_too_many_end(work):
    attempts = careful(work)
    with pytest.raises(WorkerError, match="after 20 of its documents"):
        fail_at(attempts, *(row for row in range(21) for _ in range(2)))
