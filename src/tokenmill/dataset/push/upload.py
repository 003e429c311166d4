"""`push`: a dataset goes to a repository on the Hub, whole or not at all.

    verify       as `tokenmill verify` does; an unfinished or damaged dataset is not sent
    compare      with what the repository holds; another dataset is replaced only with --overwrite
    upload       what is missing, into the Hub's storage, where no reader sees it yet
    commit       all of it at once, the manifest last
    compare      sizes and hashes, as the Hub lists them, with the manifest

`huggingface_hub` uploads: over Xet or as LFS objects, and only what the Hub does not store yet, so
the same command resumes an interrupted push. Its `upload_large_folder` resumes, too, but commits as
it goes, so half a dataset would be visible.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenmill.dataset.dataset import require_no_datasets_inside
from tokenmill.dataset.files import files_at
from tokenmill.dataset.manifest import MANIFEST_NAME, Manifest, OutputFile, manifest_data
from tokenmill.dataset.push.card import CARD_NAME, MAIN, card_of, is_untouched
from tokenmill.dataset.verify import verify
from tokenmill.dataset.verify.scan import OnProgress
from tokenmill.errors import (
    ConfigError,
    ConflictError,
    IntegrityError,
    NetworkError,
    OutputError,
    TokenmillError,
)
from tokenmill.formats import Files
from tokenmill.storage.hashing import PieceHash
from tokenmill.storage.hub import DATASET, Hub, HubFile
from tokenmill.storage.retry import Notice, is_network_error, message_of, status_of
from tokenmill.storage.store import store_of
from tokenmill.wording.plural import counted

COMMIT_FILES = 500  # the Hub advises against thousands of files in one commit
_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_SHOWN_NAMES = 3
_ELSEWHERE = (
    "push to another repository, or to a branch: --revision NAME; or replace it: --overwrite"
)


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
    """A file and the hash that it must have on the Hub. `source` is its path, or its bytes."""

    name: str
    source: str | bytes
    num_bytes: int
    sha256: str

    def is_at(self, present: HubFile | None) -> bool:
        """Whether the Hub has this file with this content."""
        if present is None or present.num_bytes != self.num_bytes:
            return False
        if present.digest.startswith("sha256:"):
            return present.digest == f"sha256:{self.sha256}"
        return present.digest == self._git_digest

    @property
    def _git_digest(self) -> str:
        """The hash by which the Hub identifies a small file, which is not in LFS."""
        data = (
            self.source
            if isinstance(self.source, bytes)
            else store_of(self.source).read(self.source)
        )
        self.require_same(hashlib.sha256(data).hexdigest())
        return "git:" + hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    def require_same(self, sha256: str) -> None:
        if sha256 != self.sha256:
            raise _changed(self.name)


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
    if not store_of(folder).is_local:
        raise ConfigError(
            f"{folder} is not a local folder, and push reads local files",
            hint="copy it to a disk first, with the store's own client",
        )
    files = _dataset_files(folder)  # what is wrong here is said before a token is asked for
    with contextlib.closing(Hub(notice)) as hub:
        there = Repository(repo, revision, hub)
        data = manifest_data(files)
        manifest = Manifest.checked(data, files.path_of(MANIFEST_NAME))
        _require_whole(folder, progress)
        with _explained(there.name):
            there.make(private)
            head, present = there.listed()
            is_new = there.is_copy_of_main(head)
            has_own_card = not is_new and there.has_own_card(present)
            card = None if has_own_card else card_of(manifest, there.name, revision)
            wanted = _files(files, manifest, data, card)
            old = there.content(present[MANIFEST_NAME]) if MANIFEST_NAME in present else data
            if not (overwrite or is_new):
                _require_free(there.name, wanted, present, None if old == data else old)
            missing = [file for file in wanted if not file.is_at(present.get(file.name))]
            stale = _stale(old, wanted, present)
            if missing or stale:
                if not private:
                    _warn_of_paths(manifest, notice)
                progress(f"uploading {counted(len(missing), 'file')}", 0, 0)
                if old != data and len(missing) + len(stale) > COMMIT_FILES:
                    stale.insert(0, MANIFEST_NAME)  # until the new one is there
                head = there.send(missing, stale, head)
                _, present = there.listed(head)
            _require_same(there.name, wanted, present)
    return Pushed(
        there.name,
        revision,
        head,
        there.url,
        len(wanted),
        sum(file.num_bytes for file in wanted),
        len(missing),
        sum(file.num_bytes for file in missing),
        has_own_card,
    )


class Repository:
    """A branch of a dataset repository. Transient failures are retried; the client's other errors
    pass through."""

    def __init__(self, name: str, branch: str, hub: Hub) -> None:
        name = name.removeprefix("hf://").removeprefix("datasets/")
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} does not name a repository on the Hub",
                hint="OWNER/NAME, where OWNER is you or an organisation: `hf auth whoami`",
            )
        client = hub.client
        if hub.is_offline:
            raise NetworkError(
                f"HF_HUB_OFFLINE is set, so nothing can be sent to {name}",
                hint="unset HF_HUB_OFFLINE",
            )
        if client.get_token() is None:
            raise ConfigError(
                f"pushing to {name} needs a token of the Hub, and there is none",
                hint="`hf auth login`, or set HF_TOKEN; create a token with write access at "
                f"{client.constants.ENDPOINT}/settings/tokens",
            )
        self.name = name
        self.branch = branch
        self.url = f"{client.constants.ENDPOINT}/datasets/{name}"
        self._hub = hub
        self._api: Any = client.HfApi()
        self._named = {"repo_id": name, "repo_type": DATASET}

    def make(self, private: bool) -> None:
        """Create the repository and the branch, unless they exist. A new branch starts as a copy of
        main."""
        api, named, ask = self._api, self._named, self._hub.retry.result_of
        ask(lambda: api.create_repo(**named, private=private or None, exist_ok=True))
        if private and not ask(lambda: api.repo_info(**named)).private:
            raise ConflictError(
                f"{self.name} exists and is public, and you asked for a private one; nothing was "
                "sent",
                hint=f"make it private at {self.url}/settings, choose another name, or leave out "
                "--private",
            )
        try:
            self._hub.commit(self.name, self.branch)
        except self._hub.client.errors.RevisionNotFoundError:
            ask(lambda: api.create_branch(**named, branch=self.branch, exist_ok=True))

    def listed(self, commit: str | None = None) -> tuple[str, dict[str, HubFile]]:
        """A commit, by default the newest, and its files."""
        commit = commit or self._hub.commit(self.name, self.branch)
        return commit, {file.path: file for file in self._hub.tree(self.name, commit)}

    def is_copy_of_main(self, head: str) -> bool:
        """Whether nothing was committed to this branch yet, so that nothing there can be lost."""
        return self.branch != MAIN and self._hub.commit(self.name, MAIN) == head

    def has_own_card(self, present: Mapping[str, HubFile]) -> bool:
        """Whether somebody wrote or edited the card that is there."""
        return CARD_NAME in present and not is_untouched(self.content(present[CARD_NAME]))

    def content(self, file: HubFile) -> bytes:
        """A small file."""
        path = self._hub.fetch(file)
        return store_of(path).read(path)

    def send(self, files: Sequence[FileToPush], stale: Sequence[str], parent: str) -> str:
        """Upload these files, commit them, remove the stale ones, and return the commit. Thousands
        take several commits, in this order: the last file appears last."""
        client = self._hub.client
        added = [
            client.CommitOperationAdd(path_in_repo=file.name, path_or_fileobj=file.source)
            for file in files
        ]
        self._upload(added)
        for file, operation in zip(files, added, strict=True):
            file.require_same(operation.upload_info.sha256.hex())
        removed = [client.CommitOperationDelete(path_in_repo=name) for name in stale]
        operations = [*removed, *added]
        for start in range(0, len(operations), COMMIT_FILES):
            parent = self._commit(parent, operations[start : start + COMMIT_FILES])
        return parent

    def _upload(self, added: Sequence[Any]) -> None:
        """Upload into the Hub's storage, where no reader sees the files before the commit."""

        def request() -> None:
            try:
                self._api.preupload_lfs_files(
                    **self._named, additions=added, revision=self.branch, free_memory=False
                )
            except RuntimeError as error:  # it has only the name of the file
                raise error.__cause__ or error from None

        self._hub.answer(self.url, request)

    def _commit(self, parent: str, operations: Sequence[Any]) -> str:
        is_again = False

        def request() -> str:
            nonlocal is_again
            try:
                made = self._api.create_commit(
                    **self._named,
                    operations=operations,
                    commit_message=f"tokenmill push: {counted(len(operations), 'file')}",
                    revision=self.branch,
                    parent_commit=parent,
                )
                return str(made.oid)
            except Exception as error:
                if is_again and status_of(error) == 412:
                    # The first attempt succeeded and its answer was lost. If it was somebody else's
                    # commit, comparing the files will show that.
                    return self._hub.commit(self.name, self.branch)
                is_again = True
                raise

        return self._hub.retry.result_of(request)


