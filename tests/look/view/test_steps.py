"""What a step saw, against the Loader that really runs and the loop of a trainer."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenmill
from corpora import made_texts
from tests.look.view.served import asked, served
from tokenmill.errors import ConfigError, ConflictError
from tokenmill.look.view.steps import ShardAfterShard, steps_of_file

SEQ_LEN = 16
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """web, in shards; code, in another format."""
    folder = tmp_path_factory.mktemp("steps")
    for name, seed, options in (
        ("web", 1, {"format": "npy", "shard_tokens": 1500, "val": "none"}),
        ("code", 2, {"format": "nanogpt", "val": "none"}),
    ):
        lines = (json.dumps({"text": text}) + "\n" for text in made_texts(60, seed=seed))
        (folder / f"{name}.jsonl").write_text("".join(lines))
        out = folder / name
        tokenmill.prepare(folder / f"{name}.jsonl", out, runner="inline", **options)
    return folder


class TrainerLoop:
    """One process of build-nanogpt's train_gpt2.py, as it walks through the shards."""

    def __init__(self, shards: list[np.ndarray], batch: int, rank: int, world: int) -> None:
        self.shards, self.number, self.batch = shards, 0, batch
        self.rank, self.world = rank, world
        self.at = batch * SEQ_LEN * rank

    def next_batch(self) -> list[list[int]]:
        size = self.batch * SEQ_LEN
        buffer = self.shards[self.number][self.at : self.at + size + 1]
        assert len(buffer) == size + 1
        self.at += size * self.world
        if self.at + size * self.world + 1 > len(self.shards[self.number]):
            self.number = (self.number + 1) % len(self.shards)
            self.at = size * self.rank
        return buffer[:-1].reshape(self.batch, SEQ_LEN).tolist()


@pytest.mark.parametrize(("batch", "world", "micro"), [(4, 1, 1), (3, 3, 2), (5, 2, 3)])
def test_steps_of_shards_in_turn_are_those_of_the_trainers_loop(folder, batch, world, micro):
    shards = [np.load(path) for path in sorted((folder / "web").glob("*.npy"))]
    assert len(shards) > 2
    loops = [TrainerLoop(shards, batch, rank, world) for rank in range(world)]
    options = {"reader": "shards", "batch": batch, "seq_len": SEQ_LEN}
    options |= {"world": world, "micro_steps": micro}
    with served(str(folder / "web")) as server, tokenmill.open(folder / "web") as data:
        tokens = data["train"].tokens()
        for step in range(40):
            expected = []
            for _ in range(micro):
                expected += [row for loop in loops for row in loop.next_batch()]
            found = asked(server, "step", split="train", step=step, **options)
            starts = [row["start"] for row in found["rows"]]
            assert [tokens[s : s + SEQ_LEN].tolist() for s in starts] == expected, step
            assert [row["rank"] for row in found["rows"][: batch * world]] == [
                rank for rank in range(world) for _ in range(batch)
            ]


@pytest.mark.parametrize("shuffle", ["full", "block", None])
def test_steps_of_the_loader_are_what_it_gave(folder, shuffle):
    options: dict[str, Any] = {"seq_len": SEQ_LEN, "batch_size": 12, "seed": 5, "shuffle": shuffle}
    asks = {"reader": "loader", "seq_len": SEQ_LEN, "batch": 12, "seed": 5, "world": 3}
    asks |= {"shuffle": shuffle or "none"}
    ranks = [tokenmill.Loader(folder / "code", rank=r, world_size=3, **options) for r in range(3)]
    with served(str(folder / "code")) as server, tokenmill.open(folder / "code") as data:
        tokens = data["train"].tokens()
        for step, batches in enumerate(itertools.islice(zip(*ranks, strict=True), 50)):
            rows = asked(server, "step", split="train", step=step, **asks)["rows"]
            for rank, batch in enumerate(batches):
                starts = [row["start"] for row in rows if row["rank"] == rank]
                windows = [tokens[s : s + SEQ_LEN + 1].tolist() for s in starts]
                assert [one[:-1] for one in windows] == batch.tokens.tolist()
                assert [one[1:] for one in windows] == batch.targets.tolist()


