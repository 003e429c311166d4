"""`verify` of the plans of rows beside a dataset: whole, and made for what it holds."""

from __future__ import annotations

from tokenmill.dataset.manifest import MANIFEST_NAME
from tokenmill.dataset.opened import opened
from tokenmill.dataset.places import is_row_plan
from tokenmill.dataset.verify.checks import Failure, Findings
from tokenmill.errors import IntegrityError
from tokenmill.formats import Files
from tokenmill.loader.packing.pack import difference_from
from tokenmill.loader.packing.row_plan import RowPlan
from tokenmill.wording.plural import counted


def check_row_plans(files: Files, findings: Findings) -> None:
    """What a plan was made for is compared where a manifest describes a dataset without faults."""
    names = [name for name in files.names() if is_row_plan(name)]
    is_known = files.has(MANIFEST_NAME) and not findings.num_failures
    for name in names:
        try:
            plan = RowPlan(files.local_path(name) or files.path_of(name))
            plan.check()
        except IntegrityError as error:
            again = "tokenmill pack makes it again"
            findings.failed("row plans", Failure(name, f"{error.message}; {again}"))
            continue
        if is_known:
            with opened(files.label) as dataset:
                other = difference_from(plan, dataset)
            if other:
                what = f"was made for other {other} than this dataset has; tokenmill pack --seq-len"
                findings.failed("row plans", Failure(name, f"{what} {plan.seq_len} replaces it"))
    if names:
        findings.passed("row plans", f"{counted(len(names), 'plan')} of rows")
