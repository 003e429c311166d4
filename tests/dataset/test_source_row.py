"""The way back from a document to the row of its source, against a list of where each text is."""

from __future__ import annotations

import gzip
import json
import os
import re
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill
from corpora import made_texts
from tokenmill.dataset.inspect import LookedInto, document, look_into
from tokenmill.dataset.verify import source_row
from tokenmill.dataset.verify.source_corpus import NotAtHand
from tokenmill.dataset.verify.source_row import Document, DocumentSources, require_planned

TEXTS = [f"{text} #{number}#" for number, text in enumerate(made_texts(60, seed=3))]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> list[str]:
    """Ten rows in each file, of which the third has no text; a row group has four."""
    folder = tmp_path_factory.mktemp("rows")
    files: dict[str, list[str | None]] = {
        name: [*TEXTS[10 * n : 10 * n + 2], None, *TEXTS[10 * n + 2 : 10 * n + 10]]
        for n, name in enumerate(("a.parquet", "b.arrow", "c.jsonl", "d.jsonl.gz", "e.parquet"))
    }
    for name, texts in files.items():
        table = pa.table({"text": texts})
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        if name.endswith("parquet"):
            pq.write_table(table, folder / name, row_group_size=4)
        elif name.endswith("arrow"):
            path = str(folder / name)
            with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=4)
        elif name.endswith("gz"):
            (folder / name).write_bytes(gzip.compress(lines.encode()))
        else:
            (folder / name).write_text(lines)
    return [str(folder / name) for name in files]


