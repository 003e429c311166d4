"""Tokenizers learned from a corpus: the same file every time, and usable at once."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiktoken
import tiktoken.load
import tokenizers

import pages
import tokenmill
from tokenmill.cli import main
from tokenmill.config import Config
from tokenmill.encodings.loading import engine_of
from tokenmill.encodings.patterns import PATTERNS
from tokenmill.errors import ConfigError, ConflictError, InputError
from tokenmill.vocabulary import counting
from tokenmill.vocabulary.comparison import compare
from tokenmill.vocabulary.training import COUNTS_SUFFIX, TrainingOptions, TrainingWatch, train

WORDS = [
    "der",
    "die",
    "Wörter",
    "token",
    "mill",
    "shards",
    "isn't",
    "1234567",
    "中文",
    "résumé",
    "\n",
]


@pytest.fixture
def corpus(tmp_path) -> Path:
    rng = random.Random(0)
    texts = [" ".join(rng.choices(WORDS, k=rng.randrange(1, 40))) for _ in range(600)]
    table = pa.table({"text": [*texts, None], "keep": [i % 2 for i in range(600)] + [1]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=20)
    return tmp_path / "a.parquet"


def trained(corpus: Path, out: Path, options: TrainingOptions | None = None, **config):
    asked = Config(**({"sources": (str(corpus),), "out": str(out), "slice_bytes": 2000} | config))
    return train(asked, options or TrainingOptions(400))


def test_training_when_threads_and_slices_differ_then_the_bytes_do_not(corpus, tmp_path):
    first = trained(corpus, tmp_path / "a.json", num_proc=1)
    for number, slice_bytes in ((2, 900), (4, 1 << 20)):
        again = trained(
            corpus, tmp_path / f"{number}.json", num_proc=number, slice_bytes=slice_bytes
        )
        assert again.sha256 == first.sha256
    assert first.num_documents == 600
    assert 280 < first.vocab_size < 400  # there is no more to merge
    assert not list(tmp_path.glob(f"*{COUNTS_SUFFIX}"))


@pytest.mark.parametrize(
    "pattern", ["gpt2", "cl100k", "o200k", "qwen", r"[\p{L}\p{N}]+|[^\p{L}\p{N}]"]
)
def test_training_when_it_is_done_then_prepare_tokenizers_and_tiktoken_agree(
    pattern, corpus, tmp_path
):
    options = TrainingOptions(350, pattern, ("<|endoftext|>", "<|pad|>"))
    made = trained(corpus, tmp_path / "my.json", options)
    ours = tokenmill.get_encoding(tmp_path / "my.json")
    ranks = tokenmill.get_encoding(
        tmp_path / "my.tiktoken", pattern=pattern, eot=f"<|endoftext|>={ours.eot_token}"
    )
    theirs = tokenizers.Tokenizer.from_file(made.path)
    library = tiktoken.Encoding(
        "my",
        pat_str=PATTERNS[pattern].expression if pattern in PATTERNS else pattern,
        mergeable_ranks=tiktoken.load.load_tiktoken_bpe(made.ranks_path),
        special_tokens=made.special_tokens,
    )
    texts = pq.read_table(corpus)["text"].to_pylist()[:-1]
    for text in texts[:50]:
        ids = theirs.encode(text).ids
        assert ours.encode_ordinary(text) == ids == ranks.encode_ordinary(text)
        assert library.encode_ordinary(text) == ids
        assert library.encode(text + "<|pad|>", allowed_special="all")[-1] == made.vocab_size - 1
    is_fast = type(engine_of(ours.identity)).__name__ == "GigatokenEngine"
    assert is_fast == (pattern in PATTERNS)
    used = [id_ for text in texts for id_ in theirs.encode(text).ids]
    assert made.num_training_tokens == len(used)
    assert made.num_unused == made.vocab_size - 2 - len(set(used))
    assert ours.eot_token == theirs.token_to_id("<|endoftext|>") == made.vocab_size - 2


def test_training_when_a_corpus_is_prepared_with_it_then_it_opens_verifies_converts_and_decodes(
    corpus, tmp_path
):
    trained(corpus, tmp_path / "my.json")
    options = {"tokenizer": tmp_path / "my.json", "runner": "inline"}
    tokenmill.prepare(corpus, tmp_path / "out", val_fraction=0.1, **options)
    tokenizer = tmp_path / "my.json"
    assert tokenmill.verify(tmp_path / "out", full=True, tokenizer=tokenizer).is_complete
    tokenmill.convert(tmp_path / "out", tmp_path / "npy", format="npy")
    assert tokenmill.verify(tmp_path / "npy", tokenizer=tokenizer).is_whole
    split = tokenmill.open(tmp_path / "npy", tokenizer=tokenizer)["train"]
    assert split.text(0) in pq.read_table(corpus)["text"].to_pylist()


def test_training_when_it_is_interrupted_then_it_continues_to_the_same_bytes(
    corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(counting, "GROUP", 2)
    whole = trained(corpus, tmp_path / "whole.json", num_proc=1)

    class Impatient(TrainingWatch):
        done = 0

        def counted(self, text_bytes: int) -> None:
            self.done += text_bytes
            if self.done > whole.text_bytes / 2:
                raise KeyboardInterrupt

    asked = Config(
        sources=(str(corpus),), out=str(tmp_path / "my.json"), slice_bytes=2000, num_proc=1
    )
    with pytest.raises(KeyboardInterrupt):
        train(asked, TrainingOptions(400), watch=Impatient())
    kept = tmp_path / f"my.json{COUNTS_SUFFIX}"
    counts = kept.read_bytes()
    seen = []
    monkeypatch.setattr(TrainingWatch, "counted", lambda watch, size: seen.append(size))
    assert train(asked, TrainingOptions(400)).sha256 == whole.sha256
    assert seen[0] > 0.3 * whole.text_bytes  # was here already
    (tmp_path / "my.json").unlink()  # as if killed when only the ranks were there
    kept.write_bytes(counts)
    assert train(asked, TrainingOptions(400)).sha256 == whole.sha256
    assert not kept.exists()


_KILLED = """
import os, sys
from tokenmill.config import Config
from tokenmill.vocabulary import counting
from tokenmill.vocabulary.training import TrainingOptions, TrainingWatch, train

