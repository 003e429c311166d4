"""Named sources, from files to shards, against lists and a loop."""

from __future__ import annotations

import json
import random
import shlex
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import oracle
import pages
import tokenmill
import warm
from corpora import made_texts
from tokenmill.cli import main
from tokenmill.cli.run_options import typed_sources
from tokenmill.config import Config, Partition
from tokenmill.corpus.plan import Plan
from tokenmill.dataset.places import plan_path
from tokenmill.dataset.push.card import card_of
from tokenmill.encode.record import Counts
from tokenmill.errors import ConfigError, ConflictError, InputError, IntegrityError
from tokenmill.run import SilentWatch
from tokenmill.run.finish import finish
from tokenmill.run.partition import encode_partition
from tokenmill.runners import Stopped
from tokenmill.runners.inline import InlineRunner

EOT = oracle.EOT["gpt2"]
NAMES = ("web", "code", "books")


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict]]:
    """What each source has; a book has its text only."""
    rng = random.Random(16)
    texts = {name: made_texts(n, seed=n) for name, n in zip(NAMES, (150, 90, 40), strict=True)}
    web = [{"text": text, "score": rng.randrange(5)} for text in texts["web"]]
    web[11]["text"], web[80]["text"], web[140]["text"] = "", None, ""
    code = [{"content": text, "stars": rng.choice([1, 9, None])} for text in texts["code"]]
    return {"web": web, "code": code, "books": [{"text": text} for text in texts["books"]]}


