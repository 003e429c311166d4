"""The worker process: it receives slices from its parent through a pipe, and encodes them.

    parent -> worker   {"encoding": ..., "verdict": ...}, then per slice {"job": ..., "slice": ...,
                       "caution": ..., "prefetch": ...}
    worker -> parent   ["ready", verdict], then per slice ["step", ...] as it goes and one of
                       ["record", ...]  ["error", ...]  ["memory"]  ["bug", ...]
                       ["notice", ...] at any time: an object store is slow, and why
                       ["alive"] at any time: bytes were written or sent

    parent -> worker   {"shard": ...}, a shard task
    worker -> parent   ["drafted"] when its bytes are written and the next order may begin, then
                       ["shard", record, was_whole] when they are durable or uploaded; was_whole: an
                       earlier worker had done all of it

    parent -> worker   {"cut": [inputs], "read": ..., "max_rows": ...}, even before it is ready
    worker -> parent   ["cutting"], then ["cut", spans, rows] per input; ["uncut", error] ends them

One JSON document per line; no pickle and no tokens pass through the pipes. A new interpreter runs
this file by its path: it must be bound to its parent's lifetime (`die_with`) before the package and
its libraries, which take a while to load, are imported.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenmill.assemble.writing import Draft
    from tokenmill.encode.job import Caution, Report, Step
    from tokenmill.errors import TokenmillError

PR_SET_PDEATHSIG = 1  # linux/prctl.h

# The workers are the parallelism; threads inside them would only compete with each other.
ENVIRONMENT = {
    "RAYON_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_IO_THREADS": "2",
    "TOKENIZERS_PARALLELISM": "false",
}
# M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_THRESHOLD of malloc.h: the buffers of a batch are kept for
# the next one instead of being returned to the kernel and zeroed again, which took 0.2 of 1.1 s of
# system time for 1 GB of text.
MALLOC = {-1: 256 << 20, -2: 64 << 20, -3: 256 << 20}

# A million tiny files are a million steps: those within this time are sent as one.
STEP_SECONDS = 0.05
MAX_WAITING_DRAFTS = 1  # besides the one being committed: a draft takes up memory or disk
NOTICE_SECONDS = 10.0  # between two notices, because many requests fail at once


def main(parent: int, paths: list[str]) -> None:
    """A worker's main function, in a new interpreter."""
    _work(parent, lambda: import_package(paths))


def main_of_fork(parent: int) -> None:
    """A worker's main function, in a fork of a parent that has called `load_modules`."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):  # the parent's handlers
            signal.signal(number, signal.SIG_DFL)
    _work(parent, lambda: None)


def _work(parent: int, get_ready: Callable[[], None]) -> None:
    die_with(parent)
    configure_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.enable(all_threads=False)
    # Libraries may print to fd 1 and read fd 0, so the pipes get other descriptors.
    orders_fd, reports_fd = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(orders_fd, orders), daemon=True).start()
    get_ready()
    _serve(orders, Wire(reports_fd))


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; exit now if it has ended already."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def configure_process() -> None:
    """Configure malloc, and libraries that are not loaded yet, for one busy thread."""
    os.environ.update(ENVIRONMENT)
    with contextlib.suppress(ImportError, OSError, AttributeError, TypeError):
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt  # of glibc; macOS and musl have none
        for option, value in MALLOC.items():
            mallopt(option, value)


def import_package(paths: list[str]) -> None:
    """Import the package that the parent runs, from the same place.

    The parent's other import paths come last: a file in its script's folder must not shadow an
    installed module.
    """
    sys.path += [path for path in paths if path not in sys.path]
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    name = os.path.basename(folder)
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)


def load_modules() -> None:
    """Import what a worker needs, except the engine: 0.2 s of CPU."""
    import pyarrow.compute  # noqa: F401

    import tokenmill.assemble.writing
    import tokenmill.corpus.plan
    import tokenmill.corpus.readers.parquet
    import tokenmill.encode.mill  # noqa: F401


class Wire:
    """The pipe to the parent; usable from any thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._noticed_at = -NOTICE_SECONDS

    def send(self, *message: Any) -> None:
        line = memoryview(json.dumps(message, default=int).encode() + b"\n")
        try:
            with self._lock:
                while line:
                    line = line[os.write(self._fd, line) :]
        except BrokenPipeError:
            os._exit(0)

    def notice(self, message: str) -> None:
        """Send a message for the user, unless one was sent recently."""
        if time.monotonic() - self._noticed_at >= NOTICE_SECONDS:
            self._noticed_at = time.monotonic()
            self.send("notice", message)


