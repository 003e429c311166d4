"""Which files of a dataset a source means, each at a fixed commit with the hash it must have.

A glob is matched against file names. A dataset's name means the config and split that its card
lists (`dataset_card.py`). If no reader takes those files (.csv, a script), the name means the Hub's
own conversion to parquet, unless that holds only a part of the data.

A branch moves, so its commit is looked up once per run; an attempt that continues another reads
the commits of that one.
"""

from __future__ import annotations

import collections
import contextlib
import fnmatch
import glob
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tokenmill.corpus.dataset_card import (
    DEFAULT,
    CardConfig,
    card_configs,
    meant_globs,
    of_split,
    recommended_configs,
)
from tokenmill.corpus.hub_errors import explained
from tokenmill.corpus.hub_names import MAIN, SCHEME, DatasetName, HubSource
from tokenmill.corpus.readers import kind_of
from tokenmill.corpus.readers.naming import ending
from tokenmill.corpus.skipped import shown_endings
from tokenmill.errors import InputError, NetworkError
from tokenmill.storage.hub import Hub, HubFile
from tokenmill.wording.plural import counted

CONVERTED = "refs/convert/parquet"
_CARD = "README.md"
_MAX_CARD_BYTES = 16 << 20
_PARTIAL = "partial"
_NOT_DATA = ("license.txt", "readme.txt", "requirements.txt")


