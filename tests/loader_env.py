"""Runs the trainers' own loaders, in the environment that the Makefile keeps for them.

Their requirements contradict one another's and ours, so each read is a process of that
environment's Python (1 to 3 seconds, most of it `import torch`) and its answer is JSON.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "tests" / "loaders"
ENVIRONMENT = ROOT / ".venv-loaders"
NO_WHEEL = {"megatron": "megatron-core has no wheel"} if sys.version_info >= (3, 14) else {}


def loader(name: str, folder: Path, *options: object) -> dict[str, Any]:
    """What the trainer `name` reads in the folder: see the docstring of loaders/read_NAME.py.

    {"loader": its name and version, "documents": [[id, ...], ...] and / or "samples": the same}.
    """
    return json.loads(_run(name, f"read_{name}.py", folder, *options))


def write_own(name: str, folder: Path, documents: list[list[int]], dtype: str = "uint16") -> None:
    """Write the documents into the folder with the trainer's own writer (loaders/write_own.py)."""
    _run(name, "write_own.py", name, folder, "--dtype", dtype, stdin=json.dumps(documents))


def frameworks(folder: Path) -> dict[str, Any]:
    """Our own batches of the dataset, as torchdata, accelerate and Lightning hand them on."""
    return json.loads(_run("frameworks", "frameworks.py", folder))


def _run(name: str, script: str, *arguments: object, stdin: str = "") -> str:
    if name in NO_WHEEL:
        pytest.skip(
            f"{name}: {NO_WHEEL[name]} for Python {sys.version_info[0]}.{sys.version_info[1]}"
        )
    python = ENVIRONMENT / "bin" / "python"
    if name == "parquet":
        python = Path(sys.executable)  # datasets is one of our own development requirements
    elif not (ENVIRONMENT / ".ready").exists():
        pytest.fail(f"{ENVIRONMENT.name} is absent: `make test` sets it up", pytrace=False)
    run = subprocess.run(
        [str(python), "-W", "ignore", str(SCRIPTS / script), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT / "src")},
    )
    if run.returncode:
        hint = ""
        if "ModuleNotFoundError" in run.stderr:
            hint = f"\n{ENVIRONMENT.name} is incomplete: remove it, then `make test` sets it up"
        pytest.fail(f"{name}'s own loader failed:\n{run.stderr}{hint}", pytrace=False)
    return run.stdout
