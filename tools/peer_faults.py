"""The faults of our own suite, done to four peers from PyPI and to tokenmill, with real processes.

    make peer-faults                                   all of it, about an hour on two cores
    python tools/peer_faults.py --only mds:exception   some of it; the rest of the results stays
    python tools/peer_faults.py --table                docs/peer-faults.md's table, from the results

Every contestant runs twice undisturbed, then three times with each fault. After each, its own
reader opens the output and the tokens are compared with tiktoken's (peers/judge.py); where the run
did not report success, the same command is run again without the fault. What each was asked for,
and how, is in peers/contestants.py and peers/run_*.py; which words mean what, in peers/verdict.py.
Results are written to docs/peer_faults.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))  # oracle.py

from peers import disk, processes, verdict  # noqa: E402
from peers.contestants import CONTESTANTS, Peer  # noqa: E402
from peers.stage import Stage  # noqa: E402
from peers.trial import MOMENTS, trial, undisturbed  # noqa: E402

RESULTS = os.path.join(ROOT, "docs", "peer_faults.json")
MAX_ATTEMPTS = 8  # to strike a run before it is over


def break_peer(stage: Stage, peer: Peer, faults: list[str], results: dict[str, Any]) -> None:
    base = undisturbed(stage, peer)
    say(f"{peer.key}, undisturbed: {base}")
    described = {
        "key": peer.key,
        "label": peer.label,
        "versions": versions(peer),
        "asked": peer.asked,
        "documented": peer.documented,
        "encodes": peer.encodes,
        "undisturbed": base,
    }
    others = [one for one in results["contestants"] if one["key"] != peer.key]
    results["contestants"] = [*others, described]
    for fault in faults:
        mine = (peer.key, fault)
        results["trials"] = [r for r in results["trials"] if (r["peer"], r["fault"]) != mine]
        for number in range(len(MOMENTS[fault])):
            record = struck(stage, peer, fault, number, base)
            say(f"{peer.key}, {fault}, {record['moment']}: {verdict.cell([record], peer.encodes)}")
            results["trials"].append(record)
        save(results)


def struck(
    stage: Stage, peer: Peer, fault: str, number: int, base: dict[str, Any]
) -> dict[str, Any]:
    for _ in range(MAX_ATTEMPTS):
        if record := trial(stage, peer, fault, number, base):
            return record
    sys.exit(f"{peer.key}: {fault} came too late {MAX_ATTEMPTS} times")


def versions(peer: Peer) -> dict[str, str]:
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    found = subprocess.check_output([peer.python, "-c", code, *peer.packages], text=True).split()
    return dict(zip(peer.packages, found, strict=True))


def machine() -> dict[str, Any]:
    return {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "disk": disk.kind(),
    }


def load(is_new: bool) -> dict[str, Any]:
    if is_new or not os.path.exists(RESULTS):
        return {"machine": {}, "contestants": [], "trials": []}
    with open(RESULTS) as file:
        found: dict[str, Any] = json.load(file)
    return found


def save(results: dict[str, Any]) -> None:
    keys, faults = [peer.key for peer in CONTESTANTS], list(MOMENTS)
    results["contestants"].sort(key=lambda one: keys.index(one["key"]))
    results["trials"].sort(
        key=lambda one: (keys.index(one["peer"]), faults.index(one["fault"]), one["moment"])
    )
    with open(RESULTS, "w") as file:
        json.dump(results, file, indent=1, ensure_ascii=False)
        file.write("\n")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", metavar="PEER[:FAULT]", help="may be repeated")
    parser.add_argument("--table", action="store_true", help="print the table and do nothing else")
    arguments = parser.parse_args()
    if arguments.table:
        print(verdict.table(load(is_new=False)), end="")
        return
    disk.in_own_namespace()
    processes.become_reaper()
    wanted = [(*one.split(":"), "")[:2] for one in arguments.only or [p.key for p in CONTESTANTS]]
    results = load(is_new=not arguments.only)
    results["machine"] = machine()
    with tempfile.TemporaryDirectory(prefix="peer-faults-", ignore_cleanup_errors=True) as folder:
        stage = Stage(folder)
        for peer in CONTESTANTS:
            asked = {fault for key, fault in wanted if key == peer.key}
            faults = [fault for fault in MOMENTS if asked & {fault, ""}]
            if faults:
                break_peer(stage, peer, faults, results)


if __name__ == "__main__":
    main()
