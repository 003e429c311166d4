"""The check against the sources: locates inputs and tokenizer, compares, reports."""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass

from tokenmill.dataset.dataset import Dataset
from tokenmill.dataset.manifest import MANIFEST_NAME, Manifest
from tokenmill.dataset.modified_inputs import ModifiedInputs
from tokenmill.dataset.verify.checks import Failure, Findings
from tokenmill.dataset.verify.comparison import Comparison
from tokenmill.dataset.verify.document_index import DocumentIndex
from tokenmill.dataset.verify.kept_check import KeptComparison
from tokenmill.dataset.verify.reencoding import Reencoder, identity_of_tokenizer
from tokenmill.dataset.verify.scan import OnProgress, size_of
from tokenmill.dataset.verify.source_corpus import CHANGED, Corpus, NotAtHand, corpus_of
from tokenmill.encodings import EncodingId
from tokenmill.errors import InputError, IntegrityError, NetworkError
from tokenmill.formats import DatasetFiles
from tokenmill.wording.plural import counted

NOT_ASKED_FOR = "not asked for: --sample 100 or --full"
_COUNTS = ("num_rows", "num_written", "num_filtered", "num_empty", "num_null", "num_quarantined")


@dataclass(frozen=True, slots=True)
class Asked:
    """How much to encode again, and where the inputs are now (empty: at their old paths)."""

    sample: int
    full: bool
    sources: tuple[str, ...]
    num_proc: int

    def __bool__(self) -> bool:
        return bool(self.is_to_encode or self.sources)

    @property
    def is_to_encode(self) -> bool:
        return bool(self.sample or self.full)


def check_sources(
    dataset: Dataset,
    asked: Asked,
    named: EncodingId | None,
    findings: Findings,
    progress: OnProgress,
) -> None:
    """`named` is the tokenizer, if the user names its file."""
    manifest = dataset.manifest
    assert manifest is not None, "foreign shards have no sources"
    try:
        corpus = corpus_of(dataset.files, manifest, asked.sources)
        again = _read_again(dataset, manifest, corpus, asked)
        _check_inputs(manifest, corpus, again, findings)
        if not asked.is_to_encode:
            findings.skipped("sources", NOT_ASKED_FOR)
            return
        _require_room_for_documents(dataset.files, manifest, corpus)
        encoding = identity_of_tokenizer(manifest, named)
        where = DocumentIndex(dataset, manifest, corpus)
        with concurrent.futures.ThreadPoolExecutor(asked.num_proc) as pool:
            encoder = Reencoder(encoding, manifest.identity, pool)
            kept = None
            if manifest.identity["options"].get("keep") is not None:
                kept = KeptComparison(dataset.files, manifest)
            found = Comparison(where, corpus, encoder, progress, kept)
            if asked.full:
                found.all()
            else:
                found.sample(asked.sample)
    except NotAtHand as reason:
        _report_unable(asked, str(reason), reason.hint, findings)
    except (InputError, IntegrityError) as error:
        _report_unable(asked, error.message, error.hint, findings)
    except NetworkError as error:
        if not findings.num_failures:
            raise
        _report_unable(asked, error.message, error.hint, findings)  # report the other faults too
    else:
        _report(found, manifest, encoder, findings)


def _report_unable(asked: Asked, reason: str, hint: str | None, findings: Findings) -> None:
    findings.unable("inputs", reason, hint)
    if asked.is_to_encode:
        findings.unable("sources", reason, hint)
    else:
        findings.skipped("sources", NOT_ASKED_FOR)


def _require_room_for_documents(files: DatasetFiles, manifest: Manifest, corpus: Corpus) -> None:
    """Raise NotAtHand for an impossible number of documents: it decides how much memory is needed,
    and may be forged. A document without tokens takes no byte of a shard, but a row."""
    sizes = [size_of(files, file.name) for file in manifest.files]
    num_bytes = sum(size for size in sizes if isinstance(size, int))
    num_rows = corpus.num_rows
    if num_rows is None:  # a row takes a byte, its line's end
        num_rows = sum(source.num_bytes for source in corpus.plan.inputs)
    num_documents = sum(map(sum, manifest.slice_documents.values()))
    if num_documents > max(num_bytes, num_rows):
        raise NotAtHand(
            f"{counted(num_documents, 'document')} do not fit into {counted(num_bytes, 'byte')}, "
            f"nor come from {counted(num_rows, 'row')}"
        )


def _read_again(dataset: Dataset, manifest: Manifest, corpus: Corpus, asked: Asked) -> str:
    """Read inputs again that were modified since; what to say of it. Raises NotAtHand if one has
    changed."""
    path = dataset.files.path_of(MANIFEST_NAME)
    modified = ModifiedInputs.of(manifest, path, corpus.plan.inputs)
    if not modified.inputs:
        return ""
    if changes := modified.changes(lambda: corpus.plan, corpus.config, asked.num_proc):
        more = f", and {len(changes) - 1:,} more" if len(changes) > 1 else ""
        raise NotAtHand(f"{changes[0]}{more}", CHANGED)
    return f" ({modified}: read again)"


def _check_inputs(manifest: Manifest, corpus: Corpus, again: str, findings: Findings) -> None:
    num_rows, said = corpus.num_rows, manifest.counts.num_rows
    if num_rows not in (None, said):
        message = f"accounts for {counted(said, 'row')}, but the inputs have {num_rows:,}"
        findings.failed("inputs", Failure(MANIFEST_NAME, message))
    count = len(corpus.plan.inputs)
    rows = f", {counted(num_rows, 'row')}" if num_rows is not None else ""
    findings.passed("inputs", f"{counted(count, 'file')}, unchanged{again}{rows}")


def _report(found: Comparison, manifest: Manifest, encoder: Reencoder, findings: Findings) -> None:
    for failure in found.failures:
        findings.failed("sources", failure)
    if found.counts is not None:
        for name in _COUNTS:
            here, said = getattr(found.counts, name), getattr(manifest.counts, name)
            if here != said:
                message = f"says {name} = {said:,}, but the inputs come to {here:,}"
                findings.failed("inputs", Failure(MANIFEST_NAME, message))
    if found.unreadable is not None:
        findings.unable("sources", found.unreadable)
        return
    if not found.num_documents:
        findings.unable("sources", "no document was compared: " + found.why_none)
        return
    by_engine = encoder.num_by_engine
    but = f" ({by_engine:,} by the engine: {encoder.name} failed)" if by_engine else ""
    documents = counted(found.num_documents, "document")
    what = f"{documents} encoded again with {encoder.name}{but}, all the same"
    if found.num_in_tail:
        what += f"; {found.num_in_tail:,} more are in the tail that was left out"
    findings.passed("sources", what)
