"""The ray runner: the same bytes on a real cluster, whatever dies. Several raylets on loopback.

Drivers are real `tokenmill prepare` processes. Faults get into the workers from outside: every
process of the cluster has a sitecustomize.py that wraps `Encoding.encode_array` and `drafted`,
which begins a shard task, and runs what the test has put into a file for each; the product knows
nothing of it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tokenmill
from corpora import made_texts, write_corpus
from s3_server import NO_FAULTS, Faults, S3Server, dataset_in
from spoilt import sitecustomize
from tokenmill.config import Config
from tokenmill.errors import ConfigError
from tokenmill.runners.ray.in_flight import crash_of, memory_kill_of, node_named_in
from tokenmill.runners.start import workers_of
from tokenmill.storage import retry

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs tokenmill[ray]"),
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]

NUM_TEXTS = 400
SLICE_BYTES = 40_000
NEEDLE = "NEEDLE"
NPY = ("--format", "npy", "--shard-tokens", "9k")
MDS = ("--format", "mds", "--shard-tokens", "9k", "--no-val")  # cut between documents
SOURCE = str(Path(tokenmill.__file__).parents[1])

SITE = '''
def fault_of(name):
    with open(os.path.join(FOLDER, name)) as file:
        return compile(file.read(), name, "exec")

def note(name):
    """That this process is at it."""
    with open(os.path.join(FOLDER, name), "a") as file:
        file.write(f"{os.getpid()}\\n")

def spoil_encoding(module):
    encode_array, fault = module.Encoding.encode_array, fault_of("fault")
    def faulty(self, texts, *rest):
        if texts.to_pylist() != ["warm"]:
            note("pids")
        for text in texts.to_pylist():
            exec(fault, {**globals(), "text": text})
        return encode_array(self, texts, *rest)
    module.Encoding.encode_array = faulty

def spoil_writing(module):
    drafted = module.drafted
    def faulty(task):
        note("writers")
        exec(fault_of("shard_fault"), {**globals(), "task": task})
        return drafted(task)
    module.drafted = faulty

SPOILT = {
    "tokenmill.encodings.encoding": spoil_encoding,
    "tokenmill.assemble.writing": spoil_writing,
}

if "TOKENMILL_TEST_VERSION" in os.environ:
    from importlib import metadata
    version = metadata.version
    fake = os.environ["TOKENMILL_TEST_VERSION"]
    metadata.version = lambda name: fake if name == "gigatoken" else version(name)

if "TOKENMILL_TEST_NO_STORAGE" in os.environ:
    real_open = os.open
    def open_elsewhere(path, *rest, **options):
        if "nonce." in str(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        return real_open(path, *rest, **options)
    os.open = open_elsewhere
'''

# The command line with slices so small that a test's corpus has several.
DRIVER = f"""
import sys
from tokenmill.config import Config
Config.__init__.__kwdefaults__["slice_bytes"] = {SLICE_BYTES}
from tokenmill.cli import main
sys.exit(main())
"""


@dataclass
class Mill:
    """A cluster, and a corpus to encode on it."""

    cluster: Any
    nodes: list[Any]
    folder: Path
    corpus: str

    def grow_to(self, num_nodes: int) -> None:
        while len(self.nodes) < num_nodes:
            self.nodes.append(self.add_node(f"node{len(self.nodes)}"))

    def shrink_to(self, num_nodes: int) -> None:
        while len(self.nodes) > num_nodes:
            self.cluster.remove_node(self.nodes.pop())

    def add_node(self, name: str, **environment: str) -> Any:
        return self.cluster.add_node(
            num_cpus=1,
            object_store_memory=80 << 20,
            node_name=name,
            env_vars={**environment},
        )

    def fault(self, code: str, of_shards: str = "") -> None:
        """What happens at each `text` that is encoded, and at each `task` that writes a shard."""
        for path in self.folder.glob("site/*"):
            if path.is_file() and path.name not in ("sitecustomize.py", "fault", "shard_fault"):
                path.unlink()
        (self.folder / "site/fault").write_text(textwrap.dedent(code))
        (self.folder / "site/shard_fault").write_text(textwrap.dedent(of_shards))

    def pids(self, name: str = "pids") -> list[int]:
        """Processes that have encoded (or were "writers" of shards) since the last `fault`."""
        path = self.folder / "site" / name
        lines = path.read_text().splitlines() if path.exists() else []
        return list(dict.fromkeys(map(int, lines)))

    def command(self, out: Path | str, *options: object) -> list[str]:
        ray = ["--runner", "ray", "--ray-address", self.cluster.address]
        arguments = ["prepare", self.corpus, "-o", str(out), *ray, *map(str, options)]
        return [sys.executable, "-c", DRIVER, *arguments]

    def prepare(self, out: Path | str, *options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(out, *options),
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.folder,
        )

    def prepare_inline(self, out: Path, *options: object) -> None:
        """What one process writes."""
        self.prepare_by("inline", out, *options)

    def prepare_by(self, runner: str, out: Path, *options: object) -> None:
        """What another runner writes, which needs neither a cluster nor the faults."""
        command = [sys.executable, "-c", DRIVER, "prepare", self.corpus, "-o", str(out)]
        command += ["--runner", runner, *map(str, options)]
        environment = {**os.environ, "PYTHONPATH": SOURCE}
        subprocess.run(command, check=True, capture_output=True, timeout=120, env=environment)

    def prepare_elsewhere(self, url: str) -> None:
        """Another driver of the same command, which needs neither Ray nor the faults."""
        command = [sys.executable, "-c", DRIVER, "prepare", self.corpus, "-o", url, *NPY]
        environment = {**os.environ, "PYTHONPATH": SOURCE}
        command += ["--runner", "inline"]
        subprocess.run(command, check=True, capture_output=True, env=environment, cwd=self.folder)

    @contextlib.contextmanager
    def begun(
        self,
        out: Path,
        is_there: Callable[[], object] | None = None,
        options: Sequence[str] = (),
        url: str | None = None,
    ) -> Iterator[subprocess.Popen[str]]:
        """A driver that has encoded some slices, or is there as you say, and has more to do. It
        says what it says in a file beside `out` (`said`), which can be read while it runs."""
        is_there = is_there or (lambda: num_records(out) >= 2)
        with open(f"{out}.log", "w") as log:
            driver = subprocess.Popen(
                self.command(url or out, *options),
                stdout=log,
                stderr=log,
                text=True,
                cwd=self.folder,
            )
        try:
            wait_until(lambda: is_there() or driver.poll() is not None, 100)
            assert driver.poll() is None, said(out)
            yield driver
            driver.wait(100)
        finally:
            driver.kill()
            driver.wait()


def said(out: Path) -> str:
    return Path(f"{out}.log").read_text()


def num_records(out: Path) -> int:
    with contextlib.suppress(OSError):
        return len(list(out.glob(".tokenmill/*/records/*.json")))
    return 0


def num_task_records(out: Path) -> int:
    """How many shards or pieces of shards are written."""
    with contextlib.suppress(OSError):
        return len(list(out.glob(".tokenmill/*/tasks/*.json")))
    return 0


def num_unused_parts(out: Path) -> int:
    """Parts that a shard task may still need."""
    with contextlib.suppress(OSError):
        return len(list(out.glob(".tokenmill/*/parts/*.train.part")))
    return 0


def wait_until(is_so: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(stat[1]), []).append(int(name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def kill_node(node: Any) -> None:
    """As a power cut: the raylet and all of its workers, at once."""
    for pid in descendants(node.all_processes["raylet"][0].process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Mill]:
    folder = tmp_path_factory.mktemp("ray")
    (folder / "site").mkdir()
    (folder / "site/sitecustomize.py").write_text(sitecustomize(SITE))
    (folder / "site/fault").write_text("")
    (folder / "site/shard_fault").write_text("")
    texts = made_texts(NUM_TEXTS)
    texts[NUM_TEXTS // 2] += f" {NEEDLE}"
    corpus = write_corpus("jsonl", folder / "corpus", list(texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder / "site"), SOURCE]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        for name, value in s3_server.environment.items():  # of the nodes, too
            patch.setenv(name, value)
        patch.delenv("RAY_ADDRESS", raising=False)
        from ray.cluster_utils import Cluster

        # A node that is gone refuses connections at once. One that answers late is only slow: so
        # may be the machine that these tests share.
        health = {
            "health_check_initial_delay_ms": 0,
            "health_check_period_ms": 500,
            "health_check_timeout_ms": 30_000,
            "health_check_failure_threshold": 3,
        }
        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "object_store_memory": 80 << 20,
                "include_dashboard": False,
                "node_name": "node0",
                "_system_config": health,
            },
        )
        yield Mill(cluster, [cluster.head_node], folder, corpus)
        cluster.shutdown()


@pytest.fixture(scope="module")
def expected(mill: Mill) -> dict[str, str]:
    """What one process writes: the sha256 of every file."""
    out = mill.folder / "expected"
    mill.prepare_inline(out)
    return sums(out)


@pytest.fixture(scope="module")
def shards(mill: Mill) -> Callable[..., dict[str, str]]:
    """What one process writes with these options; made once."""

    @functools.cache
    def made(*options: str) -> dict[str, str]:
        out = mill.folder / f"expected{'-'.join(options).replace('/', '')}"
        mill.prepare_inline(out, *options)
        return sums(out)

    return made


def sums(out: Path) -> dict[str, str]:
    return {
        f["name"]: f["sha256"] for f in json.loads((out / "tokenmill.json").read_text())["files"]
    }


# The same bytes


@pytest.mark.parametrize("num_nodes", [1, 2, 3])
def test_ray_with_any_number_of_nodes_writes_the_same_bytes(mill, expected, tmp_path, num_nodes):
    mill.grow_to(num_nodes)
    mill.fault("time.sleep(0.002)")
    done = mill.prepare(tmp_path / "out", "--json", "-q")
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path / "out") == expected
    assert json.loads(done.stdout)["counts"]["num_written"] == NUM_TEXTS
    assert done.stderr == ""  # Ray says nothing, nowhere
    assert len(mill.pids()) >= num_nodes
    assert not (tmp_path / "out/.tokenmill").exists()
    mill.shrink_to(2)  # two are enough for the other tests


def test_worker_cpus_say_how_many_workers_fit_on_a_node(mill, expected, tmp_path):
    mill.grow_to(2)
    mill.fault("time.sleep(0.01)")
    options = ("--worker-cpus", 0.5, "--worker-memory", "100M")
    done = mill.prepare(tmp_path / "out", *options)
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path / "out") == expected
    assert len(mill.pids()) > 2  # with a CPU for each there would be one on each node


@pytest.mark.parametrize("wanted", [("--worker-cpus", 2), ("--worker-memory", "100T")])
def test_worker_that_fits_on_no_node_is_waited_for_and_the_user_told(mill, tmp_path, wanted):
    mill.grow_to(2)
    code = f"import tokenmill.runners.ray.input_cutting as cuts; cuts.IDLE_SECONDS = 1\n{DRIVER}"
    command = mill.command(tmp_path / "out", *wanted)
    command[command.index(DRIVER)] = code
    with open(tmp_path / "out.log", "w") as log:
        driver = subprocess.Popen(command, stdout=log, stderr=log, cwd=mill.folder)
    try:
        wait_until(lambda: "for 0 workers" in said(tmp_path / "out"), 60)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(10) == -signal.SIGINT, said(tmp_path / "out")
    finally:
        driver.kill()
        driver.wait()


def test_what_workers_say_of_themselves_is_removed_from_the_cluster(mill, tmp_path):
    code = f"""