def test_steps_of_a_mixture_come_from_its_file_and_its_state(folder, tmp_path):
    options = {"seq_len": SEQ_LEN, "batch_size": 8, "seed": 3, "skip": [[16, 24]]}
    options |= {"weights": {"web": 0.3, "code": 0.7}}
    sources = {"web": str(folder / "web"), "code": str(folder / "code")}
    loader = tokenmill.Loader(sources, **{**options, "skip": [(16, 24)]})
    given = list(itertools.islice(loader, 30))
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"sources": sources, **options, "state": loader.state_dict()}))
    run = steps_of_file(str(path))
    with served(str(folder / "web"), run=run) as server:
        told = asked(server, "dataset")["run"]
        assert told["step"] == 30 and told["batch"] == 8 and told["seq_len"] == SEQ_LEN
        seen = set()
        for step, batch in enumerate(given):
            rows = asked(server, "step", split="train", step=step, reader="run")["rows"]
            for row, expected in zip(rows, batch.tokens.tolist(), strict=True):
                with tokenmill.open(sources[row["source"]]) as data:
                    start = row["start"]
                    assert data["train"].tokens(start, start + SEQ_LEN).tolist() == expected
                assert row["is_here"] == (row["source"] == "web")
                assert f"--at train/token/{start}" in row["command"] or row["is_here"]
                seen.add(row["source"])
        assert seen == {"web", "code"}
    path.write_text(json.dumps({"sources": sources, **options, "seed": 4, "state": {"rows": 1}}))
    with pytest.raises((ConfigError, ConflictError)):
        steps_of_file(str(path))


def test_documented_run_file_is_understood(folder, tmp_path):
    text = (ROOT / "docs" / "view.md").read_text()
    [example] = re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL)
    path = tmp_path / "run.json"
    for old, new in (('"data/', f'"{folder}/'), ("1024", "16"), ("512", "8")):
        assert old in example
        example = example.replace(old, new)
    path.write_text(example)
    assert {row.source for row in steps_of_file(str(path)).rows(3, 0, 8)} == {"web", "code"}


BAD_FILES = [
    ("nothing", "is no JSON"),
    ("[]", "no JSON object"),
    ('{"seq_len": 4}', "which data"),
    ('{"sources": {"a": 3}}', "which data"),
    ('{"sources": "OUT", "seqlen": 4}', "no argument 'seqlen'"),
    ('{"sources": "OUT", "seq_len": 4, "batch_size": 2, "packed": true}', "packed rows"),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES)
def test_wrong_run_files_get_a_message(folder, tmp_path, text, message):
    path = tmp_path / "run.json"
    path.write_text(text.replace("OUT", str(folder / "code")))
    with pytest.raises(ConfigError, match=message):
        steps_of_file(str(path))
    with pytest.raises(ConfigError, match="No such file"):
        steps_of_file(str(tmp_path / "absent.json"))


def test_impossible_steps_get_a_message(folder):
    with pytest.raises(ConfigError, match="the trainer fails there"):
        ShardAfterShard("train", [100], 16, 4, 2).rows(0, 0, 8)
    with served(str(folder / "code")) as server:
        asks: dict[str, Any] = {"split": "train", "step": 0, "seq_len": 16, "batch": 6}
        for wrong in (
            {"reader": "nope"},
            {"reader": "run"},
            {"reader": "shards", "batch": 0},
            {"reader": "loader", "world": 4},
            {"reader": "loader", "shuffle": "<b>"},
            {"reader": "loader", "seq_len": 10**9},
        ):
            assert asked(server, "step", **{**asks, **wrong})["error"], wrong
