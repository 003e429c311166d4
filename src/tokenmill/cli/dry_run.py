"""`--dry-run`: the plan, the size of the output, and whether it fits."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from tokenmill.cli.estimate import shown_disk, shown_spread
from tokenmill.cli.screen import printable, shown_bytes, shown_count
from tokenmill.config import Config
from tokenmill.wording.plural import counted

if TYPE_CHECKING:
    from tokenmill.estimate import Estimate


def show_plan(config: Config, as_json: bool) -> int:
    from tokenmill.encodings.lookup import encoding_of
    from tokenmill.estimate import estimate
    from tokenmill.run import new_plan
    from tokenmill.runners.start import num_proc_of, workers_of
    from tokenmill.settings import resolved

    encoding = encoding_of(config)
    full = resolved(config, encoding)
    plan = new_plan(full, encoding)
    found = estimate(config, plan=plan)
    num_slices = len(plan.slices)
    if as_json:
        shown = {
            "inputs": found.num_inputs,
            "input_bytes": found.input_bytes,
            "text_bytes": found.text_bytes,
            "slices": num_slices,
            "workers": None if config.runner == "ray" else num_proc_of(config, num_slices),
            "expected_tokens": found.num_tokens,
            "expected_bytes": found.output_bytes,
            "needed_bytes": found.needed_bytes,
            "free_bytes": found.free_bytes,
            "format": full.format,
            "tokenizer": encoding.name,
            "dtype": full.dtype,
            "method": found.method,
            "notes": plan.notes,
        }
        print(json.dumps(shown))
        return 0
    for line in plan_lines(found, num_slices, full.out, workers_of(config, num_slices)):
        print(printable(line), file=sys.stderr)
    return 0


def plan_lines(found: Estimate, num_slices: int, out: str, workers: str) -> list[str]:
    """A plan and its expected output, for a person. The plan's notes are among the estimate's."""
    about = "" if found.method == "counted" else "about "
    return [
        f"plan: {counted(found.num_inputs, 'input file')}, {shown_bytes(found.input_bytes)} "
        f"({shown_bytes(found.text_bytes)} of text), {counted(num_slices, 'slice')}, {workers}",
        f"output: {about}{shown_count(found.num_tokens)} tokens{shown_spread(found)}, "
        f"{found.tokenizer} as {found.dtype} in format {found.format}, about "
        f"{shown_bytes(found.output_bytes)} in {out}",
        f"disk: {shown_disk(found)}",
        *(f"note: {note}" for note in found.notes),
    ]
