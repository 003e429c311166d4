"""Checks the kept rows (--keep): one for each document, in the same order.

Each row has the number of tokens of its document. Compared with the documents in the shards, these
lengths show rows that are missing, extra or in another order, without the sources. With the
sources, the kept values of documents that are encoded again are compared too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tokenmill.arrays import numbers_of
from tokenmill.assemble.sidecars import FOLDER, sidecar_name
from tokenmill.config.kinds import OWN_COLUMNS, columns_in
from tokenmill.dataset.dataset import Dataset
from tokenmill.dataset.kept_rows import KeptRows, is_sidecar, sidecars_of
from tokenmill.dataset.manifest import MANIFEST_NAME, Manifest
from tokenmill.dataset.stream import Stream
from tokenmill.dataset.verify.checks import Failure, Findings
from tokenmill.dataset.verify.contents import located
from tokenmill.encode.kept_file import shown_name
from tokenmill.encode.record import SPLITS
from tokenmill.errors import IntegrityError
from tokenmill.formats import Files
from tokenmill.wording.plural import counted

Lengths = npt.NDArray[np.int64]


def check_kept(dataset: Dataset, manifest: Manifest, findings: Findings) -> None:
    """Does nothing for a dataset without --keep."""
    keep = manifest.identity["options"].get("keep")
    listed = [file for file in manifest.files if is_sidecar(file)]
    if keep is None and not listed:
        return
    if not isinstance(keep, str):
        message = f"lists {listed[0].name}, but its options have no --keep"
        findings.failed("kept", Failure(MANIFEST_NAME, message))
        return
    for failure in _of_names(dataset.files, manifest):
        findings.failed("kept", failure)
    try:
        lengths = {split: _lengths(dataset.files, manifest, split, findings) for split in SPLITS}
        for failure in _of_counts(manifest, lengths):
            findings.failed("kept", failure)
        if not findings.has_failed("kept"):
            for failure in _of_order(dataset, manifest, lengths):
                findings.failed("kept", failure)
    except IntegrityError as error:
        findings.failed("kept", located(error.message, dataset.files, FOLDER))
    num_rows = counted(sum(file.num_documents or 0 for file in listed), "row")
    findings.passed("kept", f"{num_rows} in {counted(len(listed), 'sidecar')}, in their order")


def _of_names(files: Files, manifest: Manifest) -> Iterator[Failure]:
    listed = set()
    for split in SPLITS:
        for number, file in enumerate(sidecars_of(manifest, split)):
            listed.add(file.name)
            if file.name != sidecar_name(split, number):
                message = f"lists {file.name}, but not {sidecar_name(split, number)}"
                yield Failure(MANIFEST_NAME, message)
    for name in files.names():
        if re.match(rf"{FOLDER}/[^.]", name) and name not in listed:
            yield Failure(name, "is not of this dataset")


def _lengths(files: Files, manifest: Manifest, split: str, findings: Findings) -> Lengths:
    """The number of tokens of each document by the sidecars, whose columns and files are
    checked."""
    import pyarrow.compute as pc

    columns = [*OWN_COLUMNS, *columns_in(manifest.identity["options"]["keep"])]
    known = {shown_name(source.path) for source in manifest.inputs}
    found = [np.empty(0, np.int64)]
    for name, table in KeptRows(files, sidecars_of(manifest, split)).groups():
        if table.schema.names != columns:
            raise IntegrityError(
                f"{files.path_of(name)}: has the columns {', '.join(table.schema.names)}, not "
                f"{', '.join(columns)}"
            )
        if others := set(pc.unique(table.column("_file")).to_pylist()) - known:
            message = f"names {min(map(str, others))}, which is not an input"
            findings.failed("kept", Failure(name, message))
        tokens = table.column("_tokens").combine_chunks()
        if str(tokens.type) != "uint32" or tokens.null_count:
            raise IntegrityError(f"{files.path_of(name)}: _tokens is not a number of tokens")
        found.append(numbers_of(tokens).astype(np.int64))
    return np.concatenate(found)


def _of_counts(manifest: Manifest, lengths: dict[str, Lengths]) -> Iterator[Failure]:
    if manifest.one_stream:
        total, written = sum(map(len, lengths.values())), manifest.counts.num_written
        if total - written not in (0, 1):  # one more: a document that is cut in two has two rows
            what = f"{counted(written, 'document')} written, but {total:,} are kept"
            yield Failure(FOLDER, what)
        return
    for split, own in lengths.items():
        totals = manifest.splits.get(split)
        said = totals.num_documents if totals else 0
        if len(own) != said:
            what = f"{split} has {counted(said, 'document')}, but {len(own):,} are kept"
            yield Failure(FOLDER, what)


def _of_order(
    dataset: Dataset, manifest: Manifest, lengths: dict[str, Lengths]
) -> Iterator[Failure]:
    totals = manifest.splits
    expected = {s: t.num_tokens + t.num_tail_tokens for s, t in totals.items()}
    if manifest.one_stream:  # a document that is cut in two has the same row twice
        before, after = (lengths[split] for split in manifest.one_stream)
        num_beyond = int(before.sum()) - expected.get(manifest.one_stream[0], 0)
        if num_beyond and len(before) and len(after):
            before[-1] -= num_beyond
            after[0] = num_beyond
    for split, own in lengths.items():
        num_tokens = expected.get(split, 0)
        if int(own.sum()) != num_tokens:
            what = f"{split} has {counted(num_tokens, 'token')}, its kept documents {own.sum():,}"
            yield Failure(FOLDER, what)
        elif split in dataset.streams:
            yield from _first_difference(dataset.streams[split], own)


def _first_difference(stream: Stream, own: Lengths) -> Iterator[Failure]:
    """Where documents in the shards have other lengths."""
    # A tail may have been left out: documents end where the stream does.
    ends, at, start = np.minimum(np.cumsum(own), stream.num_tokens), 0, 0
    for documents in stream.documents():
        if documents.lengths is None:
            return
        found = start + np.cumsum(documents.lengths, dtype=np.int64)
        expected = ends[at : at + len(found)]
        is_other = np.ones(len(found), np.bool_)
        is_other[: len(expected)] = found[: len(expected)] != expected
        if is_other.any():
            number = at + int(np.argmax(is_other))
            said = f"{own[number]:,}" if number < len(own) else "no"
            length = documents.lengths[number - at]
            what = f"{length:,} tokens in the shards, {said} in its kept row"
            yield Failure(FOLDER, f"{stream.split}: {what}", document=number)
            return
        at, start = at + len(found), int(found[-1])
