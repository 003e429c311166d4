"""Text of any kind: what comes out is what tiktoken makes of it, and nothing is lost on the way.

Properties are tried on 300 examples each (a share of them by `make test`), always the same ones; a
soak (`--seed`) draws others. Long documents of one kind, which make regular expressions and
byte-pair merges quadratic in other tokenizers, must take time in proportion to their length.
"""

from __future__ import annotations

import base64
import functools
import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiktoken
from fuzz_driver import source_of
from hypothesis import strategies as st

import oracle
import tokenmill
from tokenmill.corpus import rows as corpus_rows
from tokenmill.corpus.input_spans import cut
from tokenmill.corpus.readers import ReadOptions, reader_for
from tokenmill.encode.documents import document_bytes
from tokenmill.encodings import ENCODING_NAMES, TokenArray, get_encoding
from tokenmill.errors import ConfigError, IntegrityError
from tokenmill.settings import resolved

NUM_EXAMPLES = 300
NAMES = [name for name in ENCODING_NAMES if name != "r50k_base"]  # which is gpt2
EOT = {"gpt2": 50256, "cl100k_base": 100257, "o200k_base": 199999}
SPECIALS = (
    *("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|endofprompt|>"),
    *("<|im_start|>", "<|im_end|>", "<s>", "</s>", "[CLS]", "<|end", "oftext|>", "<|endoftext|"),
)
# Contractions, runs of white space, digits, joiners, marks, letters that came with Unicode 17.
ODD = (
    *("'s", "'S", "'ll", "'LL", "'re", "don't", "x'Re", "'", "''", "’s", "'ſ", "İ", "ǅ", "ß"),
    *(" ", "  ", "   \t", "\n", "\r\n", "\n\n\n", "\u00a0", "\u3000", "\u2028", "\x85", "\x0b"),
    *("1", "123", "1234567", "٣٤", "½", "Ⅷ", "一二三", "²", "中文字", "ひらがな", "한국어", "ไทย"),
    *("👩\u200d👩\u200d👧", "🏳️\u200d🌈", "👍🏽", "🇩🇪🇫", "e\u0301", "a\u0323\u0302", "\u0301"),
    *("\u200b", "\u200d", "\ufeff", "\ufffd", "\ufffe", "\uffff", "\x00", "\x1b[0m", "\x7f"),
    *("\U0002ceab", "\U00011dcc", "\U00018da8", "\U0001e6fe", "\U000323b0", "\u088f", "\ua7ce"),
    *(
        "http://a.b/c?d=e&f=%20",
        "a_b-c.d",
        "{[()]}",
        "!!!",
        "...",
        "==",
        "//",
        "\\",
        "^^",
        "a" * 70,
    ),
    *SPECIALS,
)
pieces = st.one_of(
    st.text(max_size=12), st.sampled_from(ODD), st.characters(min_codepoint=0x80, codec="utf-8")
)
documents = st.lists(pieces, max_size=14).map("".join)
corpora = st.lists(documents, max_size=8)

O200K_PATTERN = "|".join(
    (
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    )
)


