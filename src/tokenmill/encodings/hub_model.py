"""A tokenizer by the name of its model on the Hugging Face Hub: OWNER/NAME[@REVISION].

Only the tokenizer's files are fetched, by `huggingface_hub` into its own cache: they are small, and
once they are there no network is needed. It silently retries an unanswered request for 23 seconds,
so we first ask whether the Hub answers, with our own retries (10 seconds) and a message for each.
It checks sizes only, so the hashes in its cache's file names are compared here. A run keeps the
sha256 of the vocabulary and the commit; its workers read the cached file and never ask the Hub.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.encodings.identity import EncodingId
from tokenmill.encodings.vocab_merges import BESIDE
from tokenmill.errors import ConfigError, IntegrityError, NetworkError
from tokenmill.storage.retry import Retry, is_network_error, message_of, say, status_of

# The first that a model has is its vocabulary.
VOCABULARIES = ("tokenizer.json", "tekken.json", "tokenizer.model", "qwen.tiktoken", "vocab.json")
_BESIDE = ("tokenizer_config.json",)  # names the special tokens
_BESIDE_OF = {"vocab.json": ("merges.txt", *BESIDE)}
_NAME = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:@([\w./-]+))?")
_COMMIT = re.compile(r"/snapshots/([0-9a-f]{40})/")
# The logger of huggingface_hub's retries; the library itself sets the level of the one above it.
_REQUESTS = "huggingface_hub.utils._http"
_CONTACT_SECONDS = 5.0  # for one request; the Hub takes 0.1
_NOT_REPOSITORIES = (".tiktoken", ".json", ".model", ".txt")


@dataclass(frozen=True, slots=True)
class HubModel:
    repo: str
    revision: str = "main"

    @staticmethod
    def parsed(name: str) -> HubModel | None:
        match = _NAME.fullmatch(name)
        if match is None or name.endswith(_NOT_REPOSITORIES):
            return None
        return HubModel(match[1], match[2] or "main")

    def vocabulary(self, *, only_cached: bool = False) -> Path:
        """The path of its vocabulary file in the cache; downloaded if it is not there."""
        import huggingface_hub
        import huggingface_hub.constants

        only_cached = only_cached or huggingface_hub.constants.HF_HUB_OFFLINE
        with self._explained(huggingface_hub), _quiet(_REQUESTS):
            only_cached = only_cached or not self._is_answered(huggingface_hub)
            for name in VOCABULARIES:
                path = self._fetched(huggingface_hub, name, self.revision, only_cached)
                if path is not None:
                    # Of the same commit, even if the branch has moved since.
                    for other in _BESIDE_OF.get(name, _BESIDE):
                        self._fetched(huggingface_hub, other, commit_of(path), only_cached)
                    return path
        raise self._without_vocabulary(only_cached)

    def _is_answered(self, client: Any) -> bool:
        """Whether the Hub answers. False if it does not and the cache has the files."""
        is_cached = self._is_cached(client)
        if not is_cached:
            say(f"{self._typed}: asking {client.constants.ENDPOINT} for its tokenizer")
        url = client.hf_hub_url(self.repo, VOCABULARIES[0], revision=self.revision)

        def ask() -> bool:
            try:
                client.get_hf_file_metadata(url, timeout=_CONTACT_SECONDS)
            except Exception as error:
                # A server's refusal comes again with the request for the file.
                if status_of(error) is not None or not is_network_error(error):
                    return True
                if not is_cached:
                    raise
                say(f"{self._typed}: from the Hub's cache, because {message_of(error)}")
                return False
            return True

        return self._retry.result_of(ask)

    def _is_cached(self, client: Any) -> bool:
        """Whether the cache knows which vocabulary the Hub would give, and has it and the files
        beside it. Another program may have fetched one file and not the others: without them,
        another vocabulary or another EOT would be chosen."""

        def looked_up(name: str, revision: str) -> Any:
            return client.try_to_load_from_cache(self.repo, name, revision=revision)

        for name in VOCABULARIES:
            found = looked_up(name, self.revision)
            if isinstance(found, str):
                others = _BESIDE_OF.get(name, _BESIDE)
                return all(looked_up(other, commit_of(found)) is not None for other in others)
            if found is None:  # it was never requested
                return False
        return False

    @property
    def _retry(self) -> Retry:
        return Retry(lambda message: say(f"{self._typed}: {message}"))

    def _fetched(self, client: Any, name: str, revision: str, only_cached: bool) -> Path | None:
        """None if there is no such file, or, with `only_cached`, if it is not in the cache."""

        def download() -> str:
            path: str = client.hf_hub_download(
                self.repo, name, revision=revision, local_files_only=only_cached
            )
            return path

        try:
            # What the cache does not have, it will not have in a second.
            path = Path(download() if only_cached else self._retry.result_of(download))
        except Exception as error:
            kinds = {kind.__name__ for kind in type(error).__mro__}
            is_unknown = "LocalEntryNotFoundError" in kinds and not only_cached
            if "EntryNotFoundError" in kinds and not is_unknown:
                return None
            raise
        _require_right(path)
        return path

    @contextlib.contextmanager
    def _explained(self, client: Any) -> Iterator[None]:
        """Turn the client's errors into ours; others pass through."""
        try:
            yield
        except Exception as error:
            kind, status = type(error).__name__, status_of(error)
            page = f"{client.constants.ENDPOINT}/{self.repo}"
            login = "then `hf auth login`, or set HF_TOKEN"
            if kind == "GatedRepoError":
                raise ConfigError(
                    f"{self.repo} is gated: its owner decides who may read it",
                    hint=f"open {page} and ask for access; {login}",
                ) from None
            if kind == "RevisionNotFoundError":
                raise ConfigError(
                    f"{self.repo} has no revision {self.revision!r}",
                    hint=f"@main is the newest; {page}/tree/main lists the others",
                ) from None
            if kind == "RepositoryNotFoundError" or status in (401, 403):
                raise ConfigError(
                    f"--tokenizer {self._typed}: no such file or folder here, and no such model on "
                    "the Hub, or it is private",
                    hint=f"check the name at {page}; if it is private: `hf auth login`, or set "
                    "HF_TOKEN",
                ) from None
            if not is_network_error(error):
                raise
            raise NetworkError(
                f"--tokenizer {self._typed}: no such file or folder here, and the Hub cannot be "
                f"reached: {message_of(error)}",
                hint=self._download_command,
            ) from None

    @property
    def _typed(self) -> str:
        return self.repo if self.revision == "main" else f"{self.repo}@{self.revision}"

    @property
    def _download_command(self) -> str:
        folder = self.repo.partition("/")[2]
        files = " ".join(VOCABULARIES[:1] + _BESIDE)
        revision = "" if self.revision == "main" else f"--revision {self.revision} "
        return (
            f"where there is a network: hf download {self.repo} {files} {revision}"
            f"--local-dir {folder}; then: --tokenizer {folder}"
        )

    def _without_vocabulary(self, is_offline: bool) -> ConfigError | NetworkError:
        if is_offline:
            return NetworkError(
                f"{self._typed}: its vocabulary is not in the Hub's cache, and HF_HUB_OFFLINE is "
                "set",
                hint=f"unset HF_HUB_OFFLINE; or {self._download_command}",
            )
        return ConfigError(
            f"{self.repo} at {self.revision} has none of {', '.join(VOCABULARIES)}",
            hint="name the model that it was made from, or a vocabulary file: --tokenizer FILE",
        )


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Silence a library's warnings about its retries: the final error says it all."""
    import logging  # 5 ms that only a model of the Hub should pay

    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def model_revision(identity: EncodingId) -> dict[str, str]:
    """The commit of an encoding's vocabulary under its key in plans and manifests; empty unless it
    comes from the Hub."""
    commit = commit_of(identity.source or "")
    return {_key(identity.name): commit} if commit and HubModel.parsed(identity.name) else {}


