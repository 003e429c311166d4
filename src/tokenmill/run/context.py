"""What every step of a run needs: options, runner and watch, the corpus, the plan, output names."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tokenmill.assemble.books import Assembly
from tokenmill.assemble.fitting import FittingOptions
from tokenmill.assemble.sidecars import Sidecars
from tokenmill.config import Config
from tokenmill.corpus.hub_inputs import HubInputs
from tokenmill.corpus.inputs import FoundInputs, found_inputs
from tokenmill.corpus.plan import Plan
from tokenmill.corpus.planning import make_plan
from tokenmill.corpus.spans import HUB_SCHEME, Input
from tokenmill.corpus.standard_input import as_typed
from tokenmill.dataset.output_names import OutputNames
from tokenmill.dataset.workspace import Workspace
from tokenmill.encode.buckets import num_buckets_of
from tokenmill.encode.job import Job
from tokenmill.encodings import EncodingId
from tokenmill.encodings.hub_model import model_revision
from tokenmill.errors import InputError
from tokenmill.formats import get_format
from tokenmill.run.watch import RunWatch, SilentWatch
from tokenmill.runners import Runner
from tokenmill.runners.start import cutting_runner
from tokenmill.settings import identity_of, layout_of
from tokenmill.storage import disk
from tokenmill.storage.scratch import scratch_folder


@dataclass(frozen=True, slots=True)
class RunContext:
    """What every step of a run needs, besides the corpus."""

    config: Config  # resolved
    encoding: EncodingId
    runner: Runner
    watch: RunWatch
    scratch: str  # a local folder for downloads

    @property
    def identity(self) -> dict[str, Any]:
        return identity_of(self.config, self.encoding)

    def plan_of(self, found: FoundInputs, remote: HubInputs) -> Plan:
        """A new plan; nothing is written to the output folder."""
        structures = os.path.join(self.scratch, "structure")
        disk.make_folder(structures)
        cutter = functools.partial(self.runner.cut, watch=self.watch)
        plan = make_plan(self.identity, found.inputs, self.config, remote.structure_of, cutter)
        disk.remove_folder(structures)
        revisions = {**remote.revisions, **model_revision(self.encoding)}
        paths = {s.name: [*map(as_typed, s.paths)] for s in self.config.named}
        return replace(
            plan,
            notes=found.notes,
            revisions=revisions,
            source_paths=paths,
            footers=dict(remote.footers),
        )

    def job_of(self, plan: Plan) -> Job:
        work = Workspace(self.config.out).work_of(plan.plan_id)
        return Job.of(self.config, self.encoding, plan, work)


def new_plan(
    config: Config,
    encoding: EncodingId,
    runner: Runner | None = None,
    watch: RunWatch | None = None,
) -> Plan:
    """The plan that a run would start with; nothing is written to the output folder."""
    with contextlib.ExitStack() as stack:
        runner = runner or stack.enter_context(cutting_runner(config))
        folder = stack.enter_context(scratch_folder())
        context = RunContext(config, encoding, runner, watch or SilentWatch(), folder)
        remote = HubInputs(config, folder, lambda message: None)
        stack.enter_context(contextlib.closing(remote))
        return context.plan_of(all_inputs(config, remote), remote)


def all_inputs(config: Config, remote: HubInputs) -> FoundInputs:
    """Every input of the corpus, local or remote, in order. Raises if the output would replace
    one."""
    found = found_inputs(config, remote.inputs, remote.again)
    if config.out:
        require_inputs_apart(config, found.inputs)
    return found


def require_inputs_apart(config: Config, inputs: Iterable[Input]) -> None:
    """Refuse outputs that would replace an input. Our own downloads may be in the work folder."""
    paths = [source.path for source in inputs if not source.name.startswith(HUB_SCHEME)]
    names_of(config).require_apart(config.out, paths)


def names_of(config: Config) -> OutputNames:
    return OutputNames(get_format(config.format), config.name)


def moved_inputs(plan: Plan, inputs: Iterable[Input]) -> dict[str, str]:
    """The paths, by name, of inputs that are not where the plan has them: another download cache,
    another machine."""
    planned = {source.name: source.path for source in plan.inputs}
    return {s.name: s.path for s in inputs if s.path != planned.get(s.name, s.path)}


def assembly_of(config: Config, encoding: EncodingId, plan: Plan, work: str) -> Assembly:
    layout = layout_of(config, encoding)
    num_slices, buckets = len(plan.slices), num_buckets_of(config, plan.text_bytes)
    sidecars = None
    if config.keep is not None:
        sidecars = Sidecars(work, plan.plan_id, layout, plan.kept_types)
    options = FittingOptions.of(config, plan)
    return Assembly(work, plan.plan_id, layout, options, num_slices, buckets, sidecars)


def require_slices(plan: Plan, config: Config) -> None:
    if not plan.slices:
        raise InputError(f"no documents in {', '.join(map(as_typed, config.sources))}")
