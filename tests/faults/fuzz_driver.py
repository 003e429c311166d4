"""One process of the fuzz: tries hostile files one after the other, and says what came of each.

    python fuzz_driver.py KIND FIRST LAST FOLDER

A line of JSON for each case, as soon as it is over: native parsers may kill this process, and who
started it goes on with the next case in a new one. The files stay in FOLDER, for other trials.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

FAULTS = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(FAULTS), FAULTS]

import mutations  # noqa: E402
import numpy as np  # noqa: E402
import option_mutations  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import reading_oracle  # noqa: E402
import scenarios  # noqa: E402
import vocabulary_mutations  # noqa: E402

import tokenmill  # noqa: E402
from tokenmill.config import Config  # noqa: E402
from tokenmill.config.file import ConfigFile  # noqa: E402
from tokenmill.corpus.input_spans import cut  # noqa: E402
from tokenmill.corpus.readers import BYTE_KINDS, ReadOptions, kind_of, reader_for  # noqa: E402
from tokenmill.corpus.rows import documents  # noqa: E402
from tokenmill.corpus.spans import Input  # noqa: E402
from tokenmill.dataset.manifest import Manifest  # noqa: E402
from tokenmill.encodings import get_encoding, loading  # noqa: E402
from tokenmill.errors import ConfigError, TokenmillError  # noqa: E402
from tokenmill.runners import Stopped  # noqa: E402
from tokenmill.storage import hashing, local  # noqa: E402

SEPARATOR = "\n\n"
READ = ReadOptions(separator=SEPARATOR, span_bytes=2000, batch_bytes=700)
# Where rows are chosen, columns are decoded in another way, and a footer's statistics are believed.
WHERE = "len(text) > 3 or text is null or text matches '^a' or text in ('', 'b')"
RUN_EVERY = 6  # of inputs: goes through a whole run and not only through its reader
PROBES = ["the mill grinds the grain", "", "東京 👍🏽 naïve", "a" * 300 + "!", "<|endoftext|> x\n"]
EOT = 50256

Found = dict[str, Any]


class Wrong(Exception):
    """Something was accepted that must not be."""


def main(kind: str, first: int, last: int, folder: Path) -> None:
    trial = TRIALS.get(kind, input_trial)
    for case in range(first, last):
        began = time.process_time()
        found: Found = {"case": case, "outcome": "ok"}
        try:
            found.update(trial(kind, case, folder))
        except TokenmillError as error:
            found |= {"outcome": type(error).__name__, "exit": error.exit_code}
            found |= {"message": error.message}
        except BaseException as error:
            found |= {"outcome": "unexpected", "message": f"{type(error).__name__}: {error}"}
            found["trace"] = traceback.format_exc()[-2000:]
        found["seconds"] = time.process_time() - began
        found["peak_mb"] = peak_mb()
        print(json.dumps(found, default=int), flush=True)


def peak_mb() -> int:
    """Not `getrusage`: on Linux its peak begins with that of the process that started this one."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def case_path(folder: Path, case: int, name: str) -> Path:
    """a.jsonl.gz -> FOLDER/7.jsonl.gz"""
    return folder / f"{case}.{name.split('.', 1)[1]}"


# Inputs.


def input_trial(kind: str, case: int, folder: Path) -> Found:
    name, data = mutations.mutated(kind, case)
    path = case_path(folder, case, name)
    path.write_bytes(data)
    if case % RUN_EVERY == 0:
        return whole_run(path, folder, is_stdin(case))
    if is_compared(kind, case):
        return compared_with_oracle(kind, random.Random(f"options {case}"), path)
    read = READ
    if case % 3 == 1:
        is_text = source_of(path).kind == "text"
        where = None if is_text else WHERE
        read = replace(READ, where=where, sample=0.8 if case % 2 else None)
    return {"rows": num_rows_read(path, read), "name": path.name}


def is_stdin(case: int) -> bool:
    return case % (2 * RUN_EVERY) == 0


