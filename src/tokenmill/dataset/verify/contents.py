"""Checks the files of a dataset against its manifest: their names, bytes and tokens."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tokenmill.dataset.dataset import Dataset
from tokenmill.dataset.manifest import MANIFEST_NAME, QUARANTINE_NAME, Manifest, OutputFile
from tokenmill.dataset.stream import Stream, StreamShard
from tokenmill.dataset.verify.checks import Failure, Findings
from tokenmill.dataset.verify.scan import (
    Fault,
    FileToCheck,
    Looked,
    OnProgress,
    Rules,
    looked_at,
    size_of,
)
from tokenmill.encode.documents import EOTS_PER_DOCUMENT, separator_of
from tokenmill.errors import IntegrityError
from tokenmill.formats import Files
from tokenmill.storage import hashing
from tokenmill.wording.plural import counted

_OF_TOKENS = ("headers", "vocabulary", "EOT", "boundaries")


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of what was checked."""

    format: str | None
    num_bytes: int
    num_tokens: int

    @staticmethod
    def of(format_name: str, looked: Mapping[str, Looked]) -> Totals:
        num_bytes = sum(one.num_bytes for one in looked.values() if one.missing is None)
        scans = (one.scan for one in looked.values())
        return Totals(format_name, num_bytes, sum(s.num_tokens for s in scans if s is not None))


def check_files(dataset: Dataset, manifest: Manifest, findings: Findings) -> None:
    """Check that exactly the manifest's files exist, and no other that a trainer would read."""
    for file in manifest.files:
        size = size_of(dataset.files, file.name)
        if isinstance(size, str):
            findings.failed("files", Failure(file.name, size))
        elif size != file.num_bytes:
            message = f"has {counted(size, 'byte')}, but was written with {file.num_bytes:,}"
            findings.failed("sizes", Failure(file.name, message, byte=min(size, file.num_bytes)))
    for name in _extra_shards(dataset, manifest):
        message = "is not of this dataset, but a trainer would read it as a shard"
        findings.failed("files", Failure(name, message))
    count = len(manifest.files)
    findings.passed("files", f"{counted(count, 'file')}, none missing, none added")
    findings.passed("sizes", counted(manifest.num_bytes, "byte"))


def _extra_shards(dataset: Dataset, manifest: Manifest) -> list[str]:
    format_, stem = dataset.format, manifest.identity["options"].get("name")
    ours = {MANIFEST_NAME, *(file.name for file in manifest.files)}
    others = [
        name
        for name in dataset.files.names()
        if name not in ours and not os.path.basename(name).startswith(".")
    ]
    pattern = format_.pattern.replace("{name}", re.escape(stem if isinstance(stem, str) else ""))
    found = {name for name in others if re.fullmatch(pattern, name)}
    if not format_.traits.one_file:
        inside = [name for name in others if isinstance(size_of(dataset.files, name), int)]
        # An index may list our own shards, which are not among these files: they are not extra
        # shards.
        with contextlib.suppress(IntegrityError):
            found |= {shard.name for shard in format_.find(dataset.files, inside)}
    return sorted(found)


def check_contents(
    dataset: Dataset,
    manifest: Manifest,
    num_proc: int,
    findings: Findings,
    progress: OnProgress,
) -> Totals:
    """Hash every file, open every shard, check every token."""
    # A format may open other files with a shard: those named like it, and an index.
    stems = {file.name.partition(".")[0] for file in manifest.files}
    refused = refused_file(
        dataset.files,
        lambda name: name.partition(".")[0] in stems or os.path.basename(name) == "index.json",
    )
    tasks = _files_to_check(dataset, manifest, refused is None)
    looked = looked_at(dataset.files, tasks, num_proc, progress)
    _check_sha256(manifest, looked, findings)
    _check_quarantine(dataset.files, manifest, findings)
    if refused is None:
        _check_shards(dataset, manifest, looked, findings)
    else:
        for name in _OF_TOKENS:
            reason = f"{refused.file} {refused.message}, so no shard was opened"
            findings.unable(name, reason, "put the file itself there, or remove the link")
    return Totals.of(dataset.format.name, looked)