@pytest.fixture(scope="module")
def corpus(rows, tmp_path_factory) -> Path:
    """web/ of two parquet files, code/ of JSON lines, one of them broken, and books.txt."""
    folder = tmp_path_factory.mktemp("corpus")
    for name in ("web", "code"):
        (folder / name).mkdir()
    table = pa.Table.from_pylist(rows["web"])
    for number, some in enumerate((table.slice(0, 100), table.slice(100))):
        pq.write_table(some, folder / "web" / f"{number}.parquet", row_group_size=30)
    lines = [json.dumps(row) for row in rows["code"]]
    lines.insert(5, "{")
    (folder / "code" / "a.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "books.txt").write_text("\x01".join(row["text"] for row in rows["books"]))
    return folder


def sources_of(corpus: Path, **code: object) -> dict[str, object]:
    return {
        "web": {"paths": [str(corpus / "web")], "where": "score >= 2"},
        "code": {"paths": str(corpus / "code"), "text_column": "content", "repeat": 2, **code},
        "books": {"paths": corpus / "books.txt", "separator": "\x01"},
    }


def copies_of(rows: dict[str, list[dict]], repeat: int = 2) -> list[tuple[str, list[list[int]]]]:
    """The oracle: the documents of each copy of each source, in order."""
    web = [row["text"] for row in rows["web"] if row["score"] >= 2 and row["text"]]
    code = [row["content"] for row in rows["code"]]
    books = [row["text"] for row in rows["books"]]
    texts = [("web", web), *[("code", code)] * repeat, ("books", books)]
    return [(name, oracle.ids(some)) for name, some in texts]


def documents_of(rows: dict[str, list[dict]]) -> list[list[int]]:
    return [document for _, documents in copies_of(rows) for document in documents]


def options(**more: object) -> dict[str, object]:
    given = {"val": "none", "slice_bytes": 6000, "num_proc": 1, "max_bad_fraction": 0.1}
    return {**given, **more}


def split_into_documents(data: bytes) -> list[tuple[int, ...]]:
    found, document = [], []
    for at in range(0, len(data), 2):
        document.append(int.from_bytes(data[at : at + 2], "little"))
        if document[-1] == EOT:
            found.append(tuple(document))
            document = []
    assert not document
    return found


def require_verified(out: Path, **where: object) -> None:
    """Every check was made, also against the sources, and passed."""
    report = tokenmill.verify(out, full=True, **where)
    checks = {check.name: check for check in report.checks}
    assert not report.failures
    assert (checks["inputs"].status, checks["sources"].status) == ("passed", "passed"), str(
        checks["inputs"].detail
    )


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("num_proc", [1, 2, 4])
def test_sources_when_any_number_of_workers_then_the_oracles_documents_and_counts(
    num_proc, rows, corpus, tmp_path
):
    manifest = tokenmill.prepare(sources_of(corpus), tmp_path, **options(num_proc=num_proc))
    assert (tmp_path / "train.bin").read_bytes() == oracle.stream(documents_of(rows))
    assert list(manifest.sources) == list(NAMES) == list(tokenmill.open(tmp_path).manifest.sources)
    web, code, books = (manifest.sources[name] for name in NAMES)
    passed = [row for row in rows["web"] if row["score"] >= 2]
    assert web.counts.num_rows == 150 and web.counts.num_filtered == 150 - len(passed)
    assert web.counts.num_empty == sum(row["text"] == "" for row in passed)
    assert web.counts.num_null == sum(row["text"] is None for row in passed)
    assert (code.counts.num_rows, code.counts.num_quarantined) == (182, 2)
    assert code.counts.text_bytes == 2 * sum(len(row["content"].encode()) for row in rows["code"])
    assert books.counts == Counts(
        40, 40, text_bytes=sum(len(r["text"].encode()) for r in rows["books"])
    )
    for name, found in manifest.sources.items():
        own = [document for one, some in copies_of(rows) if one == name for document in some]
        assert found.num_tokens == sum(map(len, own)) and found.counts.is_conserved
        assert asdict(found.splits["train"]) == {
            "num_tokens": found.num_tokens,
            "num_documents": len(own),
        }
    assert manifest.counts == web.counts + code.counts + books.counts
    require_verified(tmp_path)


def test_sources_when_divided_among_tasks_then_the_same_dataset(corpus, tmp_path):
    tokenmill.prepare(sources_of(corpus), tmp_path / "whole", **options(shuffle=True))
    given = options(shuffle=True, out=str(tmp_path / "parted"))
    for number in (3, 1, 2):
        config = Config(sources=sources_of(corpus), **given)
        encode_partition(config, Partition(number, 3), InlineRunner(), SilentWatch())
    finish(str(tmp_path / "parted"), max_bad_fraction=0.1, num_proc=1)
    assert files_of(tmp_path / "parted") == files_of(tmp_path / "whole")


def test_slices_when_sources_are_small_then_none_has_two_sources_or_copies(corpus, tmp_path):
    class Stop(SilentWatch):
        def should_stop(self) -> bool:
            return True

    given = options(slice_bytes="32M")
    with pytest.raises(Stopped):
        tokenmill.prepare(sources_of(corpus), tmp_path, watch=Stop(), **given)
    plan = Plan.load(plan_path(str(tmp_path)))
    assert [slice_.source for slice_ in plan.slices] == ["web", "code", "code", "books"]
    assert [plan.slices.source_of(at) for at in range(4)] == ["web", "code", "code", "books"]
    tokenmill.prepare(sources_of(corpus), tmp_path, **given)  # it continues


def test_repeat_when_split_and_shuffled_then_copies_share_a_split_and_not_a_place(
    rows, corpus, tmp_path
):
    given = options(val="fraction", val_fraction=0.3, shuffle=True)
    manifest = tokenmill.prepare(sources_of(corpus), tmp_path, **given)
    found = {
        s: split_into_documents((tmp_path / f"{s}.bin").read_bytes()) for s in ("train", "val")
    }
    assert Counter(found["train"] + found["val"]) == Counter(map(tuple, documents_of(rows)))
    assert not set(found["train"]) & set(found["val"])
    code = [tuple(document) for document in copies_of(rows)[1][1]]
    for split, documents in found.items():
        own = [document for document in documents if document in set(code)]
        assert len(own) == manifest.sources["code"].splits[split].num_documents
        assert len(own) == 2 * len(set(own)) > 0
        firsts = [documents.index(document) for document in set(own)]
        assert sum(documents[at + 1] == documents[at] for at in firsts) < len(firsts) / 2


def until(documents: list[list[int]], num_tokens: int) -> list[list[int]]:
    found: list[list[int]] = []
    for document in documents:
        if sum(map(len, found)) >= num_tokens:
            break
        found.append(document)
    return found


@pytest.mark.parametrize("where", ["web", "second copy of code", "books", "nowhere"])
def test_limit_tokens_when_sources_have_names_then_the_first_documents_and_their_counts(
    where, rows, corpus, tmp_path
):
    sizes = [sum(map(len, documents)) for _, documents in copies_of(rows)]
    places = ["web", "code", "second copy of code", "books", "nowhere"]
    limit = sum(sizes[: places.index(where)]) + 500
    manifest = tokenmill.prepare(sources_of(corpus), tmp_path, **options(limit_tokens=limit))
    expected = until(documents_of(rows), limit)
    assert (tmp_path / "train.bin").read_bytes() == oracle.stream(expected)
    left = len(expected)
    counts = Counter()
    for name, documents in copies_of(rows):
        counts[name] += min(left, len(documents))
        left -= min(left, len(documents))
    assert {n: found.counts.num_written for n, found in manifest.sources.items()} == counts
    notes = [note for note in manifest.notes if note.startswith("source ")]
    assert notes == [f"source {n} has no document in this dataset" for n in NAMES if not counts[n]]
    require_verified(tmp_path)


@pytest.mark.parametrize("num_docs", [10, 200, 260, 10_000])
def test_limit_docs_when_a_source_is_repeated_then_counts_every_copy(
    num_docs, rows, corpus, tmp_path
):
    sources = {name: sources_of(corpus)[name] for name in ("code", "books")}
    given = options(limit_docs=num_docs)
    manifest = tokenmill.prepare(sources, tmp_path, **given)
    code = [json.dumps(row) for row in rows["code"]]
    code.insert(5, "{")  # a row too, though no document
    lines = [("code", line) for line in code * 2] + [("books", row) for row in rows["books"]]
    counts = Counter(name for name, _ in lines[:num_docs])
    assert {n: found.counts.num_rows for n, found in manifest.sources.items()} == {
        name: counts[name] for name in sources
    }
    texts = [
        json.loads(t)["content"] for name, t in lines[:num_docs] if name == "code" and t != "{"
    ]
    texts += [row["text"] for name, row in lines[:num_docs] if name == "books"]
    assert (tmp_path / "train.bin").read_bytes() == oracle.stream(oracle.ids(texts))


def test_sample_when_one_source_has_it_then_the_rows_that_a_run_of_it_alone_would_take(
    corpus, tmp_path, capsys
):
    code = {"paths": str(corpus / "code"), "text_column": "content"}
    alone = options(text_column="content", sample=0.5)
    tokenmill.prepare(corpus / "code", tmp_path / "alone", **alone)
    sources = {"a": {**code, "sample": 0.5}, "b": {**code, "sample": 1.0}}
    tokenmill.prepare(sources, tmp_path / "both", progress=True, **options(sample=0.2))
    tokenmill.prepare(corpus / "code", tmp_path / "all", **options(text_column="content"))
    parts = [(tmp_path / name / "train.bin").read_bytes() for name in ("alone", "all", "both")]
    assert parts[2] == parts[0] + parts[1] and len(parts[0]) < len(parts[1])
    manifest = tokenmill.open(tmp_path / "both").manifest
    assert "code/a.jsonl belongs to the sources a and b" in capsys.readouterr().err
    assert manifest.sources["b"].counts.num_filtered == 0
    require_verified(tmp_path / "both")


def test_verify_when_sources_have_moved_and_one_has_its_own_input_format_then_finds_them(
    rows, corpus, tmp_path
):
    (tmp_path / "then").mkdir()
    (tmp_path / "then" / "books.data").write_bytes((corpus / "books.txt").read_bytes())
    sources = sources_of(corpus)
    sources["books"] |= {"paths": tmp_path / "then" / "books.data", "input_format": "text"}
    tokenmill.prepare(sources, tmp_path / "out", **options())
    (tmp_path / "then").rename(tmp_path / "now")
    with pytest.raises(AssertionError, match=r"books\.data was not found where it was"):
        require_verified(tmp_path / "out")
    places = [corpus / "web", corpus / "code", tmp_path / "now" / "books.data"]
    require_verified(tmp_path / "out", sources=places)


def test_verify_when_the_counts_of_a_source_are_wrong_then_says_so(corpus, tmp_path):
    tokenmill.prepare(sources_of(corpus), tmp_path, **options())
    path = tmp_path / "tokenmill.json"
    plain = json.loads(path.read_text())
    del plain["sha256"]
    plain["sources"]["web"]["num_tokens"] += 1
    path.write_text(json.dumps(plain))
    _, failure = tokenmill.verify(tmp_path).failures  # the first says that the manifest was changed
    assert "but the sources have" in failure.message
    plain["sources"]["extra"] = plain["sources"]["web"]
    path.write_text(json.dumps(plain))
    with pytest.raises(IntegrityError, match="sources that the options do not name"):
        tokenmill.open(tmp_path)


def test_run_without_names_when_finished_then_nothing_tells_of_names(corpus, tmp_path):
    class Stop(SilentWatch):
        def should_stop(self) -> bool:
            return True

    with pytest.raises(Stopped):
        tokenmill.prepare(corpus / "web", tmp_path, watch=Stop(), **options())
    plan = json.loads(Path(plan_path(str(tmp_path))).read_bytes().split(b"\n")[0])
    assert all(len(fields) == 7 for fields in plan["inputs"])
    assert "named" not in plan["identity"]["options"] and "source_paths" not in plan
    tokenmill.prepare(corpus / "web", tmp_path, **options())
    manifest = json.loads((tmp_path / "tokenmill.json").read_text())
    assert "sources" not in manifest and "named" not in manifest["identity"]["options"]
    assert manifest["inputs"][0].keys() == {"path", "num_bytes", "digest"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repeat": 1}, r"options.named.code.repeat: was 2, now None"),
        ({"where": "stars == 9"}, r"options.named.code.where: was None, now 'stars == 9'"),
        ({"paths": "books.txt"}, r"input removed: code=.*a.jsonl"),
    ],
)
def test_source_when_it_changes_then_run_and_dataset_are_in_conflict(
    change, message, corpus, tmp_path
):
    tokenmill.prepare(sources_of(corpus), tmp_path, **options())
    sources = sources_of(corpus, **change)
    if "paths" in change:  # the same files, in other sources
        sources["code"] |= {"paths": corpus / "books.txt"}
        sources["books"] |= {"paths": corpus / "code"}
        for table in sources.values():
            table.pop("text_column", None), table.pop("separator", None)
        given = options(text_column="content", separator="\x01")
    with pytest.raises(ConflictError, match=message):
        tokenmill.prepare(sources, tmp_path, **(given if "paths" in change else options()))


