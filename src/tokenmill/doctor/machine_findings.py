"""What the machine allows: CPUs, memory, shared memory, open files, threads, disk.

Functions take `root`, the folder that holds proc/, sys/ and dev/, as runners/machine.py does.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import threading
from collections.abc import Mapping

from tokenmill.doctor.findings import Finding, Level, gigabytes
from tokenmill.doctor.proc import process_status
from tokenmill.errors import OutputError
from tokenmill.runners import machine
from tokenmill.storage.scratch import temporary_folder

# A generous figure for the memory of one map worker with tiktoken and a batch of documents.
WORKER_BYTES = 10**9
# Docker gives a container this much shared memory unless told otherwise.
DOCKER_SHM_BYTES = 64 << 20
FEW_FILES = 4096
LITTLE_DISK_BYTES = 10 * 10**9
NO_DISK_BYTES = 500 * 10**6

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM")


def cpu_finding(root: str = "/") -> Finding:
    installed, granted = os.cpu_count() or 1, machine.available_cpus(root)
    if granted >= installed:
        workers = "1 worker" if granted == 1 else f"up to {granted} workers, no more than slices"
        return Finding("ok", "CPUs", f"{granted}, all of them usable: prepare starts {workers}")
    quota = machine.cpu_quota(root)
    why = f"cgroup quota {quota:g}" if quota and quota < installed else "CPU affinity"
    return Finding(
        "note",
        "CPUs",
        f"{granted} usable of {installed} that os.cpu_count() names ({why})",
        f"num_proc={granted}: more workers only cost memory",
    )


def memory_finding(root: str = "/") -> Finding:
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, free = machine.memory_limit_bytes(root), machine.memory_available_bytes(root)
    what = f"{gigabytes(free)} free of {gigabytes(limit)}"
    if limit < 0.99 * installed:
        what += f", a cgroup limit; {gigabytes(installed)} are installed, which does not count"
    workers = max(1, free // WORKER_BYTES)
    if free < WORKER_BYTES:
        advice = "the kernel will kill workers: give it more memory (docker run --memory, "
        advice += "sbatch --mem), or use one process"
        return Finding("problem", "memory", what, advice)
    if workers < machine.available_cpus(root):
        advice = f"num_proc={workers}: 1 GB for each map worker, or the kernel kills some"
        return Finding("note", "memory", what, advice)
    return Finding("ok", "memory", what)


def oom_finding(root: str = "/") -> Finding:
    count = machine.oom_kill_count(root)
    if not count:
        return Finding("ok", "OOM kills", "none here so far")
    return Finding(
        "note",
        "OOM kills",
        f"{count} here so far: processes killed by the kernel for lack of memory",
        "if the count rises while your script runs, that is what kills its workers",
    )


def shared_memory_finding(root: str = "/") -> Finding:
    folder = os.path.join(root, "dev/shm")
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return Finding("note", "/dev/shm", "there is none", "torch's DataLoader workers need it")
    what = f"{gigabytes(usage.free)} free of {gigabytes(usage.total)}"
    if usage.free <= DOCKER_SHM_BYTES:
        advice = "DataLoader workers die by SIGBUS (Bus error): docker run --shm-size=8g, "
        return Finding("problem", "/dev/shm", what, advice + "or num_workers=0")
    return Finding("ok", "/dev/shm", what)


def open_files_finding() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FEW_FILES:
        return Finding("ok", "open files", f"at most {'any number' if soft < 0 else soft}")
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
    what = f"at most {soft} in one process"
    if wanted <= soft:
        return Finding("note", "open files", what, f"raise the hard limit, which is {hard}, too")
    return Finding("note", "open files", what, f"ulimit -n {wanted}, before many files or workers")


def start_method_finding(
    version: tuple[int, ...] = tuple(sys.version_info[:2]), platform: str = sys.platform
) -> Finding:
    """How `multiprocessing` starts workers here. Derived, not queried: a query would fix the
    method."""
    if platform != "linux":
        what = "spawn: workers import your script again and unpickle the encoder"
    elif version >= (3, 14):
        what = "forkserver, since Python 3.14: workers import your script again and unpickle "
        what += "the encoder; before, fork handed it over"
    else:
        what = "fork: workers inherit the encoder, and every lock that a thread held"
        advice = "start no threads before map; from Python 3.14 on it is forkserver, which needs "
        advice += "if __name__ == '__main__':"
        return Finding("ok", "start method", what, advice)
    advice = "guard the script with if __name__ == '__main__': and load encoders that pickle "
    return Finding("note", "start method", what, advice + "(tokenmill.get_encoding)")


def threads_finding(environment: Mapping[str, str], root: str = "/") -> Finding:
    """The threads of the calling process: in a notebook or a script, the one that will fork."""
    count = process_status(os.getpid(), root).num_threads or threading.active_count()
    settings = [f"{name}={environment[name]}" for name in _THREAD_VARIABLES if name in environment]
    what = f"{count} in this process; " + (", ".join(settings) or "no variable limits their number")
    if count > 1:
        advice = "fork copies locks that other threads hold, and the worker waits forever: call "
        advice += "map before what starts threads, or use the start method spawn"
        return Finding("note", "threads", what, advice)
    return Finding("ok", "threads", what)


def temporary_files_finding() -> Finding:
    try:
        return disk_finding("temporary files", temporary_folder())
    except OutputError as error:
        return Finding("problem", "temporary files", error.message, error.hint or "")


def disk_finding(topic: str, folder: str) -> Finding:
    """The free space where `folder` is, or would be."""
    folder = os.path.abspath(folder)
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    try:
        usage, files = shutil.disk_usage(folder), os.statvfs(folder)
    except OSError as error:
        return Finding("note", topic, f"{folder}: {error.strerror}")
    what = f"{gigabytes(usage.free)} free in {folder}"
    if files.f_files and not files.f_favail:
        return Finding(
            "problem", topic, f"{what}, but no inode", "delete files: no new ones can be created"
        )
    level: Level = "ok"
    if usage.free < LITTLE_DISK_BYTES:
        level = "problem" if usage.free < NO_DISK_BYTES else "note"
    advice = "FineWeb-Edu 10BT: 29 GB of parquet, 20 GB of tokens; datasets.map caches 80 GB more"
    return Finding(level, topic, what, "" if level == "ok" else advice)
