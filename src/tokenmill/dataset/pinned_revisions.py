"""The commits on the Hub that the run in an output folder reads, so that the same command reads
them again. A branch moves; a run resolves it when it begins, and stores the commit in plan and
manifest.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenmill.config import Config
from tokenmill.corpus.hub_inputs import HubInputs
from tokenmill.corpus.hub_names import DatasetName, hub_source
from tokenmill.corpus.plan import Plan, identity_differences
from tokenmill.corpus.spans import HUB_SCHEME
from tokenmill.dataset.manifest import MANIFEST_NAME, Manifest
from tokenmill.dataset.places import plan_path
from tokenmill.errors import ConflictError, IntegrityError, NetworkError
from tokenmill.storage.address import absolute
from tokenmill.storage.store import exists
from tokenmill.wording.plural import counted


@dataclass(frozen=True, slots=True)
class BegunRun:
    """What the run in the output folder reads from the Hub."""

    revisions: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()  # of all its inputs

    def require_cached(self, remote: HubInputs) -> None:
        """Raise NetworkError if, in offline mode, the cache lacks files of this run: that is not a
        change of its inputs."""
        here = {source.name for source in remote.inputs}
        lacking = [n for n in self.names if n.startswith(HUB_SCHEME) and n not in here]
        if remote.is_offline and lacking:
            raise NetworkError(
                f"HF_HUB_OFFLINE is set, and the cache lacks {counted(len(lacking), 'file')} of "
                f"this run: {lacking[0]}",
                hint="unset HF_HUB_OFFLINE and run the same command again: it resumes",
            )


def begun_in(config: Config, identity: dict[str, Any]) -> BegunRun:
    """The run in the output folder, finished or not, if it was asked for with these options. The
    same command then reads the same commits."""
    if not any(map(hub_source, config.sources)):
        return BegunRun()
    with contextlib.suppress(FileNotFoundError, IntegrityError, ConflictError):
        if not config.overwrite and exists(os.path.join(config.out, MANIFEST_NAME)):
            manifest = Manifest.load(config.out)
            return BegunRun(manifest.revisions, tuple(s.path for s in manifest.inputs))
        plan = Plan.load(plan_path(config.out))
        if not identity_differences(plan.identity, identity):
            return BegunRun(plan.revisions, tuple(s.name for s in plan.inputs))
    return BegunRun()


def is_surely_made_from(config: Config, manifest: Manifest) -> bool:
    """Whether a dataset's inputs are certainly those that these sources name, judged by names
    alone, because the server does not answer. Which files a dataset's name on the Hub means, only
    its card says, so such a name is never certain."""
    for name, own in config.by_source().items():
        paths = [one.path for one in manifest.inputs if one.source == name]
        if not _are_named(own.sources, paths, manifest):
            return False
    return True


def _are_named(sources: Sequence[str], paths: Iterable[str], manifest: Manifest) -> bool:
    patterns: set[str] = set()
    for given in sources:
        source = hub_source(given)
        if source is None:
            patterns.add(absolute(given).rstrip("/"))
        elif isinstance(source, DatasetName):
            return False
        else:
            commit = manifest.revisions.get(f"{source.repo}@{source.revision}", source.revision)
            patterns.add(f"{HUB_SCHEME}datasets/{source.repo}@{commit}/{source.pattern}")
    used: set[str] = set()
    for path in paths:
        fitting = {one for one in patterns if _is_named_by(one, path)}
        if not fitting:
            return False
        used |= fitting
    return used == patterns


def _is_named_by(pattern: str, path: str) -> bool:
    """Whether a pattern is the file's name, its folder's, or a glob that matches it."""
    from tokenmill.corpus.hub_listing import matches  # imports HTTP, which local runs do not need

    return path == pattern or path.startswith(f"{pattern}/") or matches(path, pattern)