def _receive(fd: int, orders: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Receive orders in a thread. When the pipe is closed, the parent is gone: exit."""
    was_careful = False
    with open(fd, "rb") as file:
        for line in file:
            order = json.loads(line)
            if "slice" in order:
                was_careful = _prefetch(order, was_careful)
            orders.put(order)
    os._exit(0)


def _serve(orders: queue.SimpleQueue[dict[str, Any]], wire: Wire) -> None:
    import pyarrow as pa

    from tokenmill.storage import heartbeat, objects

    pa.set_cpu_count(1)
    heartbeat.listen(lambda: wire.send("alive"))
    objects.report_retries_to(wire.notice)
    objects.expect_answers()

    def cut_what_waits() -> None:
        """Until it is ready, a worker is sent nothing but inputs to cut."""
        while not orders.empty():
            _answer(wire, cut_inputs, orders.get(), wire.send)

    _answer(wire, load, orders.get(), cut_what_waits)
    committer = Committer(wire)
    while True:
        order = orders.get()
        if "cut" in order:
            _answer(wire, cut_inputs, order, wire.send)
        elif "shard" in order:
            _answer(wire, committer.write, order)
        else:
            _answer(wire, _encode, order, wire)


class Committer:
    """Writes shards; a thread waits for the disk or the network while the next order is carried
    out."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._drafts: queue.Queue[Draft] = queue.Queue(MAX_WAITING_DRAFTS)
        self._thread: threading.Thread | None = None

    def write(self, order: dict[str, Any]) -> tuple[Any, ...]:
        from tokenmill.assemble.sources import task_of
        from tokenmill.assemble.writing import drafted

        draft = drafted(task_of(order["shard"]))
        if self._thread is None:
            self._thread = threading.Thread(target=self._commit, daemon=True)
            self._thread.start()
        self._wire.send("drafted")
        self._drafts.put(draft)
        return ()

    def _commit(self) -> None:
        while True:
            _answer(self._wire, _committed, self._drafts.get())


def _committed(draft: Draft) -> tuple[Any, ...]:
    from dataclasses import asdict

    was_whole = draft.is_saved
    return ("shard", asdict(draft.commit()), was_whole)


def _answer(wire: Wire, work: Callable[..., tuple[Any, ...] | None], *arguments: Any) -> None:
    """Do the work and send its outcome."""
    answer = outcome(work, *arguments)
    if answer:
        wire.send(*answer)


def outcome(work: Callable[..., Any], *arguments: Any) -> Any:
    """What the work returns; if it raises, a message that `error_in` understands, or
    ("memory",)."""
    from tokenmill.errors import OutOfMemoryError, TokenmillError, shortage

    try:
        return work(*arguments)
    except BaseException as error:  # a Rust panic is not an Exception
        found = shortage(error) or error
        if isinstance(found, OutOfMemoryError):
            return ("memory",)
        if isinstance(found, TokenmillError):
            return ("error", found.to_plain())
        import traceback

        return ("bug", f"{type(error).__name__}: {error}", traceback.format_exc())


def error_in(kind: str, content: list[Any]) -> TokenmillError:
    """The error in a worker's message: one for the user to fix, or our bug."""
    from tokenmill.errors import TokenmillError, error_from_plain

    if kind == "error":
        return error_from_plain(content[0])
    what, trace = content
    return TokenmillError(f"a worker failed because of a bug in tokenmill: {what}\n{trace}")


def load(order: dict[str, Any], between: Callable[[], None]) -> tuple[Any, ...]:
    """Load the engine and warm it up; the answer has the verdict of its self-check.

    That takes half a second, so `between` is called between its steps. With a verdict in the order,
    the self-check is skipped.
    """
    import tokenmill.corpus.plan

    between()
    if order["encoding"] is None:
        return ("ready", None)
    import pyarrow as pa

    import tokenmill.encode.mill  # noqa: F401
    from tokenmill.arrays import binary_array_of
    from tokenmill.encodings import Encoding, EncodingId, awkward_shim
    from tokenmill.encodings.loading import engine_of
    from tokenmill.encodings.verdict import remember, verdict_of

    between()
    awkward_shim.enable()
    identity = EncodingId.from_plain(order["encoding"])
    remember(identity, order["verdict"])
    engine_of(identity)
    between()
    texts = binary_array_of([b"warm"]).view(pa.large_string())
    Encoding(identity).encode_array(texts)
    return ("ready", verdict_of(identity))


def cut_inputs(order: dict[str, Any], send: Callable[..., None]) -> None:
    """Cut inputs. Each is reported before the next starts, so the parent knows which one kills."""
    from tokenmill.corpus.input_spans import cut
    from tokenmill.corpus.opening import with_structure_ahead
    from tokenmill.corpus.readers import ReadOptions
    from tokenmill.corpus.spans import Input
    from tokenmill.errors import TokenmillError

    options = ReadOptions(**order["read"])
    alive_at = 0.0

    def alive() -> None:
        nonlocal alive_at
        if time.monotonic() - alive_at >= 1.0:
            alive_at = time.monotonic()
            send("cutting")

    alive()
    for source in with_structure_ahead(Input(*fields) for fields in order["cut"]):
        try:
            found = cut(source, options, order["max_rows"], alive)
        except TokenmillError as error:
            send("uncut", error.to_plain())
            return
        spans = [
            (s.start, s.stop, s.text_bytes, s.first_row, s.num_rows, s.max_rows)
            for s in found.spans
        ]
        send("cut", spans, found.num_rows, found.kept_types)


def _prefetch(order: dict[str, Any], was_careful: bool) -> bool:
    """Start reading the next slice, if its order says so; returns whether it is a careful attempt.

    Beside a careful attempt nothing else may be read: a crash there would be blamed on the current
    document.
    """
    from tokenmill.corpus import prefetch
    from tokenmill.corpus.spans import Slice
    from tokenmill.encode.job import Job

    is_careful: bool = order["caution"]["one_by_one"]
    if order["prefetch"] and not is_careful and not was_careful:
        with contextlib.suppress(Exception):  # encoding the slice will report it
            span = Slice.from_plain(order["slice"]).spans[0]
            prefetch.begin(span, Job.from_plain(order["job"]).read_of(span.input))
    return is_careful


def _encode(order: dict[str, Any], wire: Wire) -> tuple[Any, ...]:
    from dataclasses import astuple

    def tell(step: Step) -> None:
        wire.send("step", *astuple(step))

    is_careful = order["caution"]["one_by_one"]
    return encode(order, reporter(tell, 0.0 if is_careful else STEP_SECONDS))


def encode(order: dict[str, Any], report: Report) -> tuple[Any, ...]:
    """Encode the slice of an order (`Attempts.order`)."""
    from tokenmill.corpus.spans import Slice
    from tokenmill.encode.job import Job
    from tokenmill.encode.mill import encode_slice

    slice_ = Slice.from_plain(order["slice"])
    caution = _caution(order["caution"])
    record = encode_slice(Job.from_plain(order["job"]), slice_, report, caution)
    return ("record", record.to_plain())


def _caution(plain: dict[str, Any]) -> Caution:
    from tokenmill.encode.job import Caution

    skip = {(span, row): reason for span, row, reason in plain["skip"]}
    return Caution(skip, plain["one_by_one"])


def reporter(tell: Callable[[Step], None], seconds: float) -> Report:
    """A Report that calls `tell` at most once every `seconds`, with the steps in between merged."""
    from tokenmill.runners.outbox import merged

    held: Step | None = None
    sent_at = 0.0

    def report(step: Step) -> None:
        nonlocal held, sent_at
        held = merged(held, step)
        now = time.monotonic()
        if now - sent_at >= seconds:
            tell(held)
            held, sent_at = None, now

    return report


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
