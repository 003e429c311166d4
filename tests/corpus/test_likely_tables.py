"""Tables in .txt files are noted, with what to type; prose, poems, code and chats never are."""

from __future__ import annotations

import json
import shlex

import pytest

import tokenmill
from tokenmill.config import Config
from tokenmill.corpus.inputs import found_inputs
from tokenmill.corpus.likely_tables import likely_table

JSON_LINES = '{"id": 1, "text": "two words"}\n{"id": 2, "text": "more"}\n'
CSV = 'id,text\n1,"two, words\nand more"\n2,more\n3,words\n4,end\n'
NO_TABLES = {
    "empty": "",
    "one line": "name,text",
    "prose": "It was late, and the rain fell.\nHe went home, slowly.\nNobody came, of course.\n"
    * 3,
    "prose without spaces": "Hello,world\nHow are you, my friend, today?\nFine, and you?\n\n" * 3,
    "poem": "Roses are red,\nViolets are blue,\nSugar is sweet,\nAnd so are you,\n",
    "poem of single words": "rain,wind\nthe sun, the sea\nlight\nstone\n",
    "list": "- eggs, milk\n- bread, butter\n- tea, coffee\n- salt, pepper\n",
    "names": "Smith, John\nMiller, Anna\nBrown, Peter\nGreen, Paul\n",
    "dialogue": "alice: hi, bob\nbob: hi, alice\nalice: bye, bob\nbob: bye, alice\n",
    "chat log": "[12:00] <alice> hi, all\n[12:01] <bob> hello, you\n[12:02] <carl> well, yes\n",
    "chat export": "12/31/23, 10:01 - Ann: hi\n12/31/23, 10:02 - Bob: ho\n12/31/23, 10:03 - A: k\n",
    "python": "import os, sys\nfrom a import b, c\nx, y = 1, 2\nprint(x, y)\n",
    "assignments": "a = 1;\nb = 2;\nc = 3;\nd = 4;\n",
    "statements": "init;run\nstop();\nx;\ny;\n",
    "css": "{color: red}\n{margin: 0}\n",
    "json by itself": '{\n  "a": 1,\n  "b": 2\n}\n',
    "one object": '{"a": 1}\n\nand then prose\n',
    "objects in prose": 'see\n{"a": 1}\n{"a": 2}\n',
    "templates": "{name}\n{text}\n{id}\n",
    "numbers": "1,2\n3,4\n5,6\n7,8\n",
    "uneven": "name,text\na,b\nc,d,e\nf,g\nh,i\n",
    "sections": "Title\tPage\n\nIntroduction, by the editor\nChapter one\nChapter two\n",
    "arrays": "[1, 2]\n[3, 4]\n",
    "objects without end": '{"a":' * 10_000 + '\n{"a": 1}\n',
}


@pytest.mark.parametrize("name", NO_TABLES)
def test_plain_text_is_not_taken_for_a_table(name, tmp_path):
    assert likely_table(NO_TABLES[name]) is None
    (tmp_path / "a.txt").write_text(NO_TABLES[name])
    assert not notes(tmp_path / "a.txt")


def notes(*sources: object, **options: object) -> tuple[str, ...]:
    return found_inputs(Config(sources=tuple(map(str, sources)), out="", **options)).notes


def test_the_text_of_this_repository_is_not_taken_for_a_table(request):
    root = request.config.rootpath
    paths = [path for kind in ("*.md", "*.py", "*.toml") for path in root.glob(f"**/{kind}")]
    paths = [path for path in paths if ".venv" not in path.parts]
    assert len(paths) > 100
    assert not [path for path in paths if likely_table(path.read_text()[: 1 << 16])]


@pytest.mark.parametrize(
    ("content", "what", "num_rows"),
    [
        (JSON_LINES, "JSON lines", 2),
        (JSON_LINES.replace('"text"', '"my body"'), "JSON lines", 2),
        (CSV, "CSV", 4),
        ("\ufeff" + CSV, "CSV", 4),
        (CSV.replace("text", "body").replace(",", ";"), "CSV", 4),
        (CSV.replace(",", "\t"), "TSV", 4),
        ("\n".join(json.dumps({"text": "word " * 99}) for _ in range(400)), "JSON lines", 400),
    ],
)
def test_table_in_a_text_file_is_noted_and_what_is_typed_reads_it(
    content, what, num_rows, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.txt").write_text(content)
    [note] = notes("a b.txt")
    start = f"a b.txt looks like {what}, and plain text is one document: "
    assert note.startswith(start) and note.endswith(" makes a document of each row")
    words = shlex.split(note.removeprefix(start).removesuffix(" makes a document of each row"))
    names = [word.removeprefix("--").replace("-", "_") for word in words[::2]]
    options = dict(zip(names, words[1::2], strict=True))
    made = tokenmill.prepare("a b.txt", tmp_path / "out", num_proc=1, **options)
    assert made.counts.num_rows == made.num_documents == num_rows


def test_table_when_the_user_says_text_or_a_separator_then_there_is_no_note(tmp_path):
    (tmp_path / "a.txt").write_text(CSV)
    assert not notes(tmp_path / "a.txt", input_format="text")
    assert not notes(tmp_path / "a.txt", separator="\n")


def test_tables_in_a_folder_are_to_be_given_by_a_glob(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    escaped = {"corpus": "'corpus/*.txt'", "corpus [2]": "'corpus [[]2]/*.text'"}
    for folder, ending in (("corpus", ".txt"), ("corpus [2]", ".text")):
        (tmp_path / folder).mkdir()
        for name in ("a", "b"):
            (tmp_path / folder / f"{name}{ending}").write_text(JSON_LINES)
        [note] = notes(folder)
        typed = escaped[folder]
        assert note.endswith(f": {typed} --input-format jsonl makes a document of each row")
        [source], out = shlex.split(typed), tmp_path / f"out{ending}"
        made = tokenmill.prepare(source, out, num_proc=1, input_format="jsonl")
        assert made.num_documents == 4
