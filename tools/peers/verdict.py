"""From what was seen to a few words, and from all words to the table of docs/peer-faults.md.

Only the records in the results file are looked at, so the table can be made again from it.
"""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]

FAULTS = {
    "worker": "a worker is SIGKILLed",
    "run": "all of it is SIGKILLed",
    "disk": "the disk is full",
    "byte": "a bad byte in the input",
    "special": "`<\\|endoftext\\|>` in a text",
    "exception": "your code raises",
}
WHOLE, HALF, HANG = "finished, nothing lost", "looks complete and is not", "hang"
NAMED, UNNAMED, KILLED = "error that names the cause", "error without a cause", "killed by us"
REFUSED, RESUMED, STARTED_OVER = "refused", "resumed to the same bytes", "started over"
RESUMED_ELSE = "resumed to the same documents in another order"
LEFT_OUT, INJECTED = "left out and reported", "became a real end-of-text token"


def outcome(record: Record) -> str:
    """How the run with the fault ended."""
    ending, left = record["ending"], record["left"]
    if ending["hung"]:
        return HANG
    if record["fault"] == "run":
        return KILLED
    if ending["code"] != 0:
        return NAMED if record["named"] else UNNAMED
    if record["fault"] == "byte" and left["is_whole"] and record["named"]:
        return LEFT_OUT
    if record["fault"] == "special" and left.get("num_eot", 0) > record["num_documents"]:
        return INJECTED
    return WHOLE if left["is_whole"] else HALF


def again_outcome(again: Record) -> str:
    """How the same command ended when it was run again, without the fault."""
    ending, left = again["ending"], again["left"]
    if ending["hung"]:
        return HANG
    if ending["code"] != 0:
        return REFUSED
    if not left["is_whole"]:
        return HALF
    if again["encoded"] > 0.99:
        return STARTED_OVER
    return RESUMED if again["same_bytes"] else RESUMED_ELSE


def words(record: Record, encodes: bool) -> str:
    """A record in a table's cell; LOST stands for the share of the tokens that is missing."""
    if record["fault"] == "special":
        stays = "stays text" if encodes else "up to your code"
        return {WHOLE: stays, INJECTED: f"**{INJECTED}**"}[record["outcome"]]
    parts = [_first(record), _left(record), _again(record)]
    return "; ".join(part for part in parts if part)


def _first(record: Record) -> str:
    kind, ending = record["outcome"], record["ending"]
    if kind == HALF:
        warned = "warns, " if record["named"] else ""
        return f"**{warned}reports success, LOST of tokens missing**"
    if kind == NAMED and record["fault"] == "byte":
        return "stops, names the file" if record["names_file"] else "stops, says what, not where"
    if kind == UNNAMED and "signal" in ending:
        return f"dies by {ending['signal']}"
    return {
        WHOLE: "goes on to the same bytes" if record["same_bytes"] else "goes on, nothing lost",
        HANG: "hangs",
        NAMED: "stops, names the cause",
        UNNAMED: "stops, names no cause",
        KILLED: "",
        LEFT_OUT: "leaves that document out, says so",
    }[kind]


def _left(record: Record) -> str:
    """It did not report success, and yet its reader opens what is there as if it were all."""
    is_end = record["outcome"] in (HANG, NAMED, UNNAMED, KILLED)
    if is_end and record["left"]["opens"] and not record["left"]["is_whole"]:
        return "**what is left opens as whole, LOST of tokens missing**"
    return ""


def _again(record: Record) -> str:
    if "again" not in record:
        return ""
    said = {
        RESUMED: "resumes to the same bytes",
        RESUMED_ELSE: "resumes, in another order",
        STARTED_OVER: "starts over",
        HALF: "**reports success, tokens missing**",
        REFUSED: "refuses a folder that is not empty",
        HANG: "hangs",
    }[record["again"]["outcome"]]
    return f"again: {said}"


def cell(records: list[Record], encodes: bool) -> str:
    """All repetitions of a fault: one text if they agree, else each with its count."""
    lost: dict[str, list[float]] = {}
    for record in records:
        share = 100 * record["left"].get("missing_tokens", 0.0)
        lost.setdefault(words(record, encodes), []).append(share)
    texts = []
    for text, shares in sorted(lost.items(), key=lambda item: -len(item[1])):
        low, high = (f"{share:.0f}" for share in (min(shares), max(shares)))
        texts.append(text.replace("LOST", f"{low}%" if low == high else f"{low} to {high}%"))
        if len(lost) > 1:
            texts[-1] = f"{len(shares)} of {len(records)}: {texts[-1]}"
    return "<br>".join(texts)


def table(results: Record) -> str:
    """The markdown table: a row for each contestant, a column for each fault."""
    rows = [["", *FAULTS.values()], ["---"] * (1 + len(FAULTS))]
    for peer in results["contestants"]:
        row = [f"{peer['label']} {next(iter(peer['versions'].values()))}"]
        for fault in FAULTS:
            mine = [r for r in results["trials"] if (r["peer"], r["fault"]) == (peer["key"], fault)]
            row.append(cell(mine, peer["encodes"]))
        rows.append(row)
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n\n" + caption(results) + "\n"


def caption(results: Record) -> str:
    machine = results["machine"]
    return (
        f"*{len(results['trials'])} faults with real processes, three a cell, {machine['date']}; "
        f"Python {machine['python']}, {machine['cores']} cores; full disk: {machine['disk']}. "
        "Again: the same command once more, without the fault. What is on disk is opened by each "
        "tool's own reader and compared with tiktoken's ids, document by document. What each was "
        "asked for, its messages and what its documentation says: docs/peer_faults.json. "
        "`make peer-faults` repeats it.*"
    )