def refused_file(
    files: Files, matters: Callable[[str], bool] = lambda name: True
) -> Failure | None:
    """A needed file that must not be opened, such as a link that leads out of the folder."""
    for name in files.names():
        if matters(name) and not os.path.basename(name).startswith("."):
            try:
                files.size(name)
            except IntegrityError:
                return Failure(name, str(size_of(files, name)))
    return None


def _files_to_check(dataset: Dataset, manifest: Manifest, can_open: bool) -> list[FileToCheck]:
    opens: dict[str, StreamShard] = {}
    begins, ends = {}, {}
    for split, stream in dataset.streams.items():
        opens |= {shard.name: shard for shard in stream.shards}
        begins[stream.shards[0].name], ends[stream.shards[-1].name] = _cuts(manifest, split)
    return [
        FileToCheck(
            name=file.name,
            is_hashed=size_of(dataset.files, file.name) == file.num_bytes,
            open=opens[file.name].open if can_open and file.name in opens else None,
            is_raw=dataset.format.traits.is_raw,
            rules=_rules(manifest),
            marks=file.marks,
            has_boundaries=_has_boundaries(dataset),
            may_begin_cut=begins.get(file.name, False),
            may_end_cut=ends.get(file.name, False),
            in_pieces=not isinstance(file.sha256, str),
        )
        for file in manifest.files
    ]


def _cuts(manifest: Manifest, split: str) -> tuple[bool, bool]:
    """Whether a split may begin, and may end, in the middle of a document: where one stream was cut
    in two, and before a tail that filled no sample and was left out."""
    first, second = manifest.one_stream or (None, None)
    totals = manifest.splits.get(split)
    return split == second, split == first or bool(totals and totals.num_tail_tokens)


def _rules(manifest: Manifest) -> Rules:
    encoding = manifest.identity["encoding"]
    # For converted foreign shards it is unknown whether every document has its EOT ids.
    options = manifest.identity["options"]
    eot, eot_id = separator_of(options, encoding)
    bos_id = encoding["bos_token"] if options.get("bos") and options["eot"] != "none" else None
    return Rules(encoding["max_token_value"] + 1, eot_id, eot if manifest.inputs else None, bos_id)


def _has_boundaries(dataset: Dataset) -> bool:
    return any(stream.has_boundaries for stream in dataset.streams.values())


def _changed(file: OutputFile, found: str | tuple[str, ...]) -> Failure:
    """The failure of a file with another sha256; for a file in pieces, where the first changed
    piece is."""
    where, now, was = "", found[:16], file.first_sha256[:16]
    if not isinstance(found, str):
        number = next(
            (n for n, both in enumerate(zip(found, file.sha256, strict=False)) if len({*both}) > 1),
            0,
        )
        first, end = number * hashing.PIECE_BYTES, (number + 1) * hashing.PIECE_BYTES
        where = f" between {first:,} and {min(end, file.num_bytes):,}"
        now, was = found[number][:16], file.sha256[number][:16]
    return Failure(file.name, f"its bytes have changed{where}: sha256 {now}, was {was}")


def _check_sha256(manifest: Manifest, looked: Mapping[str, Looked], findings: Findings) -> None:
    num_bytes = 0
    for file in manifest.files:
        found = looked[file.name]
        num_bytes += found.num_bytes if found.sha256 else 0
        if found.sha256 is not None and found.sha256 != file.sha256:
            findings.failed("sha256", _changed(file, found.sha256))
        elif found.sha256 is None and found.missing and found.num_bytes:
            findings.failed("sha256", Failure(file.name, found.missing))
    if any(one.sha256 for one in looked.values()) or not manifest.files:
        findings.passed("sha256", f"{counted(num_bytes, 'byte')} hashed")
    findings.skip_the_rest("no file has the size that it was written with", ["sha256"])


def _check_quarantine(files: Files, manifest: Manifest, findings: Findings) -> None:
    listed = [file for file in manifest.files if file.name == QUARANTINE_NAME]
    if not listed or size_of(files, QUARANTINE_NAME) != listed[0].num_bytes:
        return
    with files.open(QUARANTINE_NAME) as file:
        num_lines = sum(1 for _ in file)
    if num_lines != manifest.counts.num_quarantined:
        message = f"lists {counted(num_lines, 'row')}, not {manifest.counts.num_quarantined:,}"
        findings.failed("conservation", Failure(QUARANTINE_NAME, message))


