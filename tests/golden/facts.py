"""What else users hold on to: manifests' facts, exit codes, `--json`, and the names of commands,
options and public Python objects. facts.json is changed together with a line in CHANGELOG.md."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenmill
import warm
from tests.golden.cases import SEVERAL
from tests.golden.run import Place

# Their values are times, places, versions or words: of these only the type is a fact.
VOLATILE = {
    *("seconds", "out", "source", "path", "paths", "versions", "plan", "digest", "sha256"),
    *("manifest_sha256", "notes", "detail", "hint", "last_document"),
}
MANIFESTS = [
    *("input bad rows", "input bad rows replaced", "where", "dedup", "limit-tokens", "limit-docs"),
    *("empty keep", "format nanogpt", "val-first-shard", "format mds", "convert to mds"),
    *("tokenizer of ranks", "tokenizer.json", *SEVERAL),
]
JSON = {
    "prepare": "prepare IN/docs.jsonl -o {new} --num-proc 1 --json",
    "prepare --dry-run": "prepare IN/docs.jsonl -o {new} --num-proc 1 --dry-run --json",
    "prepare --partition": "prepare IN/docs.jsonl -o {new} --num-proc 1 --partition 1/2 --json",
    "verify": "verify {out} --json",
    "verify --full": "verify {out} --full --json",
    "inspect": "inspect {out} --json",
    "inspect --doc": "inspect {out} --doc 1 --json",
    "inspect --grep": "inspect {out} --grep mill --limit 2 --json",
    "convert": "convert {out} {new} --format megatron --json",
    "pack": "pack {out} --seq-len 64 --json",
    "estimate": "estimate IN/docs.jsonl --json",
    "formats": "formats --json",
    "tokenizers": "tokenizers --json",
}
EXIT_CODES = {
    "a finished run": "prepare IN/docs.jsonl -o {out} --num-proc 1",
    "an unknown option": "prepare IN/docs.jsonl -o {new} --no-such-option",
    "an unknown format": "prepare IN/docs.jsonl -o {new} --format no-such-format",
    "no such input": "prepare IN/absent.jsonl -o {new} --num-proc 1",
    "too many bad rows": "prepare IN/bad.jsonl -o {new} --num-proc 1",
    "the output is below a file": "prepare IN/docs.jsonl -o IN/docs.jsonl/out --num-proc 1",
    "a byte is wrong": "verify {damaged}",
    "other options": "prepare IN/docs.jsonl -o {out} --num-proc 1 --seed 9",
    "a source has moved": "verify {moved} --full",
}


def manifest(place: Place) -> dict[str, Any]:
    """Counts, splits, sources, and what each shard holds; their hashes are those of its bytes."""
    found: dict[str, Any] = {}
    for name in MANIFESTS:
        out = place.made(name, place.folder / f"manifest {name}".replace(":", ""))
        said = json.loads((out / "tokenmill.json").read_text())
        for file in said["files"]:
            data = (out / file["name"]).read_bytes()
            assert file["sha256"] == hashlib.sha256(data).hexdigest(), file["name"]
        counts = said["counts"]
        if counts:
            gone = ("filtered", "duplicates", "empty", "null", "quarantined")
            num_gone = sum(counts.get(f"num_{reason}", 0) for reason in gone)
            assert counts["num_rows"] == counts["num_written"] + num_gone, name
        for source in (sources := said.get("sources") or {}).values():
            del source["paths"]
        found[name] = {
            "counts": counts,
            "splits": said["splits"],
            "split_rule": said["split_rule"],
            "sources": {
                n: {k: v for k, v in s.items() if k != "paths"} for n, s in sources.items()
            },
            "encoding": said["identity"]["encoding"]["sha256"],
            "files": {
                file["name"]: [file["split"], file["num_tokens"], file["num_documents"]]
                for file in said["files"]
            },
        }
    return found


def outputs(place: Place) -> dict[str, Any]:
    """The keys of each `--json` output, with its values where they are the same every time."""
    out, found = _made(place, "json"), {}
    for number, (name, typed) in enumerate(JSON.items()):
        words = _words(place, typed, out=out, new=place.folder / f"new {number}")
        is_estimate = name in ("estimate", "prepare --dry-run")
        found[name] = _shown(json.loads(place.run(*words)), only_types=is_estimate)
    return found


def exit_codes(place: Place) -> dict[str, int]:
    out, damaged, moved = (_made(place, name) for name in ("out", "damaged", "moved"))
    data = bytearray((damaged / "train.bin").read_bytes())
    data[100] ^= 1
    (damaged / "train.bin").write_bytes(data)
    os.rename(place.folder / "in-of-moved.jsonl", place.folder / "elsewhere.jsonl")
    found = {}
    for number, (name, typed) in enumerate(EXIT_CODES.items()):
        new = place.folder / f"exit {number}"
        words = _words(place, typed, out=out, new=new, damaged=damaged, moved=moved)
        found[name] = warm.tokenmill(*words, cwd=place.folder).returncode
    return found


def names(place: Place) -> dict[str, Any]:
    """Commands with their options, public Python objects with their parameters or members."""
    commands, waiting = {}, [()]
    while waiting:
        command = waiting.pop()
        said = place.run(*command, "--help", env={**os.environ, "COLUMNS": "1000"})
        usage = said.partition("\n\n")[0]
        found = re.findall(r"(?<!\w)--?[a-z][a-z-]*(?: \{[^}]*\})?", usage)
        commands[" ".join(command) or "tokenmill"] = sorted(set(found))
        below = re.split(r"^(?:commands|actions):$", said, flags=re.MULTILINE)[1:]
        for listed in below:
            waiting += [(*command, c) for c in re.findall(r"^    ([a-z]+)(?= |$)", listed, re.M)]
    return {"commands": commands, "python": {n: _public(n) for n in sorted(dir(tokenmill))}}


FACTS: dict[str, Callable[[Place], Any]] = {
    "manifest": manifest,
    "outputs": outputs,
    "exit codes": exit_codes,
    "names": names,
}


def _made(place: Place, name: str) -> Path:
    """A small dataset of an input of its own."""
    source, out = place.folder / f"in-of-{name}.jsonl", place.folder / f"made {name}"
    source.write_bytes((place.folder / "in" / "docs.jsonl").read_bytes())
    place.run("prepare", source.name if name != "out" else "in/docs.jsonl", "-o", out)
    return out


def _words(place: Place, typed: str, **places: Path) -> list[str]:
    filled = [str(places.get(w.strip("{}"), w)) if w.startswith("{") else w for w in typed.split()]
    return [word.replace("IN/", "in/") if word.startswith("IN/") else word for word in filled]


def _shown(value: Any, only_types: bool = False, key: str = "") -> Any:
    if isinstance(value, dict) and key not in VOLATILE:
        return {k: _shown(v, only_types, k) for k, v in value.items()}
    if isinstance(value, list) and value and key not in VOLATILE:
        shown = [_shown(one, only_types) for one in value]
        return shown[:1] if only_types else shown
    is_place = isinstance(value, str) and "/" in value
    if only_types or key in VOLATILE or is_place or isinstance(value, float):
        return f"a {type(value).__name__}"
    return value


def _public(name: str) -> Any:
    value = getattr(tokenmill, name)
    if inspect.isclass(value):
        members = set(dir(value)) - set(dir(OSError))
        return sorted(member for member in members if not member.startswith("_"))
    if callable(value):
        return [str(p).partition(":")[0] for p in inspect.signature(value).parameters.values()]
    return type(value).__name__
