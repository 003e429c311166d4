"""The page of a report: whole, safe and the same every time; every command on it works."""

from __future__ import annotations

import html
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill
from corpora import made_texts, write_corpus
from tests.look.report.hostile import FOLDER, hostile_dataset, loose_bytes
from tokenmill.cli import main
from tokenmill.dataset.inspect import look_into
from tokenmill.look.report.charts import length_chart, ratio_chart
from tokenmill.look.report.figures import LengthBin, LengthFigures, SplitFigures, StretchFigures
from tokenmill.look.report.page import report_page
from tokenmill.look.report.survey import SurveyOptions, survey
from tokenmill.look.web import element, shown_text, written

MAX_BYTES = 300_000
VOID = {"meta", "br", "hr", "wbr"}
TAGS = VOID | set(
    re.findall(
        r"\w+",
        "html head title style body header nav main section article footer div span p pre code "
        "small h1 h2 h3 ul li a dl dt dd b i s u table thead tbody tr th td details summary figure "
        "figcaption svg rect line path circle text",
    )
)


class Page(HTMLParser):
    """A page as a parser reads it: balanced, with no tag or attribute that is not ours."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.open: list[str] = []
        self.spans: list[list[str]] = []
        self.titles: list[str] = []
        self.feed(data.decode())
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attributes:
            assert not name.startswith("on") and name not in ("style", "src"), name
            assert name != "href" or (value or "").startswith("#")
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("b", "u"):
            self.spans.append(["", dict(attributes).get("title") or ""])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\x9b\u2028\u202a-\u202e\u2066-\u2069]", data)
        if "b" in self.open or "u" in self.open:
            self.spans[-1][0] += data


def prepared(folder: Path, texts: list[str], **options: object) -> str:
    source, out = write_corpus("jsonl", folder / "corpus", list(texts)), str(folder / "out")
    tokenmill.prepare(source, out, num_proc=1, **options)
    return out


def report(*arguments: object) -> bytes:
    """The page that the command prints."""
    path = Path(str(arguments[0])).parent / "report.html"
    assert main(["report", *map(str, arguments), "-q", "-o", str(path)]) == 0
    data = path.read_bytes()
    assert len(data) < MAX_BYTES
    Page(data)
    return data


def commands_in(page: bytes) -> list[list[str]]:
    found = re.findall(r"<(?:pre|code)>(tokenmill [^<]*)<", page.decode())
    lines = dict.fromkeys(map(html.unescape, found))
    return [shlex.split(line) for line in lines if "SOURCE" not in line and " IN OUT" not in line]


def paste_all(page: bytes, capsys) -> None:
    commands = commands_in(page)
    assert commands
    for program, *words in commands:
        # Ids that do not exist are a fault that `verify` must find.
        may_fail = words[0] == "verify" and b"beyond the vocabulary" in page
        assert program == "tokenmill" and main(words) in ((0, 5) if may_fail else (0,)), words
    capsys.readouterr()


def test_same_dataset_has_the_same_report(tmp_path):
    out = prepared(tmp_path, made_texts(50), val="fraction", val_fraction=0.2)
    assert report(out) == report(out)


def strangers(tmp_path: Path) -> list[str]:
    out = prepared(tmp_path, made_texts(80), format="llmc")
    (tmp_path / "out" / "tokenmill.json").unlink()
    return [out]


def one_document(tmp_path: Path) -> list[str]:
    return [prepared(tmp_path, ["a single document"], val="none")]


def a_document_of_10_mb(tmp_path: Path) -> list[str]:
    return [prepared(tmp_path, ["a short one", "grain " * (10_000_000 // 6)], val="none")]


def everything_in_val(tmp_path: Path) -> list[str]:
    return [prepared(tmp_path, made_texts(20), format="npy", shard_tokens=1_000_000)]


def an_empty_split(tmp_path: Path) -> list[str]:
    return [loose_bytes(tmp_path), "--tokenizer", "gpt2", "--dtype", "uint16"]


def no_tokenizer(tmp_path: Path) -> list[str]:
    return [loose_bytes(tmp_path), "--dtype", "uint16"]


def empty_documents(tmp_path: Path) -> list[str]:
    rows = [[], [5, 6], [], *([n, n + 1, n + 2] for n in range(90)), []]
    folder = tmp_path / "rows"
    folder.mkdir()
    column = pa.array(rows, pa.list_(pa.uint16()))
    pq.write_table(pa.table({"input_ids": column}), folder / "train-00000.parquet")
    return [str(folder), "--tokenizer", "gpt2"]


def hostile(tmp_path: Path) -> list[str]:
    return [hostile_dataset(tmp_path)]


@pytest.mark.parametrize(
    "made",
    [
        *(strangers, one_document, a_document_of_10_mb, everything_in_val, an_empty_split),
        *(no_tokenizer, empty_documents, hostile),
    ],
)
def test_report_of_an_odd_dataset_is_whole_and_its_commands_work(made, tmp_path, capsys):
    paste_all(report(*made(tmp_path)), capsys)


def test_spans_are_the_tokens_and_text_stays_text(tmp_path):
    out = hostile_dataset(tmp_path)
    figures = survey(look_into(out), SurveyOptions())
    page = report_page(figures)
    shown = [
        [shown_text(piece.text), " ".join(map(str, piece.ids))]
        for one in figures.documents
        for piece in one.pieces
    ]
    spans = Page(page).spans
    assert spans[-len(shown) :] == shown
    assert FOLDER not in page.decode() and html.escape(FOLDER) in page.decode()
    assert b"alert(7)" not in page and b"default-src 'none'" in page


def test_without_text_no_text_is_there(tmp_path):
    out = prepared(tmp_path, made_texts(20), val="none")
    assert b'class="doc"' in report(out) and b'class="doc"' not in report(out, "--no-text")


def test_two_tokenizers_are_compared_on_the_same_documents(tmp_path, capsys):
    texts = made_texts(60)
    out = prepared(tmp_path, texts, val="none")
    other = str(tmp_path / "other")
    tokenmill.prepare(
        str(tmp_path / "corpus"), other, num_proc=1, val="none", tokenizer="cl100k_base"
    )
    page = report(out, other).decode()
    assert "The same documents" in page and "cl100k_base" in page
    sizes = [tokenmill.open(folder).num_tokens for folder in (out, other)]
    assert all(f'<td class="n">{size:,}</td>' in page for size in sizes)
    assert f"{sizes[1] / sizes[0] - 1:+.1%}" in page
    paste_all(page.encode(), capsys)


def test_two_filters_are_compared_by_what_differs(tmp_path):
    out = prepared(tmp_path, made_texts(60), val="none")
    tokenmill.prepare(
        str(tmp_path / "corpus"), str(tmp_path / "some"), num_proc=1, val="none", sample=0.5
    )
    page = report(out, tmp_path / "some").decode()
    assert "rows filtered" in page and "<td>sample</td>" in page
    assert "not hold the same documents" in page


def test_named_sources_have_their_counts_and_the_file_that_makes_them_again(tmp_path, capsys):
    web = write_corpus("jsonl", tmp_path / "web", [*made_texts(20, seed=1), "a"])
    code = write_corpus("jsonl", tmp_path / "code", made_texts(9, seed=2))
    out = str(tmp_path / "out")
    manifest = tokenmill.prepare({"web": web, "code": code}, out, num_proc=1, dedup="exact")
    page = html.unescape(report(out).decode())
    for name, totals in manifest.sources.items():
        cells = rf"{name}=[^|]*\|.*?\|.*?\|{totals.counts.num_rows:,}\|"
        cells += rf"{totals.counts.num_written:,}\|{totals.num_tokens:,}\|"
        assert re.search(cells, re.sub(r"(<[^>]*>)+", "|", page)), name
    assert '"place"' not in page  # the options of named sources, as JSON
    said = f"tokenmill inspect {out} --config"
    assert said in page and "tokenmill prepare --config tokenmill.toml -o OUT" in page
    capsys.readouterr()
    assert main(said.split()[1:]) == 0
    assert "[source.code]" in capsys.readouterr().out


def test_json_and_card_say_what_the_page_says(tmp_path, capsys):
    out = prepared(tmp_path, made_texts(50), val="none")
    assert main(["report", out, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["glance"]["num_tokens"] == tokenmill.open(out).num_tokens
    assert main(["report", out, "--markdown"]) == 0
    card = capsys.readouterr().out
    assert f"{figures['glance']['num_tokens']:,} tokens" in card
    assert figures["proof"]["manifest_sha256"] in card and str(tmp_path) not in card


def test_folder_of_the_page_is_made(tmp_path):
    out = prepared(tmp_path, made_texts(5), val="none")
    assert main(["report", out, "-o", str(tmp_path / "new" / "pages" / "mine.html")]) == 0
    assert (tmp_path / "new" / "pages" / "mine.html").read_bytes().startswith(b"<!doctype html>")


def test_file_that_is_no_report_is_not_replaced(tmp_path, capsys):
    out = prepared(tmp_path, made_texts(5), val="none")
    (tmp_path / "mine.html").write_text("<h1>my own page</h1>")
    assert main(["report", out, "-o", str(tmp_path / "mine.html")]) == 6
    assert "is not a report" in capsys.readouterr().err
    assert (tmp_path / "mine.html").read_text() == "<h1>my own page</h1>"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--json", "--markdown"], "exclude each other"),
        (["--json", "-o", "x.html"], "standard output"),
        (["--pattern", "x"], "needs --tokenizer"),
        (["--num-proc", "0"], "positive"),
    ],
)
def test_options_that_contradict_each_other_are_refused(arguments, said, capsys):
    assert main(["report", "data/mine", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tag", "attributes"),
    [
        ("script", {}),
        ("p", {"onclick": "x"}),
        ("p", {"style": "x"}),
        ("a", {"href": "http://example.com"}),
        ("a", {"href": "javascript:x"}),
        ("p q", {}),
    ],
)
def test_no_element_that_a_page_must_not_have(tag, attributes):
    with pytest.raises(ValueError, match="in a page"):
        element(tag, **attributes)


def test_charts_count_whole_documents_and_name_all_outliers():
    bins = (LengthBin(1, 2, 1), LengthBin(2, 4, 1))
    percentiles = dict.fromkeys(("p1", "p10", "p50", "p90", "p99"), 2)
    lengths = LengthFigures(2, True, 2.0, percentiles, 1, 3, bins)
    shown = written(length_chart(720, [("train", lengths)], "lengths"))
    assert ">1</text>" in shown and ">0.5</text>" not in shown
    stretches = tuple(
        StretchFigures(at, at + 10, 10, at, 40, 0.5 if at in (90, 100) else 4.0, at in (90, 100))
        for at in range(0, 1000, 10)
    )
    split = SplitFigures("train", 1000, 1000, True, None, stretches, ((9, ""), (10, "")), None)
    assert ">A, B</text>" in written(ratio_chart(720, [("train", split)], "ratios"))


def test_text_is_escaped_by_default():
    node = element("p", "<b>&\"'\u202e", title='"><script>')
    assert written(node) == (
        '<p title="&quot;&gt;&lt;script&gt;">&lt;b&gt;&amp;&quot;&#x27;\\u202e</p>'
    )
