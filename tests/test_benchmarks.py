"""What the benchmark says is only worth what its comparisons are."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import oracle

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # before tests/, which has a corpus, too

import against  # noqa: E402
import answers  # noqa: E402
import contestants  # noqa: E402
import corpus  # noqa: E402
import results  # noqa: E402
import table  # noqa: E402

EOT = 50256
DOCUMENTS = [[1, 2, 3], [4], [5, 6]]


def written(folder: Path, documents: list[list[int]], prepend: bool = False) -> str:
    folder.mkdir()
    ids = [[EOT, *d] if prepend else [*d, EOT] for d in documents]
    np.concatenate(ids).astype(np.uint16).tofile(folder / "a.bin")
    return str(folder)


def test_answers_when_eot_and_order_vary_then_are_equal(tmp_path):
    one = answers.answer(written(tmp_path / "a", DOCUMENTS), "*.bin", EOT)
    other = answers.answer(written(tmp_path / "b", DOCUMENTS[::-1], prepend=True), "*.bin", EOT)
    assert answers.differs(one, other) == ""
    assert (one.num_documents, one.num_tokens) == (3, 6)


@pytest.mark.parametrize(
    ("documents", "what"),
    [
        ([[1, 2, 3], [4], [5, 7]], "other ids"),
        ([[1, 2, 3], [4, 5], [6]], "other ids"),
        ([[1, 2, 3], [4], [5]], "5 tokens instead of 6"),
        ([[1, 2, 3], [4]], "2 documents instead of 3"),
    ],
)
def test_answers_when_a_document_differs_then_say_so(tmp_path, documents, what):
    right = answers.answer(written(tmp_path / "a", DOCUMENTS), "*.bin", EOT)
    wrong = answers.answer(written(tmp_path / "b", documents), "*.bin", EOT)
    assert answers.differs(wrong, right) == what


@pytest.mark.parametrize("loop", ["bare.py", "lean.py"])
def test_bare_loop_when_run_then_gives_the_oracles_tokens(tmp_path, loop):
    recipe = corpus.Recipe(60_000, row_group=10)
    folder = recipe.corpus(str(tmp_path))
    texts = [text for path in sorted(Path(folder).iterdir()) for text in texts_of(path)]
    command = [sys.executable, str(BENCHMARKS / "limits" / loop), folder]
    subprocess.run([*command, str(tmp_path / "out"), "2"], check=True)
    found = answers.answer(str(tmp_path / "out"), "*.bin", EOT)
    wanted = written(tmp_path / "oracle", oracle.ids(texts, eot="none"))
    assert answers.differs(found, answers.answer(wanted, "*.bin", EOT)) == ""


def test_cores_when_run_then_writes_every_measurement_with_its_ratio(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "cores.py"), "--bytes", "100K", "--rounds", "1"]
    command += ["--workers", "1,2", "--folder", str(tmp_path), "--file-bytes", "100K"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "cores.json").read_text())
    rows = {(row["what"], row["num_workers"]): row for row in found["rows"]}
    ways = ("lean loop", "nanogpt", "llmc", "shuffle", "verify", "convert")
    assert list(rows) == [(way, n) for n in (1, 2) for way in ways[:4]] + [
        (way, n) for n in (1, 2) for way in ways[4:]
    ]
    loop, ours = rows["lean loop", 2], rows["nanogpt", 2]
    assert ours["ratio"] == pytest.approx(loop["seconds"] / ours["seconds"], rel=0.01)
    assert ours["peak_disk_bytes"] >= ours["output_bytes"] > 0
    assert 0 < ours["driver_cpu_seconds"] < ours["cpu_seconds"]
    assert not (tmp_path / "out").exists()


def test_cores_when_the_seconds_are_spent_then_leaves_out_and_says_so(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "cores.py"), "--bytes", "100K", "--seconds", "0"]
    command += ["--workers", "2", "--folder", str(tmp_path), "--file-bytes", "100K"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nanogpt x2: left out" in done.stdout
    assert json.loads((tmp_path / "cores.json").read_text())["rows"] == []


IMPORTED = re.compile(r"\bfrom (tokenmill[\w.]*) import (\([^)]*\)|[\w, ]+)")


@pytest.mark.parametrize("folder", ["benchmarks", "tools", "examples"])
def test_scripts_when_they_import_from_the_package_then_it_is_there(folder):
    """Nobody runs all of them after every change. Programs in strings count, too."""
    found = 0
    for path in (BENCHMARKS.parent / folder).rglob("*.py"):
        for module, names in IMPORTED.findall(path.read_text()):
            for name in re.findall(r"\w+", re.sub(r" as \w+", "", names)):
                imported = importlib.import_module(module)
                if hasattr(imported, "__path__") and not hasattr(imported, name):
                    importlib.import_module(f"{module}.{name}")
                assert hasattr(imported, name), f"{path}: {module} has no {name}"
                found += 1
    assert found > 2 or folder == "examples"


def test_stages_when_listed_then_every_function_is_there():
    code = "import stages; print(stages.wrap_all(stages.Clock()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def texts_of(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    return pq.read_table(path, columns=["text"])["text"].to_pylist()


def test_corpus_when_made_twice_or_as_jsonl_then_has_the_same_text(tmp_path):
    recipe = corpus.Recipe(60_000, row_group=10)
    one, two = (recipe.corpus(str(tmp_path / name)) for name in ("a", "b"))
    lines = corpus.Recipe(60_000, row_group=10, layout="jsonl").corpus(str(tmp_path))
    names = sorted(path.name for path in Path(one).iterdir())
    texts = [text for name in names for text in texts_of(Path(one, name))]
    assert texts == [text for name in names for text in texts_of(Path(two, name))]
    files = sorted(Path(lines).iterdir())
    rows = [line for file in files for line in file.read_text().splitlines()]
    assert texts == [json.loads(row)["text"] for row in rows]
    assert len(names) == 4


def cost(command: list[str], log: str = "") -> subprocess.CompletedProcess[str]:
    """measure.cost in a process of its own: it takes in all orphans, and ends those that stay."""
    code = (
        "import sys, measure; measure.ORPHAN_SECONDS = 60;"
        f"print(measure.cost({command!r}, log={log!r}).cpu_seconds)"
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARKS, capture_output=True, text=True, check=False
    )


def test_cost_when_a_grandchild_is_orphaned_then_its_cpu_seconds_count():
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    orphan = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}])"
    assert float(cost([sys.executable, "-c", orphan]).stdout) >= 0.4


def test_cost_when_the_command_fails_then_says_what_it_said(tmp_path):
    command = [sys.executable, "-c", "raise SystemExit('no such corpus')"]
    assert "no such corpus" in cost(command, str(tmp_path / "log")).stderr


@pytest.mark.parametrize(
    ("target", "value", "at_most", "verdict"),
    [
        (25.0, 30.0, False, ""),
        (25.0, 20.0, False, "missed by 20%"),
        (1.25, 1.2, True, ""),
        (1.25, 1.5, True, "missed by 20%"),
    ],
)
def test_goal_when_missed_then_says_by_how_much(target, value, at_most, verdict):
    assert table.goal("it", target, value, at_most=at_most).split("|")[-2].strip() == verdict


def test_tables_when_made_again_then_they_are_those_on_the_pages():
    found = results.load()
    names = {row["name"] for row in found["table"]}
    assert len(table.SHORT) == 5 and names.issuperset(table.SHORT)
    for path, name, lines in table.blocks(found):
        text = Path(path).read_text()
        assert table.replaced(text, name, lines) == text, "make chart"


def test_place_of_a_table_when_missing_then_is_named():
    with pytest.raises(LookupError, match="no place for bench"):
        table.replaced("<!-- bench-short:begin -->\n<!-- bench-short:end -->", "bench", [])


@pytest.mark.parametrize(
    ("contestant", "start", "rate"),
    [
        (contestants.TOKENMILL, 1.0, 25.0),  # 100 MB in 4 s that are not start-up
        (contestants.TOKENMILL, 4.0, 20.0),  # cannot be: nothing is taken off
        (contestants.PEERS[0], 1.0, 25.0),
        (contestants.PEERS[0], 4.0, 100.0),
    ],
)
def test_net_rate_when_start_up_is_in_doubt_then_favours_the_others(contestant, start, rate):
    race = SimpleNamespace(
        contestant=contestant, start_seconds=start, text_mb=100.0, start_mb=0.0, seconds=[5.0]
    )
    assert results.net_rates(race) == [rate]


def test_case_when_a_tree_is_slower_then_shows_both_and_the_change():
    case = against.Case("start-up", "snappy", 10_000, [], {"old": [1.0, 1.2, 3.0], "new": [1.5]})
    assert case.change == pytest.approx(0.25)
    assert str(case).split() == ["start-up", "1.20", "(1.00-3.00)", "1.50", "(1.50-1.50)", "+25.0%"]
