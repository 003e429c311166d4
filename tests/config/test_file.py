"""tokenmill.toml: what it may hold, who wins, what is said of a wrong one, and a dataset's own."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest

import oracle
import tokenmill
from corpora import made_texts, write_corpus
from tokenmill.cli import main, parser
from tokenmill.cli.run_options import config_from, typed_config
from tokenmill.config import Config
from tokenmill.config.file import MAX_BYTES, ConfigFile
from tokenmill.config.options import OPTIONS, SOURCE_KEYS
from tokenmill.dataset.recipe import prepare_command, toml_text
from tokenmill.errors import ConfigError

TEXT = """\
# Two sources
tokenizer = "gpt2"
shard_tokens = "1.5K"          # as one types it
shuffle = true
val = "first-shard"
out = "data/mine"

[source.web]
paths = ["web/", "more/"]
where = 'score >= 3'

[source.code]
paths = "code/"
text_column = "content"
sample = 0.5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokenmill.toml"
    path.write_text(TEXT)
    return path


def asked(*words: object) -> Config:
    return config_from(parser().parse_args(["prepare", *map(str, words)]))


def test_file_when_it_is_complete_then_nothing_else_is_needed(file):
    config = asked("--config", file)
    assert (config.tokenizer, config.shard_tokens, config.shuffle) == ("gpt2", 1500, True)
    assert (config.val, config.out) == ("first-shard", "data/mine")
    assert config.sources == ("web/", "more/", "code/")
    web, code = config.by_source().values()
    assert (web.where, web.text_column, web.sample) == ("score >= 3", "text", None)
    assert (code.where, code.text_column, code.sample) == (None, "content", 0.5)


def test_file_when_options_are_typed_too_then_those_win(file):
    config = asked(
        *("--config", file, "-o", "other", "--tokenizer", "o200k_base", "--shard-tokens", "9"),
        *("--val-fraction", "0.1", "--text-column", "body", "code=elsewhere/", "books=b.txt"),
    )
    assert (config.out, config.tokenizer, config.shard_tokens) == ("other", "o200k_base", 9)
    assert (config.val, config.val_fraction, config.shuffle) == (None, 0.1, True)
    by_source = config.by_source()
    assert list(by_source) == ["code", "books", "web"]
    assert by_source["code"].sources == ("elsewhere/",)
    assert [own.text_column for own in by_source.values()] == ["content", "body", "body"]


def test_file_when_a_typed_option_takes_back_what_it_says_then_it_is_off(file):
    file.write_text(
        'out = "o"\nsources = "a"\nshuffle = true\noverwrite = true\ndedup = "exact"\n'
        'where = "x > 1"\nlimit_tokens = "1B"\nsample = "10%"\nkeep = ""\nval_fraction = 0.1\n'
    )
    assert asked("--config", file).identity() != Config(sources="a", out="o").identity()
    off = ["shuffle", "overwrite", "dedup", "where", "limit-tokens", "sample", "keep"]
    config = asked("--config", file, *(f"--no-{name}" for name in off), "--no-val")
    assert config == Config(sources="a", out="o", val="none")


def test_file_when_estimate_is_given_it_then_reads_it_too(file):
    arguments = parser().parse_args(["estimate", "--config", str(file)])
    assert list(typed_config(arguments).by_source()) == ["web", "code"]


def test_file_when_sources_have_no_names_then_a_list_that_typed_ones_replace(file):
    file.write_text('sources = ["a/", "b/"]\nout = "o"\nkeep_downloads = false\nseed = 7\n')
    config = asked("--config", file)
    assert (config.sources, config.keep_downloads, config.seed) == (("a/", "b/"), False, 7)
    config = asked("c/", "--config", file, "--keep-downloads")
    assert (config.sources, config.keep_downloads) == (("c/",), True)
    assert list(asked("--config", file, "x=c/").by_source()) == ["x"]


