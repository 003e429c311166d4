"""The checks of `verify` by name, and their results as plain values, to print or write as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

MAX_FAILURES = 20
# All checks, in the order of the report.
CHECKS = {
    "manifest": "the manifest is as it was written",
    "conservation": "rows in = documents out + what was left out",
    "files": "every file is there, and no other shard",
    "sizes": "file sizes",
    "sha256": "file contents",
    "headers": "headers and indices",
    "vocabulary": "ids below the size of the vocabulary",
    "EOT": "EOT ids against documents",
    "boundaries": "document boundaries against the stream",
    "kept": "a kept row for each document, in their order",
    "row plans": "plans of `pack` beside it",
    "inputs": "the inputs are those that were read",
    "sources": "documents encoded again from the sources",
}


_IF_THERE = ("kept", "row plans")  # not mentioned if there is nothing to check


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    # passed; failed; skipped: not requested or not applicable; unable: requested, but not possible
    status: str
    detail: str  # what was checked; the first fault; why it was not checked
    hint: str | None = None  # what to type, if it was not possible


@dataclass(frozen=True, slots=True)
class Failure:
    """A fault. `document` is its number in the split, `byte` an offset in the file; None if
    unknown."""

    file: str
    message: str
    document: int | None = None
    byte: int | None = None

    @property
    def place(self) -> str:
        found = [self.file]
        if self.document is not None:
            found.append(f"document {self.document:,}")
        if self.byte is not None:
            found.append(f"byte {self.byte:,}")
        return ", ".join(found)


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify` checked, what it could not check, and what is wrong. True if nothing is wrong
    and everything that was asked for could be checked: `assert tokenmill.verify(folder)`."""

    folder: str
    format: str | None  # None: not known
    checks: tuple[Check, ...]
    failures: tuple[Failure, ...]  # the first of them
    num_failures: int
    num_bytes: int  # that were read
    num_tokens: int
    seconds: float

    @property
    def is_whole(self) -> bool:
        """Whether no fault was found, as far as it could be checked."""
        return not self.num_failures

    @property
    def undone(self) -> tuple[Check, ...]:
        """The requested checks that could not be made."""
        return tuple(check for check in self.checks if check.status == "unable")

    @property
    def is_complete(self) -> bool:
        """Whether every requested check was made, whatever its result."""
        return not self.undone

    def __bool__(self) -> bool:
        return self.is_whole and self.is_complete

    def to_plain(self) -> dict[str, Any]:
        return {"is_whole": self.is_whole, "is_complete": self.is_complete, **asdict(self)}


class Findings:
    """Collects the results of checks."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}
        self._failures: dict[str, list[Failure]] = {name: [] for name in CHECKS}
        self._in_order: list[Failure] = []

    def passed(self, name: str, detail: str) -> None:
        """Mark the check as passed, unless it failed before."""
        if not self.has_failed(name):
            self._checks[name] = Check(name, "passed", detail)

    def skipped(self, name: str, reason: str) -> None:
        """Mark the check as not requested or not applicable."""
        if not self.has_failed(name):
            self._checks[name] = Check(name, "skipped", reason)

    def unable(self, name: str, reason: str, hint: str | None = None) -> None:
        """Mark a requested check as impossible. An earlier failure or pass stays."""
        if name not in self._checks or self._checks[name].status == "skipped":
            self._checks[name] = Check(name, "unable", reason, hint)

    def failed(self, name: str, failure: Failure) -> None:
        self._in_order.append(failure)
        found = self._failures[name]
        found.append(failure)
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        self._checks[name] = Check(name, "failed", f"{found[0].place}: {found[0].message}{more}")

    def skip_the_rest(self, reason: str, names: Iterable[str] = CHECKS) -> None:
        """Mark the checks that have no result yet as skipped."""
        for name in names:
            if name not in self._checks and name not in _IF_THERE:
                self.skipped(name, reason)

    @property
    def num_failures(self) -> int:
        return len(self._in_order)

    def has_failed(self, name: str) -> bool:
        return bool(self._failures[name])

    def report(
        self, folder: str, format_: str | None, num_bytes: int, num_tokens: int, seconds: float
    ) -> Report:
        checks = tuple(self._checks[name] for name in CHECKS if name in self._checks)
        shown, count = tuple(self._in_order[:MAX_FAILURES]), len(self._in_order)
        return Report(folder, format_, checks, shown, count, num_bytes, num_tokens, seconds)