import ray
from ray.experimental.internal_kv import _internal_kv_list as keys
ray.init(address={mill.cluster.address!r}, log_to_driver=False, logging_level="ERROR")
print(len(keys("", namespace="tokenmill")))
"""
    command = [sys.executable, "-c", code]

    def num_keys() -> int:
        return int(subprocess.check_output(command, stderr=subprocess.DEVNULL, timeout=60))

    before = num_keys()  # what killed drivers left
    mill.fault("")
    assert mill.prepare(tmp_path / "out").returncode == 0
    assert num_keys() == before


def test_ray_with_relative_paths_writes_the_same_bytes(mill, expected, tmp_path):
    mill.fault("")
    corpus = os.path.relpath(mill.corpus, tmp_path)
    command = [*mill.command(Path("out"))]
    command[command.index(mill.corpus)] = corpus
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path / "out") == expected


def test_ray_into_an_object_store_writes_the_same_objects(mill, s3_server, tmp_path):
    mill.grow_to(2)
    mill.fault("")
    bucket = s3_server.new_bucket()
    done = mill.prepare(f"s3://{bucket}/out", *NPY, "--json", "-q")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    mill.prepare_inline(tmp_path / "out", *NPY)
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert dataset_in(s3_server, bucket) == files
    assert len(files) > 10


# Deaths


@pytest.mark.parametrize("number", [9, 15], ids=["SIGKILL", "SIGTERM"])
def test_worker_killed_once_is_explained_and_changes_no_byte(mill, expected, tmp_path, number):
    mill.grow_to(2)
    mill.fault(f"'{NEEDLE}' in text and times('kill') == 1 and os.kill(os.getpid(), {number})")
    done = mill.prepare(tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path / "out") == expected
    assert len(done.stdout.splitlines()) == 1 and json.loads(done.stdout)
    assert re.search(
        r"worker \d+ on node node\d \(\w+\) died while encoding slice \d+ \(", done.stderr
    )
    assert "attempt 2 of 3" in done.stderr


@pytest.mark.parametrize(
    ("continued_by", "layout"),
    [
        ("ray", NPY),
        ("ray", (*NPY, "--shuffle")),
        ("ray", MDS),
        ("processes", NPY),
        ("processes", MDS),
        ("inline", NPY),
    ],
)
def test_driver_killed_while_nodes_write_shards_is_continued(
    mill, shards, tmp_path, continued_by, layout
):
    mill.grow_to(2)
    mill.fault("", of_shards="time.sleep(0.2)")
    out = tmp_path / "out"
    with mill.begun(out, lambda: num_task_records(out) > 3, layout) as driver:
        driver.kill()
    assert not (out / "tokenmill.json").exists()
    wait_until(lambda: not any(map(is_alive, mill.pids("writers"))), 15)
    mill.fault("")
    if continued_by == "ray":
        done = mill.prepare(out, *layout)
        assert done.returncode == 0, done.stderr
    else:
        mill.prepare_by(continued_by, out, *layout)
    assert sums(out) == shards(*layout)
    assert not (out / ".tokenmill").exists()


def test_shards_are_written_on_all_nodes_while_others_still_encode(mill, shards, tmp_path):
    mill.grow_to(2)
    mill.fault("time.sleep(0.03)")
    out = tmp_path / "out"

    def is_both() -> bool:
        return num_task_records(out) >= 2 and num_unused_parts(out) < num_records(out)

    with mill.begun(out, is_both, NPY):
        plan = json.loads((out / ".tokenmill/plan.json").read_text())
        assert 0 < num_records(out) < len(plan["slices"])
    assert sums(out) == shards(*NPY)
    assert len(mill.pids("writers")) >= 2


def test_worker_killed_while_it_writes_a_shard_is_explained_and_changes_no_byte(
    mill, shards, tmp_path
):
    mill.grow_to(2)
    mill.fault("", of_shards="task.shard == 3 and times('kill') < 3 and os.kill(os.getpid(), 9)")
    done = mill.prepare(tmp_path / "out", *NPY)
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path / "out") == shards(*NPY)
    died = r"worker \d+ on node node\d \(\w+\) died while writing edufineweb_train_000003\.npy: "
    assert len(re.findall(died, done.stderr)) == 2
    assert "attempt 2 of 3" in done.stderr and "attempt 3 of 3" in done.stderr


def test_shard_that_kills_every_worker_ends_the_run_and_the_same_command_continues(
    mill, shards, tmp_path
):
    mill.grow_to(2)
    mill.fault("", of_shards="task.shard == 3 and os.kill(os.getpid(), 9)")
    done = mill.prepare(tmp_path / "out", *NPY)
    assert done.returncode == 7, done.stderr
    assert "workers keep dying while writing edufineweb_train_000003.npy" in done.stderr
    mill.fault("")
    done = mill.prepare(tmp_path / "out", *NPY)
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path / "out") == shards(*NPY)


def test_worker_that_is_stopped_while_it_writes_a_shard_is_killed_and_replaced(
    mill, shards, tmp_path
):
    mill.grow_to(2)
    stop = "times('stop') == 2 and os.kill(os.getpid(), signal.SIGSTOP)"
    mill.fault("", of_shards=stop)
    done = mill.prepare(tmp_path / "out", *NPY, "--stall-timeout", 2)
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path / "out") == shards(*NPY)
    assert re.search(r"died while writing edufineweb_\w+\.npy: no progress for 2 s", done.stderr)
    wait_until(lambda: not any(map(is_alive, mill.pids("writers"))), 10)


def test_shard_that_takes_longer_than_a_stall_is_waited_for(mill, shards, tmp_path):
    """Its bytes move, if slowly."""
    mill.grow_to(2)
    slow = """
        from tokenmill.assemble.sources import PartsInOrder
        if task.shard == 2 and not hasattr(PartsInOrder, "quick"):
            PartsInOrder.quick = PartsInOrder.tokens
            def tokens(self, stretch):
                for data in self.quick(stretch):
                    for at in range(0, len(data), 2048):
                        time.sleep(1)
                        yield data[at : at + 2048]
            PartsInOrder.tokens = tokens
        elif hasattr(PartsInOrder, "quick"):
            PartsInOrder.tokens = PartsInOrder.quick
            del PartsInOrder.quick
        """
    mill.fault("", of_shards=slow)
    began = time.monotonic()
    done = mill.prepare(tmp_path / "out", *NPY, "--stall-timeout", 5)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began > 8
    assert sums(tmp_path / "out") == shards(*NPY)
    assert "died" not in done.stderr


@pytest.mark.parametrize("layout", [NPY, MDS], ids=["npy", "mds"])
def test_part_that_a_node_sees_late_is_waited_for(mill, shards, tmp_path, layout):
    """As clients of a network file system may be. The driver reads parts, too: for mds, lengths."""
    mill.grow_to(2)
    hide = """
        import contextlib, threading
        from tokenmill.encode.record import part_path
        path = part_path(task.work, task.stretches[0].key[0], task.source.split)
        with contextlib.suppress(FileNotFoundError):  # hidden by another task
            if times('task') < 6:
                os.rename(path, path + ".hidden")
                threading.Timer(1.0, os.rename, (path + ".hidden", path)).start()
        """
    mill.fault("", of_shards=hide)
    done = mill.prepare(tmp_path / "out", *layout)
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path / "out") == shards(*layout)


def test_document_that_always_segfaults_is_left_out_and_named(mill, expected, tmp_path):
    mill.grow_to(2)
    mill.fault(f"'{NEEDLE}' in text and os.kill(os.getpid(), signal.SIGSEGV)")
    done = mill.prepare(tmp_path / "out", "--max-bad-fraction", 0.5)
    assert done.returncode == 0, done.stderr
    [line] = (tmp_path / "out/tokenmill-quarantine.jsonl").read_text().splitlines()
    left_out = json.loads(line)
    assert left_out["place"] == f"line {NUM_TEXTS // 2 + 1}"
    assert left_out["reason"] == "kills the worker that encodes it (SIGSEGV)"
    assert "SIGSEGV: a crash in native code" in done.stderr
    assert "Fatal Python error: Segmentation fault" in done.stderr


def test_worker_that_is_stopped_is_killed_and_replaced(mill, expected, tmp_path):
    mill.grow_to(2)
    mill.fault(
        f"'{NEEDLE}' in text and times('stop') == 1 and os.kill(os.getpid(), signal.SIGSTOP)"
    )
    done = mill.prepare(tmp_path / "out", "--stall-timeout", 2)
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path / "out") == expected
    assert "no progress for 2 s" in done.stderr
    wait_until(lambda: not any(is_alive(pid) for pid in mill.pids()), 10)


def test_node_killed_in_the_middle_changes_no_byte(mill, expected, tmp_path):
    mill.grow_to(2)
    node = mill.add_node("doomed")
    mill.fault("time.sleep(0.02)")
    try:
        with mill.begun(tmp_path / "out", lambda: has_encoded(mill, node)) as driver:
            kill_node(node)
    finally:
        mill.cluster.remove_node(node, allow_graceful=False)
    assert driver.returncode == 0, said(tmp_path / "out")
    assert sums(tmp_path / "out") == expected
    assert "on node doomed (" in said(tmp_path / "out")


def test_node_killed_while_it_writes_shards_changes_no_byte(mill, shards, tmp_path):
    mill.grow_to(2)
    node = mill.add_node("doomed")
    mill.fault("", of_shards="time.sleep(0.3)")
    out = tmp_path / "out"
    try:
        with mill.begun(out, lambda: has_encoded(mill, node, "writers"), NPY) as driver:
            kill_node(node)
    finally:
        mill.cluster.remove_node(node, allow_graceful=False)
    assert driver.returncode == 0, said(out)
    assert sums(out) == shards(*NPY)
    assert re.search(
        r"on node doomed \(\w+\) died while writing edufineweb_\w+\.npy: its node", said(out)
    )
    assert "another node takes it" in said(out)


def has_encoded(mill: Mill, node: Any, name: str = "pids") -> bool:
    """Whether a process of that node has; seen at once, it is at its first slice."""
    raylet = int(node.all_processes["raylet"][0].process.pid)
    return not set(mill.pids(name)).isdisjoint(descendants(raylet))


def test_driver_killed_leaves_no_task_and_is_continued_by_the_same_command(
    mill, expected, tmp_path
):
    mill.grow_to(2)
    mill.fault("time.sleep(0.02)")
    with mill.begun(tmp_path / "out") as driver:
        driver.kill()
    wait_until(lambda: not any(is_alive(pid) for pid in mill.pids()), 15)
    assert not (tmp_path / "out/tokenmill.json").exists()
    mill.fault("")
    done = mill.prepare(tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "resuming: " in done.stderr
    assert sums(tmp_path / "out") == expected


@pytest.mark.parametrize("num_signals", [1, 2])
def test_ctrl_c_ends_all_tasks_and_the_same_command_continues(
    mill, expected, tmp_path, num_signals
):
    mill.grow_to(2)
    mill.fault("time.sleep(0.2)" if num_signals == 2 else "time.sleep(0.03)")
    with mill.begun(tmp_path / "out") as driver:
        for _ in range(num_signals):
            driver.send_signal(signal.SIGINT)
            time.sleep(0.3)
    words = said(tmp_path / "out")
    assert driver.returncode == -signal.SIGINT, words
    assert "To continue, run the same command again" in words
    assert "Traceback" not in words
    wait_until(lambda: not any(is_alive(pid) for pid in mill.pids()), 5)
    mill.fault("")
    done = mill.prepare(tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path / "out") == expected


# Nodes that are not alike


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("TOKENMILL_TEST_VERSION", "0.9.99", r"gigatoken: 0\.\S+ here, 0\.9\.99 there"),
        (
            "TOKENMILL_TEST_NO_STORAGE",
            "1",
            r"storage: \w+ here, No such file or directory: .*nonce",
        ),
    ],
)
def test_node_that_is_not_alike_ends_the_run_before_it_begins(mill, tmp_path, name, value, says):
    mill.fault("")
    node = mill.add_node("odd", **{name: value})
    try:
        done = mill.prepare(tmp_path / "out")
    finally:
        mill.cluster.remove_node(node, allow_graceful=False)
    assert done.returncode == 2, done.stderr
    assert re.search(r"error: node odd \(\w+\) differs from this machine:\n  " + says, done.stderr)
    assert "hint: " in done.stderr
    assert num_records(tmp_path / "out") == 0


# Comes to a halt in the middle of the slices, or of the shards, until there is a file.
HALT = """
if times("begun") > {}:
    while not os.path.exists(os.path.join(FOLDER, "go")):
        time.sleep(0.05)
