"""`push`: read this first. A dataset goes to a repository on the Hub, whole or not at all.

    verify       as `tokenmill verify` does; an unfinished or damaged dataset is not sent
    compare      with what the repository holds; another dataset is replaced only with --overwrite
    upload       what is missing, into the Hub's storage, where no reader sees it yet
    commit       all of it at once, the manifest last
    compare      sizes and hashes, as the Hub lists them, with the manifest

An interrupted push has uploaded some files. The Hub keeps them by hash, so the same command sends
only the others. `huggingface_hub`'s `upload_large_folder` also resumes, but commits as it goes, so
that half a dataset is visible, and stores its state in the dataset's folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tokenmill.dataset.dataset import require_no_datasets_inside
from tokenmill.dataset.files import files_at
from tokenmill.dataset.manifest import MANIFEST_NAME, Manifest, OutputFile, manifest_data
from tokenmill.dataset.push.card import CARD_NAME, card_of, is_untouched
from tokenmill.dataset.push.refusals import changed
from tokenmill.dataset.push.repository import MAIN, PresentFile, Repository
from tokenmill.dataset.verify import verify
from tokenmill.dataset.verify.scan import OnProgress
from tokenmill.errors import ConfigError, ConflictError, IntegrityError
from tokenmill.formats import DatasetFiles
from tokenmill.storage.hashing import PieceHash
from tokenmill.storage.retry import Notice
from tokenmill.storage.store import store_of
from tokenmill.wording.plural import counted

COMMIT_FILES = 500  # the Hub advises against thousands of files in one commit
_SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class Pushed:
    """What is on the Hub now. `num_sent` files were missing; `num_files` include manifest and
    card."""

    repo: str
    revision: str
    commit: str
    url: str
    num_files: int
    num_bytes: int
    num_sent: int
    sent_bytes: int
    has_own_card: bool  # the user's README.md was kept


@dataclass(frozen=True, slots=True)
class FileToPush:
    """A file and the hash that it must have on the Hub. `data` is None for a file on disk."""

    name: str
    path: str
    num_bytes: int
    sha256: str
    data: bytes | None = None

    def is_at(self, present: PresentFile | None) -> bool:
        """Whether the Hub has this file with this content."""
        if present is None or present.num_bytes != self.num_bytes:
            return False
        if present.sha256 is not None:
            return present.sha256 == self.sha256
        return present.git_oid == self.git_oid

    @property
    def git_oid(self) -> str:
        """The hash by which the Hub identifies a small file, which is not in LFS."""
        data = self.content
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    @property
    def content(self) -> bytes:
        if self.data is not None:
            return self.data
        with open(self.path, "rb") as file:
            data = file.read()
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise changed(self.name)
        return data


def push(
    folder: str,
    repo: str,
    *,
    revision: str = MAIN,
    private: bool = False,
    overwrite: bool = False,
    notice: Notice = lambda message: None,
    progress: OnProgress = lambda what, done, total: None,
) -> Pushed:
    """Upload the dataset in `folder`, or what is missing of it after an interruption."""
    if not store_of(folder).takes_disk_space:
        raise ConfigError(
            f"{folder} is not a local folder, and push reads local files",
            hint="copy it to a disk first, with the store's own client",
        )
    _dataset_files(folder)  # what is wrong here is said before the Hub is asked anything
    repository = Repository(repo, revision, notice)
    repo = repository.repo
    dataset, manifest, data = _whole_dataset(folder, progress)
    repository.make(private)
    head, present = repository.listed()
    card = card_of(manifest, repo, revision)
    if repository.is_copy_of_main(head):
        overwrite, has_own_card = True, False
    else:
        has_own_card = CARD_NAME in present and not is_untouched(repository.read(CARD_NAME, head))
    wanted = _files(dataset, manifest, data, None if has_own_card else card)
    old = repository.read(MANIFEST_NAME, head) if MANIFEST_NAME in present else data
    if not overwrite:
        _require_free(repo, wanted, present, None if old == data else old)
    missing = [file for file in wanted if not file.is_at(present.get(file.name))]
    stale = _stale(old, wanted, present)
    if missing or stale:
        if not private:
            _warn_of_paths(manifest, notice)
        repository.upload(missing, progress)
        head = _committed(repository, head, missing, stale, old != data)
        head, present = repository.listed(head)
    _require_same(repo, wanted, present)
    return Pushed(
        repo,
        revision,
        head,
        repository.url,
        len(wanted),
        sum(file.num_bytes for file in wanted),
        len(missing),
        sum(file.num_bytes for file in missing),
        has_own_card,
    )


def _dataset_files(folder: str) -> DatasetFiles:
    """Raises ConfigError or IntegrityError for a folder that is not a dataset of ours."""
    files = files_at(folder)
    if not files.has(MANIFEST_NAME):
        require_no_datasets_inside(files)
        raise IntegrityError(
            f"{folder} was not written by tokenmill: it has no {MANIFEST_NAME}",
            hint=f"for foreign shards: tokenmill convert {folder} OUT --format F, then push OUT",
        )
    return files


def _whole_dataset(folder: str, progress: OnProgress) -> tuple[DatasetFiles, Manifest, bytes]:
    """The dataset, its manifest and that file's bytes, once everything in it is verified."""
    files = _dataset_files(folder)
    data = manifest_data(files)
    manifest = Manifest.checked(data, files.path_of(MANIFEST_NAME))
    report = verify(folder, progress=progress)
    if not report.is_whole:
        first = report.failures[0]
        raise IntegrityError(
            f"{folder} is damaged, so nothing was sent: {first.place}: {first.message}",
            hint=f"tokenmill verify {folder} lists everything that is wrong",
        )
    return files, manifest, data