class HubListing:
    """`revisions` has the commits of branches and tags in an earlier attempt, by
    OWNER/NAME@REVISION; `used` those of this one."""

    def __init__(self, hub: Hub, revisions: Mapping[str, str]) -> None:
        self._hub = hub
        self._kept = revisions
        self.used: dict[str, str] = {}

    def files(self, source: HubSource | DatasetName) -> list[HubFile]:
        """The files, sorted by name. In offline mode, from the cache alone."""
        with explained(source, self._hub.client):
            found = self._cached_files(source) if self._hub.is_offline else self._found(source)
        return sorted(found, key=lambda file: file.path.encode())

    def _found(self, source: HubSource | DatasetName) -> list[HubFile]:
        commit = self._commit(source.repo, source.revision)
        if isinstance(source, DatasetName):
            return self._named(source, commit)
        below = self._hub.tree(source.repo, commit, folder_of(source.pattern))
        found = [file for file in below if matches(file.path, source.pattern)]
        if not found:
            raise _no_match(source, [file.path for file in below])
        return found

    def _named(self, name: DatasetName, commit: str) -> list[HubFile]:
        top = self._hub.tree(name.repo, commit, recursive=False)
        cards = [file for file in top if file.path == _CARD and file.num_bytes <= _MAX_CARD_BYTES]
        configs = [config for card in cards for config in card_configs(self._text_of(card))]
        globs = meant_globs(name, configs)
        if choice := recommended_configs(name, configs):
            self._hub.notice(
                f"{name.repo} has {len(configs):,} configs; reading {', '.join(choice)}"
            )
        found = self._matching(name.repo, commit, globs or ("**",))
        readable = _readable(found)
        if not readable or (name.config not in (None, DEFAULT) and not globs):
            return self._converted(name, found)
        return readable if globs else _undivided(name, readable)

    def _matching(self, repo: str, commit: str, globs: Iterable[str]) -> list[HubFile]:
        by_folder = collections.defaultdict(list)
        for pattern in globs:
            by_folder[folder_of(pattern)].append(pattern)
        found = {}
        for folder, patterns in by_folder.items():
            with contextlib.suppress(self._hub.client.errors.EntryNotFoundError):
                for file in self._hub.tree(repo, commit, folder):
                    if any(matches(file.path, pattern) for pattern in patterns):
                        found[file.path] = file
        return list(found.values())

    def _converted(self, name: DatasetName, unread: list[HubFile]) -> list[HubFile]:
        """The same data in the branch of the Hub's own converter: CONFIG/SPLIT/*.parquet, or
        CONFIG/partial-SPLIT/*.parquet for the first 5 GB."""
        names = [f.path.rpartition("/")[2] for f in unread if f.path != _CARD]
        endings = collections.Counter(ending(name) or name for name in names if name[0] != ".")
        seen = f" (there are: {shown_endings(endings)})" if endings else ""
        what = f"{name.repo} at {name.revision} has no files that tokenmill reads{seen}"
        if name.config and _readable(unread):
            what = f"the card of {name.repo} lists no configs, so {name.config!r} is unknown"
        if name.revision != MAIN:
            raise InputError(
                what, hint=f"the Hub converts only @main to parquet: {_unpinned(name)}"
            )
        try:
            commit = self._commit(name.repo, CONVERTED)
        except self._hub.client.errors.RevisionNotFoundError:
            hint = "leave out the config" if _readable(unread) else None
            command = f"{name.download_command}, then convert them to parquet"
            if tables := [end for end in endings if kind_of(f"a{end}")]:
                command = f"'{SCHEME}datasets/{name.repo}/**/*{tables[0]}' as SOURCE"
            raise InputError(
                f"{what}, and the Hub has no parquet copy of it", hint=hint or command
            ) from None
        files = self._hub.tree(name.repo, commit)
        globs = meant_globs(name, _converted_configs(files))
        found = [file for file in files if any(matches(file.path, one) for one in globs)]
        if any(_PARTIAL in file.path.split("/")[1] for file in found):
            raise InputError(
                f"{what}, and the Hub's parquet copy of it holds only its first 5 GB",
                hint=f"for that part: '{SCHEME}datasets/{name.repo}@{CONVERTED.replace('/', '%2F')}"
                f"/{os.path.dirname(found[0].path)}/*.parquet'",
            )
        self._hub.notice(f"{what}; reading the Hub's parquet copy of it ({CONVERTED})")
        return found

    def _commit(self, repo: str, revision: str) -> str:
        # A known commit is asked for, too: without a network that fails at once, unlike a listing.
        kept = self._kept.get(f"{repo}@{revision}")
        return self._use(repo, revision, self._hub.commit(repo, kept or revision))

    def _use(self, repo: str, revision: str, commit: str) -> str:
        if commit != revision:
            self.used[f"{repo}@{revision}"] = commit
        return commit

    def _text_of(self, card: HubFile) -> str:
        """A small file as text. In the cache, it can be read again in offline mode."""
        with open(self._hub.fetch(card), "rb") as file:
            text = file.read().decode(errors="replace")
        self._hub.release(card)
        return text

    def _cached_files(self, source: HubSource | DatasetName) -> list[HubFile]:
        found = self._cached_snapshot(source.repo, source.revision)
        if isinstance(source, DatasetName):
            found = self._cached_named(source, found)
        else:
            found = [file for file in found if matches(file.path, source.pattern)]
        if not found:
            raise NetworkError(
                f"HF_HUB_OFFLINE is set, and the cache holds no {source.pattern} of {source.repo}",
                hint=f"on a machine with a network: {source.download_command}; then give that "
                "folder as SOURCE, or, to `tokenmill fineweb`, as --local-dir DIR",
            )
        if f"{source.repo}@{source.revision}" not in self._kept:
            # The cache does not say which files the Hub has.
            self._hub.notice(
                f"HF_HUB_OFFLINE is set: of {source.repo}, this reads the "
                f"{counted(len(found), 'file')} in the cache; the Hub may have more"
            )
        return found

    def _cached_snapshot(self, repo: str, revision: str) -> list[HubFile]:
        """Every file of a revision that the cache has."""
        found = self._hub.cached(repo, self._kept.get(f"{repo}@{revision}", revision))
        if found:
            self._use(repo, revision, found[0].commit)
        return found

    def _cached_named(self, name: DatasetName, cached: list[HubFile]) -> list[HubFile]:
        cards = [file for file in cached if file.path == _CARD]
        configs = [config for card in cards for config in card_configs(self._text_of(card))]
        globs = meant_globs(name, configs)
        readable = _readable(cached)
        if name.revision == MAIN and not readable:
            readable = self._cached_snapshot(name.repo, CONVERTED)
            globs = meant_globs(name, _converted_configs(readable)) if readable else globs
        if not globs:
            return _undivided(name, readable) if readable else []
        return [file for file in readable if any(matches(file.path, one) for one in globs)]


