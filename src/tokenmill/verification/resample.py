"""The check against the sources: finds what is needed for it, and says what it came to."""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass

from tokenmill.dataset import Dataset
from tokenmill.encodings import EncodingId
from tokenmill.errors import InputError, IntegrityError
from tokenmill.manifest import MANIFEST_NAME, Manifest
from tokenmill.plural import counted
from tokenmill.verification.comparison import Comparison
from tokenmill.verification.look import Progress, size_of
from tokenmill.verification.reencoding import Reencoder, identity_of_tokenizer
from tokenmill.verification.report import Failure, Findings
from tokenmill.verification.sources import Corpus, NotAtHand, corpus_of
from tokenmill.verification.whereabouts import Whereabouts

_COUNTS = ("num_rows", "num_written", "num_empty", "num_null", "num_quarantined")


@dataclass(frozen=True, slots=True)
class Asked:
    """How much is to be encoded again, and where the inputs are now (empty: where they were)."""

    sample: int
    full: bool
    sources: tuple[str, ...]
    encoding: EncodingId | None  # where the tokenizer is, if it does not come with the package
    num_proc: int

    def __bool__(self) -> bool:
        return bool(self.sample or self.full or self.sources)


def check_sources(
    dataset: Dataset, manifest: Manifest, asked: Asked, findings: Findings, progress: Progress
) -> None:
    try:
        corpus = corpus_of(dataset.folder, manifest, asked.sources)
        _check_inputs(manifest, corpus, findings)
        if not asked.sample and not asked.full:
            findings.skipped("sources", "not asked for: --sample 100 or --full")
            return
        _require_room_for_documents(dataset.folder, manifest)
        encoding = identity_of_tokenizer(manifest, asked.encoding)
        where = Whereabouts(dataset, manifest, corpus)
        with concurrent.futures.ThreadPoolExecutor(asked.num_proc) as pool:
            encoder = Reencoder(encoding, manifest.identity["options"]["eot"], pool)
            found = _compared(Comparison(where, corpus, encoder, progress), asked)
            if found.failures and where.is_assumed and where.make_sure(encoding):
                found = _compared(Comparison(where, corpus, encoder, progress), asked)
    except NotAtHand as reason:
        for name in ("inputs", "sources"):
            findings.skip_if_new(name, str(reason))
    except (InputError, IntegrityError) as error:
        findings.skipped("sources", error.message)
    else:
        _say(found, manifest, encoder, findings)


def _require_room_for_documents(folder: str, manifest: Manifest) -> None:
    """Memory is taken by the number of documents, which anyone may have written there."""
    sizes = [size_of(folder, file.name) for file in manifest.files]
    num_bytes = sum(size for size in sizes if isinstance(size, int))
    num_documents = sum(map(sum, manifest.slice_documents.values()))
    if num_documents > num_bytes:
        raise NotAtHand(f"{num_documents:,} documents do not fit into {counted(num_bytes, 'byte')}")


def _compared(comparison: Comparison, asked: Asked) -> Comparison:
    if asked.full:
        comparison.all()
    else:
        comparison.sample(asked.sample)
    return comparison


def _check_inputs(manifest: Manifest, corpus: Corpus, findings: Findings) -> None:
    num_rows, said = corpus.num_rows, manifest.counts.num_rows
    if num_rows not in (None, said):
        message = f"accounts for {counted(said, 'row')}, but the inputs have {num_rows:,}"
        findings.failed("inputs", Failure(MANIFEST_NAME, message))
    count = len(corpus.plan.inputs)
    rows = f", {counted(num_rows, 'row')}" if num_rows is not None else ""
    findings.passed("inputs", f"{counted(count, 'file')}, unchanged{rows}")


def _say(found: Comparison, manifest: Manifest, encoder: Reencoder, findings: Findings) -> None:
    for failure in found.failures:
        findings.failed("sources", failure)
    if found.counts is not None:
        for name in _COUNTS:
            here, said = getattr(found.counts, name), getattr(manifest.counts, name)
            if here != said:
                message = f"says {name} = {said:,}, but the inputs come to {here:,}"
                findings.failed("inputs", Failure(MANIFEST_NAME, message))
    if found.unreadable is not None:
        findings.skipped("sources", found.unreadable)
        return
    by_engine = encoder.num_by_engine
    but = f" ({by_engine:,} by the engine: {encoder.name} failed)" if by_engine else ""
    what = f"{counted(found.num_documents, 'document')} encoded again with {encoder.name}{but}"
    findings.passed("sources", f"{what}, all the same")