def is_compared(kind: str, case: int) -> bool:
    return case % 3 == 2 and kind in ORACLES


def has_own_words(kind: str, case: int) -> bool:
    """Whether its error may differ from that for the same file as an argument, without options."""
    return is_stdin(case) or is_compared(kind, case)


def num_rows_read(path: Path, read: ReadOptions) -> int:
    source = source_of(path)
    reader = reader_for(source.kind, read)
    num_rows = 0
    for span in cut(source, read).spans:
        before = num_rows
        for rows in documents(reader, span, read):
            rows.batch.validate(full=True)
            if any(rows.texts[int(at)].is_valid for at in rows.positions_of(rows.rejected)):
                raise Wrong("a bad row with text")
            num_rows += rows.num_covered
        if span.num_rows not in (None, num_rows - before):
            raise Wrong(f"{num_rows - before} rows where {span.num_rows} were announced")
    return num_rows


ORACLES = ("jsonl", "json_array", "nested", "delimited", "compressed")
_LITERALS = ("", " ", "{", "}", "{}", "{{", "{0}", "{text", "\n\n", "é\u2028", "\0", "%s", "\\n")


def compared_with_oracle(kind: str, rng: random.Random, path: Path) -> Found:
    """Every row has the text that Python's own modules find in the file."""
    options, texts_of = text_options(kind, rng)
    size = rng.choice((30, 700, 100_000))
    read = replace(READ, **options, span_bytes=3 * size, batch_bytes=size)
    try:
        texts = texts_read(path, read)
    except TokenmillError as error:
        if " stream near byte " in error.message:
            with contextlib.suppress(reading_oracle.Refused):
                reading_oracle.rows(path.name, path.read_bytes(), texts_of)
                if path.suffix in (".bz2", ".xz", ".gz"):
                    raise Wrong(f"sound, but: {error.message}") from None
        raise
    try:
        expected = reading_oracle.rows(path.name, path.read_bytes(), texts_of)
    except reading_oracle.Refused as error:
        raise Wrong(f"broken, and read: {error}") from None
    if expected is not None:
        pairs = itertools.zip_longest(texts, expected, fillvalue="no row")
        for row, (found, right) in enumerate(pairs):
            if right is not reading_oracle.ANY and found != right:
                raise Wrong(f"row {row} is {found!r:.200}, not {right!r:.200}, with {options}")
    # Its rows are not those that the command finds by default: no name.
    return {"rows": len(texts), "name": None}


def text_options(kind: str, rng: random.Random) -> tuple[dict[str, Any], reading_oracle.Texts]:
    """Options that say what makes a row's text, and the same for the oracle."""
    what = rng.choice(("column", "template") if kind != "nested" else ("column", *_NESTED))
    if what == "column":
        column = rng.choice(("text", "meta.text", "meta.deep.er")) if kind == "nested" else "text"
        return {"text_column": column}, reading_oracle.column(column)
    if what == "join":
        options = {"text_column": "parts", "lists": what, "separator": "|"}
        return options, reading_oracle.joined("parts", "|")
    if what == "documents":
        return {"text_column": "parts", "lists": what}, reading_oracle.divided("parts")
    names = ("id", "title", "text", "meta.text") if kind == "nested" else ("text",)
    pieces = [("text", True)]
    for _ in range(rng.choice((1, 3, 40))):
        is_column = rng.random() < 0.5
        pieces.append((rng.choice(names if is_column else _LITERALS), is_column))
    written = (
        f"{{{text}}}" if is_column else text.replace("{", "{{").replace("}", "}}")
        for text, is_column in pieces
    )
    return {"template": "".join(written)}, reading_oracle.filled(pieces, kind == "delimited")


_NESTED = ("template", "join", "documents")


def texts_read(path: Path, read: ReadOptions) -> list[str | None]:
    source = source_of(path)
    reader = reader_for(source.kind, read)
    return [
        text
        for span in cut(source, read).spans
        for rows in documents(reader, span, read)
        for text in rows.texts.to_pylist()
    ]


