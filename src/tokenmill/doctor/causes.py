"""From observations to known causes, the most certain first.

Each rule reads a `Watched` and returns None, or one cause with its evidence and advice. The texts
that users see, and why each cause comes out as "abruptly died": docs/abruptly-died.md.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from tokenmill.doctor.findings import gigabytes
from tokenmill.doctor.machine_findings import DOCKER_SHM_BYTES
from tokenmill.doctor.watch import Watched, is_spawned
from tokenmill.runners import machine
from tokenmill.runners.exit_diagnosis import signal_name
from tokenmill.wording.plural import counted

_NATIVE = {signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP}
# With this share of the memory in use, a SIGKILL was most likely the kernel's.
_TIGHT_SHARE = 0.9

FEWER = "fewer processes: num_proc=2, and a smaller batch_size and writer_batch_size"
PREPARE = "tokenmill prepare data.parquet -o out: bounded memory, and a dead worker is only retried"
TOKENIZE = 'ds.map(tokenmill.Tokenize("gpt2", text_column="text", eot="append"), num_proc=8)'
GET_ENCODING = 'enc = tokenmill.get_encoding("gpt2") in place of tiktoken.get_encoding("gpt2")'


@dataclass(frozen=True, slots=True)
class Cause:
    name: str
    title: str
    evidence: tuple[str, ...]
    advice: tuple[str, ...]


def causes_of(watched: Watched, vocabulary: str | None = None) -> list[Cause]:
    """The causes that fit. `vocabulary` says what tiktoken's cache lacks, if anything."""
    found = (rule(watched) for rule in _RULES)
    causes = [cause for cause in found if cause]
    names = {cause.name for cause in causes}
    if not names & {"panic", "pickle", "no main guard"} and (
        cause := _vocabulary(watched, vocabulary)
    ):
        causes.append(cause)
    if not causes and watched.code > 0 and "hub" in watched.signs:
        causes.append(_hub(watched))
    return causes


def _killed(watched: Watched, *signals: int) -> list[int]:
    """The processes that one of these signals ended: children first, then the command itself."""
    members = [*watched.dead, watched.head]
    return [member.pid for member in members if member.signal in signals]


def _stderr_line(watched: Watched, sign: str) -> tuple[str, ...]:
    return (f"stderr: {watched.signs[sign]}",) if sign in watched.signs else ()


def _memory_words(watched: Watched) -> str:
    limit = gigabytes(machine.memory_limit_bytes())
    together = gigabytes(watched.together_bytes)
    return f"all its processes together held up to {together} of the {limit} they may have"


def _out_of_memory(watched: Watched) -> Cause | None:
    killed = _killed(watched, signal.SIGKILL)
    unknown = [member.pid for member in watched.dead if member.code is None]
    counted = watched.oom_kills or watched.machine_oom_kills
    if not (counted and (killed or unknown)):
        return None
    where = "in this cgroup" if watched.oom_kills else "on this machine"
    counts = f"the kernel's oom_kill count rose by {counted} {where} meanwhile"
    return Cause(
        "out of memory",
        "the kernel killed it for lack of memory (OOM killer)",
        (counts, _memory_words(watched)),
        (FEWER, "more memory: docker run --memory, sbatch --mem", PREPARE),
    )


def _killed_by_someone(watched: Watched) -> Cause | None:
    if watched.oom_kills or watched.machine_oom_kills or not _killed(watched, signal.SIGKILL):
        return None
    evidence = ("no oom_kill was counted meanwhile", _memory_words(watched))
    if watched.together_bytes > _TIGHT_SHARE * machine.memory_limit_bytes():
        title = "killed by SIGKILL, most likely for lack of memory"
    else:
        title = "killed by SIGKILL, by a person, a job scheduler or a memory watchdog"
    return Cause(
        "killed",
        title,
        evidence,
        (
            "ask the scheduler (sacct -j JOB, kubectl describe pod), systemd-oomd or earlyoom "
            "(journalctl): they kill by the same signal and count elsewhere",
            PREPARE,
        ),
    )


def _memory_refused(watched: Watched) -> Cause | None:
    if "memory" not in watched.signs or (watched.code == 0 and not watched.dead):
        return None
    return Cause(
        "memory refused",
        "it asked for memory and got none (ulimit -v, a full cgroup, one huge batch)",
        (*_stderr_line(watched, "memory"), _memory_words(watched)),
        (FEWER, PREPARE),
    )


def _panic(watched: Watched) -> Cause | None:
    if "panic" not in watched.signs:
        return None
    return Cause(
        "panic",
        "a Rust panic (tiktoken on a pathological document); pools do not catch it, so the "
        "worker dies",
        _stderr_line(watched, "panic"),
        (
            "in tokenize(): try: ... except BaseException: return {'ids': [], 'len': 0}",
            f"{TOKENIZE}: encodes such documents, or names them",
            "tokenmill prepare data.parquet -o out: quarantines such a document and continues",
        ),
    )


def _no_main_guard(watched: Watched) -> Cause | None:
    if "no main guard" not in watched.signs:
        return None
    return Cause(
        "no main guard",
        "the script has no if __name__ == '__main__': guard, and its workers run all of it again",
        _stderr_line(watched, "no main guard"),
        (
            "put everything but imports and functions under if __name__ == '__main__':",
            "tokenmill prepare data.parquet -o out: its workers do not import your script",
        ),
    )


