"""`tokenmill inspect`: damaged and hostile folders are errors of ours."""

from __future__ import annotations

import contextlib
import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import made_texts
from inspected import inspect, prepared
from tokenmill.cli import main
from tokenmill.dataset.inspect import (
    document,
    glance,
    look_into,
    search_ids,
    search_text,
    token_offset,
)
from tokenmill.errors import IntegrityError, TokenmillError
from tokenmill.formats import NAMES


def fails(folder: Path | str, *arguments: str) -> str:
    """What stands on stderr; it must be an integrity error."""
    done = inspect(folder, *arguments)
    assert done.returncode == 5, done.stderr
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr
    return done.stderr


def test_unfinished_run_is_named_as_such(tmp_path):
    (tmp_path / "out" / ".tokenmill").mkdir(parents=True)
    assert "is not finished" in fails(tmp_path / "out")


@pytest.mark.parametrize("name", NAMES)
def test_truncated_missing_and_linked_files_are_named(name, tmp_path, small, capsys):
    out = prepared(tmp_path, small, format=name, val="none")
    manifest = json.loads((Path(out) / "tokenmill.json").read_text())
    for file in manifest["files"]:
        path = Path(out) / file["name"]
        data = path.read_bytes()
        damages = {
            "shorter": lambda path=path, data=data: path.write_bytes(data[:-2]),
            "empty": lambda path=path: path.write_bytes(b""),
            "missing": lambda path=path: path.unlink(),
            "folder": lambda path=path: (path.unlink(missing_ok=True), path.mkdir()),
        }
        outside = tmp_path / "outside"
        outside.write_bytes(data)
        for damage in damages.values():
            damage()
            assert main(["inspect", out]) == 5
            assert file["name"] in capsys.readouterr().err
        path.rmdir()
        path.symlink_to(outside)
        assert main(["inspect", out, "--doc", "0"]) == 5
        assert "leads out of the folder" in capsys.readouterr().err
        path.unlink()
        path.write_bytes(data)
    assert main(["inspect", out]) == 0


@pytest.mark.parametrize("name", ["megatron", "mds", "litdata", "parquet", "npy", "llmc"])
def test_wrong_magic_is_named(name, tmp_path, small):
    out = prepared(tmp_path, small, format=name, val="none")
    shard = json.loads((Path(out) / "tokenmill.json").read_text())["files"][0]["name"]
    path = Path(out) / shard.replace("_document.bin", "_document.idx")
    path.write_bytes(b"\0" * 8 + path.read_bytes()[8:-8] + b"\0" * 8)
    assert str(path) in fails(out)


def looked_at_from_all_sides(folder: str, **options: Any) -> None:
    looked = look_into(folder, **options)
    glance(looked)
    for split in looked.dataset.streams:
        if looked.stream(split).num_tokens:
            token_offset(looked, split, looked.stream(split).num_tokens - 1, 50)
        if looked.stream(split).knows_documents:
            for number in (0, 7):
                document(looked, split, number, 50)
        list(search_ids(looked, [split], [464, 3290], 5))
        if looked.token_bytes is not None:
            list(search_text(looked, [split], "mill", 5))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("has_manifest", [True, False])
def test_garbage_in_files_is_an_error_of_ours_or_garbage(name, has_manifest, tmp_path, small):
    out = prepared(tmp_path, small, format=name, val="none")
    names = [
        file["name"] for file in json.loads((Path(out) / "tokenmill.json").read_text())["files"]
    ]
    if not has_manifest:
        (Path(out) / "tokenmill.json").unlink()
    options = {} if has_manifest else {"tokenizer": "gpt2"}
    rng = np.random.default_rng(1)
    for file in names:
        path = Path(out) / file
        data = path.read_bytes()
        for trial in range(12):
            damaged = bytearray(data)
            if trial < 3:
                damaged[:] = rng.bytes(len(data))
            else:
                at = int(rng.integers(0, min(len(data), 200 if trial % 2 else len(data))))
                damaged[at : at + 4] = rng.bytes(len(damaged[at : at + 4]))
            if not has_manifest and trial % 3 == 0:
                damaged = damaged[: int(rng.integers(0, len(data)))]
            path.write_bytes(bytes(damaged))
            with contextlib.suppress(TokenmillError):
                looked_at_from_all_sides(out, **options)
        path.write_bytes(data)


def values_in(plain: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a JSON document."""
    found = [path] if path else []
    if isinstance(plain, dict):
        items: Any = plain.items()
    elif isinstance(plain, list):
        items = list(enumerate(plain))[:3]
    else:
        return found
    return found + [deeper for key, value in items for deeper in values_in(value, (*path, key))]


ODD = (
    None,
    True,
    -1,
    0,
    1,
    3.5,
    2**62,
    2**70,
    "",
    "x\x1b",
    "../x",
    "both",
    "none",
    [],
    [[5, 5]],
    {},
)


@pytest.mark.parametrize("name", ["nanogpt", "npy", "megatron", "mds", "parquet"])
def test_hostile_manifests_are_an_error_of_ours(name, tmp_path, share):
    texts = made_texts(12, seed=9)
    options = {} if name in ("nanogpt", "megatron") else {"shard_tokens": 300}
    out = prepared(tmp_path, texts, format=name, val="fraction", val_fraction=0.3, **options)
    path = Path(out) / "tokenmill.json"
    honest = json.loads(path.read_text())
    num_refused = 0
    for number, place in enumerate(values_in(honest)):
        if place[0] in ("inputs", "slice_documents") and len(place) > 1:
            continue
        for value in ODD[number % share :: share]:
            plain = copy.deepcopy(honest)
            inner = plain
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            path.write_text(json.dumps(plain))
            try:
                looked_at_from_all_sides(out)
            except TokenmillError as error:
                num_refused += error.exit_code == 5
    assert num_refused > 200 // share
    for text in ("", "[]", "{", "null", '{"tokenmill_manifest": 1}', "[" * 100_000, "\x00\xff"):
        path.write_text(text)
        with pytest.raises(IntegrityError, match=r"tokenmill\.json"):
            look_into(out)
    assert "tokenmill.json" in fails(out)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path, small):
    out = prepared(tmp_path, small, val="none")
    (Path(out) / "train.bin").unlink()
    os.mkfifo(Path(out) / "train.bin")
    assert "train.bin" in fails(out)
    (Path(out) / "tokenmill.json").unlink()
    done = inspect(out, timeout=20)
    assert done.returncode == 2 and "is not a dataset" in done.stderr
    os.mkfifo(Path(out) / "tokenmill.json")
    assert "tokenmill.json" in inspect(out, timeout=20).stderr


def test_unreadable_file_is_named(tmp_path, small):
    if os.getuid() == 0:
        pytest.skip("root reads everything")
    out = prepared(tmp_path, small, val="none")
    (Path(out) / "train.bin").chmod(0)
    done = inspect(out)
    assert done.returncode in (3, 5) and "train.bin" in done.stderr
