"""The plan: inputs and configuration, frozen into a list of slices before any work begins.

planning.py makes it. It is written once, as `plan.json`, and only read after that: a later attempt
resumes with its slices if `differences` finds no change.
"""

from __future__ import annotations

import functools
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tokenmill.corpus.slices import SliceTable
from tokenmill.corpus.spans import Input
from tokenmill.errors import ConflictError, DamagedWorkError
from tokenmill.storage.checked_json import checked_object, checksum_of, checksummed
from tokenmill.storage.store import store_of

PLAN_VERSION = 3


@dataclass(frozen=True)
class Plan:
    identity: dict[str, Any]  # what determines the bytes: options, encoding, versions
    inputs: tuple[Input, ...]
    slices: SliceTable
    # Notes, revisions, source_paths and footers affect no byte of the output, so they are saved
    # with the plan but are not part of `plan_id`.
    notes: tuple[str, ...] = ()  # on how the corpus was found
    revisions: Mapping[str, str] = field(default_factory=dict)  # commits of the Hub's branches
    saved_id: str = field(default="", compare=False)  # the id in the loaded file
    source_paths: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by named source
    kept_types: str | None = None  # of the columns of --keep (corpus/columns.py)
    run: str = ""  # makes the id one that no other plan has
    # Hashes of the footers that it was made from, by input: no hash of the Hub covers these alone.
    footers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text_bytes(self) -> int:
        return self.slices.text_bytes

    @functools.cached_property
    def plan_id(self) -> str:
        return self.saved_id or hashlib.sha256(self.to_json()).hexdigest()

    def to_json(self) -> bytes:
        """The bytes whose hash is the plan's id."""
        return json.dumps(self._to_plain(), sort_keys=True).encode()

    def with_own_id(self) -> Plan:
        return replace(self, run=secrets.token_hex(8), saved_id="")

    def create(self, path: str) -> bool:
        """Save the plan unless one exists; returns whether it was saved."""
        return store_of(path).create(path, self._checksummed())

    @staticmethod
    def load(path: str) -> Plan:
        try:
            data = store_of(path).read(path)
            plain = checked_object(data)
            if "converted_from" in plain:
                raise ConflictError(
                    f"{path} belongs to an unfinished conversion",
                    hint="run the same `tokenmill convert` again: it resumes; or use --overwrite",
                )
            if plain.get("tokenmill_plan") != PLAN_VERSION:
                raise ValueError(f"plan version {plain.get('tokenmill_plan')!r}")
            inputs = tuple(Input(*fields) for fields in plain["inputs"])
            slices = SliceTable.from_plain(inputs, plain["slices"])
            notes = tuple(str(note) for note in plain.get("notes", ()))
            revisions = {str(name): str(c) for name, c in plain.get("revisions", {}).items()}
            plan_id = str(plain.get("plan_id", checksum_of(data)))
            paths = {str(n): list(map(str, p)) for n, p in plain.get("source_paths", {}).items()}
            types = plain.get("kept_types")
            identity, run = plain["identity"], str(plain.get("run", ""))
            footers = {str(name): str(one) for name, one in plain.get("footers", {}).items()}
            return Plan(
                identity, inputs, slices, notes, revisions, plan_id, paths, types, run, footers
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise DamagedWorkError(
                f"{path} is not a plan that this version can read: {error!r}",
                hint="start again with --overwrite",
            ) from error

    def _to_plain(self) -> dict[str, Any]:
        return {
            "tokenmill_plan": PLAN_VERSION,
            "identity": self.identity,
            "inputs": [source.to_plain() for source in self.inputs],
            "slices": self.slices.to_plain(),
            **({} if self.kept_types is None else {"kept_types": self.kept_types}),
            **({"run": self.run} if self.run else {}),
        }

    def _checksummed(self) -> bytes:
        beside: dict[str, Any] = {"notes": self.notes, "revisions": self.revisions}
        beside |= {"source_paths": self.source_paths, "footers": self.footers}
        beside = {name: value for name, value in beside.items() if value}
        if not beside:
            return checksummed(self.to_json())  # its checksum is the plan's id
        plain = {**self._to_plain(), **beside, "plan_id": self.plan_id}
        return checksummed(json.dumps(plain, sort_keys=True).encode())


def differences(old: Plan, identity: dict[str, Any], inputs: Iterable[Input]) -> list[str]:
    """The changes since the plan was made, one readable line each."""
    before = {source.label: _facts(source) for source in old.inputs}
    after = {source.label: _facts(source) for source in inputs}
    return identity_differences(old.identity, identity) + input_differences(before, after)


def _facts(source: Input) -> tuple[Any, ...]:
    """The facts that show whether an input has changed."""
    rest = (source.kind, source.compression, source.mtime_ns, source.origin)
    return source.num_bytes, source.digest, *rest


def identity_differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    lines = []
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found = identity_differences(before, after, f"{prefix}{key}.")
            renamed = [line for line in found if line.startswith("encoding.name: ")]
            lines += renamed or found  # if the tokenizer's name differs, that is enough
        elif before != after:
            lines.append(f"{prefix}{key}: was {before!r}, now {after!r}")
    return lines


def input_differences(
    before: Mapping[str, tuple[Any, ...]], after: Mapping[str, tuple[Any, ...]]
) -> list[str]:
    """The changes between two sets of inputs, by name: size, digest and other known facts."""
    lines = [f"input removed: {path}" for path in before if path not in after]
    lines += [f"input added: {path}" for path in after if path not in before]
    for path, then in before.items():
        now = after.get(path, then)
        if now != then:
            if now[0] != then[0]:
                what = f"was {then[0]:,} bytes, now {now[0]:,}"
            elif now[1] != then[1]:
                what = "same size, different content"
            else:
                what = "modified since (same size; its modification time changed)"
            lines.append(f"input changed: {path}: {what}")
    return lines
