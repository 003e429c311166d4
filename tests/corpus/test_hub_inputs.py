"""Inputs from the tests' Hub, fetched before there is a plan where that is sure to be needed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hub_client import connect
from hub_corpus import FILES
from hub_server import HubServer
from tokenmill.config import Config
from tokenmill.corpus.hub_inputs import HubInputs
from tokenmill.corpus.spans import Slice, Span

NAME = "some/corpus"


@pytest.fixture
def remote_inputs(monkeypatch, tmp_path) -> Iterator[Callable[..., HubInputs]]:
    with HubServer(FILES, repo=NAME) as server, contextlib.ExitStack() as stack:
        connect(monkeypatch, server.url, tmp_path / "home")

        def made(**options: Any) -> HubInputs:
            sources = (f"hf://datasets/{NAME}/**/*.parquet",)
            config = Config(sources=sources, out=str(tmp_path / "out"), **options)
            found = HubInputs(config, str(tmp_path), lambda message: None)
            stack.callback(found.close)
            return found

        yield made


def slices_of(remote: HubInputs, order: int) -> list[Slice]:
    spans = [Span(source, 0, 1, 1) for source in remote.inputs[::order]]
    return [Slice(index, (span,)) for index, span in enumerate(spans)]


def test_files_that_are_all_needed_are_fetched_before_the_plan(remote_inputs):
    remote = remote_inputs()
    remote.begin_all(remote.inputs)
    while (found := remote.progress()).num_files < len(FILES):
        time.sleep(0.01)
    assert found.num_bytes == found.total_bytes
    assert [remote.structure_of(source) for source in remote.inputs] == remote.inputs


@pytest.mark.parametrize(
    "option", [{"limit_docs": 5}, {"limit_tokens": 5}, {"where": "number > 1"}]
)
def test_files_that_may_not_be_needed_wait_for_the_plan(option, remote_inputs):
    remote = remote_inputs(**option)
    remote.begin_all(remote.inputs)
    assert remote.progress() is None


@pytest.mark.parametrize("order", [1, -1])
def test_files_come_in_the_order_of_the_plan_even_if_they_were_begun_in_another(
    order, remote_inputs, monkeypatch
):
    monkeypatch.setattr("tokenmill.corpus.hub_inputs.AHEAD_BYTES", 100_000)  # one file
    remote = remote_inputs(keep_downloads=False)
    remote.begin_all(remote.inputs)
    slices = slices_of(remote, order)
    remote.begin(slices)
    arrived = []
    for slice_ in remote.as_they_arrive(slices):
        if slice_ is None:
            time.sleep(0.01)
        else:
            arrived.append(slice_)
            remote.release(slice_)
    assert arrived == slices