def test_repeat_when_the_first_shard_would_be_held_out_then_refused(corpus, tmp_path):
    with pytest.raises(ConfigError, match="documents of the first shard") as caught:
        tokenmill.prepare(sources_of(corpus), tmp_path, format="llmc")
    assert "--val-fraction" in caught.value.hint


def test_repeat_when_too_few_documents_to_choose_among_then_nothing_is_held_out(tmp_path):
    (tmp_path / "a.txt").write_text("The miller sleeps. " * 200)
    sources = {"a": {"paths": tmp_path / "a.txt", "repeat": 3}}
    manifest = tokenmill.prepare(sources, tmp_path / "out", num_proc=1)
    assert list(manifest.splits) == ["train"] and manifest.counts.num_written == 3
    assert any("nothing is held out" in note for note in manifest.notes)
    require_verified(tmp_path / "out")


@pytest.mark.parametrize(("dedup", "splits"), [(None, ["train"]), ("exact", ["train", "val"])])
def test_shared_file_when_too_few_documents_to_choose_among_then_no_copy_is_held_out(
    dedup, splits, tmp_path
):
    (tmp_path / "a.txt").write_text("The miller sleeps. " * 200)
    sources = {name: str(tmp_path / "a.txt") for name in ("a", "b")}
    manifest = tokenmill.prepare(sources, tmp_path / "out", num_proc=1, dedup=dedup)
    assert list(manifest.splits) == splits
    require_verified(tmp_path / "out")


