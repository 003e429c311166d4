"""What `prepare` is asked for, as the workspace compares it with what the folder holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tokenmill.corpus.hub_inputs import HubInputs
from tokenmill.corpus.inputs import FoundInputs
from tokenmill.corpus.plan import Plan, differences, input_differences
from tokenmill.corpus.spans import Input
from tokenmill.dataset.manifest import MANIFEST_NAME, Manifest
from tokenmill.dataset.modified_inputs import ModifiedInputs
from tokenmill.dataset.places import dataset_folder
from tokenmill.encodings.hub_model import begun_with
from tokenmill.run.context import RunContext
from tokenmill.runners import Stopped
from tokenmill.runners.machine import available_cpus


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """If `inputs` is None, inputs are not compared; without `read_again`, they are compared by size
    and ends alone."""

    identity: dict[str, Any]
    inputs: Sequence[Input] | None
    read_again: Callable[[Manifest], list[str]] = lambda manifest: []
    what = "run"

    def load(self, path: str) -> Plan:
        return Plan.load(path)

    def changes_since(self, plan: Plan) -> list[str]:
        changes = differences(plan, self.identity, self.inputs or ())
        return changes + _tokenizer_then(self.identity, plan) if changes else []

    def changes_from(self, manifest: Manifest) -> list[str]:
        if manifest.converted_from is not None:
            return ["it was converted from another dataset"]
        if self.inputs is None:
            return []
        before = {source.label: (source.num_bytes, source.digest) for source in manifest.inputs}
        after = {source.label: (source.num_bytes, source.digest) for source in self.inputs}
        return _tokenizer_then(self.identity, manifest) + input_differences(before, after)

    def changes_in_content(self, manifest: Manifest) -> list[str]:
        return self.read_again(manifest)


def request_of(context: RunContext, found: FoundInputs, remote: HubInputs) -> PrepareRequest:
    """The request of a run that can read its inputs."""

    def read_again(manifest: Manifest) -> list[str]:
        config, watch = context.config, context.watch
        path = os.path.join(dataset_folder(config.out), MANIFEST_NAME)
        modified = ModifiedInputs.of(manifest, path, found.inputs)
        if not modified.inputs:
            return []

        def stop_if_asked() -> None:
            if watch.should_stop():
                raise Stopped

        watch.notice(f"{modified}: reading again")
        num_threads = config.num_proc or available_cpus()
        changes = modified.changes(
            lambda: context.plan_of(found, remote), config, num_threads, stop_if_asked
        )
        if not changes:
            watch.notice("read again: the rows are the same")
        return changes

    return PrepareRequest(context.identity, found.inputs, read_again)


def _tokenizer_then(identity: dict[str, Any], begun: Plan | Manifest) -> list[str]:
    """A line that names the earlier tokenizer, if it has changed on the Hub since."""
    then, now = begun.identity["encoding"], identity["encoding"]
    named = begun_with(begun.revisions, then["name"])
    is_another = then["name"] == now["name"] and then["sha256"] != now["sha256"]
    return [f"it was made with {named}"] if named and is_another else []