def test_file_when_a_sample_is_per_cent_then_the_number_as_on_the_command_line(file):
    file.write_text(TEXT.replace("0.5", '"50%"').replace("shuffle", 'sample = "10%"\nshuffle'))
    config, number = asked("--config", file), file.with_name("number.toml")
    number.write_text(TEXT.replace("shuffle", "sample = 0.1\nshuffle"))
    assert config == asked("--config", number)
    assert [one.sample for one in config.by_source().values()] == [0.1, 0.5]


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (r"""template = '{title}\n\n{text}'""", None),
        (r"""separator = '\n\n'""", None),
        (r"""separator = '''\t'''""", None),
        (r"""source.a = {paths = "a/", template = '{a}\n{b}'}""", None),
        (r"""template = "{title}\n\n{text}" # '{title}\\n\\n{text}'""", "{title}\n\n{text}"),
        (r"""template = "{a}\\newpage" """, r"{a}\newpage"),
        (r"""separator = '<|endoftext|>'""", "<|endoftext|>"),
        (r"""separator = '\section'""", r"\section"),
    ],
)
def test_file_when_an_escape_is_in_single_quotes_then_refused_with_its_line(line, meant, file):
    file.write_text(f"seed = 1\n{line}\n")
    if meant is not None:
        found = ConfigFile.read(str(file)).options
        assert list(found.values()) == [1, meant]
        return
    with pytest.raises(ConfigError, match=r"line 2: (template|separator): \\. in single") as caught:
        ConfigFile.read(str(file))
    assert "double quotes" in str(caught.value.hint)


def test_page_when_it_lists_the_keys_of_a_source_then_all_of_them():
    page = (Path(__file__).parents[2] / "docs" / "sources.md").read_text()
    listed = page.partition("A source may have its own")[2].partition(";")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == {*SOURCE_KEYS} - {"paths"}


def test_file_when_something_must_still_be_typed_then_says_so(file):
    file.write_text("seed = 1\n")
    with pytest.raises(ConfigError, match="no source given"):
        asked("--config", file, "-o", "out")
    with pytest.raises(ConfigError, match="missing: -o"):
        asked("--config", file, "corpus/")
    with pytest.raises(ConfigError, match="missing: SOURCE, -o/--out"):
        asked("--seed", "1")
    file.write_text("[source.web]\nrepeat = 2\n")
    with pytest.raises(ConfigError, match="source web has no paths"):
        asked("--config", file, "-o", "out")
    assert asked("--config", file, "-o", "out", "web=w/").repeat_of("web") == 2
    with pytest.raises(ConfigError, match=r"w/ has no name, and .* has named sources"):
        asked("--config", file, "-o", "out", "w/")


def test_file_when_it_has_every_option_then_each_is_taken(file):
    """No field of Config is forgotten, nor is its type."""
    fields = [field for field in dataclasses.fields(Config) if field.name != "named"]
    values = {"str": '"x"', "int": "3", "float": "0.25", "bool": "true", "tuple": '["x"]'}
    for field in fields:
        kind = str(field.type).partition(" ")[0].partition("[")[0]
        value = {"template": '"{x}"', "where": '"x > 1"'}.get(field.name, values[kind])
        if choices := OPTIONS[field.name].kind.choices:
            value = f'"{choices[-1]}"'
        file.write_text(f"{field.name} = {value}\n")
        assert list(ConfigFile.read(str(file)).options) == [field.name]