def source_of(path: Path) -> Input:
    kind = kind_of(str(path))
    assert kind is not None
    found = os.stat(path)
    return Input(str(path), *kind, found.st_size, found.st_mtime_ns, "")


def whole_run(path: Path, folder: Path, from_stdin: bool) -> Found:
    out = folder / "out"
    source = source_of(path)
    separator = SEPARATOR if source.kind == "text" else None
    options: dict[str, Any] = {"separator": separator, "max_bad_fraction": 1.0}
    if from_stdin and source.kind in BYTE_KINDS and not source.compression:
        options["input_format"] = source.kind
    try:
        with open(path) if "input_format" in options else contextlib.nullcontext() as stdin:
            sys.stdin = stdin or sys.stdin
            given = path if stdin is None else "-"
            manifest = tokenmill.prepare(given, out, num_proc=1, val="none", **options)
        counts = manifest.counts
        if not counts.is_conserved:
            raise Wrong(f"not conserved: {counts}")
        num_eot = int(np.count_nonzero(np.fromfile(out / "train.bin", "<u2") == EOT))
        if num_eot != counts.num_written or counts.num_rows != num_rows_read(path, READ):
            raise Wrong(f"{num_eot} EOT ids: {counts}")
        return {"rows": counts.num_rows, "name": path.name}
    except TokenmillError:
        if (out / "tokenmill.json").exists():
            raise Wrong("a manifest after an error") from None
        raise
    finally:
        shutil.rmtree(out, ignore_errors=True)


# Vocabularies.


def vocabulary_trial(kind: str, case: int, folder: Path) -> Found:
    name, data = getattr(vocabulary_mutations, kind)(random.Random(f"{kind} {case}"))
    path = folder / name
    path.write_bytes(data)
    loading._ENGINES.clear()
    loading._REFERENCES.clear()
    loading.special_tokens_of.cache_clear()
    told = {"pattern": "cl100k", "eot": "1000000"} if kind == "ranks" else {}
    encoding = get_encoding(path, **told)
    tokens = encoding.encode_array(pa.array(PROBES, pa.large_string()))
    if len(tokens.ids) and tokens.ids.max() > encoding.max_token_value:
        raise Wrong(f"id {tokens.ids.max()} over {encoding.max_token_value}")
    for position, probe in enumerate(PROBES):
        text = encoding.decode(tokens.document(position).tolist())
        if kind == "ranks" and position not in tokens.failed and text != probe:
            raise Wrong(f"{probe!r} came back as {text!r}")
    return {"failed": len(tokens.failed)}


# Options.


def toml_trial(kind: str, case: int, folder: Path) -> Found:
    """A file of options is refused by name, or a configuration, or options that are wrong."""
    path = folder / "a.toml"
    path.write_bytes(option_mutations.toml(random.Random(f"{kind} {case}")))
    file = ConfigFile.read(str(path))
    try:
        Config(**file.completed({}))
    except ConfigError as error:
        if len(str(error)) > 2000 or any(c < " " and c != "\n" for c in str(error)):
            raise Wrong(f"said: {error}"[:3000]) from None
    return {}


WHERE_ROWS = [
    {"text": text, "n": number, "a b": str(number), "meta": {"text": text}}
    for number, text in enumerate(["a" * 5000 + "!", "x" * 5000, "", None, "\U0001f600 é", "ab"])
]


def where_trial(kind: str, case: int, folder: Path) -> Found:
    """An expression is refused with a caret, or chooses the same rows of JSON lines and of a
    table."""
    where = option_mutations.where(random.Random(f"{kind} {case}"))
    lines, table = folder / "a.jsonl", folder / "a.parquet"
    if not table.exists():
        lines.write_text("".join(json.dumps(row) + "\n" for row in WHERE_ROWS))
        pq.write_table(pa.Table.from_pylist(WHERE_ROWS), table, row_group_size=2)
    try:
        found = [texts_read(path, replace(READ, where=where)) for path in (table, lines)]
    except ConfigError as error:
        if len(str(error)) > 2000:
            raise Wrong(f"said: {error}"[:3000]) from None
        raise
    if found[0] != found[1]:
        raise Wrong(f"{where[:500]}: {found}"[:3000])
    return {}