class Killer(TrainingWatch):
    seen = 0

    def counted(self, text_bytes):
        self.seen += 1
        if self.seen == 6:
            os.kill(os.getpid(), 9)

counting.GROUP = 2
sources, out = (sys.argv[1],), sys.argv[2]
train(Config(sources=sources, out=out, slice_bytes=2000), TrainingOptions(400), watch=Killer())
"""


def test_training_when_it_is_killed_then_the_next_run_continues_and_removes_what_it_left(
    corpus, tmp_path, monkeypatch
):
    whole = trained(corpus, tmp_path / "whole.json")
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    command = [sys.executable, "-c", _KILLED, str(corpus), str(tmp_path / "my.json")]
    killed = subprocess.run(command, env={**os.environ, "TMPDIR": str(scratch)}, check=False)
    assert killed.returncode == -signal.SIGKILL
    [left] = scratch.iterdir()
    os.utime(left, (0, 0))  # one that is new may be another run's that has not locked it yet
    assert (tmp_path / f"my.json{COUNTS_SUFFIX}").exists()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    assert trained(corpus, tmp_path / "my.json").sha256 == whole.sha256
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("damage", [b"", b"ARROW1 half", None, "footer"])
def test_training_when_what_was_kept_is_not_this_runs_then_it_is_counted_again(
    damage, corpus, tmp_path
):
    first = trained(corpus, tmp_path / "a.json")
    kept = tmp_path / f"b.json{COUNTS_SUFFIX}"
    if not isinstance(damage, bytes):
        counting.SavedCounts(str(kept), "another plan").save(1, counting.WordTable.empty())
    if damage == "footer":
        data = kept.read_bytes()
        kept.write_bytes(data[:-60] + b"\xff" * 40 + data[-20:])
    elif damage is not None:
        kept.write_bytes(damage)
    assert trained(corpus, tmp_path / "b.json").sha256 == first.sha256


@pytest.mark.parametrize("kind", ["text", "arrow", "folder", "pipe"])
def test_training_when_something_else_has_the_name_of_the_counts_then_it_is_refused(
    kind, corpus, tmp_path
):
    place = tmp_path / f"my.json{COUNTS_SUFFIX}"
    if kind == "text":
        place.write_text("a\t1\nb\t2\n")
    elif kind == "arrow":
        with pa.ipc.new_file(place, pa.schema([("word", pa.string())])):
            pass
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    was = place.read_bytes() if place.is_file() else None
    (tmp_path / "my.tiktoken").write_text("another's")
    asked = Config(sources=(str(corpus),), out=str(tmp_path / "my.json"))
    for overwrite in (False, True):
        with pytest.raises(ConflictError, match=r"my\.json\.counts is in the way"):
            train(asked, TrainingOptions(400), overwrite=overwrite)
    assert (place.read_bytes() if place.is_file() else None) == was
    assert (tmp_path / "my.tiktoken").read_text() == "another's"
    assert not (tmp_path / "my.json").exists()


def test_training_when_there_are_too_many_words_then_the_rarest_go_and_are_counted(
    corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(counting, "MAX_WORDS", 10)
    made = trained(corpus, tmp_path / "a.json")
    assert made.num_words <= 10
    assert 0 < made.dropped_share < 0.5
    monkeypatch.setattr(counting, "MAX_WORD_BYTES", 20)
    short = trained(corpus, tmp_path / "b.json")
    assert short.num_words < made.num_words
    monkeypatch.setattr(counting, "MAX_WORD_BYTES", 0)
    with pytest.raises(InputError, match="all words are too rare"):
        trained(corpus, tmp_path / "c.json")


def test_command_when_rows_are_chosen_then_it_learns_from_these(corpus, tmp_path, capsys):
    out = tmp_path / "my.json"
    arguments = ["--vocab-size", "300", "--where", "keep == 1", "--json", "-q", "--no-report"]
    assert main(["tokenizer", "train", str(corpus), "-o", str(out), *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["num_documents"] == 300
    assert main(["tokenizer", "train", str(corpus), "-o", str(out), *arguments]) == 6
    small = ["--vocab-size", "300", "--sample", "5K", "--overwrite", "--json"]
    assert main(["tokenizer", "train", str(corpus), "-o", str(out), *small]) == 0
    made = json.loads(capsys.readouterr().out)
    assert 1000 < made["text_bytes"] < 20_000
    assert [one["name"] for one in made["comparison"]] == [str(corpus), "all"]


def test_command_when_it_is_done_then_it_reports_by_source_beside_the_usual_tokenizers(
    corpus, tmp_path, capsys
):
    (tmp_path / "b.txt").write_text("plain English words, nothing else")
    sources = [f"mixed={corpus}", f"english={tmp_path}/b.txt"]
    words = ["-o", str(tmp_path / "my.json"), "--vocab-size", "300", "--special-token", "<fin>"]
    assert main(["tokenizer", "train", *sources, *words]) == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines()]
    first = next(i for i, line in enumerate(lines) if line[:3] == ["bytes", "per", "token"])
    assert lines[first][3:] == ["my", "gpt2", "cl100k_base", "o200k_base"]
    table = {line[0]: line[1:] for line in lines[first + 1 : first + 5]}
    assert [*table] == ["mixed", "english", "all", "never"]
    [next_] = [line for line in shown.splitlines() if line.startswith("next")]
    out = str(tmp_path / "out")
    prepare = shlex.split(next_)[2:]
    assert main([str(corpus) if word == "SOURCE" else word for word in [*prepare[:-1], out]]) == 0
    english = (tmp_path / "b.txt").read_text()
    for column, name in enumerate(["gpt2", "cl100k_base", "o200k_base"], 1):
        num_tokens = len(tokenmill.get_encoding(name).encode_ordinary(english))
        assert table["english"][column].rstrip("*") == f"{len(english) / num_tokens:.3f}"


def test_training_when_sources_have_options_of_their_own_then_each_is_read_with_its_own(
    corpus, tmp_path
):
    (tmp_path / "b.jsonl").write_text('{"body": "der Text heißt anders"}\n' * 5)
    toml = f"""[source.a]
