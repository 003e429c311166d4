"""The self-check is done once: its verdict goes to other processes with the identity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tokenmill
from tests.encodings.test_huggingface import byte_level, saved
from tests.encodings.test_rank_files import BYTES, write_ranks
from tokenmill.encodings import EncodingId, get_encoding, huggingface, loading, rank_engine
from tokenmill.encodings.verdict import _VERDICTS, remember, verdict_of
from tokenmill.runners.worker import load


def as_in_a_new_process() -> None:
    for known in (loading._ENGINES, loading._REFERENCES, _VERDICTS):
        known.clear()


@pytest.fixture(autouse=True)
def forgotten_at_the_end() -> Iterator[None]:
    """A verdict that a test made up is not for other tests of the same file."""
    yield
    as_in_a_new_process()


def of_json(folder: Path) -> EncodingId:
    return get_encoding(saved(byte_level(), folder)).identity


def of_unusual_json(folder: Path) -> EncodingId:
    return get_encoding(saved(byte_level(normalizer="Lowercase"), folder)).identity


def of_ranks(folder: Path) -> EncodingId:
    ranks = write_ranks(folder / "small.tiktoken", [*BYTES, b"he", b"ll"])
    return get_encoding(ranks, pattern="gpt2", eot=300).identity


@pytest.mark.parametrize(
    ("identity_in", "is_exact"), [(of_json, True), (of_unusual_json, False), (of_ranks, True)]
)
def test_worker_when_told_the_verdict_then_does_not_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identity_in, is_exact: bool
) -> None:
    identity = identity_in(tmp_path)
    order = {"encoding": identity.to_plain()}
    as_in_a_new_process()
    assert load({**order, "verdict": None}, lambda: None) == ("ready", is_exact)
    engine = type(loading.engine_of(identity))
    as_in_a_new_process()
    for module in (huggingface, rank_engine):
        monkeypatch.setattr(module, "agree", lambda *_: pytest.fail("checked again"))
    assert load({**order, "verdict": is_exact}, lambda: None) == ("ready", is_exact)
    assert type(loading.engine_of(identity)) is engine
    assert bool(loading._REFERENCES) is not is_exact  # the reference is loaded if it serves


@pytest.mark.parametrize("told", [None, False])
def test_verdict_when_workers_run_then_goes_to_them_and_comes_back(
    tmp_path: Path, told: bool | None
) -> None:
    identity = of_json(tmp_path)
    source = tmp_path / "a.txt"
    source.write_text("the mill grinds the grain\n")
    as_in_a_new_process()
    remember(identity, told)
    tokenmill.prepare(source, tmp_path / "out", tokenizer=tmp_path / "tokenizer.json", num_proc=2)
    assert verdict_of(identity) is (told is None)
