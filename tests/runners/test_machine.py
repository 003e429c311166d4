"""CPUs and memory as the kernel grants them, from fake /proc and /sys trees."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tokenmill.runners import machine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and /sys")

GB = 1 << 30
MEMINFO = "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:   12582912 kB\n"
NO_LIMIT_V1 = "9223372036854771712\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with 16 GB, 12 of them free, and no cgroup."""
    write(tmp_path, "proc/meminfo", MEMINFO)
    write(tmp_path, "proc/vmstat", "nr_free_pages 5\noom_kill 7\n")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def v2(root: Path, path: str, **files: str) -> None:
    for name, text in files.items():
        write(root, f"sys/fs/cgroup/{path}/{name.replace('_', '.', 1)}", text)


def test_available_cpus_here_are_the_affinity(monkeypatch):
    assert machine.available_cpus() <= len(os.sched_getaffinity(0))
    code = "from tokenmill.runners.machine import available_cpus; print(available_cpus())"
    one = min(os.sched_getaffinity(0))
    pinned = f"import os; os.sched_setaffinity(0, [{one}]); {code}"
    assert subprocess.check_output([sys.executable, "-c", pinned]).strip() == b"1"


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", 8), ("150000 100000", 2), ("100000 100000", 1), ("5000 100000", 1)],
)
def test_available_cpus_under_a_v2_quota_are_rounded_up(root, monkeypatch, quota, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    write(root, "proc/self/cgroup", "0::/\n")
    v2(root, "", cpu_max=quota + "\n")
    assert machine.available_cpus(str(root)) == expected


def test_cpu_quota_in_nested_v2_cgroups_is_the_smallest(root):
    write(root, "proc/self/cgroup", "0::/kubepods/pod1/container\n")
    v2(root, "kubepods/pod1/container", cpu_max="max 100000\n")
    v2(root, "kubepods/pod1", cpu_max="200000 100000\n")
    v2(root, "kubepods", cpu_max="700000 100000\n")
    assert machine.cpu_quota(str(root)) == 2.0


def test_cpu_quota_under_v1_is_quota_by_period(root):
    write(root, "proc/self/cgroup", "4:memory:/\n3:cpu,cpuacct:/docker/abc\n0::/\n")
    write(root, "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "250000\n")
    write(root, "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n")
    write(root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
    write(root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    assert machine.cpu_quota(str(root)) == 2.5


def test_cpu_quota_when_the_cgroup_path_is_the_hosts_is_that_of_the_mount(root):
    write(root, "proc/self/cgroup", "0::/../../host/only\n")
    v2(root, "", cpu_max="300000 100000\n")
    assert machine.cpu_quota(str(root)) == 3.0


def test_memory_without_cgroups_is_the_machines(root):
    assert machine.memory_limit_bytes(str(root)) == 16 * GB
    assert machine.memory_available_bytes(str(root)) == 12 * GB


def test_memory_in_nested_v2_cgroups_is_the_smallest_and_cache_counts_as_free(root):
    write(root, "proc/self/cgroup", "0::/pod/container\n")
    stat = f"anon 5\ninactive_file {GB}\n"
    v2(root, "pod/container", memory_max="max\n", memory_current="1\n")
    v2(root, "pod", memory_max=f"{4 * GB}\n", memory_current=f"{3 * GB}\n", memory_stat=stat)
    assert machine.memory_limit_bytes(str(root)) == 4 * GB
    assert machine.memory_available_bytes(str(root)) == 2 * GB


def test_memory_under_v1_knows_no_limit_when_it_sees_it(root):
    write(root, "proc/self/cgroup", "4:memory:/a/b\n0::/\n")
    write(root, "sys/fs/cgroup/unified/cgroup.procs", "")
    write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", NO_LIMIT_V1)
    write(root, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", f"{2 * GB}\n")
    write(root, "sys/fs/cgroup/memory/a/memory.usage_in_bytes", f"{2 * GB}\n")
    write(root, "sys/fs/cgroup/memory/a/memory.stat", f"total_inactive_file {GB // 2}\n")
    assert machine.memory_limit_bytes(str(root)) == 2 * GB
    assert machine.memory_available_bytes(str(root)) == GB // 2


@pytest.mark.parametrize("version", [1, 2])
def test_oom_kill_count_when_the_kernel_kills_rises(root, version):
    write(root, "proc/self/cgroup", "0::/job\n" if version == 2 else "4:memory:/job\n")
    name = "job/memory.events" if version == 2 else "memory/job/memory.oom_control"
    write(root, "sys/fs/cgroup/memory.events", "oom_kill 50\n")
    write(root, f"sys/fs/cgroup/{name}", "oom 1\noom_kill 3\n")
    before = machine.oom_kill_count(str(root))
    write(root, f"sys/fs/cgroup/{name}", "oom 1\noom_kill 4\n")
    assert machine.oom_kill_count(str(root)) == before + 1


def test_oom_kill_count_without_cgroups_is_the_machines(root):
    assert machine.oom_kill_count(str(root)) == 7


def test_every_question_where_there_is_no_proc_has_an_answer(tmp_path):
    root = str(tmp_path)
    assert machine.available_cpus(root) >= 1
    assert machine.memory_limit_bytes(root) > 0
    assert machine.memory_available_bytes(root) > 0
    assert machine.oom_kill_count(root) == 0


def test_peak_memory_of_this_process_is_no_less_than_what_it_holds():
    [held] = re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert 0 < 1024 * int(held) <= machine.peak_rss_bytes() + (1 << 22)