paths = ["{corpus}"]
where = "keep == 1"
[source.b]
paths = ["{tmp_path}/b.jsonl"]
text_column = "body"
repeat = 2
"""
    (tmp_path / "tokenmill.toml").write_text(toml)
    words = ["--config", str(tmp_path / "tokenmill.toml"), "-o", str(tmp_path / "my.json")]
    assert main(["tokenizer", "train", *words, "--vocab-size", "300", "-q"]) == 0
    texts = pq.read_table(corpus, filters=[("keep", "==", 1)])["text"].drop_null().to_pylist()
    both = tmp_path / "both.parquet"
    pq.write_table(pa.table({"text": texts + ["der Text heißt anders"] * 10}), both)
    alone = trained(both, tmp_path / "alone.json", TrainingOptions(300))
    assert alone.num_documents == 310
    assert (tmp_path / "my.json").read_bytes() == (tmp_path / "alone.json").read_bytes()


def test_training_when_the_configuration_has_what_it_does_not_use_then_it_says_so(
    corpus, tmp_path, capsys
):
    rest = ["-o", str(tmp_path / "my.json"), "--vocab-size", "300", "-q", "--overwrite"]
    for options, names in [
        ('dedup = "exact"\nlimit_tokens = 100', "dedup and limit_tokens"),
        ("limit_tokens = 100", "limit_tokens"),
        ("limit_docs = 100", None),
    ]:
        (tmp_path / "a.toml").write_text(f'sources = ["{corpus}"]\n{options}\n')
        assert main(["tokenizer", "train", "--config", str(tmp_path / "a.toml"), *rest]) == 0
        note = (
            f"note: training does not use {names} of the configuration; "
            "--sample 2GB limits how much text it learns from\n"
        )
        assert capsys.readouterr().err == ("" if names is None else note)


def test_compare_when_files_differ_then_each_has_its_line(corpus, tmp_path, capsys):
    trained(corpus, tmp_path / "my.json")
    (tmp_path / "b.txt").write_text("plain English words, nothing else")
    sources = ["--corpus", str(corpus), str(tmp_path / "b.txt"), "--json"]
    assert main(["tokenizer", "compare", str(tmp_path / "my.json"), "gpt2", *sources]) == 0
    own, english, both = json.loads(capsys.readouterr().out)
    encoding = tokenmill.get_encoding("gpt2")
    assert english["tokenizers"]["gpt2"]["tokens"] == len(
        encoding.encode_ordinary("plain English words, nothing else")
    )
    assert own["tokenizers"]["my"]["bytes_per_token"] > own["tokenizers"]["gpt2"]["bytes_per_token"]
    assert both["text_bytes"] == own["text_bytes"] + english["text_bytes"]


def test_compare_when_two_files_have_one_name_then_each_has_its_column(corpus, tmp_path, capsys):
    for folder, size in (("a", 300), ("b", 350)):
        trained(corpus, tmp_path / folder / "my.json", TrainingOptions(size))
    paths = [str(tmp_path / "a/my.json"), str(tmp_path / "b/my.json")]
    assert main(["tokenizer", "compare", *paths, "gpt2", "--corpus", str(corpus), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[-1]["tokenizers"]
    assert [*found] == [*paths, "gpt2"]
    assert found[paths[0]]["bytes_per_token"] < found[paths[1]]["bytes_per_token"]


def test_compare_when_two_files_have_one_name_then_each_is_counted_alone(corpus, tmp_path, capsys):
    for folder, size in (("a", 300), ("b", 400)):
        trained(corpus, tmp_path / folder / "my.json", TrainingOptions(size))
    typed = [str(tmp_path / "a/my.json"), str(tmp_path / "b/my.json"), "gpt2", "gpt2"]
    alone = []
    for one in typed[:3]:
        assert main(["tokenizer", "compare", one, "--corpus", str(corpus), "--json"]) == 0
        alone += json.loads(capsys.readouterr().out)[-1]["tokenizers"].values()
    assert main(["tokenizer", "compare", *typed, "--corpus", str(corpus), "--json"]) == 0
    together = json.loads(capsys.readouterr().out)[-1]["tokenizers"]
    assert together == dict(zip(typed[:3], alone, strict=True))


def test_train_when_no_file_of_the_report_has_text_then_the_tokenizer_is_saved(tmp_path, capsys):
    for number in range(40):  # of which the report picks 20
        line = json.dumps({"text": "some words " * 50 if number == 39 else None})
        (tmp_path / f"{number:02}.jsonl").write_text(line + "\n")
    out = tmp_path / "out" / "my.json"
    command = ["tokenizer", "train", f"{tmp_path}/*.jsonl", "-o", str(out), "--vocab-size", "260"]
    assert main(command) == 0
    assert out.exists() and "learned" in capsys.readouterr().out


def test_train_when_it_is_called_like_a_builtin_then_the_report_has_both(corpus, tmp_path, capsys):
    out = str(tmp_path / "gpt2.json")
    command = ["tokenizer", "train", str(corpus), "-o", out, "--vocab-size", "300", "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)["comparison"][-1]["tokenizers"]
    assert {out, "gpt2"} <= set(found)
    assert found[out]["tokens"] != found["gpt2"]["tokens"]


def test_compare_when_the_corpus_is_on_the_hub_then_it_is_refused(capsys):
    assert main(["tokenizer", "compare", "gpt2", "--corpus", "Owner/Dataset"]) == 2
    assert "Owner/Dataset is on the Hub" in capsys.readouterr().err


def test_compare_when_files_are_many_then_some_are_taken_from_everywhere(tmp_path):
    for number in range(30):
        (tmp_path / f"{number:02}.txt").write_text(f"file {number}")
    config = Config(sources=(str(tmp_path),))
    found = compare({"gpt2": tokenmill.get_encoding("gpt2")}, config, max_files=3)
    assert [Path(one.name).stem for one in found] == ["00", "10", "20", "all"]


def test_compare_when_files_have_short_names_then_numbers_stand_below_their_tokenizers(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.txt").write_text("plain English words, nothing else")
    assert main(["tokenizer", "compare", "gpt2", "o200k_base", "--corpus", "b.txt"]) == 0
    header, first, *_ = capsys.readouterr().out.splitlines()
    assert [len(header), header.index("gpt2") + 4] == [len(first), first.index("*") + 1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"vocab_size": 100}, "between 257"),
        ({"vocab_size": 300, "special_tokens": ("<a>", "<a>")}, "each must be given once"),
        ({"vocab_size": 300, "special_tokens": ()}, "ends documents"),
    ],
)
def test_options_when_they_are_wrong_then_the_message_says_what_is_right(options, said):
    with pytest.raises(ConfigError, match=said):
        TrainingOptions(**options)


def test_training_when_nothing_goes_in_then_the_option_is_named_and_nothing_is_left(
    corpus, tmp_path, capsys
):
    folder = tmp_path / "out"
    command = ["tokenizer", "train", str(corpus), "-o", str(folder / "my.json")]
    for options, hint in (
        (["--sample", "1"], "a larger --sample: this one is 1 byte"),
        (["--where", "keep == 7"], "let more rows in: another --where"),
    ):
        assert main([*command, "--vocab-size", "300", *options]) == 3
        said = capsys.readouterr().err
        assert "nothing to train on" in said and f"hint: {hint}" in said
        assert not folder.exists() or not list(folder.iterdir())


def test_training_when_it_cannot_be_done_then_nothing_is_written(corpus, tmp_path):
    with pytest.raises(ConfigError, match="a tokenizer is a") as caught:
        trained(corpus, tmp_path / "my.model")
    assert caught.value.hint == f"-o {tmp_path}/my.json"
    (tmp_path / "there.json").write_text("{}")
    with pytest.raises(ConflictError, match=r"would overwrite .*there\.json"):
        trained(corpus, tmp_path / "there.json")
    (tmp_path / "ranks.tiktoken").write_text("another's")
    with pytest.raises(ConflictError, match=r"would overwrite .*ranks\.tiktoken"):
        trained(corpus, tmp_path / "ranks.json")
    assert (tmp_path / "ranks.tiktoken").read_text() == "another's"
    pq.write_table(pa.table({"text": pa.array([None], pa.string())}), tmp_path / "empty.parquet")
    with pytest.raises(InputError, match="nothing to train on"):
        trained(tmp_path / "empty.parquet", tmp_path / "no.json")
    with pytest.raises(ConfigError, match="cannot be used"):
        trained(corpus, tmp_path / "no.json", TrainingOptions(300, r"\w+"))
    for otherwise in (r"\p{N}{1,3}+|\s+|.", r"(\w)+|\W"):
        with pytest.raises(ConfigError, match="differently"):
            trained(corpus, tmp_path / "no.json", TrainingOptions(300, otherwise))
    with pytest.raises(ConfigError, match="it became an ordinary token"):
        trained(corpus, tmp_path / "no.json", TrainingOptions(350, "cl100k", ("token",)))
    assert not (tmp_path / "no.json").exists()


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
@pytest.mark.parametrize("name", ["my.json", "my.tiktoken"])
def test_training_when_its_output_is_an_input_then_it_is_refused(
    name, link, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(TrainingWatch, "planned", lambda *_: pytest.fail("work began"))
    source = tmp_path / ("corpus.jsonl" if link else name)
    source.write_text('{"text": "a b a b"}\n' * 20)
    was = source.read_bytes()
    if link:
        link(source, tmp_path / name)
    command = ["tokenizer", "train", str(source), "--input-format", "jsonl", "--overwrite"]
    assert main([*command, "--vocab-size", "300", "-o", str(tmp_path / "my.json")]) == 2
    assert f"its output {tmp_path / name} would replace it" in capsys.readouterr().err
    assert source.read_bytes() == was and (tmp_path / name).read_bytes() == was
    assert len(list(tmp_path.iterdir())) == (2 if link else 1)


@pytest.mark.parametrize("name", ["my.json", "my.tiktoken"])
def test_training_when_a_file_appears_meanwhile_then_it_is_not_replaced(corpus, tmp_path, name):
    class Another(TrainingWatch):
        def counted(self, text_bytes: int) -> None:
            (tmp_path / name).write_text("another's")

    config = Config(sources=(str(corpus),), out=str(tmp_path / "my.json"))
    with pytest.raises(ConflictError, match="appeared during the training"):
        train(config, TrainingOptions(300), watch=Another())
    assert (tmp_path / name).read_text() == "another's"
    assert train(config, TrainingOptions(300), overwrite=True).sha256


def test_training_when_two_run_at_once_then_one_of_them_is_refused(corpus, tmp_path):
    out = tmp_path / "my.json"

    class Second(TrainingWatch):
        found = None

        def counted(self, text_bytes: int) -> None:
            if self.found is None:
                self.found = trained(corpus, out, TrainingOptions(310))

    second, config = Second(), Config(sources=(str(corpus),), out=str(out))
    with pytest.raises(ConflictError, match="appeared during the training"):
        train(config, TrainingOptions(300), watch=second)
    assert hashlib.sha256(out.read_bytes()).hexdigest() == second.found.sha256
    assert len((tmp_path / "my.tiktoken").read_bytes().splitlines()) == 309
    # Two of the same write the same.
    second.found = None
    for path in tmp_path.glob("my.*"):
        path.unlink()
    assert train(config, TrainingOptions(310), watch=second).sha256 == second.found.sha256


def test_page_when_its_commands_are_run_then_they_work(corpus, tmp_path, monkeypatch, capsys):
    commands = pages.texts_of(pages.DOCS / "own-tokenizer.md", "sh")[0].splitlines()
    (tmp_path / "corpus").mkdir()
    corpus.rename(tmp_path / "corpus" / "a.parquet")
    monkeypatch.chdir(tmp_path)
    for command in commands:
        name, *words = shlex.split(command)
        assert name == "tokenmill"
        assert main([found for word in words for found in glob.glob(word) or [word]]) == 0
    assert "never used" in capsys.readouterr().out
    assert tokenmill.verify(tmp_path / "data" / "mine").is_whole
