"""`tokenmill` in a process of its own, without the half second that its imports take.

One process has imported everything. It forks a child for every command, which then has its own
environment, folder, streams, exit code and workers, as a command that a shell started. A test that
is about the start (imports, streams that are closed) or that sends signals starts a real one.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

LIBRARIES = (
    "awkward fsspec.implementations.local gigatoken huggingface_hub.hf_api numpy pyarrow.compute "
    "pyarrow.feather pyarrow.json pyarrow.parquet s3fs tiktoken"
)

_server: subprocess.Popen[str] | None = None


def tokenmill(
    *arguments: object,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    settings: Mapping[str, object] | None = None,
    euid: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """`tokenmill ARGUMENTS`, run to its end; `settings` are module attributes to set before."""
    words = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory(prefix="tokenmill-warm-") as folder:
        streams = [Path(folder, name) for name in ("stdout", "stderr")]
        order = {
            "arguments": words,
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
            "settings": dict(settings or {}),
            "euid": os.geteuid() if euid is None else euid,
            "streams": [str(path) for path in streams],
        }
        return subprocess.CompletedProcess(
            ["tokenmill", *words], _exit_code(order), *(path.read_text() for path in streams)
        )


def _exit_code(order: dict[str, Any]) -> int:
    global _server
    if _server is None:
        # Python 3.12 warns of a fork beside threads. pyarrow's and numpy's own are idle here.
        argv = [sys.executable, "-P", "-W", "ignore::DeprecationWarning", __file__]
        _server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    print(json.dumps(order), file=_server.stdin, flush=True)
    line = _server.stdout.readline()
    assert line, f"{__file__} has ended: {_server.wait()}"
    return int(line)


def stop() -> None:
    """End the process that was started for the first command, if one was."""
    global _server
    if _server is not None:
        _server.communicate()
        _server = None


def _serve() -> None:
    """Carry out one order a line, answer with the exit code as `subprocess` has it."""
    from tokenmill import get_encoding

    for name in [*LIBRARIES.split(), *_modules()]:
        importlib.import_module(name)
    _forget("huggingface_hub")  # it reads the environment when it is imported
    get_encoding("gpt2").encode_ordinary_batch(["warm"])
    os.fsync = lambda fd: None  # as in the tests' own process: conftest.py
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _modules() -> list[str]:
    import tokenmill

    found = pkgutil.walk_packages(tokenmill.__path__, "tokenmill.")
    return [m.name for m in found if not m.name.endswith("__main__") and ".ray" not in m.name]


def _forget(package: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


def _become(order: dict[str, Any]) -> None:
    from tokenmill.cli import main

    paths = [os.devnull, *order["streams"]]
    for target, path in enumerate(paths):
        found = os.open(path, os.O_RDONLY if target == 0 else os.O_WRONLY | os.O_CREAT)
        os.dup2(found, target)
        os.close(found)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    for name, value in order["settings"].items():
        module, _, attribute = name.rpartition(".")
        setattr(importlib.import_module(module), attribute, value)
    os.seteuid(order["euid"])
    sys.argv = ["tokenmill", *order["arguments"]]
    os._exit(_code_of(main))


def _code_of(main: Callable[[], int]) -> int:
    """Its exit code, without the end of an interpreter, which costs as much as its start."""
    try:
        code = main()
    except SystemExit as end:
        code = int(end.code or 0)
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    _serve()
