"""Consecutive shards of a split: checks that need all of them together.

A document may begin in one shard and end in the next, so its number, and whether EOT ids are in
order, depend on the shards before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill.dataset.verify.checks import Failure, Findings
from tokenmill.dataset.verify.file_scan import Looked
from tokenmill.dataset.verify.token_scan import Fault, Rules, TokenScan


@dataclass(frozen=True)
class Link:
    """A shard of the chain. `num_documents` comes from the manifest, for an unreadable shard:
    documents if the format stores boundaries, else EOT ids."""

    looked: Looked
    num_documents: int | None = None


@dataclass(frozen=True)
class Chain:
    """A split's shards in order. `eot` says how EOT ids separate documents; None if they do not."""

    links: Sequence[Link]
    has_boundaries: bool
    eot: str | None
    eot_id: int | None

    def failure(self, position: int, fault: Fault) -> Failure:
        looked = self.links[position].looked
        document = self._document(position, fault)
        return Failure(looked.name, fault.message, document, looked.byte_of(fault.token))

    def _document(self, position: int, fault: Fault) -> int | None:
        """The number, in the split, of the document that a token belongs to."""
        before = [self._count(link) for link in self.links[:position]]
        known = sum(count for count in before if count is not None)
        number = None
        if None in before:
            return None
        if self.has_boundaries:
            number = fault.document
        elif self.eot == "prepend":
            first = self.links[0].looked.scan
            has_lead = first is not None and first.first != self.eot_id
            number = fault.num_eot_before + fault.is_eot - 1 + has_lead
        elif self.eot == "append":
            number = fault.num_eot_before
        elif self.eot == "both":
            return (known + fault.num_eot_before) // 2
        return None if number is None else max(0, known + number)

    def _count(self, link: Link) -> int | None:
        found = link.looked.num_documents
        if not self.has_boundaries and link.looked.scan is not None:
            found = link.looked.scan.num_eot
        return link.num_documents if found is None else found


def check_order(
    chains: Sequence[Chain],
    rules: Rules,
    found: Findings,
    may_begin_cut: bool = False,
    may_end_cut: bool = False,
) -> None:
    """Check the order of EOT ids across consecutive chains, for formats without boundaries."""
    placed = [(chain, i) for chain in chains for i in range(len(chain.links))]
    scans = [chain.links[i].looked.scan for chain, i in placed]
    is_inside = may_begin_cut and _begins_inside(scans, rules)
    for number, ((chain, i), scan) in enumerate(zip(placed, scans, strict=True)):
        if scan is None:
            return  # the rest is unknown, and this shard is already reported
        if not scan.num_tokens:
            continue
        if rules.eot == "both":
            fault, is_inside = scan.paired(is_inside)
            if fault is not None:
                found.failed("EOT", chain.failure(i, fault))
                return
        elif (
            rules.eot == "prepend"
            and number == 0
            and not may_begin_cut
            and scan.first != rules.eot_id
        ):
            fault = Fault("EOT", 0, "the first token of all should be an EOT id", 0)
            found.failed("EOT", chain.failure(i, fault))
    if not scans or scans[-1] is None or may_end_cut:
        return
    (chain, i), last = placed[-1], scans[-1]
    ends_open = is_inside if rules.eot == "both" else last.last != rules.eot_id
    if rules.eot in ("append", "both") and last.num_tokens and ends_open:
        message = "the last token of all should be an EOT id"
        fault = Fault("EOT", last.num_tokens - 1, message, last.num_eot)
        found.failed("EOT", chain.failure(i, fault))


def _begins_inside(scans: Sequence[TokenScan | None], rules: Rules) -> bool:
    """Whether the first token belongs to an earlier document, as far as it is known: a single EOT
    id may end that document or begin the next."""
    first = next((scan for scan in scans if scan is not None and scan.num_tokens), None)
    if first is None:
        return False
    return first.first != rules.eot_id or first.paired(False)[0] is not None