def _pickle(watched: Watched) -> Cause | None:
    if "pickle" not in watched.signs:
        return None
    return Cause(
        "pickle",
        "something the workers need cannot be pickled, such as the encoder (tiktoken before 0.6)",
        _stderr_line(watched, "pickle"),
        (GET_ENCODING, TOKENIZE, "or load the encoder inside the function that workers call"),
    )


def _vocabulary(watched: Watched, lacking: str | None) -> Cause | None:
    silent = watched.silent
    if "vocabulary" not in watched.signs and not (silent and is_spawned(silent)):
        return None
    evidence = list(_stderr_line(watched, "vocabulary"))
    if silent:
        evidence.append(
            f"child {silent.pid} ended with code 0 and no message, like a pool's worker that gets "
            "an OSError while it unpickles its task"
        )
    if lacking:
        evidence.append(lacking)
    return Cause(
        "vocabulary",
        "tiktoken could not load its vocabulary: not in its cache, and the download failed",
        tuple(evidence),
        (
            f"{GET_ENCODING}: needs no network",
            TOKENIZE,
            "tokenmill doctor: shows tiktoken's cache and a command that fills it",
        ),
    )


def _shared_memory(watched: Watched) -> Cause | None:
    killed = _killed(watched, signal.SIGBUS)
    low = watched.shm_free_bytes is not None and watched.shm_free_bytes < DOCKER_SHM_BYTES
    if not killed and not ("shared memory" in watched.signs and watched.code):
        return None
    free = gigabytes(watched.shm_free_bytes or 0)
    return Cause(
        "shared memory",
        "/dev/shm is full" if low else "a bus error: /dev/shm full, or a mapped file cut short",
        (*_stderr_line(watched, "shared memory"), f"at its lowest, {free} of /dev/shm were free"),
        ("docker run --shm-size=8g (or --ipc=host)", "DataLoader(num_workers=0)"),
    )


def _disk(watched: Watched) -> Cause | None:
    if "disk" not in watched.signs or "shared memory" in watched.signs or not watched.code:
        return None
    return Cause(
        "disk",
        "a disk is full",
        _stderr_line(watched, "disk"),
        (
            "HF_HOME=/big/disk/huggingface TMPDIR=/big/disk/tmp: datasets.map caches the ids as "
            "64-bit numbers, 8 bytes per token",
            "tokenmill prepare data.parquet -o out: 2 bytes per token, no cache",
        ),
    )


def _open_files(watched: Watched) -> Cause | None:
    if "open files" not in watched.signs:
        return None
    advice = ("ulimit -n 65536, in the shell that starts the script", FEWER)
    return Cause("open files", "too many open files", _stderr_line(watched, "open files"), advice)


def _processes(watched: Watched) -> Cause | None:
    if "processes" not in watched.signs or not watched.code:
        return None
    return Cause(
        "processes",
        "no more processes or threads may be started (ulimit -u, the cgroup's pids.max)",
        _stderr_line(watched, "processes"),
        (FEWER, "OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1", "docker run --pids-limit=-1"),
    )


def _native_crash(watched: Watched) -> Cause | None:
    killed = _killed(watched, *_NATIVE)
    if not killed and "segfault" not in watched.signs:
        return None
    ended = {signal_name(m.signal) for m in [*watched.dead, watched.head] if m.signal in _NATIVE}
    return Cause(
        "native crash",
        "a crash in native code: a broken library, or two that are incompatible",
        (*(f"ended by {name}" for name in sorted(ended)), *_stderr_line(watched, "segfault")),
        (
            "PYTHONFAULTHANDLER=1 python ...: shows the Python line",
            "pip install -U datasets pyarrow tiktoken numpy, in a fresh environment",
            PREPARE,
        ),
    )


def _hang(watched: Watched) -> Cause | None:
    hang = watched.hang
    if hang is None or not (watched.code or watched.was_interrupted):
        return None
    processes = counted(hang.num_processes, "process", "processes")
    idle = f"its {processes} did nothing for {hang.seconds:.0f} s"
    locks = f"{hang.num_on_locks} of them waited for a lock"
    if watched.dead:
        return Cause(
            "lost worker",
            "a worker died and its pool waits for its result forever (multiprocessing.Pool)",
            (idle, locks),
            ("see above why the worker died", PREPARE),
        )
    return Cause(
        "hang",
        "a deadlock: most often fork in a process with threads, which copies held locks"
        if hang.num_on_locks or "fork with threads" in watched.signs
        else "it waits: for the network, for input, or for a process that is gone",
        (idle, locks, *_stderr_line(watched, "fork with threads")),
        (
            "py-spy dump --pid PID: shows where each process waits",
            "TOKENIZERS_PARALLELISM=false, and call map before anything that starts threads",
            "multiprocess.set_start_method('forkserver') under if __name__ == '__main__':",
            f"{TOKENIZE}: starts no threads, works with every start method",
        ),
    )


def _hub(watched: Watched) -> Cause:
    return Cause(
        "hub",
        "the Hugging Face Hub could not be reached, or the files are not in its cache",
        _stderr_line(watched, "hub"),
        ("fetch the files elsewhere; tokenmill prepare 'folder/*.parquet' -o out reads them",),
    )


_RULES: tuple[Callable[[Watched], Cause | None], ...] = (
    _out_of_memory,
    _panic,
    _no_main_guard,
    _pickle,
    _shared_memory,
    _disk,
    _open_files,
    _processes,
    _memory_refused,
    _native_crash,
    _killed_by_someone,
    _hang,
)