def _unpinned(name: DatasetName) -> str:
    return replace(name, revision=MAIN).written(name.config, name.split)


def _readable(files: list[HubFile]) -> list[HubFile]:
    """The data among a dataset's files. Beside other data, .json is metadata. Not .csv and .tsv:
    the Hub's parquet copy of them can be planned before it is downloaded."""
    kept = [
        file
        for file in files
        if (kind_of(file.path) or ("csv", None))[0] not in ("csv", "tsv")
        and not any(part.startswith(".") for part in file.path.split("/"))
        and os.path.basename(file.path).lower() not in _NOT_DATA
    ]
    data = [file for file in kept if not file.path.endswith(".json")]
    return data or kept


def _undivided(name: DatasetName, files: list[HubFile]) -> list[HubFile]:
    """The files that a name means if no card lists any. Raises InputError for two kinds of
    data."""
    kinds = collections.Counter(ending(file.path) for file in files)
    if len({kind_of(file.path) for file in files}) > 1:
        most = kinds.most_common(1)[0][0]
        at = f"@{name.revision}" if name.revision != MAIN else ""
        raise InputError(
            f"{name.repo} holds more than one kind of data: {shown_endings(kinds)}",
            hint=f"say which: '{SCHEME}datasets/{name.repo}{at}/**/*{most}'",
        )
    meant = set(of_split(name, [file.path for file in files]))
    return [file for file in files if file.path in meant]


def _converted_configs(files: Iterable[HubFile]) -> list[CardConfig]:
    globs: dict[str, dict[str, tuple[str, ...]]] = collections.defaultdict(dict)
    for file in files:
        if file.path.endswith(".parquet") and file.path.count("/") >= 2:
            config, folder = file.path.split("/")[:2]
            below = file.path.split("/")[2] if folder == _PARTIAL else folder
            pattern = f"{glob.escape(config)}/{glob.escape(folder)}/**/*.parquet"
            globs[config][below.removeprefix(f"{_PARTIAL}-")] = (pattern,)
    return [CardConfig(config, splits) for config, splits in sorted(globs.items())]


def folder_of(pattern: str) -> str | None:
    """The longest folder without a wildcard, which has to be listed."""
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    return fixed.rpartition("/")[0] or None


def matches(path: str, pattern: str) -> bool:
    """Whether a path matches a glob, as in a shell: * stays within a folder, ** does not."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]*\])", pattern)
    names = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    expression = "".join(
        names.get(part) or (fnmatch.translate(part)[4:-3] if part[:1] == "[" else re.escape(part))
        for part in parts
    )
    return re.fullmatch(expression, path) is not None


def _no_match(source: HubSource, paths: list[str]) -> InputError:
    """The error for a pattern that matches none of these files."""
    endings = collections.Counter(ending(path) for path in paths if kind_of(path))
    hint = "the dataset's page lists its files, and a ** stands for any depth"
    if endings:
        most = endings.most_common(1)[0][0]
        folder = f"{folder_of(source.pattern) or ''}/**".lstrip("/")
        at = f"@{source.revision}" if source.revision != MAIN else ""
        hint = f"'{SCHEME}datasets/{source.repo}{at}/{folder}/*{most}' matches {endings[most]:,}"
    return InputError(
        f"no file of {source.repo} at {source.revision} matches {source.pattern}", hint=hint
    )
