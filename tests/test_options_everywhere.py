"""Each option gives the oracle's documents wherever a run is: in one process, in tasks of a
scheduler, with corpus and output in a bucket, from the Hub; and all of them together with two and
four workers and on Ray. The table of which test shows what is in CONTRIBUTING.md."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import hub_client
import option_scenarios
from hub_server import HubServer
from option_scenarios import FILES, SCENARIOS, SMALL, TOGETHER
from tokenmill.config import Config, Partition
from tokenmill.run import SilentWatch
from tokenmill.run.finish import finish
from tokenmill.run.partition import encode_partition
from tokenmill.runners import Stopped
from tokenmill.runners.inline import InlineRunner

each = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    return option_scenarios.write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture
def url(s3, bucket) -> str:
    """The same files in a bucket."""
    for name in FILES:
        data = option_scenarios.file_bytes(name)
        s3.client().put_object(Bucket=bucket, Key=f"corpus/{name}", Body=data)
    return f"s3://{bucket}"


class StopAfterOne(SilentWatch):
    """Ends the attempt after the first record that is new."""

    has_one = False

    def recorded(self, record: object) -> None:
        self.has_one = True

    def should_stop(self) -> bool:
        return self.has_one


@each
def test_option_when_the_run_is_stopped_again_and_again_then_the_oracles_documents(
    scenario, base, tmp_path
):
    out, num_stopped = str(tmp_path / "out"), 0
    while num_stopped < 200:
        try:
            scenario.prepared(base, out, watch=StopAfterOne())
            break
        except Stopped:
            num_stopped += 1
    assert num_stopped >= 2
    scenario.check(out)


@each
def test_option_when_encoded_in_tasks_then_the_oracles_documents(scenario, base, tmp_path):
    out = str(tmp_path / "out")
    given = {**SMALL, **scenario.options, "num_proc": 1}
    config = Config(sources=scenario.sources(base), out=out, **given)
    for number in (3, 1, 2):
        encode_partition(config, Partition(number, 3), InlineRunner(), SilentWatch())
    finish(out, num_proc=1)
    scenario.check(out)


@each
def test_option_when_corpus_and_output_are_in_a_bucket_then_the_oracles_documents(scenario, url):
    scenario.prepared(f"{url}/corpus", f"{url}/out", slice_bytes=12_000)  # a few slices
    scenario.check(f"{url}/out")


@each
def test_option_when_the_corpus_is_on_the_hub_then_the_oracles_documents(
    scenario, tmp_path, monkeypatch
):
    files = {f"data/{name}": option_scenarios.file_bytes(name) for name in FILES}
    with HubServer(files) as server:
        hub_client.connect(monkeypatch, server.url, tmp_path / "home")
        scenario.prepared(f"hf://datasets/{server.repo}/data", str(tmp_path / "out"))
    scenario.check(str(tmp_path / "out"))


@pytest.mark.parametrize("num_proc", [2, 4])
def test_options_together_when_several_workers_then_the_oracles_documents(num_proc, base, tmp_path):
    TOGETHER.prepared(base, str(tmp_path / "out"), num_proc=num_proc)
    TOGETHER.check(str(tmp_path / "out"))


def test_options_together_when_on_ray_and_in_a_bucket_then_the_oracles_documents(url):
    """In a process of its own: Ray leaves files and threads behind in the one it was used in."""
    code = "import json, sys, tokenmill; tokenmill.prepare(**json.loads(sys.argv[1]))"
    given = {"sources": TOGETHER.sources(f"{url}/corpus"), "out": f"{url}/out", "runner": "ray"}
    given |= {**TOGETHER.options, "val": "none", "slice_bytes": 12_000}
    given |= {"num_proc": 2, "ray_address": "local"}
    command = [sys.executable, "-c", code, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    TOGETHER.check(f"{url}/out")
