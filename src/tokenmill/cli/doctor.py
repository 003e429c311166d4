"""`tokenmill doctor`: shows what this machine allows, or runs a script and says why it died."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import shlex
import signal
import sys
from typing import TYPE_CHECKING

from tokenmill.cli.screen import printable, shown_bytes, shown_seconds
from tokenmill.cli.usage import CommandParser
from tokenmill.errors import ConfigError
from tokenmill.wording.plural import counted, noun_for

if TYPE_CHECKING:
    from tokenmill.doctor.causes import Cause
    from tokenmill.doctor.findings import Finding
    from tokenmill.doctor.process_tree import Member
    from tokenmill.doctor.watch import Watched

_MARKS = {"ok": " ", "note": "?", "problem": "!"}
_MAX_COMMAND_CHARACTERS = 100
_MAX_LINE_CHARACTERS = 300
_MAX_DEAD = 5


DESCRIPTION = """\
Without a command: what this machine really allows (CPUs, memory, disk, caches, network,
versions). With one: run it, and when it or one of its processes dies, say which, by
which signal, with how much memory, and which known cause fits."""
EXAMPLES = "example: tokenmill doctor -- python data/fineweb/prepare.py"


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="the findings as JSON on stdout")
    parser.add_argument(
        "--hang-seconds",
        type=float,
        default=60,
        metavar="S",
        help="report a hang when no process has done anything for S seconds (default: 60)",
    )
    parser.add_argument(
        "script", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="your own command"
    )


def run(arguments: argparse.Namespace) -> int:
    command = arguments.script[1:] if arguments.script[:1] == ["--"] else arguments.script
    if command:
        if arguments.json:
            raise ConfigError(
                "--json is for the report on the machine: a command writes to stdout itself",
                hint="tokenmill doctor --json",
            )
        return run_watched(command, arguments.hang_seconds)
    from tokenmill.doctor import examine

    findings = examine(os.environ)
    if arguments.json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        show_findings(findings)
    return 0


def show_findings(findings: list[Finding]) -> None:
    width = max(len(finding.topic) for finding in findings)
    for finding in findings:
        print(f"{_MARKS[finding.level]} {finding.topic:{width}}  {printable(finding.what)}")
        if finding.advice:
            print(f"  {'':{width}}  -> {printable(finding.advice)}")
    problems = sum(finding.level == "problem" for finding in findings)
    notes = sum(finding.level == "note" for finding in findings)
    print(f"\n{counted(problems, 'problem')} (!), {counted(notes, 'note')} (?). To watch a script:")
    print("  tokenmill doctor -- python prepare.py")


def run_watched(command: list[str], hang_seconds: float) -> int:
    from tokenmill.doctor import causes_of, watch

    watched = watch(command, hang_seconds=hang_seconds)
    if watched.code == 0 and not [member for member in watched.dead if member.signal]:
        print(healthy_line(watched), file=sys.stderr)
        return 0
    causes = causes_of(watched, lacking_vocabulary())
    print("\n" + "\n".join(report(watched, causes)), file=sys.stderr)
    if watched.code < 0:
        die_by(-watched.code)
    return watched.code


def lacking_vocabulary() -> str | None:
    from tokenmill.doctor.vocabulary import cache_folder, cached_states

    folder = cache_folder(os.environ)
    lacking = [name for name, state in cached_states(folder).items() if state != "right"]
    if not lacking:
        return None
    return f"tiktoken's cache ({folder or 'switched off'}) lacks {', '.join(lacking)}"


def healthy_line(watched: Watched) -> str:
    count = counted(len(watched.members), "process", "processes")
    held = ""
    if watched.together_bytes:  # else it ended before it could be measured
        largest = shown_bytes(max(member.peak_bytes for member in watched.members))
        held = f", the largest held {largest}, all together {shown_bytes(watched.together_bytes)}"
    return f"doctor: fine after {shown_seconds(watched.seconds)}: {count}{held}{unseen(watched)}"


def unseen(watched: Watched) -> str:
    """A clause on children that ended too soon to be seen, or nothing."""
    if not watched.has_unseen_children:
        return ""
    return "; it had children that ended before they could be examined"


def report(watched: Watched, causes: list[Cause]) -> list[str]:
    """What happened, which processes died, and why: lines that are safe for a terminal."""
    lines = [f"doctor: {shown_command(shlex.join(watched.command))} {how_it_ended(watched)}"]
    lines += [f"  {shown_death(watched, member)}" for member in watched.dead[:_MAX_DEAD]]
    if (num_more := len(watched.dead) - _MAX_DEAD) > 0:
        lines.append(f"  and {num_more} more {noun_for(num_more, 'child', 'children')} after it")
    if not causes:
        lines.append("none of the known causes fits; its last output:")
        lines += [f"  | {line(text)}" for text in watched.last_lines]
    for cause in causes:
        lines.append(f"cause: {line(cause.title)}")
        lines += [f"  seen: {line(evidence)}" for evidence in cause.evidence]
        lines += [f"  try:  {line(advice)}" for advice in cause.advice]
    if watched.left_behind:
        pids = " ".join(str(member.pid) for member in watched.left_behind)
        lines.append(f"still running, though their parent is gone: kill {pids}")
    return lines


def line(text: str) -> str:
    return printable(text[:_MAX_LINE_CHARACTERS])


def shown_command(command: str) -> str:
    """A command, shortened to one line: its beginning, and its end, which names the script."""
    half = _MAX_COMMAND_CHARACTERS // 2
    short = len(command) <= _MAX_COMMAND_CHARACTERS
    return printable(command if short else f"{command[:half]} ... {command[-half:]}")


def how_it_ended(watched: Watched) -> str:
    from tokenmill.runners.exit_diagnosis import signal_name

    if watched.head.signal:
        how = f"was ended by {signal_name(watched.head.signal)}"
    elif watched.code:
        how = f"ended with exit code {watched.code}"
    else:
        how = "ended with exit code 0, but a child process died"
    held = ""
    if watched.together_bytes:
        held = f"; it held up to {shown_bytes(watched.head.peak_bytes)}"
    return f"{how} after {shown_seconds(watched.seconds)}{held}{unseen(watched)}"


def shown_death(watched: Watched, member: Member) -> str:
    """One dead child, described like one of tokenmill's own workers."""
    from tokenmill.runners.exit_diagnosis import Exit, death_of

    died = death_of(
        Exit(member.pid, member.code, member.peak_bytes, ""),
        watched.oom_kills or watched.machine_oom_kills,
    )
    when = shown_seconds(member.ended or 0)
    command = shown_command(member.command)
    held = "" if "held up to" in died.likely else f"; held {shown_bytes(member.peak_bytes)}"
    return f"child {member.pid} ({command}) after {when}: {died.cause}, {died.likely}{held}"


def die_by(signum: int) -> None:
    """End by the same signal as the command, so that our caller sees the same exit status."""
    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if signum != signal.SIGKILL:
        signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