def _files(
    dataset: DatasetFiles, manifest: Manifest, data: bytes, card: bytes | None
) -> list[FileToPush]:
    """The files that belong on the Hub, the manifest last."""
    found = [
        FileToPush(file.name, _path(dataset, file.name), file.num_bytes, _sha256(dataset, file))
        for file in manifest.files
    ]
    for name, content in ((CARD_NAME, card), (MANIFEST_NAME, data)):
        if content is not None:
            digest = hashlib.sha256(content).hexdigest()
            found.append(FileToPush(name, "", len(content), digest, content))
    return found


def _path(dataset: DatasetFiles, name: str) -> str:
    path = dataset.local_path(name)
    assert path is not None  # it is in a folder
    return path


def _sha256(dataset: DatasetFiles, file: OutputFile) -> str:
    """The sha256 of a whole file. The manifest has those of a large file's pieces; they are
    compared in the same pass."""
    if isinstance(file.sha256, str):
        return file.sha256
    whole, pieces = hashlib.sha256(), PieceHash()
    with dataset.in_order(file.name) as opened:
        while block := opened.read(1 << 20):
            whole.update(block)
            pieces.update(block)
    if pieces.digests != file.sha256:
        raise changed(file.name)
    return whole.hexdigest()


def _warn_of_paths(manifest: Manifest, notice: Notice) -> None:
    if paths := [source.path for source in manifest.inputs if os.path.isabs(source.path)]:
        notice(
            f"{MANIFEST_NAME} contains the local paths of the inputs, such as {paths[0]}: "
            "everybody who can read the repository sees them"
        )


def _require_free(
    repo: str,
    wanted: Iterable[FileToPush],
    present: Mapping[str, PresentFile],
    old: bytes | None,
) -> None:
    """Raise ConflictError if something else has a name that the dataset needs."""
    if old is not None:
        what = _parsed(old)
        shown = f": {what!r}" if what else f", whose {MANIFEST_NAME} cannot be read"
        raise ConflictError(f"{repo} holds another dataset{shown}", hint=_WHERE)
    names = [
        file.name
        for file in wanted
        if file.name in present and file.name != CARD_NAME and not file.is_at(present[file.name])
    ]
    if names:
        shown = ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")
        raise ConflictError(
            f"{repo} holds {counted(len(names), 'other file')} of the same name: {shown}",
            hint=_WHERE,
        )


_WHERE = "push to another repository, or to a branch: --revision NAME; or replace it: --overwrite"


def _parsed(manifest: bytes) -> Manifest | None:
    with contextlib.suppress(IntegrityError):  # it may be anything
        return Manifest.parsed(manifest, MANIFEST_NAME)[1]
    return None


def _stale(
    old: bytes, wanted: Iterable[FileToPush], present: Mapping[str, PresentFile]
) -> list[str]:
    """Files of the replaced dataset that the new one does not have."""
    replaced = _parsed(old)
    kept = {file.name for file in wanted}
    names = [file.name for file in replaced.files] if replaced else []
    return [name for name in names if name in present and name not in kept]


def _committed(
    repository: Repository,
    head: str,
    files: Sequence[FileToPush],
    stale: Sequence[str],
    replaces: bool,
) -> str:
    """Commit these files and return the commit. Thousands take several commits: the manifest is in
    the last one, and the first one removes the manifest of a replaced dataset."""
    batches = [files[i : i + COMMIT_FILES] for i in range(0, len(files), COMMIT_FILES)] or [()]
    for number, batch in enumerate(batches):
        gone = list(stale) if number == 0 else []
        if number == 0 and replaces and len(batches) > 1:
            gone.append(MANIFEST_NAME)
        head = repository.commit(head, batch, gone)
    return head


def _require_same(
    repo: str, wanted: Iterable[FileToPush], present: Mapping[str, PresentFile]
) -> None:
    for file in wanted:
        if not file.is_at(present.get(file.name)):
            found = present.get(file.name)
            got = "nothing" if found is None else f"{found.num_bytes:,} bytes, {found.digest}"
            raise IntegrityError(
                f"{repo} has {got} as {file.name}, expected {file.num_bytes:,} bytes, "
                f"sha256 {file.sha256}",
                hint="run the same command again; do not train on what is there until then",
            )