def expected_place(text: str) -> tuple[str, str]:
    """By the number at the end of a text."""
    number = int(re.findall(r"#(\d+)#$", text)[0])
    file = ("a.parquet", "b.arrow", "c.jsonl", "d.jsonl.gz", "e.parquet")[number // 10]
    row = number % 10 + (number % 10 > 1)
    return file, f"line {row + 1}" if "jsonl" in file else f"row {row}"


def one_of(looked: LookedInto, split: str, number: int) -> Document:
    view = document(looked, split, number, 0)
    return Document(split, number, view.start, view.stop, view.kept)


WAYS: dict[str, dict[str, Any]] = {
    "kept": {"keep": "", "val_fraction": 0.2},
    "kept and shuffled": {"keep": "", "shuffle": True, "val_fraction": 0.2},
    "kept without copies": {"keep": "", "dedup": "exact"},
    "in order": {"val_fraction": 0.2},
    "shuffled": {"shuffle": True, "val": "none"},
    "shuffled and held out": {"shuffle": True, "val_fraction": 0.2},
    "shuffled and held out, in small chunks": {"shuffle": True, "val_fraction": 0.2},
    "cut at a token": {"format": "npy", "shard_tokens": 700},
    "some rows": {"where": "len(text) > 200", "keep": "", "val": "none"},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_document_leads_to_its_row(corpus, tmp_path, way, monkeypatch):
    if "chunks" in way:
        monkeypatch.setattr("tokenmill.encode.part.CHUNK_BYTES", 50)
        monkeypatch.setattr("tokenmill.encode.mill.HOLD_BATCHES", 1)
    out = str(tmp_path / "out")
    tokenmill.prepare(corpus, out, runner="inline", slice_bytes=4000, **WAYS[way])
    looked = look_into(out)
    assert bool(looked.dataset.manifest.slice_chunks) == ("chunks" in way)
    rows, seen = DocumentSources(looked.dataset), []
    for split in looked.dataset.streams:
        for number in range(looked.num_documents(split) or 0):
            one = one_of(looked, split, number)
            row = rows.row(one)
            assert (os.path.basename(row.file), row.place) == expected_place(row.texts[0])
            compared = rows.compared(one, row, looked.encoding.identity)
            tokens = looked.dataset.streams[split].tokens(one.start, one.stop)
            ids = [token for token in tokens.tolist() if token != 50256]
            is_whole = looked.encoding.encode_ordinary(row.texts[0]) == ids
            assert compared.verdict == ("same" if is_whole else "part"), compared
            seen.append(row.texts[0])
    assert len(seen) >= 15 and set(seen) <= set(TEXTS)
    if way in ("kept", "in order", "shuffled") or "held out" in way:
        assert sorted(seen) == sorted(TEXTS[:50])


def test_documents_of_one_list_are_told_apart(tmp_path):
    lists = [["one", "two"], [], ["three", "two"]]
    pq.write_table(pa.table({"text": lists}), tmp_path / "lists.parquet")
    out = str(tmp_path / "out")
    options: dict[str, Any] = {"lists": "documents", "keep": "", "val": "none"}
    tokenmill.prepare(str(tmp_path / "lists.parquet"), out, runner="inline", **options)
    looked = look_into(out)
    rows, found = DocumentSources(looked.dataset), []
    for number in range(4):
        one = one_of(looked, "train", number)
        row = rows.row(one)
        found.append((row.place, row.texts[rows.compared(one, row, looked.made_with).text]))
    assert found == [("row 0", "one"), ("row 0", "two"), ("row 2", "three"), ("row 2", "two")]


def test_source_that_changed_or_went_is_said(tmp_path):
    path, out = tmp_path / "c.jsonl", str(tmp_path / "out")
    lines = [json.dumps({"text": text}) + "\n" for text in TEXTS[:5]]
    path.write_text("".join(lines))
    tokenmill.prepare(str(path), out, runner="inline", keep="", val="none")
    looked = look_into(out)
    rows, one = DocumentSources(looked.dataset), one_of(looked, "train", 3)
    forged = one._replace(kept={**(one.kept or {}), "_row": 2})
    assert rows.compared(one, rows.row(forged), looked.made_with).verdict == "differs"
    with pytest.raises(NotAtHand, match="no document in row 99 now"):
        rows.row(one._replace(kept={**(one.kept or {}), "_row": 99}))
    with pytest.raises(NotAtHand, match="is not an input"):
        rows.row(one._replace(kept={**(one.kept or {}), "_file": "/etc/passwd"}))
    path.write_text("".join(reversed(lines)))
    with pytest.raises(NotAtHand, match="has changed since it was read"):
        rows.row(one)
    path.unlink()
    with pytest.raises(NotAtHand, match="was not found where it was") as gone:
        DocumentSources(looked.dataset).row(one._replace(kept=None))
    assert gone.value.hint


@pytest.mark.parametrize("keep", ["", None])
def test_source_that_moved_is_found_by_its_contents(tmp_path, keep):
    (tmp_path / "then").mkdir()
    lines = [json.dumps({"text": text}) + "\n" for text in TEXTS[:5]]
    (tmp_path / "then" / "c.jsonl").write_text("".join(lines))
    out = str(tmp_path / "out")
    tokenmill.prepare(str(tmp_path / "then"), out, runner="inline", keep=keep, val="none")
    (tmp_path / "then").rename(tmp_path / "now")
    looked = look_into(out)
    one = one_of(looked, "train", 3)
    with pytest.raises(NotAtHand) as lost:
        DocumentSources(looked.dataset).row(one)
    assert lost.value.hint and lost.value.hint.startswith("--source DIR")
    rows = DocumentSources(looked.dataset, [str(tmp_path / "now")])
    assert rows.row(one).texts == (TEXTS[3],)
    (tmp_path / "now" / "c.jsonl").write_text("".join(reversed(lines)))
    with pytest.raises(NotAtHand, match="has changed since it was read"):
        DocumentSources(looked.dataset, [str(tmp_path / "now")]).row(one)


def test_what_only_the_whole_corpus_tells_is_refused(corpus, tmp_path):
    tokenmill.prepare(corpus, tmp_path / "out", runner="inline", dedup="exact")
    looked = look_into(str(tmp_path / "out"))
    with pytest.raises(NotAtHand) as refused:
        DocumentSources(looked.dataset).row(one_of(looked, "train", 3))
    assert refused.value.hint and "--keep" in refused.value.hint


@pytest.mark.parametrize("keep", ["", None])
def test_row_deep_in_a_compressed_file_is_refused(tmp_path, monkeypatch, keep):
    lines = "".join(json.dumps({"text": text}) + "\n" for text in (*["ab " * 2**21] * 2, "short"))
    (tmp_path / "deep.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 1))
    options = {"keep": keep, "val": "none", "runner": "inline"}
    tokenmill.prepare(str(tmp_path / "deep.jsonl.gz"), tmp_path / "out", **options)
    looked = look_into(str(tmp_path / "out"))
    rows, one = DocumentSources(looked.dataset), one_of(looked, "train", 2)
    assert rows.row(one).texts == ("short",)
    monkeypatch.setattr(source_row, "MAX_READ_BYTES", 1 << 20)
    with pytest.raises(NotAtHand, match="after more than 1 MB of") as refused:
        rows.row(one)
    assert refused.value.hint and "parquet" in refused.value.hint


@pytest.mark.parametrize("keep", ["", None])
def test_row_behind_many_that_where_leaves_out_is_looked_for_in_bounded_time(
    tmp_path, monkeypatch, keep
):
    lines = "".join(json.dumps({"text": f"{n} " * 2**20, "n": n}) + "\n" for n in range(9))
    (tmp_path / "deep.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 1))
    options = {"keep": keep, "val": "none", "runner": "inline", "where": "n == 8"}
    tokenmill.prepare(str(tmp_path / "deep.jsonl.gz"), tmp_path / "out", **options)
    looked = look_into(str(tmp_path / "out"))
    rows, one = DocumentSources(looked.dataset), one_of(looked, "train", 0)
    assert rows.row(one).place == "line 9"
    monkeypatch.setattr(source_row, "MAX_READ_SECONDS", 0.0)
    with pytest.raises(NotAtHand, match=r"0 s of .*deep\.jsonl\.gz that cannot be skipped"):
        rows.row(one)


@pytest.mark.parametrize(
    ("options", "num_bytes", "num_documents", "reason"),
    [
        ({"limit_tokens": 10**10}, 10**11, 10, "cut short"),
        ({"shuffle": True}, 10**6, 10**9, "1,000,000,000 documents"),
    ],
)
def test_row_when_finding_it_would_take_minutes_then_says_so(
    options, num_bytes, num_documents, reason
):
    one = SimpleNamespace(path="a.jsonl.zst", num_bytes=num_bytes)
    identity = {"options": {"limit_tokens": None, "shuffle": False, **options}}
    manifest = SimpleNamespace(identity=identity, inputs=[one], num_documents=num_documents)
    with pytest.raises(NotAtHand, match=reason):
        require_planned(manifest)
    one.num_bytes, manifest.num_documents = 10**6, 10
    require_planned(manifest)


def test_row_without_keep_when_many_inputs_are_in_a_store_then_says_so():
    inputs = [SimpleNamespace(path=f"s3://bucket/{n}.parquet", num_bytes=9) for n in range(64)]
    identity = {"options": {"limit_tokens": None, "shuffle": False}}
    manifest = SimpleNamespace(identity=identity, inputs=inputs, num_documents=9)
    require_planned(manifest)
    inputs.append(SimpleNamespace(path="s3://bucket/a.csv", num_bytes=9))
    with pytest.raises(NotAtHand, match="65 objects in a store") as refused:
        require_planned(manifest)
    assert refused.value.hint and "--keep" in refused.value.hint
    require_planned(manifest, ["copies"])  # which are at hand
    del inputs[0]
    inputs[-1].num_bytes = 10**9
    with pytest.raises(NotAtHand, match="would all have to be read"):
        require_planned(manifest)