@pytest.fixture(autouse=True)
def fewer_examples(share, monkeypatch):
    monkeypatch.setitem(globals(), "NUM_EXAMPLES", NUM_EXAMPLES // share)


def holds(property_: Callable[..., None], seed: int, *given: st.SearchStrategy[Any]) -> None:
    """Try a property on examples."""
    run = hypothesis.given(*given)(property_)
    if seed:
        run = hypothesis.seed(seed)(run)
    hypothesis.settings(
        max_examples=NUM_EXAMPLES,
        derandomize=not seed,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )(run)()


@functools.cache
def reference(name: str) -> tiktoken.Encoding:
    if name != "o200k_base":
        return oracle.reference(name)
    lines = Path(oracle.VOCAB, "o200k_base.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}
    special = {"<|endoftext|>": EOT[name], "<|endofprompt|>": 200018}
    return tiktoken.Encoding(
        name, pat_str=O200K_PATTERN, mergeable_ranks=ranks, special_tokens=special
    )


def encoded(name: str, texts: list[str]) -> list[list[int]]:
    tokens = get_encoding(name).encode_array(pa.array(texts, pa.large_string()))
    assert not tokens.failed
    return [tokens.document(position).tolist() for position in range(len(texts))]


# Encodings.


@pytest.mark.parametrize("name", NAMES)
def test_what_is_encoded_is_decoded_to_itself(name, seed, tally):
    encoding = get_encoding(name)

    def round_trip(texts: list[str]) -> None:
        for text, ids in zip(texts, encoded(name, texts), strict=True):
            assert encoding.decode(ids, errors="strict") == text
            assert not ids or max(ids) < encoding.n_vocab

    holds(round_trip, seed, corpora)
    tally.add("text properties", "held", NUM_EXAMPLES)


@pytest.mark.parametrize("name", EOT)
def test_ids_are_those_of_tiktoken(name, seed, tally):
    def equal(texts: list[str]) -> None:
        expected = [reference(name).encode_ordinary(text) for text in texts]
        assert encoded(name, texts) == expected
        assert [get_encoding(name).encode_ordinary(text) for text in texts] == expected

    holds(equal, seed, corpora)
    tally.add("text properties", "held", NUM_EXAMPLES)


@pytest.mark.parametrize("name", EOT)
def test_special_tokens_in_text_stay_text(name, seed, tally):
    encoding = get_encoding(name)
    specials = {encoding.encode_single_token(token) for token in encoding.special_tokens_set}

    def stays_text(before: str, token: str, after: str) -> None:
        [ids] = encoded(name, [before + token + after])
        assert not specials & set(ids)
        assert encoding.decode(ids) == before + token + after

    holds(stays_text, seed, documents, st.sampled_from(SPECIALS), documents)
    tally.add("text properties", "held", NUM_EXAMPLES)


# Whole runs.


def test_every_document_has_its_eot_and_the_bytes_are_the_oracles(scratch, seed, tally):
    source, out = scratch / "a.jsonl", scratch / "out"

    def same_bytes(texts: list[str], eot: str, ascii_only: bool) -> None:
        lines = (json.dumps({"text": text}, ensure_ascii=ascii_only) for text in texts)
        source.write_bytes("".join(line + "\n" for line in lines).encode())
        shutil.rmtree(out, ignore_errors=True)
        manifest = tokenmill.prepare(source, out, num_proc=1, val="none", eot=eot, slice_bytes=400)
        written = [text for text in texts if text]
        counts = manifest.counts
        assert (counts.num_rows, counts.num_written) == (len(texts), len(written))
        assert counts.num_empty == len(texts) - len(written)
        data = (out / "train.bin").read_bytes()
        assert data == oracle.stream(oracle.ids(written, eot))
        each = 2 if eot == "both" else 1
        assert np.count_nonzero(np.frombuffer(data, "<u2") == EOT["gpt2"]) == each * len(written)

    some = st.lists(documents, min_size=1, max_size=8).filter(any)
    holds(same_bytes, seed, some, st.sampled_from(["append", "prepend", "both"]), st.booleans())
    tally.add("text properties", "held", NUM_EXAMPLES)


# Numbers and their width.


def test_ids_fit_their_dtype_or_are_refused(seed, tally):
    def fits(documents: list[list[int]], dtype: str) -> None:
        ids = np.array([i for document in documents for i in document], np.uint32)
        offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
        too_large = bool(len(ids)) and int(ids.max()) > np.iinfo(dtype).max
        try:
            rows = document_bytes(TokenArray(ids, offsets), dtype, 7, "append")
        except IntegrityError:
            assert too_large
            return
        assert not too_large
        found = [np.frombuffer(row, dtype).tolist() for row in rows.to_pylist()]
        assert found == [[*document, 7] for document in documents]

    numbers = st.one_of(st.integers(0, 70_000), st.integers(0, 2**32 - 1), st.just(65_536))
    lists = st.lists(st.lists(numbers), max_size=5)
    holds(fits, seed, lists, st.sampled_from(["uint16", "uint32"]))
    tally.add("text properties", "held", NUM_EXAMPLES)


@pytest.fixture
def vocabulary(scratch: Path) -> Path:
    """264 tokens, of which the first 256 are the bytes; its EOT id can be any number above."""
    tokens = [*(bytes([byte]) for byte in range(256)), *(b"%dx" % number for number in range(8))]
    lines = [base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(tokens)]
    path = scratch / "v.tiktoken"
    path.write_bytes(b"\n".join(lines))
    return path


def test_dtype_follows_from_the_largest_id(vocabulary, seed, tally):
    def follows(eot: int, dtype: str) -> None:
        encoding = get_encoding(vocabulary, pattern="gpt2", eot=eot).identity
        config = tokenmill.Config(sources=("a.txt",), dtype=dtype)
        if dtype == "uint16" and eot > 65_535:
            with pytest.raises(ConfigError, match="uint32"):
                resolved(config, encoding)
            return
        found = np.iinfo(resolved(config, encoding).dtype)
        assert encoding.max_token_value == eot <= found.max
        assert dtype != "auto" or found.bits == (16 if eot <= 65_535 else 32)

    numbers = st.one_of(st.integers(264, 1 << 24), st.integers(65_530, 65_540))
    holds(follows, seed, numbers, st.sampled_from(["auto", "uint16", "uint32"]))
    tally.add("text properties", "held", NUM_EXAMPLES)


@pytest.mark.parametrize("eot", [264, 65_535, 65_536, 1 << 24])
@pytest.mark.parametrize("dtype", ["auto", "uint16", "uint32"])
def test_dtype_that_is_too_narrow_is_refused_before_any_work(vocabulary, eot, dtype, scratch):
    source, out = scratch / "a.txt", scratch / "out"
    source.write_text("the mill")
    prepared = functools.partial(
        tokenmill.prepare, source, out, tokenizer=str(vocabulary), pattern="gpt2", num_proc=1
    )
    if dtype == "uint16" and eot > 65_535:
        with pytest.raises(ConfigError, match="uint32"):
            prepared(eot_token=str(eot), dtype=dtype, val="none")
        assert not out.exists()
        return
    prepared(eot_token=str(eot), dtype=dtype, val="none")
    is_narrow = dtype == "uint16" or (dtype == "auto" and eot <= 65_535)
    ids = np.fromfile(out / "train.bin", "<u2" if is_narrow else "<u4")
    assert ids.tolist() == [*b"the mill", eot]


# Bytes that are not text, through the readers.

UTF8_BOM = b"\xef\xbb\xbf"
_BROKEN = (b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"caf\xe9")
raw_pieces = st.one_of(
    st.binary(max_size=8),
    documents.map(str.encode),
    st.sampled_from([*_BROKEN, b"\0", UTF8_BOM, b"\r", b"\n", b'"', b"\\"]),
)
raw_documents = st.lists(raw_pieces, max_size=5).map(b"".join)
sizes = st.sampled_from([(64, 32), (700, 100), (1 << 25, 1 << 22)])


def expected_rows(raw: list[bytes | None], replace: bool) -> list[str | None]:
    """What a row must be: its text, nothing, or its text with U+FFFD where it is not UTF-8."""
    found: list[str | None] = []
    for value in raw:
        try:
            found.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            found.append(value.decode(errors="replace") if value and replace else None)
    return found


def rows_read(path: Path, options: ReadOptions) -> tuple[list[str | None], set[int]]:
    """(texts, which of them are bad)."""
    source = source_of(path)
    reader = reader_for(source.kind, options)
    texts: list[str | None] = []
    bad: set[int] = set()
    for span in cut(source, options).spans:
        first_row = len(texts)
        for rows in corpus_rows.documents(reader, span, options):
            bad |= {first_row + row for row in rows.rejected}
            texts += rows.texts.to_pylist()
    return texts, bad


def read_options(size: tuple[int, int], replace: bool, separator: str | None = None) -> ReadOptions:
    return ReadOptions(
        separator=separator, span_bytes=size[0], batch_bytes=size[1], replace_bad_text=replace
    )


@pytest.mark.parametrize("kind", ["string", "large_string"])
def test_parquet_rows_of_any_bytes_are_text_or_bad(kind, scratch, seed, tally):
    path = scratch / "a.parquet"

    def told_apart(raw: list[bytes | None], size: tuple[int, int], replace: bool) -> None:
        storage = pa.large_binary() if kind == "large_string" else pa.binary()
        column = pa.array(raw, storage).view(pa.type_for_alias(kind))
        pq.write_table(pa.table({"text": column}), path, row_group_size=3)
        texts, bad = rows_read(path, read_options(size, replace))
        assert texts == expected_rows(raw, replace)
        wrong = {row for row, value in enumerate(raw) if value is not None and texts[row] is None}
        assert bad == wrong

    holds(told_apart, seed, st.lists(st.none() | raw_documents, max_size=9), sizes, st.booleans())
    tally.add("text properties", "held", NUM_EXAMPLES)


def test_documents_of_any_bytes_in_a_text_file_are_text_or_bad(scratch, seed, tally):
    path = scratch / "a.txt"
    separator = b"<sep>"

    def told_apart(raw: list[bytes], mark: bytes, size: tuple[int, int], replace: bool) -> None:
        raw = [b"first", *(value.replace(separator, b"") for value in raw), b"last"]
        content = separator.join(raw)
        path.write_bytes(mark + content)
        texts, bad = rows_read(path, read_options(size, replace, separator.decode()))
        expected = content.split(separator)  # two neighbours can make a separator
        assert texts == expected_rows(expected, replace)
        assert bad == {row for row, text in enumerate(texts) if text is None}

    mark = st.sampled_from([b"", UTF8_BOM])
    holds(told_apart, seed, st.lists(raw_documents, max_size=9), mark, sizes, st.booleans())
    tally.add("text properties", "held", NUM_EXAMPLES)


def test_json_lines_of_any_text_are_what_tiktoken_would_be_given(scratch, seed, tally):
    """Surrogates, paired and lone, escaped or not; NULs; a mark at the start of the file."""
    path = scratch / "a.jsonl"
    units = st.lists(
        st.one_of(
            documents,
            st.sampled_from(["\ud83d", "\ude42", "\ud83d\ude42", "\udfff\ud800", "\x00"]),
        ),
        max_size=5,
    ).map("".join)

    def same_text(texts: list[str | None], mark: bytes, size: tuple[int, int]) -> None:
        lines = [json.dumps({"id": 1, "text": text}).encode() for text in texts]
        path.write_bytes(mark + b"".join(line + b"\n" for line in lines))
        expected = [None if text is None else without_surrogates(text) for text in texts]
        assert rows_read(path, read_options(size, False)) == (expected, set())

    lists = st.lists(st.none() | units, min_size=1, max_size=9)
    holds(same_text, seed, lists, st.sampled_from([b"", UTF8_BOM]), sizes)
    tally.add("text properties", "held", NUM_EXAMPLES)


def test_json_lines_of_any_bytes_are_rows_or_bad(scratch, seed, tally):
    path = scratch / "a.jsonl"

    def told_apart(raw: list[bytes], size: tuple[int, int], replace: bool) -> None:
        raw = [value.replace(b"\n", b"").replace(b"\r", b"") for value in raw]
        good = b'{"text": "good"}'
        lines = [good, *(b'{"text": "' + value + b'"}' for value in raw), good]
        path.write_bytes(b"\n".join(lines))
        texts, bad = rows_read(path, read_options(size, replace))
        assert len(texts) == len(lines) and (texts[0], texts[-1]) == ("good", "good")
        for row, value in enumerate(raw, 1):
            text = expected_rows([value], replace)[0]
            try:
                expected = None if text is None else json.loads(f'{{"text": "{text}"}}')["text"]
            except ValueError:
                expected = None
            if isinstance(expected, str):
                assert (texts[row], row in bad) == (without_surrogates(expected), False)
            else:
                assert texts[row] is None

    holds(told_apart, seed, st.lists(raw_documents, max_size=9), sizes, st.booleans())
    tally.add("text properties", "held", NUM_EXAMPLES)


def without_surrogates(text: str) -> str:
    """As tiktoken does it (tiktoken/core.py)."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# Long documents of one kind.

MB = 1 << 20
SIZES = (MB // 4, MB, 2 * MB, 4 * MB)
# From the smallest to the largest. In proportion would be 16, quadratic 256. Merges go through a
# heap, n log n, which outgrows the processor's caches on the way: 25 to 45 were measured, that is
# 2.2 to 2.9 for each doubling, and more where others use the same caches.
MAX_GROWTH = 64
MIN_BYTES_PER_SECOND = 1_000_000
ROUNDS = 5
PATHOLOGICAL: dict[str, Callable[[int], str]] = {
    "a letter": lambda size: "a" * size,
    "a caret": lambda size: "^" * size,
    "spaces": lambda size: " " * size,
    "newlines": lambda size: "\n" * size,
    "digits": lambda size: "7" * size,
    "contractions": lambda size: "'s" * (size // 2),
    "CJK": lambda size: "中" * (size // 3),
    "joiners": lambda size: "👩\u200d" * (size // 7),
    "base64": lambda size: base64.b64encode(random.Random(1).randbytes(size * 3 // 4)).decode(),
}


@pytest.mark.parametrize("kind", PATHOLOGICAL)
@pytest.mark.parametrize("name", NAMES)
def test_time_grows_with_the_length_of_a_document(name, kind, tally):
    encoding = get_encoding(name)
    encoding.encode_array(pa.array(["loads the engine"], pa.large_string()))
    best: dict[int, float] = {}
    for attempt in range(1, ROUNDS + 1):
        for size in SIZES:
            # Of another length each time: the engine remembers words, and this is one word.
            texts = pa.array([PATHOLOGICAL[kind](size + 84 * attempt)], pa.large_string())
            began = time.process_time()
            tokens = encoding.encode_array(texts)
            seconds = time.process_time() - began
            best[size] = min(seconds, best.get(size, seconds))
            assert not tokens.failed
        growth = best[SIZES[-1]] / max(best[SIZES[0]], 0.001)
        speed = max(size / best[size] for size in SIZES[1:])  # growth is judged on its own
        if growth <= MAX_GROWTH and speed >= MIN_BYTES_PER_SECOND:
            break
    assert growth <= MAX_GROWTH, best
    assert speed >= MIN_BYTES_PER_SECOND, best
    tally.add("pathological documents", "encoded in time", len(SIZES))
