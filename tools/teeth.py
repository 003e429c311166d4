"""Does the fault suite have teeth? Plants one bug at a time and looks whether tests turn red.

    make teeth                     every bug
    python tools/teeth.py fsync    those whose name contains "fsync"

Each bug is a line of the product changed in a copy of it: a mistake that someone could make, and
that a run without faults would never show. A bug that no test notices is a hole in the suite.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Bug:
    name: str
    file: str  # in src/tokenmill
    right: str
    wrong: str
    tests: str  # what must turn red, as arguments of pytest


CRASHES = "tests/faults/test_crash_points.py"
POWER = "tests/faults/test_power_loss.py"
ERRORS = "tests/faults/test_disk_errors.py"
DETERMINISM = "tests/faults/test_determinism.py"
CHANGED = "tests/faults/test_changed_world.py"
PARTITIONS = "tests/test_partition.py"
WORKBENCH = "tests/test_workbench.py"

MOVE = "    if folder != out:\n        _move_files(folder, out, manifest)\n"
MANIFEST = "    storage.write_file(os.path.join(out, MANIFEST_NAME), manifest.to_json())\n"

BUGS = [
    Bug(
        "drop the fsync of a new file",
        "storage.py",
        "                if self._is_durable and not is_url(self.final_path):\n"
        "                    os.fsync(fd)",
        "                pass",
        POWER,
    ),
    Bug(
        "drop the fsync of a folder after a rename",
        "storage.py",
        "    if is_durable:\n        fsync_folder(os.path.dirname(target))\n",
        "",
        POWER,
    ),
    Bug(
        "drop the fsync of a growing shard",
        "storage.py",
        'with _as_output_error("sync", self.path):\n            os.fsync(self._fd)',
        'with _as_output_error("sync", self.path):\n            pass',
        POWER,
    ),
    Bug(
        "delete parts before their records are safe",
        "assemble.py",
        "        self._sync_records()\n",
        "",
        POWER,
    ),
    Bug(
        "trust a part without its checksum",
        "run.py",
        "return checksum.hexdigest() == record.checksum",
        "return True",
        POWER,
    ),
    Bug(
        "write the record before the part is renamed",
        "part.py",
        "        self._file.commit()\n        record = PartRecord(",
        "        record = PartRecord(",
        f"{CRASHES} {ERRORS}",
    ),
    Bug(
        "rename without a temporary name",
        "storage.py",
        'self.path = f"{self.final_path}.{unique}"',
        "self.path = self.final_path",
        CRASHES,
    ),
    Bug(
        "trust a part by its record alone",
        "run.py",
        "    if storage.size(path) != record.num_bytes:\n        return False\n",
        "    return True\n",
        f"{CHANGED} {POWER}",
    ),
    Bug(
        "write the cursor before the shards are synced",
        "assemble.py",
        "        self._shards.sync()\n        self._sync_records()",
        "        self._sync_records()",
        POWER,
    ),
    Bug(
        "write the manifest before the shards are there",
        "output.py",
        MOVE + MANIFEST,
        MANIFEST + MOVE,
        CRASHES,
    ),
    Bug(
        "take a workbench over without giving it a new name",
        "workbench.py",
        "            storage.rename(kept, self.folder)",
        "            self.folder = kept",
        WORKBENCH,
    ),
    Bug(
        "cut a growing file while another may have it mapped",
        "storage.py",
        "            os.pwrite(self._fd, start, 0)\n",
        "            os.pwrite(self._fd, start, 0)\n"
        "            os.ftruncate(self._fd, num_bytes)\n",
        WORKBENCH,
    ),
    Bug(
        "leave a parent's files open in a fork",
        "runners/birth.py",
        "            _close_all_but(3)\n",
        "",
        "tests/test_birth.py",
    ),
    Bug(
        "remove a shard's lengths before the cursor is written",
        "shards.py",
        "            self._spent.append(self._lengths.path)\n",
        "            storage.remove(self._lengths.path)\n",
        CRASHES,
    ),
    Bug(
        "take a short write for a whole one",
        "storage.py",
        "    while view:\n        view = view[os.write(fd, view) :]",
        "    os.write(fd, view)",
        f"{ERRORS} -k only_part",
    ),
    Bug(
        "swallow an error of the disk",
        "storage.py",
        '        raise OutputError(f"cannot {doing} {path}: {reason}", hint=hint) from error',
        "        pass",
        ERRORS,
    ),
    Bug(
        "list inputs in the order of the folder",
        "inputs.py",
        "return sorted(inputs, key=lambda source: os.fsencode(source.name))",
        "return list(inputs)[::-1]",
        f"{DETERMINISM} tests/test_prepare.py",
    ),
    Bug(
        "let a task write its plan over another's",
        "storage.py",
        "os.link(self.path, self.final_path)",
        "os.replace(self.path, self.final_path)",
        PARTITIONS,
    ),
    Bug(
        "let a task keep the lock for itself",
        "storage.py",
        "_locked_descriptor(path, fcntl.LOCK_SH)",
        "_locked_descriptor(path, fcntl.LOCK_EX)",
        PARTITIONS,
    ),
    Bug(
        "finish with parts that nobody looked at",
        "tasks.py",
        "        if not is_whole(job.work, record):",
        "        if False:",
        PARTITIONS,
    ),
    Bug(
        "take a record of another plan",
        "record.py",
        "record if record.plan_id == plan_id and record.slice_index == slice_index else None",
        "record",
        PARTITIONS,
    ),
    Bug(
        "put the time into the manifest",
        "manifest.py",
        'return {"tokenmill_manifest": MANIFEST_VERSION, **plain}',
        'import time\n\n        return {\n            "tokenmill_manifest": MANIFEST_VERSION,\n'
        '            **plain,\n            "at": time.time(),\n        }',
        DETERMINISM,
    ),
    Bug(
        "choose the split by Python's hash",
        "documents.py",
        "(hashed(data[a:b], seed) < below for a, b in itertools.pairwise(bounds))",
        "((hash(bytes(data[a:b])) & (1 << 64) - 1) < below for a, b in itertools.pairwise(bounds))",
        DETERMINISM,
    ),
    Bug(
        "leave an option out of a run's identity",
        "config.py",
        '    text_column: str = "text"',
        '    text_column: str = _not_in_identity("text")',
        CHANGED,
    ),
    Bug(
        "do not notice that an input changed",
        "plan.py",
        "        if dataclasses.replace(now, path=source.path) != source:",
        "        if False:",
        CHANGED,
    ),
    Bug(
        "cast ids without a check",
        "documents.py",
        "    if largest > np.iinfo(dtype).max:",
        "    if False:",
        "tests/faults/test_text_properties.py",
    ),
    Bug(
        "leave a bad row out without counting it",
        "mill.py",
        "self.counts += held.counts + Counts(num_quarantined=len(bad))",
        "self.counts += held.counts",
        "tests/test_bad_input.py",
    ),
    Bug(
        "let special tokens in text become control tokens",
        "encodings/tiktoken.py",
        "special_tokens={}",
        'special_tokens={"<|endoftext|>": identity.eot_token}',
        "tests/test_prepare.py tests/faults/test_text_properties.py",
    ),
    Bug(
        "follow a link out of the folder",
        "dataset.py",
        "    if os.path.commonpath(",
        "    if False and os.path.commonpath(",
        "tests/faults/test_security.py",
    ),
    Bug(
        "print a document as it is",
        "cli/screen.py",
        'unicodedata.category(char)[0] not in "CZ"',
        "unicodedata.category(char)",
        "tests/faults/test_security.py",
    ),
]


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    missed = []
    for number, bug in enumerate(bug for bug in BUGS if wanted in bug.name):
        began = time.monotonic()
        caught = is_caught(bug)
        seconds = time.monotonic() - began
        print(
            f"{number + 1:2}  {'caught' if caught else 'MISSED'}  {seconds:4.0f} s  {bug.name}",
            flush=True,
        )
        if not caught:
            missed.append(bug)
    print(f"{len(missed)} missed")
    return 1 if missed else 0


def is_caught(bug: Bug) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, Path(folder, name))
        shutil.copy(ROOT / "pyproject.toml", folder)
        path = Path(folder, "src", "tokenmill", bug.file)
        text = path.read_text()
        if text.count(bug.right) != 1:
            raise SystemExit(f"{bug.name}: {bug.file} no longer has that line once:\n{bug.right}")
        path.write_text(text.replace(bug.right, bug.wrong))
        command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider"]
        found = subprocess.run(
            [*command, *bug.tests.split()],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(folder, "src"))},
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode not in (0, 1):
            raise SystemExit(f"{bug.name}: pytest did not run:\n{found.stdout}{found.stderr}")
        return found.returncode == 1


if __name__ == "__main__":
    sys.exit(main())
