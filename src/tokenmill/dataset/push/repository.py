"""A dataset repository on the Hub: create, list, upload, commit.

`huggingface_hub` makes the requests, with the user's endpoint and token (HF_ENDPOINT, HF_TOKEN),
and sends files over Xet, or as LFS objects if that does not work. `storage/retry.py` retries
transient failures. A commit names its parent, so that no other commit is overwritten.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tokenmill.dataset.push.refusals import changed, explained, not_private, require_token
from tokenmill.dataset.verify.scan import OnProgress
from tokenmill.errors import ConfigError
from tokenmill.storage.retry import Notice, Retry, status_of
from tokenmill.wording.plural import counted

_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
MAIN = "main"
_GROUP_FILES = 8  # uploaded at a time
MAX_XET_FAILURES = 2
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class PresentFile:
    """A file as the Hub lists it."""

    num_bytes: int
    git_oid: str
    sha256: str | None  # of an LFS file

    @property
    def digest(self) -> str:
        return f"sha256 {self.sha256}" if self.sha256 else f"git {self.git_oid}"


class Sendable(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def num_bytes(self) -> int: ...

    @property
    def sha256(self) -> str: ...

    @property
    def data(self) -> bytes | None: ...


class Repository:
    def __init__(self, repo: str, revision: str, notice: Notice) -> None:
        repo = repo.removeprefix("hf://").removeprefix("datasets/")
        if not _NAME.fullmatch(repo):
            raise ConfigError(
                f"{repo!r} does not name a repository on the Hub",
                hint="OWNER/NAME, where OWNER is you or an organisation: `hf auth whoami`",
            )
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.hf_api

        self._client: Any = huggingface_hub
        self._api: Any = huggingface_hub.HfApi()
        self._notice = notice
        self._retry = Retry(notice)
        self._num_xet_failures = 0
        self._operations: dict[str, Any] = {}
        self.repo = repo
        self.revision = revision
        require_token(repo, self._client)

    @property
    def url(self) -> str:
        return f"{self._client.constants.ENDPOINT}/datasets/{self.repo}"

    def make(self, private: bool) -> None:
        """Create the repository and the branch, unless they exist. A new branch starts as a copy of
        main."""
        errors = self._client.errors
        try:
            info = self._asked(lambda: self._api.repo_info(self.repo, repo_type="dataset"))
        except errors.RepositoryNotFoundError:
            with self._explained():
                self._ask(
                    lambda: self._api.create_repo(
                        self.repo, repo_type="dataset", private=private or None, exist_ok=True
                    )
                )
        else:
            if private and not info.private:
                raise not_private(self.repo, self.url)
        try:
            self._info()
        except errors.RevisionNotFoundError:
            with self._explained():
                self._ask(
                    lambda: self._api.create_branch(
                        self.repo, branch=self.revision, repo_type="dataset", exist_ok=True
                    )
                )

    def listed(self, commit: str | None = None) -> tuple[str, dict[str, PresentFile]]:
        """A commit, by default the newest of the branch, and its files."""
        with self._explained():
            at = commit or str(self._info().sha)
            entries = self._ask(
                lambda: list(
                    self._api.list_repo_tree(
                        self.repo, recursive=True, revision=at, repo_type="dataset"
                    )
                )
            )
        return at, {
            entry.path: PresentFile(
                entry.size, entry.blob_id, entry.lfs.sha256 if entry.lfs else None
            )
            for entry in entries
            if isinstance(entry, self._client.hf_api.RepoFile)
        }

    def is_copy_of_main(self, head: str) -> bool:
        """Whether nothing was committed to this branch yet, so that nothing there can be lost."""
        if self.revision == MAIN:
            return False
        with self._explained():
            info = self._ask(lambda: self._api.repo_info(self.repo, repo_type="dataset"))
        return str(info.sha) == head

    def read(self, name: str, commit: str) -> bytes:
        """A small file."""
        url = self._client.hf_hub_url(self.repo, name, repo_type="dataset", revision=commit)

        def content() -> bytes:
            session = self._client.utils.get_session()
            headers = self._client.utils.build_hf_headers()
            response = session.get(url, headers=headers, follow_redirects=True)
            self._client.utils.hf_raise_for_status(response)
            return bytes(response.content)

        with self._explained():
            return self._ask(content)

    def upload(self, files: Sequence[Sendable], progress: OnProgress) -> None:
        """Upload the files into the Hub's storage. No reader sees them before the commit, and what
        is stored already is not sent."""
        total = sum(file.num_bytes for file in files)
        done = 0
        for start in range(0, len(files), _GROUP_FILES):
            group = files[start : start + _GROUP_FILES]
            progress(f"uploading, {start:,} of {counted(len(files), 'file')} sent", done, total)
            with self._explained():
                self._ask(lambda group=group: self._send(group))  # type: ignore[misc]
            done += sum(file.num_bytes for file in group)

    def commit(self, parent: str, files: Sequence[Sendable], gone: Sequence[str]) -> str:
        """Commit these files, which are uploaded, and remove those in `gone`."""
        client = self._client
        operations = [self._operations[file.name] for file in files]
        operations += [client.CommitOperationDelete(path_in_repo=name) for name in gone]
        message = f"tokenmill push: {counted(len(files), 'file')}"
        num_tries = 0

        def made() -> str:
            nonlocal num_tries
            num_tries += 1
            try:
                info = self._api.create_commit(
                    self.repo,
                    operations=operations,
                    commit_message=message,
                    repo_type="dataset",
                    revision=self.revision,
                    parent_commit=parent,
                )
            except Exception as error:
                if num_tries > 1 and status_of(error) == 412:
                    # The first attempt succeeded and its answer was lost. If it was somebody else's
                    # commit, comparing the files will show that.
                    return str(self._info().sha)
                raise
            return str(info.oid)

        with self._explained():
            return self._ask(made)

    def _send(self, files: Sequence[Sendable]) -> None:
        for file in files:
            source = file.path if file.data is None else file.data
            self._operations[file.name] = self._client.CommitOperationAdd(
                path_in_repo=file.name, path_or_fileobj=source
            )
        try:
            with self._with_xet_fallback():
                self._api.preupload_lfs_files(
                    self.repo,
                    additions=[self._operations[file.name] for file in files],
                    repo_type="dataset",
                    revision=self.revision,
                    free_memory=False,
                )
        except RuntimeError as error:  # it has only the name of the file
            raise error.__cause__ or error from None
        for file in files:
            info = self._operations[file.name].upload_info
            if info.is_hashed and info.sha256.hex() != file.sha256:
                raise changed(file.path)

    @contextlib.contextmanager
    def _with_xet_fallback(self) -> Iterator[None]:
        """The client uses Xet if it is installed, even if the server does not support it, as a
        mirror may not. After failures files are sent as LFS objects, which every Hub accepts."""
        constants = self._client.constants
        was_off = constants.HF_HUB_DISABLE_XET
        is_off = was_off or self._num_xet_failures >= MAX_XET_FAILURES
        constants.HF_HUB_DISABLE_XET = is_off
        try:
            yield
        except Exception as error:
            if not is_off and status_of(error) is None:  # not the Hub's own answer
                self._num_xet_failures += 1
                if self._num_xet_failures == MAX_XET_FAILURES:
                    self._notice("Xet does not work here; sending over plain HTTP from now on")
            raise
        finally:
            constants.HF_HUB_DISABLE_XET = was_off

    def _info(self) -> Any:
        return self._asked(
            lambda: self._api.repo_info(self.repo, revision=self.revision, repo_type="dataset")
        )

    def _ask(self, request: Callable[[], Result]) -> Result:
        return self._retry.result_of(request)

    def _asked(self, request: Callable[[], Result]) -> Result:
        """The result; if something does not exist, the client's own error is raised."""
        errors = self._client.errors
        missing = (errors.RepositoryNotFoundError, errors.RevisionNotFoundError)
        with self._explained(passing=missing):
            return self._ask(request)

    def _explained(
        self, passing: tuple[type[BaseException], ...] = ()
    ) -> contextlib.AbstractContextManager[None]:
        return explained(self.repo, self._client, passing)
