"""`verify`: read this first. Checks everything that can be known about a folder.

    manifest      as it was written; its numbers agree            sums.py
    files         present, inside the folder, no extra ones       contents.py
    contents      hashed and scanned in one pass                  contents.py  scan.py
    kept          rows of --keep against documents                kept_check.py
    sources       documents encoded again and compared            sources.py

It does not stop at the first fault: all files are checked, and faults are named by file and
document. Without `sample`, `full` or `sources` nothing outside the folder is read.

A check that was not requested, or does not apply, is skipped. A requested check that could not be
made, for example because a source has changed, is `unable`: nothing is known to be wrong, but it is
not a success.

A folder without a manifest fails, so that a deleted manifest is noticed. If the caller names the
format, the dataset is foreign, and checks that its format does not allow are reported as skipped.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence

from tokenmill.dataset.dataset import Dataset, dataset_of, require_agreement, require_token_dtype
from tokenmill.dataset.files import files_at
from tokenmill.dataset.made_with import NamedTokenizer, made_with_of, require_same
from tokenmill.dataset.manifest import (
    MANIFEST_NAME,
    Manifest,
    laid_out,
    manifest_data,
    manifest_sha256_of,
)
from tokenmill.dataset.verify.checks import Failure, Findings, Report
from tokenmill.dataset.verify.contents import Totals, check_contents, check_files, located
from tokenmill.dataset.verify.foreign import StatedOptions, check_foreign
from tokenmill.dataset.verify.kept_check import check_kept
from tokenmill.dataset.verify.scan import OnProgress
from tokenmill.dataset.verify.sources import NOT_ASKED_FOR, Asked, check_sources
from tokenmill.dataset.verify.sums import contradictions
from tokenmill.encodings import EncodingId
from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.formats import Files
from tokenmill.runners.machine import available_cpus
from tokenmill.wording.plural import counted


def verify(
    folder: str | os.PathLike[str],
    *,
    format_name: str | None = None,
    dtype: str | None = None,
    encoding: EncodingId | None = None,
    tokenizer: NamedTokenizer | None = None,
    eot: str | None = None,
    sample: int = 0,
    full: bool = False,
    sources: Sequence[str] = (),
    num_proc: int | None = None,
    progress: OnProgress = lambda what, done, total: None,
    also: Sequence[Callable[[Files, Findings], None]] = (),
) -> Report:
    """Check a dataset and report what was checked, what is wrong and what was not checked.

    The folder may be a URL on object storage; then nothing is kept on disk. `format_name`, `dtype`
    and `eot` are for folders that tokenmill did not write. So is the tokenizer, by its `encoding`
    or as a user names it; it also says where the tokenizer of a dataset is, if it does not come
    with the package, and is compared with the manifest. `sample` documents, or all with `full`, are
    encoded again from the sources by the reference (tiktoken) and compared; where that could not be
    done, the report is not `is_complete`. `also` are checks of what others put beside the shards.
    Raises ConfigError for a folder in which nothing can be
    recognised, and for options that contradict its manifest.
    """
    began = time.monotonic()
    require_token_dtype(dtype)
    if sample < 0:
        raise ConfigError(
            f"sample is a number of documents, got {sample:,}", hint="sample=100, or full=True"
        )
    asked = Asked(sample, full, tuple(sources), num_proc or available_cpus())
    stated = StatedOptions(format_name, dtype, encoding, eot)
    findings = Findings()
    files = files_at(os.fspath(folder), with_others=True)
    if files.has(MANIFEST_NAME):
        totals = _check_ours(files, stated, tokenizer, asked, findings, progress)
    else:
        if tokenizer is not None:
            stated = dataclasses.replace(stated, encoding=tokenizer.encoding().identity)
        totals = check_foreign(files, stated, asked.num_proc, findings, progress)
        _report_impossible(stated, asked, findings)
    for check in also:
        check(files, findings)
    seconds = time.monotonic() - began
    return findings.report(files.label, totals.format, totals.num_bytes, totals.num_tokens, seconds)


def _report_impossible(stated: StatedOptions, asked: Asked, findings: Findings) -> None:
    """Report the requested checks that a folder without a manifest does not allow."""
    for name in ("inputs", "sources") if asked.is_to_encode else ("inputs",) if asked else ():
        reason = f"there is no {MANIFEST_NAME}: nothing says what the shards were made from"
        findings.unable(name, reason, "leave --sample, --full and --source out")
    if stated.eot not in (None, "none"):
        if stated.encoding is None:
            reason = f"--eot {stated.eot}, but nothing says which id it is"
            findings.unable("EOT", reason, "--tokenizer NAME")
        else:
            reason = f"--eot {stated.eot}, but nothing says where documents begin and end"
            findings.unable("EOT", reason, "leave --eot out")


def _check_ours(
    files: Files,
    stated: StatedOptions,
    tokenizer: NamedTokenizer | None,
    asked: Asked,
    findings: Findings,
    progress: OnProgress,
) -> Totals:
    dataset = _checked_dataset(files, findings)
    if dataset is None or (manifest := dataset.manifest) is None:
        findings.skip_the_rest(f"{MANIFEST_NAME} is damaged")
        return Totals(None, 0, 0)
    require_agreement(
        manifest, {"format": stated.format_name, "dtype": stated.dtype, "eot": stated.eot}
    )
    named = _named_encoding(stated.encoding, tokenizer, manifest)
    _check_sums(manifest, dataset, findings)
    check_files(dataset, manifest, findings)
    totals = check_contents(dataset, manifest, asked.num_proc, findings, progress)
    check_kept(dataset, manifest, findings)
    if asked:
        check_sources(dataset, asked, named, findings, progress)
    findings.skip_the_rest(NOT_ASKED_FOR)
    return totals


def _checked_dataset(files: Files, findings: Findings) -> Dataset | None:
    """The dataset that the manifest describes; None if it describes none."""
    try:
        data = manifest_data(files)
        plain, manifest = Manifest.parsed(data, files.path_of(MANIFEST_NAME))
        if plain.get("sha256") != manifest_sha256_of(plain):
            message = "was changed since it was written: its own sha256 does not match"
            findings.failed("manifest", Failure(MANIFEST_NAME, message))
        elif data != laid_out(plain):
            message = "was changed since it was written: the same data, but other bytes"
            findings.failed("manifest", Failure(MANIFEST_NAME, message))
        findings.passed("manifest", f"{MANIFEST_NAME} has its own sha256")
        options, encoding = manifest.identity["options"], manifest.identity["encoding"]
        if type(encoding.get("max_token_value")) is not int:
            raise IntegrityError(f"{MANIFEST_NAME} does not say how large the vocabulary is")
        if not isinstance(options.get("seq_len") or 0, int):
            raise IntegrityError(f"{MANIFEST_NAME} has seq_len {options['seq_len']!r}")
        return dataset_of(files, manifest)
    except IntegrityError as error:
        findings.failed("manifest", located(error.message, files, MANIFEST_NAME))
        return None


def _named_encoding(
    encoding: EncodingId | None, tokenizer: NamedTokenizer | None, manifest: Manifest
) -> EncodingId | None:
    """The tokenizer that the user names, if it made the tokens. Raises ConfigError if it did
    not."""
    if encoding is None and tokenizer is None:
        return None
    made_with = made_with_of(manifest.identity["encoding"])
    if tokenizer is not None:
        return tokenizer.encoding_of(made_with).identity
    assert encoding is not None
    require_same(encoding, made_with)
    return encoding


def _check_sums(manifest: Manifest, dataset: Dataset, findings: Findings) -> None:
    has_boundaries = any(stream.has_boundaries for stream in dataset.streams.values())
    for line in contradictions(manifest, has_boundaries):
        findings.failed("conservation", Failure(MANIFEST_NAME, line))
    num_rows = counted(manifest.counts.num_rows, "row")
    findings.passed("conservation", f"{num_rows} = {manifest.counts.shown_sum}")
