"""One contestant and one fault, at one moment: what happened, as a record for the results file."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections import Counter
from typing import Any

from peers import corpus, judge, processes, verdict
from peers.contestants import Peer
from peers.disk import Disk
from peers.stage import Stage, raw

# Three moments a fault: shares of the work done, shares of the disk that a run needs, documents.
# 1.05: all is encoded and the final file is begun, for those that have such a stage.
MOMENTS: dict[str, tuple[float, ...]] = {
    "worker": (0.3, 0.5, 0.7),
    "run": (0.3, 0.7, 1.05),
    "disk": (0.35, 0.65, 0.95),
    "byte": (100, 1650, 3150),
    "special": (100, 1650, 3150),
    "exception": (800, 1650, 3000),
}
WITHOUT_FINAL_STAGE = 0.98
UNDISTURBED_SECONDS = 600.0
HANG_SECONDS = (180.0, 60.0, 60.0)  # after a fault; the first time, longer
AGAIN_SECONDS = 300.0


def undisturbed(stage: Stage, peer: Peer) -> dict[str, Any]:
    """Two runs without a fault: what it writes, whether twice the same, how much disk it needs."""
    seen: list[tuple[judge.Left, float, int]] = []
    source = stage.source(peer)
    for _ in range(2):
        disk = Disk(stage.disk, None)
        ending = stage.run(peer, source, UNDISTURBED_SECONDS, each_poll=disk.look)
        left = stage.look(peer, stage.expected(peer))
        if ending.code != 0 or not left.is_whole:
            sys.exit(f"{peer.key}, undisturbed: {ending}, {left}\n{stage.words()}")
        seen.append((left, ending.seconds, disk.peak_bytes))
        disk.remove()
    return {
        "num_documents": stage.expected(peer).total(),
        "num_tokens": seen[0][0].num_tokens,
        "sha256": seen[0][0].sha256,
        "same_bytes_twice": seen[0][0].sha256 == seen[1][0].sha256,
        "seconds": round(min(seconds for _, seconds, _ in seen), 1),
        "peak_disk_bytes": max(peak for _, _, peak in seen),
    }


def trial(
    stage: Stage, peer: Peer, fault: str, number: int, base: dict[str, Any]
) -> dict[str, Any] | None:
    """The record; None if the run was over before it could be struck."""
    moment = MOMENTS[fault][number]
    if fault == "run" and moment > 1 and not peer.has_final_stage:
        moment = WITHOUT_FINAL_STAGE
    source, expected, options, file = _prepared(stage, peer, fault, moment)
    size = int(moment * base["peak_disk_bytes"]) if fault == "disk" else None
    disk = Disk(stage.disk, size)
    try:
        is_struck = "fault" in options
        seconds = HANG_SECONDS[number] if is_struck else AGAIN_SECONDS
        ending = stage.run(peer, source, seconds, limit=disk.limit(), **options)
        if is_struck and not ending.fault_landed:
            return None
        record = _record(stage, peer, fault, ending, expected, file)
        record |= {"moment": moment, "same_bytes": record["left"].get("sha256") == base["sha256"]}
        record["outcome"] = verdict.outcome(record)
        if fault not in ("byte", "special") and ending.code != 0:
            disk.make_room()
            record["again"] = _again(stage, peer, source, expected, fault == "exception", base)
        return record
    finally:
        processes.kill_all()
        disk.remove()


def _prepared(
    stage: Stage, peer: Peer, fault: str, moment: float
) -> tuple[str, Counter[bytes], dict[str, Any], str]:
    """(source, what is expected of it, options of the run, the faulty file's name)"""
    expected, number = stage.expected(peer), int(moment)
    if fault in ("worker", "run"):
        strike = processes.Fault(
            is_time=lambda: peer.progress(stage.out, stage.log) >= moment,
            strike=lambda pid: fault == "run" or _killed(peer.worker(pid, stage.log)),
            is_end=fault == "run",
        )
        return stage.source(peer), expected, {"fault": strike}, ""
    if fault == "exception":
        copy = peer.copies * number // corpus.NUM_DOCUMENTS  # the mark is in every one of them
        told = {"PEER_RAISE": corpus.mark(number), "PEER_RAISE_IN": f"{copy:03d}-"}
        return stage.source(peer), expected, {"environment": told, "fails": True}, ""
    if fault == "disk":
        return stage.source(peer), expected, {}, ""
    faulty, file = stage.path("faulty"), ""
    shutil.rmtree(faulty, ignore_errors=True)
    expected[stage.documents[number]] -= 1
    if fault == "byte":
        shutil.copytree(stage.path("in"), faulty)
        file = corpus.corrupt(faulty, number)
    else:
        texts = list(stage.texts)
        texts[number] = texts[number].replace("\n\n", f"\n\n{corpus.SPECIAL}\n\n", 1)
        corpus.write_corpus(faulty, texts)
        expected[raw(corpus.oracle.ids([texts[number]])[0])] += 1
    return stage.source(peer, "faulty"), expected, {}, file


def _killed(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _record(
    stage: Stage,
    peer: Peer,
    fault: str,
    ending: processes.Ending,
    expected: Counter[bytes],
    file: str,
) -> dict[str, Any]:
    said, idle = stage.words(), stage.idle_seconds()
    return {
        "peer": peer.key,
        "fault": fault,
        "num_documents": expected.total(),
        "ending": _ending(ending) | ({"idle_seconds": round(idle)} if ending.hung else {}),
        "said": judge.last_lines(said, 6),
        "named": judge.naming_line(judge.CAUSES.get(fault), said),
        "names_file": bool(file) and file in said,
        "left": _left(stage, peer, expected),
    }


def _again(
    stage: Stage,
    peer: Peer,
    source: str,
    expected: Counter[bytes],
    fails: bool,
    base: dict[str, Any],
) -> dict[str, Any]:
    """The same command, without the fault."""
    ending = stage.run(peer, source, AGAIN_SECONDS, fails=fails)
    said = stage.words()
    again: dict[str, Any] = {
        "ending": _ending(ending),
        "said": judge.last_lines(said, 3),
        "encoded": round(peer.num_encoded(stage.log, said), 4),
        "left": _left(stage, peer, expected),
    }
    again["same_bytes"] = again["left"].get("sha256") == base["sha256"]
    return again | {"outcome": verdict.again_outcome(again)}


def _left(stage: Stage, peer: Peer, expected: Counter[bytes]) -> dict[str, Any]:
    plain = stage.look(peer, expected).to_plain()
    return plain | ({"refusal": stage.cleaned(plain["refusal"])} if "refusal" in plain else {})


def _ending(ending: processes.Ending) -> dict[str, Any]:
    code = ending.code
    name = signal.Signals(-code).name if code is not None and code < 0 else ""
    return {
        "code": code,
        **({"signal": name} if name else {}),
        "seconds": round(ending.seconds, 1),
        "hung": ending.hung,
        "processes_left": ending.num_left,
    }
