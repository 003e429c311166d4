"""The memory ceiling: words that never come again must not fill a worker."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = r"""
import re
import numpy as np
import pyarrow as pa
from tokenmill.encodings import get_encoding
from tokenmill.encodings.loading import engine_of

encoding, random = get_encoding("gpt2"), np.random.default_rng(0)

def batch(num_bytes):
    letters = random.integers(97, 123, num_bytes).astype(np.uint8)
    ends = np.cumsum(random.integers(4, 13, num_bytes // 8))
    letters[ends[ends < num_bytes]] = 32
    text = letters.tobytes().decode()
    return pa.array([text[i : i + 4000] for i in range(0, num_bytes, 4000)], pa.large_string())

texts = [batch(2_000_000) for _ in range(2)] if {again} else (batch(4_000_000) for _ in range(15))
for _ in range(20 if {again} else 1):
    for text in texts:
        encoding.encode_array(text)
# Not getrusage: its peak counts that of the parent, from before exec.
peak = int(re.search(r"VmHWM:\s*(\d+) kB", open("/proc/self/status").read())[1]) // 1000
print(peak, engine_of(encoding.identity).num_builds)
"""


def run(*, again: bool) -> tuple[int, int]:
    code = CODE.replace("{again}", str(again))
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    peak_mb, num_builds = map(int, out.split())
    return peak_mb, num_builds


@pytest.mark.skipif(sys.platform != "linux", reason="growth is measured on Linux only")
def test_engine_when_words_never_come_again_then_stays_under_its_ceiling() -> None:
    peak_mb, num_builds = run(again=False)  # 60 MB; without a ceiling the peak is over 600 MB
    assert peak_mb < 550
    assert num_builds > 2


@pytest.mark.skipif(sys.platform != "linux", reason="growth is measured on Linux only")
def test_engine_when_words_come_again_then_keeps_what_it_learned() -> None:
    _, num_builds = run(again=True)
    assert num_builds == 1
