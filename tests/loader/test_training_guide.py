"""docs/training.md: its blocks run as they stand, one after the other."""

from __future__ import annotations

import shlex

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pages
import tokenmill
from corpora import made_texts
from tokenmill.cli import main

pytest.importorskip("torch")
BLOCKS = [(block.language, block.text) for block in pages.blocks_of(pages.DOCS / "training.md")]


def test_guide_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, seed in (("web", 0), ("code", 1)):
        pq.write_table(pa.table({"text": made_texts(600, seed)}), f"{name}.parquet")
        tokenmill.prepare(f"{name}.parquet", f"data/{name}", runner="inline")
    names: dict[str, object] = {}
    shown = ""
    for language, block in BLOCKS:
        if language == "sh":
            for line in block.splitlines():
                assert main(shlex.split(line, comments=True)[1:]) == 0
            shown = capsys.readouterr().err
            continue
        if language == "":
            assert block in shown
            continue
        exec(compile(block, "docs/training.md", "exec"), names)
        assert "Traceback" not in capsys.readouterr().err
    assert names["state"]["rows"] == 32 and len(BLOCKS) == 9
    assert names["micro_batches"][3].shape == (8, 128)