def _check_shards(
    dataset: Dataset, manifest: Manifest, looked: Mapping[str, Looked], findings: Findings
) -> None:
    chains = {}
    for split, stream in dataset.streams.items():
        chains[split] = Chain(stream, [looked[shard.name] for shard in stream.shards])
        chains[split].report_faults(dataset.files, findings)
    _check_against_counts(dataset, manifest, looked, findings)
    if not _has_boundaries(dataset):
        cut = [split for split in manifest.one_stream or () if split in chains]
        if cut and (totals := manifest.splits.get(cut[0])) and totals.num_tail_tokens:
            cut = []  # the second does not continue where the first ends
        for splits in [cut] if cut else [[split] for split in chains]:
            begins_cut, ends_cut = _cuts(manifest, splits[0])[0], _cuts(manifest, splits[-1])[1]
            in_order = [chains[split] for split in splits]
            _check_order(in_order, _rules(manifest), findings, begins_cut, ends_cut)
    _report_passed(dataset, manifest, looked, findings)


class Chain:
    """The shards of a split, in order, as they were found."""

    def __init__(self, stream: Stream, looked: Sequence[Looked]) -> None:
        self.looked = looked
        shards = []
        for shard, one in zip(stream.shards, looked, strict=True):
            if (scan := one.scan) is None:
                shards.append(shard)
                continue
            found = one.num_documents if stream.has_boundaries else scan.num_eot
            shards.append(replace(shard, num_tokens=scan.num_tokens, num_documents=found, marks=()))
        self._stream = stream.with_shards(shards)

    def failure(self, position: int, fault: Fault) -> Failure:
        """The failure at a token of a shard, with its document in the split, if that is known."""
        looked, document, stream = self.looked[position], None, self._stream
        # How the split begins matters where EOT ids are before documents.
        is_known = stream.has_boundaries or stream.eot == "append"
        is_known = is_known or self.looked[0].scan is not None
        if is_known and all(one.num_documents is not None for one in stream.shards[:position]):
            with contextlib.suppress(IntegrityError):
                document = stream.document_at(stream.start_of(position) + fault.token)
        return Failure(looked.name, fault.message, document, looked.byte_of(fault.token))

    def report_faults(self, files: Files, findings: Findings) -> None:
        for position, looked in enumerate(self.looked):
            if looked.broken is not None:
                findings.failed("headers", located(looked.broken, files, looked.name))
            for fault in looked.scan.faults.values() if looked.scan is not None else ():
                findings.failed(fault.check, self.failure(position, fault))


def _check_order(
    chains: Sequence[Chain], rules: Rules, findings: Findings, begins_cut: bool, ends_cut: bool
) -> None:
    """Check the order of EOT ids across consecutive splits of a format without boundaries."""
    placed = [(chain, i, one.scan) for chain in chains for i, one in enumerate(chain.looked)]
    filled = [(chain, i, scan) for chain, i, scan in placed if scan is None or scan.num_tokens]
    is_inside, scan = begins_cut, None
    for number, (chain, i, scan) in enumerate(filled):
        if scan is None:
            return  # the rest is unknown, and this shard is already reported
        is_first = number == 0
        if rules.eot == "both":
            # A single EOT id may end the document that was cut, or begin the next one.
            if is_first and scan.first == rules.eot_id and scan.paired(False)[0] is None:
                is_inside = False
            fault, is_inside = scan.paired(is_inside)
            if fault is not None:
                findings.failed("EOT", chain.failure(i, fault))
                return
        elif rules.eot == "prepend" and is_first and not begins_cut and scan.first != rules.eot_id:
            fault = Fault("EOT", 0, "the first token of all should be an EOT id")
            findings.failed("EOT", chain.failure(i, fault))
    if scan is None or ends_cut:
        return
    ends_open = is_inside if rules.eot == "both" else scan.last != rules.eot_id
    if rules.eot in ("append", "both") and ends_open:
        fault = Fault("EOT", scan.num_tokens - 1, "the last token of all should be an EOT id")
        findings.failed("EOT", chain.failure(i, fault))


