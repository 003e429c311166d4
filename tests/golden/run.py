"""Runs a case by the installed command, and says what it wrote, by hashes."""

from __future__ import annotations

import gzip
import hashlib
import json
import shlex
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as pq

import vocabularies
import warm
from tests.golden import corpus
from tests.golden.cases import PREPARE

FOLDER = Path(__file__).parent
# The libraries that decide the bytes, not the content, of some files that we write.
LIBRARIES = {"pyarrow": pyarrow.__version__, "zlib": zlib.ZLIB_RUNTIME_VERSION}
Run = Callable[..., "subprocess.CompletedProcess[str]"]


class Place:
    """A folder with the corpora, configurations and vocabularies, and room for outputs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        corpus.write_inputs(folder / "in")
        corpus.write_vocabularies(folder / "vocab")

    def words(self, typed: str, inputs: str = "in") -> list[str]:
        """What is typed in this folder, for inputs in that folder or URL."""
        configs = f"conf-{hashlib.sha256(inputs.encode()).hexdigest()[:8]}"
        corpus.write_configs(self.folder / configs, inputs)
        places = {
            "IN/": f"{inputs}/",
            "CONF/": f"{configs}/",
            "VOCAB/": "vocab/",
            "PUBLISHED/": f"{vocabularies.FOLDER}/",
        }
        found = shlex.split(typed)
        for name, place in places.items():
            found = [place + w.removeprefix(name) if w.startswith(name) else w for w in found]
        return found

    def made(self, name: str, out: Path) -> Path:
        """The folder of the shards of a case, made inline."""
        first, _, then = PREPARE[name].partition(" | ")
        self.run("prepare", *self.words(first), "-o", out, "--num-proc", 1, "-q")
        if not then:
            return out
        command, *options = self.words(then)
        target = out.with_name(f"{out.name}-then")
        where = [out, target] if command == "convert" else [out, "--write", target]
        self.run(command, *where, *options, "-q")
        return target

    def run(self, *arguments: object, by: Run = warm.tokenmill, **options: Any) -> str:
        """Run a command in this folder, which must succeed; what it says."""
        done = by(*arguments, cwd=self.folder, **options)
        assert done.returncode == 0, f"{shlex.join(map(str, arguments))}\n{done.stderr}"
        return done.stdout


def installed(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The installed command, in a process that imports everything itself."""
    command = [Path(sys.executable).with_name("tokenmill"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def files_in(folder: Path) -> dict[str, bytes]:
    """What a trainer reads, by its name: without our own manifest and plans of rows."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.relative_to(folder).parts[0].startswith((".", "tokenmill"))
    }


def digests(folder: Path) -> dict[str, str | dict[str, str]]:
    """sha256 of each file; where a library decides its bytes, of its content, too."""
    found: dict[str, str | dict[str, str]] = {}
    for name, data in files_in(folder).items():
        content = _content(name, data)
        found[name] = _sha256(data)
        if content is not None:
            found[name] = {"content": _sha256(content), "bytes": _sha256(data)}
    return found


def without_bytes(found: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on the libraries."""
    return {n: v if isinstance(v, str) else {"content": v["content"]} for n, v in found.items()}


def golden(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / name).read_text())
    return found


def differences(case: str, folder: Path, is_elsewhere: bool = False) -> list[str]:
    """The files that are not as in bytes.json. Of inputs that are elsewhere, sidecars hold another
    path."""
    known = golden("bytes.json")
    expected, found = known["cases"][case], digests(folder)
    if is_elsewhere or known["libraries"] != LIBRARIES:
        expected, found = without_bytes(expected), without_bytes(found)
    names = expected.keys() | found.keys()
    return sorted(name for name in names if expected.get(name) != found.get(name))


def _content(name: str, data: bytes) -> bytes | None:
    if name.endswith(".gz"):
        return gzip.decompress(data)
    if not name.endswith((".parquet", ".pq")):
        return None
    table = pq.read_table(pyarrow.BufferReader(data))
    columns = [(field.name, str(field.type), field.nullable) for field in table.schema]
    if "_file" in table.column_names:  # as the source was typed: by URL in a bucket
        names = [name.rpartition("in/")[2] for name in table["_file"].to_pylist()]
        table = table.set_column(table.schema.get_field_index("_file"), "_file", [names])
    metadata = {k: v for k, v in (table.schema.metadata or {}).items() if k != b"ARROW:schema"}
    return repr((columns, sorted(metadata.items()), table.to_pylist())).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
