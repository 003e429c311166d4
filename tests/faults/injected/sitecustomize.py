"""What a test puts into the processes it starts, parents and workers alike, from outside.

Python imports a `sitecustomize` at every start if it finds one: PYTHONPATH leads here, and
TOKENMILL_FAULTS says as JSON what to do (launch.py). The product knows nothing of it.

    folder   where processes write what they did: `trace`, counters, the marks of pauses
    faults   what happens at which point: a point is a moment of a storage operation, named below
    values   constants of tokenmill's modules that are to be others, by their dotted names
    slow     seconds that every operation on the disk takes longer
    jitter   slices take a random time longer, by this seed
    no_lock  flock does nothing, as on some network file systems
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import random
import re
import shutil
import signal
import sys
import time

ASKED = json.loads(os.environ.get("TOKENMILL_FAULTS", "{}"))
FOLDER = ASKED.get("folder", "")
ROLE = "worker" if any(a.endswith("worker.py") for a in sys.orig_argv) else "parent"


def be_a_worker() -> None:
    global ROLE
    ROLE = "worker"


os.register_at_fork(after_in_child=be_a_worker)

_PART = r"\.part\.[0-9a-f]+\.tmp$"
_MANIFEST = r"/tokenmill\.json"
# Name -> operation, path (of a rename: where to), and whether it is done before, half or all of it.
POINTS = {
    "begun": ("makedirs", r"/\.tokenmill$", "none"),
    "plan written": ("link", r"/plan\.json$", "all"),
    "part opened": ("open", _PART, "all"),
    "part half": ("write", _PART, "half"),
    "part whole": ("replace", r"\.part$", "none"),
    "part renamed": ("replace", r"\.part$", "all"),
    "record opened": ("open", r"/records/.*\.tmp$", "all"),
    "record renamed": ("replace", r"/records/\d+\.json$", "all"),
    "shard half": ("write", r"/\.tokenmill/\w+/shards/", "half"),
    "shard synced": ("fsync", r"/\.tokenmill/\w+/shards/.", "all"),
    "task recorded": ("replace", r"/tasks/[\w-]+\.json$", "all"),
    "publication written": ("replace", r"/publish\.json$", "all"),
    "shard published": ("replace", r"^(?!.*/\.tokenmill/|.*/tokenmill\.json$)", "all"),
    "manifest temporary": ("fsync", _MANIFEST + r"\.[0-9a-f]+\.tmp$", "all"),
    "manifest renamed": ("replace", _MANIFEST + "$", "all"),
    "cleanup": ("rmtree", r"/\.tokenmill$", "half"),
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class PanicException(BaseException):
    """As pyo3 has it: a Rust panic is no Exception."""


def trace(what: str) -> None:
    line = f"{time.monotonic():.6f} {ROLE} {os.getpid()} {what}\n"
    fd = os.open(os.path.join(FOLDER, "trace"), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666)
    os.write(fd, line.encode())
    os.close(fd)


def times(name: str) -> int:
    """How often this was called with this name, over all processes."""
    path = os.path.join(FOLDER, f"count {name}")
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666)
    try:
        os.write(fd, b".")
        return os.lseek(fd, 0, os.SEEK_CUR)
    finally:
        os.close(fd)


def act(fault: dict, name: str) -> None:
    trace(f"{fault['act']} at {name}")
    if fault["act"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault["act"] == "segfault":
        import ctypes

        ctypes.string_at(0)
    elif fault["act"] == "panic":
        raise PanicException("index out of bounds: the len is 0 but the index is 0")
    elif fault["act"] == "loop":
        while True:
            pass
    elif fault["act"] == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault["act"] in ("grow", "grow to a limit"):
        if fault["act"] != "grow":
            limit_memory(64 << 20)
        held = []
        while True:
            held.append(b"x" * (8 << 20))
    elif fault["act"] == "pause":
        with open(os.path.join(FOLDER, f"paused {name}"), "w"):
            pass
        while not os.path.exists(os.path.join(FOLDER, "go on")):
            time.sleep(0.005)
    else:
        raise ValueError(fault["act"])


def limit_memory(more_bytes: int) -> None:
    """From now on this process may get so much more address space."""
    import resource

    with open("/proc/self/statm") as file:
        held = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (held + more_bytes,) * 2)


def faults_at(operation: str, path: str) -> list[tuple[dict, str]]:
    """The faults that are due now, and the name of their point."""
    found = []
    for fault in ASKED.get("faults", ()):
        wanted, pattern, _ = POINTS.get(fault["point"], (None, None, None))
        if wanted != operation or fault.get("role", ROLE) != ROLE or not re.search(pattern, path):
            continue
        if "slice" in fault and f"/{fault['slice']:08d}." not in path:
            continue
        if is_due(fault):
            found.append((fault, fault["point"]))
    return found


def is_due(fault: dict) -> bool:
    number = times(f"{fault['point']} {fault.get('slice')} {fault.get('nth')}")
    first = fault.get("nth", 1)
    return first <= number < first + fault.get("times", 1)


class FaultyDisk:
    """Stands in for `os` and `shutil` inside tokenmill.storage."""

    def __getattr__(self, name: str):
        real = getattr(shutil if name in ("rmtree", "disk_usage") else os, name)
        changes = ("open", "write", "pwrite", "fsync", "replace", "unlink", "makedirs", "rmtree")
        changes += ("link",)
        if name not in changes:
            return real

        def operation(*arguments, **options):
            if name == "open" and not arguments[1] & _WRITING:
                return real(*arguments, **options)
            time.sleep(ASKED.get("slow", 0.0))
            path = path_of(arguments[1] if name in ("replace", "link") else arguments[0])
            due = faults_at(name, path)
            for fault, point in due:
                how = POINTS[point][2]
                if how == "half":
                    do_half(name, arguments)
                elif how == "all":
                    result = real(*arguments, **options)
                act(fault, point)
                if how == "all":
                    return result
            return real(*arguments, **options)

        return operation


def path_of(target) -> str:
    if isinstance(target, int):
        return os.readlink(f"/proc/self/fd/{target}")
    return os.path.abspath(target)


def do_half(name: str, arguments) -> None:
    """Do part of it, and leave the world as if the rest was never asked for."""
    if name == "write":
        fd, data = arguments
        at = os.lseek(fd, 0, os.SEEK_CUR)
        os.write(fd, memoryview(data)[: len(data) // 2])
        os.lseek(fd, at, os.SEEK_SET)
    else:
        files = [os.path.join(r, f) for r, _, names in os.walk(arguments[0]) for f in names]
        for path in sorted(files)[: (len(files) + 1) // 2]:
            os.unlink(path)


def change_storage(module) -> None:
    module.os = module.shutil = FaultyDisk()
    if ASKED.get("no_lock"):

        class NoLocks:
            def __getattr__(self, name):
                import fcntl

                return (lambda fd, how: None) if name == "flock" else getattr(fcntl, name)

        module.fcntl = NoLocks()


def change_mill(module) -> None:
    encode_slice = module.encode_slice

    def traced(job, slice_, *rest, **options):
        trace(f"begin {slice_.index}")
        if "jitter" in ASKED:
            time.sleep(random.Random(f"{ASKED['jitter']} {slice_.index}").uniform(0, 0.1))
        return encode_slice(job, slice_, *rest, **options)

    module.encode_slice = traced


def change_gigatoken(module) -> None:
    """Faults at the point "engine": in the middle of a call of the engine."""
    call = module.GigatokenEngine._measured_call

    def faulty(self, data, offsets, *rest):
        for fault in ASKED.get("faults", ()):
            if fault["point"] != "engine" or fault.get("role", ROLE) != ROLE:
                continue
            text = bytes(data[offsets[0] : offsets[-1]])
            if fault.get("text", "").encode() in text and is_due(fault):
                act(fault, "engine")
        return call(self, data, offsets, *rest)

    module.GigatokenEngine._measured_call = faulty


def change_values(module) -> None:
    for name, value in ASKED.get("values", {}).items():
        owner, _, attribute = name.rpartition(".")
        above, _, kind = owner.rpartition(".")
        if owner == module.__name__:
            setattr(module, attribute, value)
        elif above == module.__name__ and kind[0].isupper():  # a class, and not a module below it
            change_default(getattr(module, kind), attribute, value)


def change_default(kind, name: str, value) -> None:
    """Another default for a field of a dataclass."""
    if kind.__init__.__kwdefaults__ and name in kind.__init__.__kwdefaults__:
        kind.__init__.__kwdefaults__[name] = value
        return
    code = kind.__init__.__code__
    names = code.co_varnames[: code.co_argcount]
    defaults = list(kind.__init__.__defaults__)
    defaults[names.index(name) - len(names)] = value
    kind.__init__.__defaults__ = tuple(defaults)


CHANGES = {
    **dict.fromkeys(
        (
            "tokenmill.storage.disk",
            "tokenmill.storage.file_piece",
            "tokenmill.storage.lock",
            "tokenmill.storage.new_file",
        ),
        change_storage,
    ),
    "tokenmill.encode.mill": change_mill,
    "tokenmill.encodings.gigatoken": change_gigatoken,
}


class Finder:
    """Has a module of tokenmill changed right after it was imported."""

    def find_spec(self, name, path=None, target=None):
        if not name.startswith("tokenmill."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            CHANGES.get(name, lambda module: None)(module)
            change_values(module)

        spec.loader.exec_module = exec_module
        return spec


if ASKED:
    sys.meta_path.insert(0, Finder())
