"""Checks of foreign datasets, which tokenmill did not write, as far as their format allows."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill.dataset.dataset import (
    foreign_dtype,
    found_shards,
    open_dataset,
    require_no_datasets_inside,
)
from tokenmill.dataset.inference import Inference
from tokenmill.dataset.manifest import MANIFEST_NAME
from tokenmill.dataset.stream import Stream, StreamShard
from tokenmill.dataset.verify.checks import Failure, Findings
from tokenmill.dataset.verify.contents import Chain, Totals, located, refused_file
from tokenmill.dataset.verify.scan import (
    FileToCheck,
    Looked,
    OnProgress,
    Rules,
    looked_at,
)
from tokenmill.encode.record import SPLITS
from tokenmill.encodings import EncodingId
from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.formats import Files, Format, FoundShard, get_format
from tokenmill.wording.plural import counted


@dataclass(frozen=True, slots=True)
class StatedOptions:
    """What the user states about a foreign dataset."""

    format_name: str | None
    dtype: str | None
    encoding: EncodingId | None
    eot: str | None

    @property
    def rules(self) -> Rules:
        if self.encoding is None:
            return Rules(None, None, None)
        return Rules(self.encoding.n_vocab, self.encoding.eot_token, self.eot)


def check_foreign(
    files: Files,
    stated: StatedOptions,
    num_proc: int,
    findings: Findings,
    progress: OnProgress,
) -> Totals:
    findings.skipped("sha256", "nothing says what the bytes should be")
    for name in ("conservation", "inputs", "sources"):
        findings.skipped(name, "nothing says what the shards were made from")
    if refused := refused_file(files):
        findings.failed("files", refused)
        return _without_shards(stated, findings)
    require_no_datasets_inside(files)
    try:
        format_, found = found_shards(files, stated.format_name)
    except IntegrityError as error:
        findings.failed("headers", located(error.message, files, MANIFEST_NAME))
        return _without_shards(stated, findings)
    except ConfigError:
        # Perhaps all of them are damaged.
        if stated.format_name is None or not _look_alikes(
            files, get_format(stated.format_name), []
        ):
            raise
        format_, found = get_format(stated.format_name), []
    _report_missing_manifest(stated, format_.name, findings)
    looked = _check_shards(files, format_, found, stated, num_proc, findings, progress)
    return Totals.of(format_.name, looked)


def _check_shards(
    files: Files,
    format_: Format,
    found: Sequence[FoundShard],
    stated: StatedOptions,
    num_proc: int,
    findings: Findings,
    progress: OnProgress,
) -> dict[str, Looked]:
    dtype = None if stated.dtype else foreign_dtype(files, format_, found, stated.encoding)
    known = stated.dtype if dtype is None else dtype.value
    others, rules = _look_alikes(files, format_, found), stated.rules
    opens = {
        name: functools.partial(format_.open, files, name, known)
        for name in [*(shard.name for shard in found), *others]
    }
    tasks = [FileToCheck(n, False, opens[n], format_.traits.is_raw, rules) for n in opens]
    looked = looked_at(files, tasks, num_proc, progress)
    for name, one in looked.items():
        if one.missing:
            findings.failed("files", Failure(name, one.missing))
        if one.broken and name in others:
            findings.failed("headers", located(one.broken, files, name))
    shards = [looked[shard.name] for shard in found]
    has_boundaries = bool(shards) and all(one.num_documents is not None for one in shards)
    eot = _eot(files, format_, stated)
    for split in SPLITS:
        own = [StreamShard(s.name, opens[s.name], 0) for s in found if s.split == split]
        stream = Stream(split, own, has_boundaries, eot.value, rules.eot_id)
        Chain(stream, [looked[shard.name] for shard in own]).report_faults(files, findings)
    count = counted(len(found), "shard")
    findings.passed("files", f"{count}; nothing says whether there should be more")
    findings.skipped("sizes", "only as far as headers tell")
    seen = " and ".join(sorted({one.dtype for one in shards if one.dtype}))
    seen += f" (inferred: {dtype.why})" if dtype else ""
    findings.passed("headers", f"{count} opened as {format_.name}, {seen}")
    documents = counted(sum(one.num_documents or 0 for one in shards), "document")
    if has_boundaries:
        findings.passed("boundaries", f"{documents}, no gap between them")
    else:
        findings.skipped("boundaries", f"{format_.name} stores none, or they are missing")
    _report_ids(shards, documents if has_boundaries else None, eot, stated, findings)
    return looked


def _eot(files: Files, format_: Format, stated: StatedOptions) -> Inference:
    """Where EOT ids are: as the user says, or as far as whole shards show it."""
    if stated.eot is not None:
        return Inference(stated.eot, "--eot")
    named = {"format_name": format_.name, "dtype": stated.dtype}
    try:
        dataset = open_dataset(files, encoding=stated.encoding, **named)
    except (ConfigError, IntegrityError) as error:
        return Inference(None, error.message, is_sure=False)
    return dataset.inferred.get("eot") or Inference(None, "no tokenizer is named", is_sure=False)


def _report_ids(
    shards: Sequence[Looked],
    documents: str | None,
    eot: Inference,
    stated: StatedOptions,
    findings: Findings,
) -> None:
    """`documents` is how many there are, if the format stores their boundaries."""
    scans = [one.scan for one in shards if one.scan is not None]
    largest = max((scan.largest for scan in scans), default=-1)
    if stated.encoding is None:
        reason = f"the largest id is {largest:,}; --tokenizer NAME says whether that can be"
        findings.skipped("vocabulary", reason)
        findings.skipped("EOT", "--tokenizer NAME says which id it is")
        return
    n_vocab = stated.encoding.n_vocab
    findings.passed("vocabulary", f"largest id {largest:,}, vocabulary {n_vocab:,}")
    seen = f"{sum(scan.num_eot for scan in scans):,} EOT ids"
    if stated.eot is None:
        guess = f"inferred: {eot.value}" if eot.value else "their place is not known"
        seen += f" ({guess}: {eot.why})"
    if documents is None:
        findings.skipped("EOT", f"{seen}; nothing says how many documents there are")
    elif stated.eot in (None, "none"):
        findings.skipped("EOT", f"{seen}, {documents}; --eot says where they go")
    else:
        findings.passed("EOT", f"{seen} ({stated.eot}), {documents}")


def _without_shards(stated: StatedOptions, findings: Findings) -> Totals:
    _report_missing_manifest(stated, "FORMAT", findings)
    findings.skip_the_rest("no shard was opened")
    return Totals(stated.format_name, 0, 0)


def _report_missing_manifest(stated: StatedOptions, name: str, findings: Findings) -> None:
    if stated.format_name is not None:
        findings.skipped("manifest", f"there is no {MANIFEST_NAME}: someone else wrote this")
        return
    message = (
        "is missing, so this is not a finished dataset of tokenmill; "
        f"if someone else wrote it, say so: --format {name}"
    )
    findings.failed("manifest", Failure(MANIFEST_NAME, message))


def _look_alikes(files: Files, format_: Format, found: Sequence[FoundShard]) -> list[str]:
    """Files with names of shards that are not shards: their headers may be damaged."""
    names = {shard.name for shard in found}
    shapes = {_shape(name) for name in names}
    pattern = format_.pattern.replace("{name}", ".+")
    return [
        name
        for name in files.names()
        if name not in names
        and (_shape(name) in shapes or (not names and re.fullmatch(pattern, name)))
    ]


def _shape(name: str) -> str:
    return re.sub(r"\d", "0", name)