def _dataset_files(folder: str) -> Files:
    """Raises ConfigError or IntegrityError for a folder that is not a dataset of ours."""
    files = files_at(folder)
    if not files.has(MANIFEST_NAME):
        require_no_datasets_inside(files)
        raise IntegrityError(
            f"{folder} was not written by tokenmill: it has no {MANIFEST_NAME}",
            hint=f"for foreign shards: tokenmill convert {folder} OUT --format F, then push OUT",
        )
    return files


def _require_whole(folder: str, progress: OnProgress) -> None:
    report = verify(folder, progress=progress)
    if not report.is_whole:
        first = report.failures[0]
        raise IntegrityError(
            f"{folder} is damaged, so nothing was sent: {first.place}: {first.message}",
            hint=f"tokenmill verify {folder} lists everything that is wrong",
        )


def _files(files: Files, manifest: Manifest, data: bytes, card: bytes | None) -> list[FileToPush]:
    """The files that belong on the Hub, the manifest last."""
    found = []
    for file in manifest.files:
        path = files.local_path(file.name)
        assert path is not None  # it is in a folder
        found.append(FileToPush(file.name, path, file.num_bytes, _sha256(files, file)))
    for name, content in ((CARD_NAME, card), (MANIFEST_NAME, data)):
        if content is not None:
            digest = hashlib.sha256(content).hexdigest()
            found.append(FileToPush(name, content, len(content), digest))
    return found