def begun_with(revisions: Mapping[str, str], name: str) -> str | None:
    """The option that names the tokenizer of a run with these revisions; None if none is needed."""
    pinned = pinned_name(revisions, name)
    return None if pinned == name else f"--tokenizer {pinned}"


def pinned_name(revisions: Mapping[str, str], name: str) -> str:
    """A tokenizer's name, with the commit if it comes from the Hub."""
    commit = revisions.get(_key(name))
    return f"{name}@{commit}" if commit else name


def _key(name: str) -> str:
    return f"models/{name}"


def commit_of(path: Path | str) -> str:
    """The commit of a file in the Hub's cache; "" for any other file."""
    found = _COMMIT.search(str(path))
    return found[1] if found else ""


def _require_right(path: Path) -> None:
    """Compare a file of the cache with the hash that its name there is."""
    if not path.is_symlink():
        return  # a cache without links, which does not keep the hash
    from tokenmill.storage.hub import cached_digest, digest_of  # 5 ms

    expected = cached_digest(str(path))
    found = digest_of(str(path), expected.partition(":")[0])
    if found != expected:
        raise IntegrityError(
            f"{path}: damaged in the Hub's cache: its hash is {found}, expected {expected}",
            hint=f"rm {path.resolve()}, then run the same command again",
        )
