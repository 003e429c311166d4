"""Checks of foreign datasets, which tokenmill did not write, as far as their format allows."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
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
    size_of,
)
from tokenmill.encode.record import SPLITS
from tokenmill.encodings import EncodingId
from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.formats import DatasetFiles, Format, FoundShard, ShardReader, get_format
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
    files: DatasetFiles,
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
    dtype = None if stated.dtype else foreign_dtype(files, format_, found, stated.encoding)
    shards = _ForeignShards(files, format_, found, stated, dtype, findings)
    looked = shards.looked(num_proc, progress)
    shards.check(looked)
    _report_missing_manifest(stated, format_.name, findings)
    scans = [one.scan for one in looked.values() if one.scan is not None]
    num_bytes = sum(one.num_bytes for one in looked.values())
    return Totals(format_.name, num_bytes, sum(scan.num_tokens for scan in scans))


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


def _look_alikes(files: DatasetFiles, format_: Format, found: Sequence[FoundShard]) -> list[str]:
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


@dataclass(frozen=True, slots=True)
class _ForeignShards:
    """The shards found in a foreign dataset."""

    files: DatasetFiles
    format: Format
    found: Sequence[FoundShard]
    stated: StatedOptions
    dtype: Inference | None  # None: the user or the files state it
    findings: Findings

    def looked(self, num_proc: int, progress: OnProgress) -> dict[str, Looked]:
        """Scan the shards, and files that look like shards."""
        others = _look_alikes(self.files, self.format, self.found)
        is_raw, rules = self.format.traits.is_raw, self.stated.rules
        tasks = [
            FileToCheck(name, False, self._open(name), is_raw, rules)
            for name in [*(shard.name for shard in self.found), *others]
        ]
        looked = looked_at(self.files, tasks, num_proc, progress)
        for name in others:
            if looked[name].broken:
                self.findings.failed("headers", located(str(looked[name].broken), self.files, name))
            elif not isinstance(size_of(self.files, name), int):
                self.findings.failed("files", Failure(name, str(looked[name].missing)))
        return looked

    def _open(self, name: str) -> Callable[[], ShardReader]:
        known = self.stated.dtype or (None if self.dtype is None else self.dtype.value)
        return functools.partial(self.format.open, self.files, name, known)

    def check(self, looked: Mapping[str, Looked]) -> None:
        findings = self.findings
        shards = [looked[shard.name] for shard in self.found]
        has_boundaries = bool(shards) and all(one.num_documents is not None for one in shards)
        eot = self._eot()
        for split in SPLITS:
            names = [shard.name for shard in self.found if shard.split == split]
            own = [StreamShard(name, self._open(name), 0) for name in names]
            stream = Stream(split, own, has_boundaries, eot.value, self.stated.rules.eot_id)
            Chain(stream, [looked[name] for name in names]).report_faults(self.files, findings)
            for name in names:
                if missing := looked[name].missing:
                    findings.failed("files", Failure(name, missing))
        count = counted(len(self.found), "shard")
        findings.passed("files", f"{count}; nothing says whether there should be more")
        findings.skipped("sizes", "only as far as headers tell")
        seen = _dtypes(shards) + (f" (inferred: {self.dtype.why})" if self.dtype else "")
        findings.passed("headers", f"{count} opened as {self.format.name}, {seen}")
        self._report_documents(shards, has_boundaries, eot)

    def _eot(self) -> Inference:
        """Where EOT ids are: as the user says, or as far as whole shards show it."""
        stated = self.stated
        if stated.eot is not None:
            return Inference(stated.eot, "--eot")
        try:
            dataset = open_dataset(
                self.files,
                format_name=self.format.name,
                dtype=stated.dtype,
                encoding=stated.encoding,
            )
        except (ConfigError, IntegrityError) as error:
            return Inference(None, error.message, is_sure=False)
        return dataset.inferred.get("eot") or Inference(
            None, "no tokenizer is named", is_sure=False
        )

    def _report_documents(self, shards: list[Looked], has_boundaries: bool, eot: Inference) -> None:
        findings, stated = self.findings, self.stated
        scans = [one.scan for one in shards if one.scan is not None]
        largest = max((scan.largest for scan in scans), default=-1)
        num_eot = sum(scan.num_eot for scan in scans)
        documents = counted(sum(one.num_documents or 0 for one in shards), "document")
        if has_boundaries:
            findings.passed("boundaries", f"{documents}, no gap between them")
        else:
            findings.skipped("boundaries", f"{self.format.name} stores none, or they are missing")
        if stated.encoding is None:
            reason = f"the largest id is {largest:,}; --tokenizer NAME says whether that can be"
            findings.skipped("vocabulary", reason)
            findings.skipped("EOT", "--tokenizer NAME says which id it is")
            return
        n_vocab = stated.encoding.n_vocab
        findings.passed("vocabulary", f"largest id {largest:,}, vocabulary {n_vocab:,}")
        seen = f"{num_eot:,} EOT ids"
        if stated.eot is None:
            guess = f"inferred: {eot.value}" if eot.value else "their place is not known"
            seen += f" ({guess}: {eot.why})"
        if not has_boundaries:
            findings.skipped("EOT", f"{seen}; nothing says how many documents there are")
        elif stated.eot in (None, "none"):
            findings.skipped("EOT", f"{seen}, {documents}; --eot says where they go")
        else:
            findings.passed("EOT", f"{seen} ({stated.eot}), {documents}")


def _dtypes(shards: list[Looked]) -> str:
    return " and ".join(sorted({one.dtype for one in shards if one.dtype}))
