"""Work in forks of a process with one thread."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os, sys
import numpy as np
from tokenmill.runners.forks import in_forks

fork, left = os.fork, [int(sys.argv[1])]

def sparing():
    left[0] -= 1
    if left[0] < 0:
        raise BlockingIOError("no more processes")
    return fork()

os.fork = sparing
before = len(os.listdir("/proc/self/fd"))
found = in_forks(lambda item, advance: [np.array([item * item])], range(4), lambda count: None)
assert [int(one[0][0]) for one in found] == [0, 1, 4, 9]
assert len(os.listdir("/proc/self/fd")) == before
"""


def test_work_when_no_more_processes_can_be_made_then_the_caller_does_it():
    for num_forks in (4, 2, 0):
        subprocess.run([sys.executable, "-c", SCRIPT, str(num_forks)], check=True, timeout=60)