"""


@pytest.mark.parametrize("joins_at", ["slices", "shards"])
def test_node_that_joins_later_and_is_not_alike_gets_no_work(mill, shards, tmp_path, joins_at):
    mill.grow_to(2)
    options = (*NPY, "--shuffle")  # shards come after all slices
    out = tmp_path / "out"
    if joins_at == "slices":
        mill.fault(HALT.format(150))
    else:
        mill.fault("", of_shards=HALT.format(3))
    num_done = num_records if joins_at == "slices" else num_task_records
    node, words = None, r"node late \(\w+\) differs from this machine"
    try:
        with mill.begun(out, lambda: num_done(out) >= 2, options) as driver:
            node = mill.add_node("late", TOKENMILL_TEST_VERSION="0.9.99")
            wait_until(lambda: re.search(words, said(out)), 60)
            (mill.folder / "site/go").touch()
    finally:
        if node is not None:
            mill.cluster.remove_node(node, allow_graceful=False)
    assert driver.returncode == 0, said(out)
    assert sums(out) == shards(*options)
    assert len(re.findall(words, said(out))) == 1
    assert "it gets no work" in said(out)


# Two drivers of one command, into one bucket


@pytest.mark.parametrize("halts_at", ["records", "tasks"])
@pytest.mark.parametrize("killed", [False, True])
def test_driver_when_another_finishes_first_then_it_says_so_as_well(
    mill, s3_server, tmp_path, killed, halts_at
):
    """The other one's clean-up removes what this one's workers look for: the parts, and the nonce
    by which worker processes that begin then know the storage."""
    mill.grow_to(2)
    if halts_at == "records":
        mill.fault(HALT.format(150))
    else:
        mill.fault("", of_shards=HALT.format(3))
    bucket, out = s3_server.new_bucket(), tmp_path / "out"

    def has_records() -> bool:
        return sum(f"/{halts_at}/" in key for key in s3_server.keys(bucket)) >= 2

    url = f"s3://{bucket}/out"
    with mill.begun(out, has_records, NPY, url=url) as driver:
        mill.prepare_elsewhere(url)
        files = {key: s3_server.read(bucket, key) for key in s3_server.keys(bucket)}
        assert dataset_in(s3_server, bucket)  # and nothing beside it
        for pid in {*mill.pids(), *mill.pids("writers")} if killed else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        (mill.folder / "site/go").touch()
        wait_until(lambda: driver.poll() is not None, 90)
    assert driver.returncode == 0, said(out)
    assert {key: s3_server.read(bucket, key) for key in s3_server.keys(bucket)} == files
    assert "differs from this machine" not in said(out) and "bug" not in said(out)


def test_driver_when_another_finishes_while_nodes_are_examined_then_it_says_so_as_well(
    mill, s3_server
):
    mill.grow_to(2)
    mill.fault("")
    bucket = s3_server.new_bucket()
    url = f"s3://{bucket}/out"

    def finish_first(request: str) -> bool:
        if "/nonce." in request and not request.startswith("PUT"):
            s3_server.faults = NO_FAULTS
            mill.prepare_elsewhere(url)
        return False

    with s3_server.failing(Faults(only=finish_first)):
        done = mill.prepare(url, *NPY)
    assert s3_server.faults is NO_FAULTS
    assert done.returncode == 0, done.stderr
    assert "differs from this machine" not in done.stderr
    assert dataset_in(s3_server, bucket)  # and nothing beside it


def test_nodes_when_the_store_does_not_answer_for_a_while_then_it_is_waited_for(mill, s3_server):
    """Longer than a node waits for a store that it may have no way to."""
    mill.grow_to(2)
    mill.fault("")
    bucket = s3_server.new_bucket()
    began: list[float] = []

    def fails(request: str) -> bool:
        if "/nonce." not in request or request.startswith("PUT"):
            return False
        began.append(time.monotonic())
        return began[-1] - began[0] < 1.5 * retry.UNREACHABLE_SECONDS

    with s3_server.failing(Faults(kinds=("cut before",), only=fails)) as faults:
        done = mill.prepare(f"s3://{bucket}/out", *NPY)
    assert done.returncode == 0, done.stderr
    assert faults.num_injected > 5


def test_driver_when_its_work_is_removed_and_nothing_is_finished_then_conflict(mill, s3_server):
    mill.grow_to(2)
    mill.fault("")
    bucket = s3_server.new_bucket()
    removed = []

    def remove(request: str) -> bool:
        if "/nonce." in request and not request.startswith("PUT") and not removed:
            removed.extend(s3_server.keys(bucket))
            for key in removed:
                s3_server.client().delete_object(Bucket=bucket, Key=key)
        return False

    with s3_server.failing(Faults(only=remove)):
        done = mill.prepare(f"s3://{bucket}/out", *NPY)
    assert removed
    assert done.returncode == 6, done.stderr
    assert re.search(r"error: .*nonce.* was removed while the run was working", done.stderr)
    assert "hint: " in done.stderr


# Without a cluster


def test_ray_without_a_cluster_starts_one_for_the_run(mill, expected, tmp_path):
    mill.fault("")
    command = mill.command(tmp_path / "out", "--num-proc", 2, "--json", "-q")
    command[command.index("--ray-address") + 1] = "local"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as driver:
        stdout, said = driver.communicate(timeout=150)
    assert driver.returncode == 0, said
    assert sums(tmp_path / "out") == expected
    assert json.loads(stdout)
    assert said == ""
    wait_until(lambda: not any(is_alive(pid) for pid in mill.pids()), 10)


def test_missing_ray_says_what_to_install(mill, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['ray'] = None")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), SOURCE])}
    done = subprocess.run(
        mill.command(tmp_path / "out"), capture_output=True, text=True, env=environment
    )
    assert done.returncode == 2
    assert done.stderr.endswith("hint: pip install 'tokenmill[ray]'\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("127.0.0.1:1", "no Ray cluster at 127.0.0.1:1"),
        ("nonsense", "--ray-address nonsense is not HOST:PORT"),
        ("ray://127.0.0.1:10001", "cannot run through a Ray client"),
    ],
)
def test_address_without_a_cluster_is_refused_at_once(mill, tmp_path, address, says):
    command = mill.command(tmp_path / "out")
    command[command.index("--ray-address") + 1] = address
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr


# A cluster that requires a token

TOKEN = "a" * 64
# `ray start` leaves its address in that file.
TOKEN_CLUSTER = """
import os, sys
from ray.cluster_utils import Cluster
head = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=head)
with open(os.path.join(os.environ["RAY_TMPDIR"], "ray/ray_current_cluster"), "w") as file:
    file.write(cluster.address)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.fixture
