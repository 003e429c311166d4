"""One pass over a shard's tokens: the largest id, the EOT ids, and the first token that breaks a
rule. Tokens come in pieces of any size, in order; a piece costs a few passes within the CPU's cache
(11 GB/s of uint16), beside hashing it (1.5 GB/s; both together 1.46, on one core of an AMD EPYC).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.wording.plural import counted

Tokens = npt.NDArray[np.integer]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rules:
    """The known rules for tokens."""

    n_vocab: int | None
    eot_id: int | None
    eot: str | None  # where EOT ids are: append, prepend, both or none
    bos_id: int | None = None  # which begins every document, if EOT ids end them


@dataclass(frozen=True, slots=True)
class Fault:
    check: str
    token: int  # of the shard
    message: str
    num_eot_before: int
    is_eot: bool = False  # whether the token itself is one
    document: int | None = None  # of the shard, where the format keeps boundaries


class TokenScan:
    """The results of scanning a shard's tokens.

    `expected` are the only places of EOT ids, if the format determines them. `marks` are the
    manifest's (EOT ids before, token). A scan may begin at `first_token`, for a part of the shard;
    `joined` merges such scans.
    """

    def __init__(
        self,
        rules: Rules,
        expected: Positions | None = None,
        marks: tuple[tuple[int, int], ...] = (),
        first_token: int = 0,
    ) -> None:
        self._rules = rules
        self._expected = expected
        self._marks = list(marks)
        self._first_token = first_token
        self._mark_counts: list[
            tuple[int, int, int]
        ] = []  # said, token, EOT ids of the part before
        # Without boundaries and with two EOT ids per document, EOT ids come in pairs. Whether a
        # shard begins inside a document depends on the shards before it.
        self._is_paired = rules.eot == "both" and expected is None
        self._inside = [False, True]
        self._unpaired: list[Fault | None] = [None, None]
        self.num_tokens = first_token
        self.num_eot = 0
        self.num_bos = 0
        self.largest = -1
        self.first: int | None = None
        self.last: int | None = None
        self.faults: dict[str, Fault] = {}  # the first of each check

    def feed(self, tokens: Tokens) -> None:
        if not len(tokens):
            return
        if self.first is None:
            self.first = int(tokens[0])
        self.largest = max(self.largest, int(tokens.max()))
        if self._rules.n_vocab is not None and "vocabulary" not in self.faults:
            self._check_range(tokens, self._rules.n_vocab)
        if self._rules.bos_id is not None:
            self._check_bos(tokens, self._rules.bos_id)
        if self._rules.eot_id is not None:
            self._check_eot(tokens == self._rules.eot_id)
        self.last = int(tokens[-1])
        self.num_tokens += len(tokens)

    @staticmethod
    def joined(parts: Sequence[TokenScan]) -> TokenScan:
        """The merged results of a shard's parts, in order."""
        whole = TokenScan(parts[0]._rules)
        for part in parts:
            if part.first is None:
                continue
            whole.first = part.first if whole.first is None else whole.first
            whole.last, whole.num_tokens = part.last, part.num_tokens
            whole.largest = max(whole.largest, part.largest)
            for said, token, counted_before in part._mark_counts:
                whole._check_mark(said, token, whole.num_eot + counted_before, part.num_tokens)
            for name, fault in part.faults.items():
                before = whole.num_eot + fault.num_eot_before
                whole.faults.setdefault(name, dataclasses.replace(fault, num_eot_before=before))
            whole.num_eot += part.num_eot
            whole.num_bos += part.num_bos
        return whole

    def finish(self, ends: Positions | None = None) -> None:
        """End the scan. `ends` are the ends of documents, for the numbers of faulty ones."""
        expected, self._expected = self._expected, None
        if expected is not None and self.num_eot < len(expected) and "EOT" not in self.faults:
            self._missing_eot(int(expected[self.num_eot]), self.num_eot)
        if self._marks and "EOT" not in self.faults:
            message = f"a mark of the manifest is beyond its {counted(self.num_tokens, 'token')}"
            self.faults["EOT"] = Fault("EOT", max(0, self.num_tokens - 1), message, self.num_eot)
        if ends is not None:
            for name, fault in self.faults.items():
                document = int(np.searchsorted(ends, fault.token, "right"))
                self.faults[name] = dataclasses.replace(fault, document=document)

    def paired(self, is_inside: bool) -> tuple[Fault | None, bool]:
        """The first EOT id without its pair, given whether the shard begins inside a document; and
        whether the shard ends inside a document."""
        return self._unpaired[is_inside], self._inside[is_inside]

    def _check_range(self, tokens: Tokens, n_vocab: int) -> None:
        is_signed = tokens.dtype.kind == "i"
        if self.largest < n_vocab and not (is_signed and int(tokens.min()) < 0):
            return
        beyond = (tokens >= n_vocab) | (tokens < 0)
        if not beyond.any():
            return
        at = int(np.argmax(beyond))
        before = self.num_eot
        if self._rules.eot_id is not None:
            before += int(np.count_nonzero(tokens[:at] == self._rules.eot_id))
        self.faults["vocabulary"] = Fault(
            "vocabulary",
            self.num_tokens + at,
            f"token {self.num_tokens + at:,} is {int(tokens[at])}, but ids end at {n_vocab - 1}",
            before,
        )

    def _check_eot(self, is_eot: npt.NDArray[np.bool_]) -> None:
        start, stop = self.num_tokens, self.num_tokens + len(is_eot)
        while self._marks and self._marks[0][1] <= stop:
            before, token = self._marks.pop(0)
            found = self.num_eot + int(np.count_nonzero(is_eot[: max(0, token - start)]))
            if self._first_token:
                self._mark_counts.append((before, token, found))
            else:
                self._check_mark(before, token, found, stop)
        if self._expected is None and not self._is_paired:
            self.num_eot += int(np.count_nonzero(is_eot))
            return
        found_at = start + np.flatnonzero(is_eot)
        if self._expected is not None:
            self._compare(found_at, self._expected[self.num_eot : self.num_eot + len(found_at)])
        else:
            for state in (0, 1):
                self._follow(state, found_at, start, stop)
        self.num_eot += len(found_at)

    def _check_bos(self, tokens: Tokens, bos_id: int) -> None:
        """A BOS id follows every EOT id, and nothing else. What is before the first token of a part
        is not known here; the number of BOS ids shows it."""
        is_bos = tokens == bos_id
        self.num_bos += int(np.count_nonzero(is_bos))
        before = np.concatenate([[bos_id if self.last is None else self.last], tokens[:-1]])
        wrong = is_bos != (before == self._rules.eot_id)
        wrong[0] &= self.last is not None
        if wrong.any() and "EOT" not in self.faults:
            at = int(np.argmax(wrong))
            num_eot = self.num_eot + int(np.count_nonzero(tokens[:at] == self._rules.eot_id))
            what = "is a BOS id in the middle of a document"
            what = what if is_bos[at] else "should begin a document with its BOS id, and does not"
            message = f"token {self.num_tokens + at:,} {what}"
            self.faults["EOT"] = Fault("EOT", self.num_tokens + at, message, num_eot)

    def _check_mark(self, said: int, token: int, found: int, stop: int) -> None:
        if found != said and "EOT" not in self.faults:
            message = f"{found:,} EOT ids before token {token:,}; the manifest says {said:,}"
            self.faults["EOT"] = Fault("EOT", min(token, stop - 1), message, found)

    def _compare(self, found: Positions, expected: Positions) -> None:
        if "EOT" in self.faults or (len(found) == len(expected) and (found == expected).all()):
            return
        same = found[: len(expected)] == expected
        at = len(same) if same.all() else int(np.argmin(same))
        if at < len(expected) and expected[at] < found[at]:
            self._missing_eot(int(expected[at]), self.num_eot + at)
        else:
            token = int(found[at])
            message = f"token {token:,} is an EOT id in the middle of a document"
            self.faults["EOT"] = Fault("EOT", token, message, self.num_eot + at, True)

    def _missing_eot(self, token: int, before: int) -> None:
        token = max(0, token)
        message = f"token {token:,} should be the EOT id of its document, and is not"
        self.faults["EOT"] = Fault("EOT", token, message, before)

    def _follow(self, state: int, found: Positions, start: int, stop: int) -> None:
        """After the second EOT id of a document the next one's first must follow."""
        is_inside = self._inside[state]
        self._inside[state] = is_inside ^ bool(len(found) % 2)
        if self._unpaired[state] is not None:
            return
        closing = found[int(not is_inside) :: 2] + 1  # the tokens after EOT ids that end documents
        opening = found[int(is_inside) :: 2]
        if not is_inside:
            closing = np.concatenate([[start], closing])
        closing = closing[closing < stop]
        same = closing[: len(opening)] == opening[: len(closing)]
        if len(closing) <= len(opening) and same.all():
            return
        at = len(same) if same.all() else int(np.argmin(same))
        token = int(closing[at])
        before = self.num_eot + int(np.searchsorted(found, token))
        message = f"token {token:,} should begin a document with an EOT id, and does not"
        self._unpaired[state] = Fault("EOT", token, message, before)


def expected_eot(ends: Positions, eot: str | None) -> Positions | None:
    """Where EOT ids must be, given the ends of documents; None if there is no rule."""
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    if eot == "append":
        return ends - 1
    if eot == "prepend":
        return starts
    if eot == "both":
        return np.stack([starts, ends - 1], axis=1).reshape(-1)
    return None