@pytest.mark.parametrize(
    ("where", "dedup", "is_refused"),
    [
        ((None, None), None, True),
        (("score >= 2", None), None, True),
        (("score >= 2", "score < 2"), None, False),
        ((None, None), "exact", False),
    ],
)
def test_shared_file_when_the_first_shard_would_be_held_out_then_refused(
    where, dedup, is_refused, corpus, tmp_path
):
    sources = {
        name: {"paths": str(corpus / "web"), "where": own}
        for name, own in zip("ab", where, strict=True)
    }
    given = {"format": "llmc", "num_proc": 1, "dedup": dedup}
    if is_refused:
        with pytest.raises(ConfigError, match="the sources a and b, so documents of the first"):
            tokenmill.prepare(sources, tmp_path, **given)
        assert not list(tmp_path.iterdir())
    else:
        assert "val" in tokenmill.prepare(sources, tmp_path, **given).splits


def test_estimate_when_sources_have_names_then_counts_each_as_it_is_read(rows, corpus, tmp_path):
    total = sum(map(len, documents_of(rows)))
    found = tokenmill.estimate(sources_of(corpus))
    assert (found.num_tokens, found.method) == (total, "counted")
    assert found.num_inputs == 4
    sampled = tokenmill.estimate({**sources_of(corpus, sample=0.5)})
    own = options(val="none", slice_bytes=32 << 20)
    made = tokenmill.prepare(sources_of(corpus, sample=0.5), tmp_path / "out", **own)
    assert sampled.num_tokens == made.num_tokens < total
    with pytest.raises(InputError, match="source books: no such file or folder"):
        tokenmill.estimate({**sources_of(corpus), "books": "nowhere.txt"})