def located(message: str, files: Files, name: str) -> Failure:
    """A format's message as a failure of the file whose path it begins with, or else of `name`."""
    rest = message.replace(files.path_of(""), "")
    named = [other for other in files.names() if rest.startswith(other)]
    if named:
        name = max(named, key=len)
        rest = rest.removeprefix(name).lstrip(": ")
    return Failure(name, rest)


def _check_against_counts(
    dataset: Dataset, manifest: Manifest, looked: Mapping[str, Looked], findings: Findings
) -> None:
    """Compare the content of the shards with the manifest's counts."""
    has_boundaries, rules = _has_boundaries(dataset), _rules(manifest)
    seq_len = manifest.identity["options"].get("seq_len")
    seq_len = seq_len if dataset.format.traits.boundaries else None
    num_eot = num_bos = 0
    for file in manifest.shards:
        found = looked[file.name]
        if (scan := found.scan) is None:
            continue
        num_eot, num_bos = num_eot + scan.num_eot, num_bos + scan.num_bos
        if scan.num_tokens != file.num_tokens:
            held = counted(scan.num_tokens, "token")
            message = f"holds {held}, but was written with {file.num_tokens:,}"
            findings.failed("headers", Failure(file.name, message))
        if seq_len and scan.num_tokens % seq_len:
            message = f"{counted(scan.num_tokens, 'token')}: not whole samples of {seq_len:,}"
            findings.failed("boundaries", Failure(file.name, message))
        if has_boundaries and found.num_documents != file.num_documents:
            held = counted(found.num_documents or 0, "document")
            findings.failed(
                "boundaries", Failure(file.name, f"holds {held}, not {file.num_documents}")
            )
        if not has_boundaries and file.num_documents not in (None, scan.num_eot):
            message = f"holds {scan.num_eot:,} EOT ids, not {file.num_documents:,}"
            findings.failed("EOT", Failure(file.name, message))
    per_document = EOTS_PER_DOCUMENT[str(rules.eot or "none")]
    if not per_document or any(looked[file.name].scan is None for file in manifest.shards):
        return
    expected = manifest.counts.num_written * per_document
    splits = manifest.splits.values()
    found_in_all = {"EOT id": num_eot + sum(totals.num_tail_eot for totals in splits)}
    if rules.bos_id is not None and not any(totals.num_tail_tokens for totals in splits):
        found_in_all["BOS id"] = num_bos  # those of a tail are not counted
    for what, number in found_in_all.items():
        if number != expected and not findings.has_failed("EOT"):
            documents = counted(manifest.counts.num_written, "document")
            message = f"{counted(number, what)} in all, but {documents}"
            findings.failed("EOT", Failure(MANIFEST_NAME, message))


def _report_passed(
    dataset: Dataset, manifest: Manifest, looked: Mapping[str, Looked], findings: Findings
) -> None:
    scans = [one.scan for one in looked.values() if one.scan is not None]
    num_shards = len(manifest.shards)
    if num_closed := num_shards - len(scans):
        for name in _OF_TOKENS:
            reason = f"{num_closed:,} of {counted(num_shards, 'shard')} could not be opened"
            findings.skipped(name, reason)
        return
    rules = _rules(manifest)
    findings.passed("headers", f"{counted(num_shards, 'shard')} opened")
    largest = max((scan.largest for scan in scans), default=-1)
    findings.passed("vocabulary", f"largest id {largest:,}, vocabulary {rules.n_vocab:,}")
    if rules.eot in (None, "none"):
        findings.skipped("EOT", "documents have no EOT ids (--eot none)")
    else:
        name = "EOT id" if rules.eot_id == manifest.identity["encoding"]["eot_token"] else "BOS id"
        seen = f"{counted(sum(scan.num_eot for scan in scans), name)} ({rules.eot})"
        if rules.bos_id is not None:
            seen += f", {counted(sum(scan.num_bos for scan in scans), 'BOS id')}"
        findings.passed("EOT", f"{seen}, {counted(manifest.num_documents, 'document')}")
    if _has_boundaries(dataset):
        found = sum(one.num_documents or 0 for one in looked.values())
        findings.passed("boundaries", f"{counted(found, 'document')}, each with its EOT ids")
    elif dataset.format.traits.boundaries:
        findings.passed("boundaries", "samples, all of the same length")
    else:
        findings.skipped("boundaries", f"{dataset.format.name} stores none, only EOT ids")
