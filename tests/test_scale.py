"""What docs/scale.md and examples/cluster say, held: commands parse, YAML is YAML, tables are those
that the kept constants give, and the simulation runs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tokenmill.cli import parser
from tokenmill.config import Partition

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples" / "cluster"
PAGE = (ROOT / "docs" / "scale.md").read_text()
SCRIPTS = sorted(EXAMPLES.glob("*.sh"))
MANIFESTS = sorted(EXAMPLES.glob("*.yaml"))
# What a scheduler puts in place of its variables.
VALUES = {
    "$SLURM_ARRAY_TASK_ID": "3",
    "$PARTITIONS": "64",
    "$CORPUS": "/shared/corpus",
    "$OUT": "/shared/data/mine",
    "$((JOB_COMPLETION_INDEX + 1))": "64",
}


def commands_in(text: str) -> list[list[str]]:
    """Every tokenmill command of a script, as its shell would pass it on."""
    for name, value in VALUES.items():
        text = text.replace(name, value)
    found = re.findall(r"(?:^|'|&& )(tokenmill (?:prepare|finish|verify) [^'&\n]*)", text, re.M)
    return [shlex.split(line) for line in found]


def in_pods(path: Path) -> str:
    """What the containers of a Kubernetes job run."""
    pods = yaml.safe_load(path.read_text())["spec"]["template"]["spec"]["containers"]
    return "\n".join(pod["command"][-1] for pod in pods)


TEXTS = {
    "docs/scale.md": PAGE,
    **{path.name: path.read_text() for path in SCRIPTS},
    **{path.name: in_pods(path) for path in MANIFESTS if path.name.startswith("kubernetes")},
    "ray.yaml": (EXAMPLES / "ray.yaml").read_text().replace("#  ", ""),
}
COMMANDS = [(name, command) for name, text in TEXTS.items() for command in commands_in(text)]


@pytest.mark.parametrize(("where", "command"), COMMANDS, ids=lambda value: str(value)[:60])
def test_command_when_typed_then_our_parser_takes_it(where, command):
    arguments = parser().parse_args(command[1:])
    if getattr(arguments, "partition", None):
        Partition.parsed(arguments.partition)


def test_examples_when_read_then_each_has_its_commands():
    of = {name: [command[1] for w, command in COMMANDS if w == name] for name in TEXTS}
    assert of["slurm.sh"] == of["kubernetes.yaml"] == of["ray.yaml"] == ["prepare"]
    assert of["slurm-finish.sh"] == of["kubernetes-finish.yaml"] == ["finish", "verify"]
    assert of["docs/scale.md"].count("prepare") >= 5 and "finish" in of["docs/scale.md"]


def test_commands_when_compared_then_they_differ_in_nothing_but_where_they_run():
    """The laptop's options are in every other command."""
    [laptop, *others] = [c for _, c in COMMANDS if c[1] == "prepare"]
    assert others and all(set(laptop[4:]) - {"data/mine"} <= set(other) for other in others)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_yaml_when_parsed_then_it_has_what_its_reader_needs(path):
    [found] = yaml.safe_load_all(path.read_text())
    if path.name == "ray.yaml":
        assert found["head_node_type"] in found["available_node_types"]
        assert found["max_workers"] >= found["available_node_types"]["worker"]["max_workers"]
    else:
        assert (found["apiVersion"], found["kind"]) == ("batch/v1", "Job")
        assert found["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_indexed_job_when_counted_then_as_many_pods_as_partitions():
    spec = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text())["spec"]
    [command] = commands_in(in_pods(EXAMPLES / "kubernetes.yaml"))
    assert command[-1] == f"{spec['completions']}/{spec['completions']}"
    slurm = (EXAMPLES / "slurm.sh").read_text()
    [last] = re.findall(r"--array=1-(\d+)", slurm)
    assert f"PARTITIONS={last}\n" in slurm


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_script_when_checked_by_bash_then_its_syntax_is_right(path):
    subprocess.run(["bash", "-n", str(path)], check=True)


def test_tables_when_made_anew_then_they_are_those_on_the_page():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import scale_model
    finally:
        sys.path.pop(0)
    constants = json.loads((ROOT / "benchmarks" / "scale.json").read_text())
    assert scale_model.renewed(PAGE, constants) == PAGE, "make scale"


def test_simulation_when_small_then_it_runs_through(tmp_path):
    command = [sys.executable, "benchmarks/scale.py", "--slices", "600", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    stages = [line.split()[0] for line in done.stdout.splitlines()]
    assert stages == ["plan", "records", "task", "resume", "schedule"]
    assert not list(tmp_path.iterdir())


def test_page_when_read_then_its_links_lead_somewhere():
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / link).exists(), link