def test_card_when_sources_have_names_then_has_the_file_that_makes_it_and_no_local_path(
    corpus, tmp_path
):
    manifest = tokenmill.prepare(sources_of(corpus), tmp_path, **options())
    card = card_of(manifest, "me/mine", "main").decode()
    assert "tokenmill prepare --config tokenmill.toml -o OUT" in card
    assert '[source.code]\npaths = ["SOURCE"]\nrepeat = 2\ntext_column = "content"' in card
    assert str(corpus) not in card
    assert f"| books | 40 | 40 | {manifest.sources['books'].counts.text_bytes:,} |" in card


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"we b": "x"}, "a source cannot be named 'we b'"),
        ({"web": {"paths": "x", "reapeat": 2}}, "source web: unknown option 'reapeat'"),
        ({"web": {"repeat": 2}}, "source web has no paths"),
        ({"web": 3}, "source web is a path, several paths or a table, got 3"),
        ({"web": {"paths": ["a", 3]}}, "source web is a path, several paths or a table"),
        ({"web": []}, "source web has no paths"),
        ({"web": {"paths": "x", "repeat": 0.5}}, "source web: repeat is a whole number"),
        ({"web": {"paths": "x", "repeat": True}}, "source web: repeat is a whole number"),
        ({"web": {"paths": "x", "where": "a ="}}, "source web: --where: "),
        ({"web": {"paths": "x", "sample": 2}}, "source web: --sample must lie between"),
        ({}, "no source given"),
    ],
)
def test_source_when_it_is_written_wrongly_then_says_what_and_where(given, message):
    with pytest.raises(ConfigError, match=message):
        Config(sources=given, out="out")


def test_option_when_no_input_of_the_source_heeds_it_then_refused(corpus, tmp_path):
    sources = sources_of(corpus, separator="x")
    with pytest.raises(ConfigError, match="source code: --separator separates documents in text"):
        tokenmill.prepare(sources, tmp_path, **options())
    with pytest.raises(ConfigError, match=r"source web: .*no column 'content'") as caught:
        tokenmill.prepare(
            {"web": corpus / "web", "b": corpus / "books.txt"},
            tmp_path,
            **options(text_column="content"),
        )
    assert "[source.web]" in caught.value.hint


def test_typed_source_when_it_could_be_a_file_then_the_file_wins_or_is_asked_for(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "year=2024").mkdir()
    (tmp_path / "a=b.txt").write_text("x")
    assert typed_sources(["year=2024", "year=20*", "a=b.txt", "dir/x=y"]) == [
        *("year=2024", "year=20*", "a=b.txt", "dir/x=y")
    ]
    assert typed_sources(["web=s3://b/k=v/", "code=me/set:x@main", "y=a/*.txt"]) == {
        "web": {"paths": "s3://b/k=v/"},
        "code": {"paths": "me/set:x@main"},
        "y": {"paths": "a/*.txt"},
    }
    (tmp_path / "b.txt").write_text("y")
    for words, message in [
        (["a=b.txt"], r"a=b.txt may be the file of that name, or b.txt as a source named a"),
        (["x=1", "x=2"], "two sources are named x: 1 and 2"),
        (["x=1", "b.txt"], "b.txt has no name, and other sources have one"),
        (["x="], "source x has no path"),
    ]:
        with pytest.raises(ConfigError, match=message):
            typed_sources(words)
    assert typed_sources(["./a=b.txt"]) == ["./a=b.txt"]
    assert typed_sources(["a=./b.txt"]) == {"a": {"paths": "./b.txt"}}