@pytest.mark.parametrize(
    ("old", "new", "line", "message", "hint"),
    [
        ("tokenizer =", "tokeniser =", 2, "unknown key 'tokeniser'", "'tokenizer'"),
        ("shuffle", "no_val", 4, "unknown key 'no_val'", 'val = "none"'),
        ("shuffle", "dry_run", 4, "unknown key 'dry_run'", "--dry-run belongs on"),
        ("shuffle", "text-column", 4, "unknown key 'text-column'", "'text_column'"),
        ("shuffle", "xyzzy", 4, "unknown key 'xyzzy'", "there are sources, out,"),
        ("true", '"yes"', 4, "shuffle takes true or false, got 'yes'", ""),
        ('"gpt2"', "7", 2, "tokenizer takes a name or a path, got 7", ""),
        ('"gpt2"', "1979-05-27", 2, "tokenizer takes a name or a path, got datetime", ""),
        ('"gpt2"', "gpt2", 2, "not TOML: Invalid value", "text is in quotes"),
        ('"gpt2"', '"gpt2', 2, "not TOML: Illegal character", ""),
        ("shuffle", "tokenizer", 4, "not TOML: Cannot overwrite a value", ""),
        ("[source.code]", "[source.web]", 12, "not TOML: Cannot declare", ""),
        ("[source.code]", "[sources.code]", 12, "sources must be a list", "[source.NAME]"),
        ("[source.code]", "[source.'a b']", 12, "a source cannot be named 'a b'", ""),
        ("text_column", "column", 14, "source code: unknown option 'column'", "'text_column'"),
        ("sample = 0.5", "shuffle = true", 15, "source code: unknown option 'shuffle'", "paths"),
        ("sample = 0.5", "sample = [1]", 15, "source code: --sample takes a number, such as", ""),
        (
            "sample = 0.5",
            'sample = "5x"',
            15,
            'source code: --sample takes a number, such as 0.1 or "10%',
            "0.1",
        ),
        ("sample = 0.5", "sample = 5", 15, "source code: --sample must lie between 0 and 1", ""),
        ("sample = 0.5", "repeat = 2.0", 15, "source code: repeat is a whole number from 1", ""),
        ("sample = 0.5", "repeat = 0", 15, "source code: repeat is a whole number from 1", ""),
        ("score >= 3", "score >=", 10, "source web: --where: expected a column", ""),
        ('"1.5K"', '"1.5Q"', 3, "shard_tokens takes a whole number, such as 1000", ""),
        ('"1.5K"', "-1", 3, "shard_tokens must be positive, got -1", ""),
        ('"1.5K"', "true", 3, "shard_tokens takes a whole number, such as 1000", ""),
        ('"first-shard"', '"last"', 5, "val is one of fraction, first-shard, none; got", ""),
        ('["web/", "more/"]', '["web/", 3]', 9, "source web is a path, several paths or", ""),
        ('out = "data/mine"', 'sources = ["a"]', 6, "some sources have a name", ""),
        ("shuffle = true", "seed = " + "9" * 5000, None, "not TOML: Exceeds the limit", ""),
        ("true", "[" * 100_000, None, "nested too deeply", ""),
    ],
)
def test_file_when_something_is_wrong_then_says_what_and_on_which_line(
    old, new, line, message, hint, file
):
    assert TEXT.count(old) == 1
    file.write_text(TEXT.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        asked("--config", file)
    where = f"{file}, line {line}: " if line else f"{file}: "
    assert caught.value.message.startswith(where + message)
    assert hint in (caught.value.hint or "")


def test_file_when_it_cannot_be_read_then_says_why(file, tmp_path):
    for data, message in [
        (b"seed = 1\n# caf\xe9\n", "line 2: not UTF-8"),
        (b"#" * (MAX_BYTES + 1), "over 2,097,152 bytes"),
        (b"PAR1\x00\x15\x04", "line 1: not TOML"),
        (b"a" + b".a" * 500_000 + b" = 1", "nested too deeply"),
        (
            b"seed = 0x" + b"f" * 4000,
            r"line 1: seed must lie in \[0, 2\^64\), got a number of thousands",
        ),
        (b"pack = 1024", "line 1: unknown key 'pack'.*tokenmill pack OUT --seq-len 1024"),
        (b"[pack]\nseq_len = 1024", "line 1: unknown key 'pack'.*tokenmill pack OUT --seq-len"),
        (b"seed = 1\r\nseed = 2\r\n", "line 2: not TOML: Cannot overwrite"),
    ]:
        file.write_bytes(data)
        with pytest.raises(ConfigError, match=f"(?s){message}"):
            ConfigFile.read(str(file))
    with pytest.raises(ConfigError, match="No such file"):
        ConfigFile.read(str(tmp_path / "other.toml"))
    with pytest.raises(ConfigError, match="Is a directory"):
        ConfigFile.read(str(tmp_path))


def test_line_when_the_key_is_elsewhere_too_then_that_of_the_value(file):
    text = '# where\nnot_where = """\nwhere = 3\n"""\n[source.a]\n\nwhere = 3\n# where\n'
    found = ConfigFile(str(file), text, {}, {})
    assert found.line_of(("source", "a", "where")) == 7
    assert found.line_of(("not_where",)) == 2
    assert (
        ConfigFile("x", "a.b = 1\nsource.c.where = 2", {}, {}).line_of(("source", "c", "where"))
        == 2
    )


def test_file_when_damaged_at_random_then_config_or_config_error(file):
    rng = random.Random(3)
    alphabet = "[]{}=\"'\\\n.,#_-x19\x00é "
    num_right = 0
    for _ in range(600):
        text = list(TEXT)
        for _ in range(rng.choice([1, 1, 2, 5])):
            at = rng.randrange(len(text))
            text[at : at + rng.randrange(4)] = rng.choices(alphabet, k=rng.randrange(4))
        file.write_text("".join(text))
        try:
            Config(**ConfigFile.read(str(file)).completed({}))
            num_right += 1
        except ConfigError as error:
            assert len(error.message) < 1000
    assert 50 < num_right < 500


def made_value(rng: random.Random, depth: int = 0) -> object:
    kind = rng.randrange(5 if depth < 3 else 4)
    if kind == 0:
        ranges = [(0, 0xA0), (0, 0xA0), (0xA0, 0xD800), (0xE000, 0x110000)]
        return "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randrange(9)))
    if kind == 1:
        return rng.choice([0, -1, rng.randrange(-(1 << 63), 1 << 63), 10 ** rng.randrange(18)])
    if kind == 2:
        some = [0.0, -0.0, 1e300, 1e-7, 5e-324, math.inf, -math.inf, math.nan, rng.random()]
        return rng.choice(some)
    if kind == 3:
        return rng.random() < 0.5
    return [made_value(rng, depth + 1) for _ in range(rng.randrange(6))]


def test_toml_when_written_then_read_back_as_it_was():
    rng = random.Random(16)
    for _ in range(500):
        options, table = ({f"k_{n}": made_value(rng) for n in range(4)} for _ in range(2))
        read = tomllib.loads(toml_text(options, {"source.web": table}))
        source = read.pop("source")
        assert repr((read, source["web"])) == repr((options, table))  # nan is not nan


def test_toml_when_a_value_has_no_toml_then_refused():
    with pytest.raises(TypeError):
        toml_text({"x": None}, {})


# The configuration of a dataset


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus("parquet", folder / "web", made_texts(120, seed=1))
    (folder / "code").mkdir()
    lines = [json.dumps({"content": text, "n": n}) for n, text in enumerate(made_texts(80, seed=2))]
    lines[7] = "{"
    (folder / "code" / "a.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def made_again(folder: Path, config: Path, capfd) -> Path:
    capfd.readouterr()
    assert main(["inspect", str(folder), "--config"]) == 0
    config.write_text(capfd.readouterr().out)
    again = folder.with_name("again")
    assert main(["prepare", "--config", str(config), "-o", str(again), "--num-proc", "1"]) == 0
    return again


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


NAMED = {
    "code": {"text_column": "content", "where": "n < 70", "repeat": 2},
    "web": {"sample": 0.9},
}
RUNS = {
    "named": (NAMED, {"val_fraction": 0.1, "shuffle": True, "seed": 5, "limit_tokens": 20_000}),
    "named, one option taken back": (
        {"web": {"where": ""}, "code": {"text_column": "content"}},
        {"where": "n > 3", "val": "none", "eot": "both", "format": "npy", "shard_tokens": "3K"},
    ),
    "unnamed": (None, {"format": "mds", "seq_len": "document", "tokenizer": "cl100k_base"}),
    "unnamed, defaults": (None, {}),
    "unnamed, BOS": (None, {"tokenizer": "cl100k_base", "bos_token": "<|fim_prefix|>"}),
    "unnamed, another end": (
        None,
        {"tokenizer": "cl100k_base", "eot_token": "<|fim_prefix|>", "seed": 0, "shuffle": True},
    ),
    "unnamed, samples": (None, {"format": "mds", "seq_len": 64, "name": None, "sample": 0.5}),
}


@pytest.mark.parametrize("run", RUNS)
def test_dataset_when_made_again_from_its_own_configuration_then_the_same_bytes(
    run, corpus, tmp_path, capfd
):
    tables, options = RUNS[run]
    sources = corpus / "web"
    if tables is not None:
        sources = {name: {"paths": corpus / name, **table} for name, table in tables.items()}
        options = {**options, "max_bad_fraction": 0.5}
    tokenmill.prepare(sources, tmp_path / "out", num_proc=1, slice_bytes=8000, **options)
    again = made_again(tmp_path / "out", tmp_path / "tokenmill.toml", capfd)
    assert contents(again) == contents(tmp_path / "out")
    if tables is not None:
        read = tomllib.loads((tmp_path / "tokenmill.toml").read_text())
        assert list(read["source"]) == list(tables)
        assert read["source"]["code"]["paths"] == [str(corpus / "code")]


@pytest.mark.parametrize("run", [name for name, (tables, _) in RUNS.items() if tables is None])
@pytest.mark.parametrize("source", ["web", "code"])
def test_dataset_when_made_again_by_the_command_that_is_shown_then_the_same_bytes(
    run, source, corpus, tmp_path
):
    options = {**RUNS[run][1], "text_column": {"web": "text", "code": "content"}[source]}
    out, again = tmp_path / "out", tmp_path / "again"
    made = tokenmill.prepare(corpus / source, out, num_proc=1, max_bad_fraction=0.5, **options)
    assert made.counts.num_quarantined == (source == "code")
    shown = prepare_command(made).replace("SOURCE", str(corpus / source)).replace("OUT", str(again))
    assert main([*shlex.split(shown)[1:], "--num-proc", "1"]) == 0
    assert contents(again) == contents(out)


def test_dataset_when_converted_or_foreign_then_has_no_configuration(corpus, tmp_path, capfd):
    tokenmill.prepare(corpus / "web", tmp_path / "out", num_proc=1, val="none")
    tokenmill.convert(tmp_path / "out", tmp_path / "converted", format="npy")
    assert main(["inspect", str(tmp_path / "converted"), "--config"]) == 2
    assert "this dataset was converted" in capfd.readouterr().err
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "train.bin").write_bytes(oracle.stream(oracle.ids(["a", "b"])))
    assert main(["inspect", str(tmp_path / "foreign"), "--config"]) == 2
    assert "has no manifest" in capfd.readouterr().err


def test_dataset_when_its_manifest_is_hostile_then_no_line_of_it_gets_into_the_file(
    corpus, tmp_path, capfd
):
    sources = {"web": {"paths": corpus / "web", "sample": 0.5}}
    tokenmill.prepare(sources, tmp_path, num_proc=1, val="none")
    plain = json.loads((tmp_path / "tokenmill.json").read_text())
    del plain["sha256"]
    options = plain["identity"]["options"]
    named = options["named"]["web"]
    evil = 'a"\nout = "/etc'
    changes: list[tuple[dict, str, object, int]] = [
        (named, "where", evil, 2),  # not an expression
        (named, evil, "x", 0),  # not an option: left out
        (options, evil, "x", 2),
        (named, "sample", {"a": evil}, 2),
        (named, "repeat", 10**9, 2),
        (options, "named", {evil: named}, 5),
        (options, "named", {"web": 5}, 5),
        (options, "named", 5, 5),
        (plain["sources"]["web"], "paths", [evil], 0),
    ]
    for table, key, value, code in changes:
        was = table.get(key)
        table[key] = value
        (tmp_path / "tokenmill.json").write_text(json.dumps(plain))
        assert main(["inspect", str(tmp_path), "--config"]) == code, (key, value)
        said = capfd.readouterr()
        assert "bug in tokenmill" not in said.err
        assert "out" not in tomllib.loads(said.out) and "\nout" not in said.out
        table.pop(key) if was is None else table.__setitem__(key, was)


@pytest.mark.parametrize("one", [1, 1.0, np.float64(1)])
def test_source_when_its_own_sample_is_all_then_that_of_the_run_is_undone(one):
    given = {"a": "c.jsonl", "b": {"paths": "c.jsonl", "sample": one}}
    config = Config(sources=given, sample=0.5)
    assert [own.sample for own in config.by_source().values()] == [0.5, None]
    assert repr(config.identity()["named"]["b"]["sample"]) == "1.0"
    for wrong in (True, np.int64(1), "100%"):
        with pytest.raises(ConfigError, match="source b: --sample"):
            Config(sources={"b": {"paths": "c.jsonl", "sample": wrong}}, sample=0.5)


@pytest.mark.parametrize("name", ["local", "file", "http", "https", "s3"])
def test_output_when_its_name_is_that_of_a_scheme_then_it_is_a_folder(name):
    assert Config(sources="a", out=name).out == name


def test_file_when_it_contradicts_itself_then_it_is_named(file):
    file.write_text('val = "none"\nval_fraction = 0.1\n')
    with pytest.raises(ConfigError, match=r"choose one of .*tokenmill\.toml"):
        asked("a", "-o", "out", "--config", file)


def test_columns_when_a_quote_is_not_closed_then_refused():
    with pytest.raises(ConfigError, match="--keep"):
        Config(sources="a", keep='"id')
