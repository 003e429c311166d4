"""What `prepare` is asked for, as the workspace compares it with what the folder holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenmill.corpus.plan import Plan, differences, input_differences
from tokenmill.corpus.spans import Input
from tokenmill.dataset.manifest import Manifest
from tokenmill.encodings.hub_model import begun_with


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """If `inputs` is None, inputs are not compared."""

    identity: dict[str, Any]
    inputs: Sequence[Input] | None
    what = "run"

    def load(self, path: str) -> Plan:
        return Plan.load(path)

    def changes_since(self, plan: Plan) -> list[str]:
        changes = differences(plan, self.identity, self.inputs or ())
        return changes + _tokenizer_then(self.identity, plan) if changes else []

    def changes_from(self, manifest: Manifest) -> list[str]:
        if self.inputs is None:
            return []
        before = {source.label: (source.num_bytes, source.digest) for source in manifest.inputs}
        after = {source.label: (source.num_bytes, source.digest) for source in self.inputs}
        return _tokenizer_then(self.identity, manifest) + input_differences(before, after)


def _tokenizer_then(identity: dict[str, Any], begun: Plan | Manifest) -> list[str]:
    """A line that names the earlier tokenizer, if it has changed on the Hub since."""
    then, now = begun.identity["encoding"], identity["encoding"]
    named = begun_with(begun.revisions, then["name"])
    is_another = then["name"] == now["name"] and then["sha256"] != now["sha256"]
    return [f"it was made with {named}"] if named and is_another else []
