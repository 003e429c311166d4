"""Inputs that are newer here than a dataset made from them: their rows are compared with the hashes
in the manifest.

The size and the ends of every input are compared anyway. A manifest has no time in it, so that the
same dataset has the same manifest everywhere; but the manifest's file has one. An input's time of
modification does not suffice: `cp -p`, `mv` and `rsync -a` bring other bytes with an old one. The
time at which the file got its name or its bytes here is the system's, and nobody sets it. So a
corpus that is copied or renamed is read again, too.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from tokenmill.config import Config
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.readers import ReadOptions
from tokenmill.corpus.spans import Input, Slice
from tokenmill.dataset.manifest import Manifest
from tokenmill.encode.content import content_of
from tokenmill.encode.record import CONTENT_DIGITS
from tokenmill.errors import ConfigError, InputError
from tokenmill.runners.threads import in_threads
from tokenmill.storage.store import store_of
from tokenmill.wording.name_list import name_list
from tokenmill.wording.plural import counted
from tokenmill.wording.quantities import shown_bytes


@dataclass(frozen=True, slots=True)
class ModifiedInputs:
    """Inputs that are newer than a dataset, and whose digest does not show that they are the
    same."""

    inputs: tuple[Input, ...]
    manifest: Manifest

    @staticmethod
    def of(manifest: Manifest, path: str, inputs: Iterable[Input]) -> ModifiedInputs:
        """`path` is that of the manifest."""
        found = store_of(path).stat(path)
        made_ns = 0 if found is None else found.modified_ns
        modified = (one for one in inputs if one.has_unknown_middle and _arrived_ns(one) >= made_ns)
        return ModifiedInputs(tuple(modified), manifest)

    def __str__(self) -> str:
        num_bytes = shown_bytes(sum(one.num_bytes for one in self.inputs))
        inputs = counted(len(self.inputs), "input")
        return f"{inputs} modified or moved after the dataset was made, {num_bytes}"

    def changes(
        self,
        make_plan: Callable[[], Plan],
        config: Config,
        num_threads: int,
        between_slices: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Read the slices of these inputs again: how they differ from what the dataset was made
        from, one readable line each. `make_plan` makes the plan of all inputs."""
        try:
            plan = make_plan()
            changed = self._changed(plan, config, num_threads, between_slices)
        except (InputError, ConfigError) as error:  # of a file that could be read then
            return [f"input changed: {error.message}"]
        return [
            f"input changed: {'one of ' * (len(names) > 1)}{name_list(names)}: "
            "same size, different content"
            for names in changed
        ]

    def _changed(
        self, plan: Plan, config: Config, num_threads: int, between_slices: Callable[[], None]
    ) -> Collection[tuple[str, ...]]:
        """Groups of inputs, by label, of each of which at least one has changed."""
        num_slices = max(map(len, self.manifest.slice_documents.values()), default=0)
        if config.limit_tokens is None and len(plan.slices) != num_slices:
            return [tuple(one.label for one in self.inputs)]
        modified = set(self.inputs)
        slices = (
            slice_
            for slice_ in plan.slices[:num_slices]
            if any(span.input in modified for span in slice_.spans)
        )
        types, owns = plan.kept_types, config.by_source()
        options = {name: ReadOptions.of(own, types) for name, own in owns.items()}
        is_same = functools.partial(self._is_same, options_of=lambda one: options[one.source])
        changed: dict[tuple[str, ...], None] = {}
        for slice_, same in in_threads(is_same, slices, num_threads):
            between_slices()
            if not same:
                own = (one.label for one in slice_.inputs_read if one in modified)
                changed[tuple(own)] = None
        return changed

    def _is_same(
        self, slice_: Slice, options_of: Callable[[Input], ReadOptions]
    ) -> tuple[Slice, bool]:
        at = slice_.index * CONTENT_DIGITS
        return slice_, content_of(slice_, options_of) == self.manifest.content[at:][:CONTENT_DIGITS]


def _arrived_ns(source: Input) -> int:
    """Since when a local file, or the link to it, has been what it is."""
    statuses = (os.stat(source.path), os.lstat(source.path))
    return max(source.mtime_ns, *(one.st_ctime_ns for one in statuses))