def token_cluster() -> Iterator[tuple[str, dict[str, str]]]:
    """A cluster with Ray's token authentication: its address, and an environment that has its
    folder, but not its token."""
    with tempfile.TemporaryDirectory(
        prefix="ray-", dir="/tmp"
    ) as folder:  # a socket's path is short
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_A")}
        environment |= {"RAY_TMPDIR": folder, "HOME": folder, "RAY_USAGE_STATS_ENABLED": "0"}
        secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
        with subprocess.Popen(
            [sys.executable, "-c", TOKEN_CLUSTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment | secret,
        ) as process:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), environment


def test_cluster_that_wants_a_token_is_said_to_want_it(token_cluster, tmp_path):
    address, environment = token_cluster
    corpus = write_corpus("jsonl", tmp_path, made_texts(20))

    def prepared(out: str, address: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tokenmill", "prepare", corpus, "-o", str(tmp_path / out)]
        command += ["--runner", "ray", "--ray-address", address]
        found = subprocess.run(
            command, capture_output=True, text=True, env=environment | more, timeout=100
        )
        assert TOKEN not in found.stderr
        return found

    for mode in ({}, {"RAY_AUTH_MODE": "token"}):
        refused = prepared("refused", address, **mode)
        assert refused.returncode == 2, refused.stderr
        assert f"error: the Ray cluster at {address} requires a token" in refused.stderr
        assert "hint: export RAY_AUTH_MODE=token" in refused.stderr
        assert "is it up" not in refused.stderr
    given = prepared("given", address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN)
    assert given.returncode == 0, given.stderr
    # A token in its usual place is found for the cluster of this machine, as by Ray.
    (Path(environment["HOME"]) / ".ray").mkdir()
    (Path(environment["HOME"]) / ".ray/auth_token").write_text(TOKEN)
    found = prepared("found", "auto")
    assert found.returncode == 0, found.stderr


# Options and words


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"runner": "spark"}, "is one of inline, processes, ray"),
        ({"ray_address": "auto"}, "--ray-address is only for --runner ray"),
        ({"worker_cpus": 2.0, "runner": "processes"}, "--worker-cpus is only for --runner ray"),
        ({"runner": "inline", "num_proc": 2}, "--runner inline has one worker"),
        ({"runner": "ray", "worker_cpus": 0.0}, "--worker-cpus must be positive"),
        ({"runner": "ray", "worker_memory": -1}, "--worker-memory must be positive"),
    ],
)
def test_options_that_contradict_are_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        Config(sources=("x",), out="y", **options)