# What an unfinished run and a finished one leave on the disk.


class StopAfter:
    """A watch that stops a run when so many slices are done."""

    def __init__(self, count: int) -> None:
        self._left = count

    def planned(self, plan: Any, done: Any) -> None: ...

    def downloading(self, progress: Any) -> None: ...

    def recorded(self, record: Any) -> None:
        self._left -= 1

    def step(self, slice_: Any, step: Any) -> None: ...

    def notice(self, message: str) -> None: ...

    def should_stop(self) -> bool:
        return self._left <= 0


def state_trial(kind: str, case: int, folder: Path) -> Found:
    """Change a file of an unfinished run, then resume: the right bytes, or a refusal."""
    rng = random.Random(f"{kind} {case}")
    source, unfinished = _unfinished(folder)
    out = folder / "out"
    shutil.copytree(unfinished, out)
    plan = out / ".tokenmill" / "plan.json"
    [used] = out.glob(".tokenmill/*/used.json")
    files = [plan, used]
    for name in ("tasks", "records", "parts", "shards"):
        files += sorted(path for path in (used.parent / name).iterdir() if path.is_file())
    path = rng.choice([*files[:2] * 3, *files])
    path.write_bytes(_state_mutated(path, rng))
    try:
        scenarios.prepared(source, str(out), val="none")
        wrong = scenarios.differences(str(out), scenarios.nanogpt_files())
        if wrong:
            raise Wrong(f"{path.name}: {wrong}")
    finally:
        shutil.rmtree(out, ignore_errors=True)
    return {}


def _unfinished(folder: Path) -> tuple[str, Path]:
    template = folder / "template"
    source = str(folder / "corpus.jsonl")
    if not template.exists():
        hashing.PIECE_BYTES = 3000
        local.LATE_SECONDS = 0.1  # no other machine has the part that is gone
        scenarios.corpus(folder)
        with contextlib.suppress(Stopped):
            scenarios.prepared(source, str(template), val="none", watch=StopAfter(3))
        assert not (template / "tokenmill.json").exists()
    return source, template


def _state_mutated(path: Path, rng: random.Random) -> bytes:
    data = path.read_bytes()
    if path.suffix != ".json" or rng.random() < 0.3:
        return rng.choice((mutations.bytes_mutated, mutations.cut_short))(data, rng)
    plain = vocabulary_mutations.json_mutated(json.loads(data), rng)
    return vocabulary_mutations.json_bytes(plain)


def manifest_trial(kind: str, case: int, folder: Path) -> Found:
    """Change the manifest of a finished dataset: it is refused, or says what it said."""
    rng = random.Random(f"{kind} {case}")
    finished, source = folder / "finished", str(folder / "corpus.jsonl")
    if not finished.exists():
        scenarios.corpus(folder)
        scenarios.prepared(source, str(finished), val="none")
        shutil.copy(finished / "tokenmill.json", folder / "sound.json")
    data = (folder / "sound.json").read_bytes()
    path = finished / "tokenmill.json"
    path.write_bytes(data)
    sound = Manifest.load(str(finished))
    path.write_bytes(_state_mutated(path, rng))
    # Early versions wrote no checksum: who takes it off and changes something else is believed.
    if (
        Manifest.load(str(finished)) != sound
        and b'"sha256": "' + _checksum(data) in path.read_bytes()
    ):
        raise Wrong("another manifest was taken for the one that was written")
    return {}


def _checksum(manifest: bytes) -> bytes:
    return str(json.loads(manifest)["sha256"]).encode()


TRIALS: dict[str, Callable[[str, int, Path], Found]] = {
    "tokenizer_json": vocabulary_trial,
    "ranks": vocabulary_trial,
    "toml": toml_trial,
    "where": where_trial,
    "state": state_trial,
    "manifest": manifest_trial,
}

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
