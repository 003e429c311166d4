"""What every runner promises (runners/__init__.py), for every one that `--runner` takes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runners.scenarios import NO_CHILD, SCENARIOS
from tokenmill.config.options import OPTIONS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module", params=OPTIONS["runner"].kind.choices)
def outcomes(request, tmp_path_factory) -> dict[str, str | None]:
    """What went wrong in each scenario."""
    if request.param == "ray" and importlib.util.find_spec("ray") is None:
        pytest.skip("needs tokenmill[ray]")
    folder = tmp_path_factory.mktemp(request.param)
    command = [sys.executable, "-m", "tests.runners.scenarios", request.param, str(folder)]
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    environment = {**os.environ, "PYTHONPATH": paths, "RAY_USAGE_STATS_ENABLED": "0"}
    environment.pop("RAY_ADDRESS", None)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("scenario", [*SCENARIOS, NO_CHILD])
def test_runner(outcomes, scenario):
    assert outcomes[scenario] is None, outcomes[scenario]