@pytest.mark.parametrize(
    ("options", "label"),
    [
        ({"runner": "inline"}, "1 worker"),
        ({"runner": "processes", "num_proc": 3}, "3 workers"),
        ({"runner": "ray"}, "ray"),
    ],
)
def test_workers_of_each_runner_are_named(options, label):
    assert workers_of(Config(sources=("x",), out="y", **options)) == label


@pytest.mark.parametrize("words", ["node ID: {}, worker ID: 1", "node (IP: 10.0.0.1, ID: {}) was"])
def test_node_that_ray_names_is_found_in_its_words(words):
    node = "ab" * 28
    assert node_named_in("The worker was on the " + words.format(node)) == node
    assert node_named_in("Worker ID: " + node) == ""


def test_crash_that_left_its_signal_is_named_by_it():
    said = ":job_id:01\n*** SIGABRT received at time=1 on cpu 0 ***\nFatal Python error: Aborted\n"
    death = crash_of(7, said, 0)
    assert (death.cause, death.is_memory) == ("SIGABRT", False)
    assert "Fatal Python error: Aborted" in death.explained and "job_id" not in death.explained


def test_crash_without_a_word_when_the_kernel_killed_is_memory():
    assert crash_of(7, "", 1).is_memory
    assert not crash_of(7, "", 0).is_memory


@pytest.mark.parametrize("words", ["15.20GB / 16.00GB (0.95)", "15.20GB used / 16.00GB limit"])
def test_memory_kill_says_how_much_was_in_use(words):
    death = memory_kill_of(7, f"Memory on the node (IP: 127.0.0.1) was {words}, which exceeds")
    assert death.is_memory and "15.20GB of 16.00GB were in use" in death.likely