def test_command_when_sources_are_named_then_summary_and_inspect_count_by_source(
    corpus, tmp_path, capfd
):
    command = ["prepare", f"web={corpus}/web/*.parquet", f"books={corpus}/books.txt"]
    command += ["--val-fraction", "0.2"]
    assert main([*command, "-o", str(tmp_path), "--num-proc", "1"]) == 0
    said = capfd.readouterr().err
    assert "    web    150 rows = 147 written + 2 empty + 1 null + 0 quarantined; " in said
    assert "    books  1 row = 1 written + " in said
    assert main(["inspect", str(tmp_path)]) == 0
    shown = capfd.readouterr().out
    heading = next(line for line in shown.splitlines() if line.startswith("source"))
    assert heading.split() == [
        *("source", "rows", "documents", "filtered", "empty", "null", "quarantined"),
        *("text", "tokens", "train", "val"),
    ]
    assert main(["inspect", str(tmp_path), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["sources"]["web"]["counts"]["num_rows"] == 150
    assert main([*command, "-o", str(tmp_path), "--num-proc", "1"]) == 0
    assert "is already complete" in capfd.readouterr().err


BLOCKS = [(block.language, block.text) for block in pages.blocks_of(pages.DOCS / "sources.md")]


def test_guide_when_typed_then_every_block_of_it_runs(tmp_path, monkeypatch):
    """One after the other, in a folder with such a corpus."""
    rng = random.Random(7)
    (tmp_path / "corpus" / "web").mkdir(parents=True)
    (tmp_path / "corpus" / "code").mkdir()
    texts = made_texts(120, seed=7)
    columns = {"text": texts, "int_score": rng.choices(range(6), k=120), "language": ["en"] * 120}
    pq.write_table(pa.table(columns), tmp_path / "corpus" / "web" / "000.parquet")
    rows = [json.dumps({"content": text, "text": text}) for text in texts[:50]]
    (tmp_path / "corpus" / "code" / "a.jsonl").write_text("\n".join(rows))
    (tmp_path / "corpus" / "books.txt").write_text("<|endoftext|>".join(made_texts(30, seed=8)))
    monkeypatch.chdir(tmp_path)
    for language, text in BLOCKS:
        if language == "toml":
            Path("tokenmill.toml").write_text(text)
        elif language == "python":
            exec(compile(text, "docs/sources.md", "exec"), {})
        for line in text.splitlines() if language == "sh" else ():
            if line.startswith("cmp "):
                _, one, other = line.split()
                assert Path(one).read_bytes() == Path(other).read_bytes()
                continue
            words, _, to = line.partition(" > ")
            done = warm.tokenmill(*shlex.split(words)[1:], cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            if to:
                Path(to).write_text(done.stdout)
    assert {language for language, _ in BLOCKS} == {"sh", "toml", "python", "text"}
    manifest = tokenmill.open("data/mine").manifest
    assert manifest.sources["code"].counts.num_rows == 100
    assert manifest.sources["web"].counts.num_filtered > 0
    assert list(tokenmill.open("data/from-python").manifest.sources) == ["web", "code"]


def test_dedup_when_sources_are_named_then_the_first_source_has_the_text(tmp_path):
    texts = {"a": ["one", "two", "one"], "b": ["two", "three", "three", "four"]}
    for name, of_it in texts.items():
        lines = (json.dumps({"text": text}) for text in of_it)
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    sources = {name: tmp_path / f"{name}.jsonl" for name in texts}
    options = {"dedup": "exact", "runner": "inline", "val": "none"}
    manifest = tokenmill.prepare(sources, tmp_path / "out", **options)
    found = {name: one.counts for name, one in manifest.sources.items()}
    assert {name: (c.num_written, c.num_duplicates) for name, c in found.items()} == {
        "a": (2, 1),
        "b": (2, 2),
    }
    assert tokenmill.verify(tmp_path / "out", full=True).is_complete
    twice = {"a": {"paths": sources["a"], "repeat": 2}}
    with pytest.raises(ConfigError, match="would remove what `repeat` repeats"):
        tokenmill.prepare(twice, tmp_path / "again", dedup="exact")


def test_standard_input_when_it_has_a_name_then_it_is_counted_by_it(tmp_path, monkeypatch):
    (tmp_path / "in.jsonl").write_text('{"text": "some"}\n' * 9)
    with (tmp_path / "in.jsonl").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        manifest = tokenmill.prepare(
            {"web": "-"}, tmp_path / "out", input_format="jsonl", runner="inline"
        )
    assert manifest.sources["web"].counts.num_written == 9
    assert [*manifest.sources["web"].paths] == ["-"]