def _sha256(files: Files, file: OutputFile) -> str:
    """The sha256 of a whole file. The manifest has those of a large file's pieces; they are
    compared in the same pass."""
    if isinstance(file.sha256, str):
        return file.sha256
    whole, pieces = hashlib.sha256(), PieceHash()
    with files.in_order(file.name) as opened:
        while block := opened.read(1 << 20):
            whole.update(block)
            pieces.update(block)
    if pieces.digests != file.sha256:
        raise _changed(file.name)
    return whole.hexdigest()


def _changed(name: str) -> IntegrityError:
    return IntegrityError(
        f"{name} has changed since it was verified",
        hint="is something writing to the folder? Then run the same command again",
    )


def _warn_of_paths(manifest: Manifest, notice: Notice) -> None:
    if paths := [source.path for source in manifest.inputs if os.path.isabs(source.path)]:
        notice(
            f"{MANIFEST_NAME} contains the local paths of the inputs, such as {paths[0]}: "
            "everybody who can read the repository sees them"
        )


def _require_free(
    repo: str, wanted: Iterable[FileToPush], present: Mapping[str, HubFile], old: bytes | None
) -> None:
    """Raise ConflictError if something else has a name that the dataset needs."""
    if old is not None:
        what = _parsed(old)
        shown = f": {what!r}" if what else f", whose {MANIFEST_NAME} cannot be read"
        raise ConflictError(f"{repo} holds another dataset{shown}", hint=_ELSEWHERE)
    names = [
        file.name
        for file in wanted
        if file.name in present and file.name != CARD_NAME and not file.is_at(present[file.name])
    ]
    if names:
        shown = ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")
        raise ConflictError(
            f"{repo} holds {counted(len(names), 'other file')} of the same name: {shown}",
            hint=_ELSEWHERE,
        )


def _parsed(manifest: bytes) -> Manifest | None:
    with contextlib.suppress(IntegrityError):  # it may be anything
        return Manifest.parsed(manifest, MANIFEST_NAME)[1]
    return None


def _stale(old: bytes, wanted: Iterable[FileToPush], present: Mapping[str, HubFile]) -> list[str]:
    """Files of the replaced dataset that the new one does not have."""
    replaced = _parsed(old)
    kept = {file.name for file in wanted}
    names = [file.name for file in replaced.files] if replaced else []
    return [name for name in names if name in present and name not in kept]


def _require_same(repo: str, wanted: Iterable[FileToPush], present: Mapping[str, HubFile]) -> None:
    for file in wanted:
        found = present.get(file.name)
        if not file.is_at(found):
            got = "nothing" if found is None else f"{found.num_bytes:,} bytes, {found.digest}"
            raise IntegrityError(
                f"{repo} has {got} as {file.name}, expected {file.num_bytes:,} bytes, "
                f"sha256:{file.sha256}",
                hint="run the same command again; do not train on what is there until then",
            )


@contextlib.contextmanager
def _explained(repo: str) -> Iterator[None]:
    """Turn the client's errors into ours."""
    try:
        yield
    except TokenmillError:
        raise
    except Exception as error:
        status = status_of(error)
        said = getattr(error, "server_message", None) or message_of(error)
        if status == 401:
            raise OutputError(
                f"the Hub does not know this token: {said}",
                hint="has it expired? `hf auth login`, or set HF_TOKEN again",
            ) from None
        if status == 403:
            raise OutputError(
                f"this token may not write {repo}: {said}",
                hint="OWNER is you or an organisation that `hf auth whoami` names, and the "
                "token's role must be `write`: `hf auth login`, or set HF_TOKEN",
            ) from None
        if status in (409, 412):
            raise ConflictError(
                f"{repo} has changed while this was pushing: {said}",
                hint="run the same command again: it compares with what is there now",
            ) from None
        if status is not None and status < 500 and status != 429:
            raise OutputError(f"the Hub refused this for {repo}: {said}") from None
        if not is_network_error(error):
            raise
        raise NetworkError(
            f"cannot reach {repo} on the Hub: {said}",
            hint="run the same command again: what was sent is not sent again",
        ) from None
