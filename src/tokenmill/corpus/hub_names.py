"""How a user writes a source on the Hub.

    OWNER/NAME[:CONFIG[/SPLIT]][@REVISION]             a dataset, as its card divides it
    hf://datasets/OWNER/NAME[@REVISION]/GLOB           files of it
    hf://datasets/OWNER/NAME[:CONFIG[/SPLIT]]          a dataset, even if a local path has that name

OWNER/NAME may also be a local path, which then wins. A name that can only be a path (it has a
corpus file's extension, or its first folder exists) is never looked up on the Hub, so that a
mistyped path costs no request.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from tokenmill.corpus.presets import preset_of
from tokenmill.corpus.readers import kind_of
from tokenmill.corpus.spans import HUB_SCHEME
from tokenmill.errors import ConfigError

SCHEME = HUB_SCHEME
MAIN = "main"
_REPO = r"\w[\w.-]*/\w[\w.-]*"
_NAME = re.compile(
    rf"(?:datasets/)?({_REPO})(?:@([^:@]+))?(?::([^/@]+)(?:/([^/@]+))?(?:@([^:@]+))?)?"
)
_URL = re.compile(rf"{SCHEME}datasets/({_REPO})(?:@([^/:]+))?/(.+)")


def is_hub_url(path: str) -> bool:
    return path.startswith(SCHEME)


@dataclass(frozen=True, slots=True)
class HubSource:
    """`hf://datasets/OWNER/NAME[@REVISION]/GLOB`, parsed."""

    repo: str
    revision: str
    pattern: str

    @staticmethod
    def parsed(url: str) -> HubSource:
        match = _URL.fullmatch(url)
        if match is None:
            raise ConfigError(
                f"not a dataset on the Hub: {url!r}",
                hint="write OWNER/NAME, or hf://datasets/OWNER/NAME[@REVISION]/data/*.parquet",
            )
        return HubSource(match[1], _revision(match[2]), match[3])

    @property
    def download_command(self) -> str:
        """The command that downloads the files on a machine with a network."""
        return _download_command(self.repo, self.revision, (self.pattern,))


@dataclass(frozen=True, slots=True)
class DatasetName:
    """`OWNER/NAME[:CONFIG[/SPLIT]][@REVISION]`, parsed."""

    repo: str
    revision: str = MAIN
    config: str | None = None
    split: str | None = None
    may_be_path: bool = False  # the user may have meant a local file

    @staticmethod
    def parsed(text: str) -> DatasetName | None:
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        repo, revision, config, split, late_revision = match.groups()
        may_be_path = (revision, config) == (None, None)
        return DatasetName(repo, _revision(late_revision or revision), config, split, may_be_path)

    @property
    def pattern(self) -> str:
        """What messages call the files."""
        return "/".join(filter(None, (self.config, self.split))) or "data files"

    @property
    def download_command(self) -> str:
        preset = preset_of(self.repo)
        globs = () if preset is None else preset.globs(self.config, self.split)
        command = _download_command(self.repo, self.revision, globs or ("GLOB",))
        meant = f"of its config {self.config}" if self.config else "that you mean"
        return command if globs else f"{command}, where GLOB matches the files {meant}"

    def written(self, config: str | None, split: str | None = None) -> str:
        """How to write this dataset with another config and split."""
        at = f"@{self.revision}" if self.revision != MAIN else ""
        return self.repo + (f":{config}" if config else "") + (f"/{split}" if split else "") + at


def _download_command(repo: str, revision: str, globs: tuple[str, ...]) -> str:
    """Always names the files: the repository may hold a hundred times as much."""
    included = " ".join(f"--include '{glob}'" for glob in globs)
    at = f"--repo-type dataset --revision {revision}"
    return f"hf download {repo} {at} {included} --local-dir DIR"


def hub_source(source: str) -> HubSource | DatasetName | None:
    """What a source means on the Hub; None if it is not on the Hub."""
    if source.startswith(SCHEME):
        name = DatasetName.parsed(source.removeprefix(SCHEME))
        if name is None or _URL.fullmatch(source) or not source.startswith(f"{SCHEME}datasets/"):
            return HubSource.parsed(source)
        return replace(name, may_be_path=False)
    name = DatasetName.parsed(source)
    if name is None or os.path.lexists(source):
        return None
    is_path = kind_of(source) is not None or os.path.lexists(source.partition("/")[0])
    return None if name.may_be_path and is_path else name


def local_note(source: str) -> str | None:
    """A note on a local path that could also be a dataset on the Hub; None if it could not."""
    name = DatasetName.parsed(source)
    if name is None or not os.path.lexists(source):
        return None
    if name.may_be_path and preset_of(name.repo) is None:
        return None
    on_hub = f"{SCHEME}datasets/{source.removeprefix('datasets/')}"
    return f"{source} was read from the disk; for the dataset on the Hub: {on_hub}"


def _revision(text: str | None) -> str:
    # A branch such as refs/convert/parquet is written with %2F, as in huggingface_hub.
    return (text or MAIN).replace("%2F", "/")
