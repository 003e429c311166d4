"""`python -m tests.golden.renew` writes bytes.json and facts.json from what the command does now.

A golden byte changes only together with its source: see CONTRIBUTING.md. Cases that an oracle
reaches are compared with it first; nothing is written if one differs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER.parent)]  # of helpers, as pytest has it

from tests.golden import facts, run, truth  # noqa: E402
from tests.golden.cases import PREPARE  # noqa: E402


def text_of(value: Any, depth: int) -> str:
    """JSON with a line for each entry, down to some depth."""
    if not isinstance(value, dict) or not depth or not value:
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    lines = (f"{json.dumps(k)}: {text_of(value[k], depth - 1)}" for k in sorted(value))
    return "{\n" + ",\n".join(lines).replace("\n", "\n ").join((" ", "\n}"))


def write(name: str, content: dict[str, Any], depth: int) -> None:
    (FOLDER / name).write_text(text_of(content, depth) + "\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = run.Place(Path(folder, "place"))
        cases: dict[str, Any] = {}
        for number, name in enumerate(PREPARE):
            out = place.made(name, place.folder / f"out{number}")
            if name in truth.TEXTS:
                found, expected = truth.found(name, out)
                assert found == expected, f"{name}: not what the oracle says"
            cases[name] = run.digests(out)
        said = {name: fact(place) for name, fact in facts.FACTS.items()}
    write("bytes.json", {"libraries": run.LIBRARIES, "cases": cases}, depth=3)
    write("facts.json", said, depth=3)
    print(f"{len(cases)} cases, {len(truth.TEXTS)} of them compared with an oracle")


if __name__ == "__main__":
    main()
