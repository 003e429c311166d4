"""Corpora to measure on, laid out as FineWeb is: parquet, snappy, row groups of 1,000 rows.

With a folder of parquet files, their paragraphs are recombined into new documents with a fixed
seed. Without one, paragraphs are made up from the seed (made_text.py).
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import itertools
import json
import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from made_text import made_paragraphs

FILE_BYTES = 256 << 20
GROUP_BYTES = 64 << 20  # a row group has fewer than 1,000 rows where these would be more than this
SEPARATOR = "<|endoftext|>\n"  # between the documents of a .txt
CODECS = ("none", "snappy", "lz4", "zstd", "gzip", "brotli")


@dataclass(frozen=True)
class Recipe:
    """What a corpus is made of. The same recipe gives the same text."""

    num_bytes: int  # of text, about
    source: str | None = None  # folder of parquet files; None: made up
    language: str = "english"  # or multilingual: a folder below the source, if it has such
    document_bytes: int = 0  # 0: as various as FineWeb's
    layout: str = "snappy"  # a parquet codec, or jsonl, jsonl.gz, jsonl.zst, txt
    row_group: int = 1_000
    num_files: int = 4  # more if they would be over FILE_BYTES, except of .txt
    seed: int = 1

    @property
    def name(self) -> str:
        fields = dataclasses.asdict(self)
        source = fields.pop("source")
        where = os.path.basename(os.path.normpath(source)) if source else "made"
        return "-".join([where, *(str(value) for value in fields.values())])

    def corpus(self, below: str) -> str:
        """The folder with the corpus, made if it is not there yet."""
        return self.made(os.path.join(below, self.name))

    def made(self, folder: str) -> str:
        """The corpus in this very folder, which is empty or not there, or has it already."""
        if not os.path.isdir(folder) or not os.listdir(folder):
            unfinished = folder.rstrip("/") + ".unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            os.makedirs(unfinished)
            self._write(unfinished)
            os.replace(unfinished, folder)
        return folder

    def _write(self, folder: str) -> None:
        num_files = self.num_files
        if self.layout != "txt":
            num_files = max(num_files, -(-self.num_bytes // FILE_BYTES))
        written, groups = 0, row_groups(self)
        for number in range(num_files):
            path = os.path.join(folder, f"{number:03d}_00000")
            target = self.num_bytes * (number + 1) // num_files
            written += _write_file(path, self.layout, groups, target - written)


def make_corpus(source: str | None, folder: str, num_bytes: int) -> str:
    """English in `folder`, unless it is there already; the folder."""
    return Recipe(num_bytes, source).made(folder)


def repeated(corpus: str, folder: str, times: int) -> str:
    """The files of a corpus, `times` times, by hard links: size without the work of making it."""
    if not os.path.exists(folder):
        os.makedirs(folder)
        for copy, name in itertools.product(range(times), sorted(os.listdir(corpus))):
            os.link(os.path.join(corpus, name), os.path.join(folder, f"{copy:02d}-{name}"))
    return folder


def text_bytes(corpus: str) -> int:
    """Of a folder of parquet files: the text itself, as UTF-8."""
    import pyarrow.compute as pc

    total = 0
    for path in glob.glob(os.path.join(corpus, "*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
            total += pc.sum(pc.binary_length(batch.column(0))).as_py() or 0
    return total


def row_groups(recipe: Recipe) -> Iterator[list[str]]:
    """Documents without space around them, as FineWeb's are: dolma would strip it."""
    rng = random.Random(recipe.seed)
    pieces = paragraphs(recipe.source, recipe.language)
    rows = recipe.row_group
    document: Callable[[], str]
    if size := recipe.document_bytes:
        rows = max(1, min(rows, GROUP_BYTES // size))
        mean = sum(map(len, pieces)) / len(pieces) + 2
        num_pieces = max(2, int(1.5 * size / mean))

        def document() -> str:
            text = "\n\n".join(rng.choices(pieces, k=num_pieces))
            while len(text) < size:
                text += "\n\n" + rng.choice(pieces)
            return text[:size].strip() or "empty"
    else:

        def document() -> str:
            num_pieces = max(1, int(rng.lognormvariate(2.5, 1.0)))
            return "\n\n".join(rng.choices(pieces, k=num_pieces)).strip()

    while True:
        yield [document() for _ in range(rows)]


@functools.lru_cache(maxsize=2)
def paragraphs(source: str | None, language: str) -> list[str]:
    if source is None:
        return made_paragraphs(language)
    if os.path.isdir(os.path.join(source, language)):
        source = os.path.join(source, language)
    files = sorted(glob.glob(os.path.join(source, "**", "*.parquet"), recursive=True))
    if not files:
        raise SystemExit(f"no parquet files below {source}")
    texts = (t for f in files for t in pq.read_table(f, columns=["text"])["text"].to_pylist() if t)
    return [piece for text in texts for piece in text.split("\n\n") if piece.strip()]


def _write_file(path: str, layout: str, groups: Iterator[list[str]], num_bytes: int) -> int:
    """Whole row groups until there are `num_bytes` of text; how much it came to."""
    sizes = []

    def enough() -> Iterator[list[str]]:
        while sum(sizes) < num_bytes:
            texts = next(groups)
            yield texts
            sizes.append(sum(len(text.encode()) for text in texts))

    if layout in CODECS:
        _write_parquet(f"{path}.parquet", layout, enough())
    elif layout == "txt":
        with open(f"{path}.txt", "w", encoding="utf-8") as file:
            file.writelines(text + SEPARATOR for texts in enough() for text in texts)
    else:
        with pa.output_stream(f"{path}.{layout}", compression="detect") as stream:
            for texts in enough():
                rows = ({"id": str(i), "text": text} for i, text in enumerate(texts))
                lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
                stream.write("".join(lines).encode())
    return sum(sizes)


def _write_parquet(path: str, codec: str, groups: Iterable[list[str]]) -> None:
    rng = random.Random(path[-20:])
    schema = pa.schema([("text", pa.string()), ("id", pa.string())])
    with pq.ParquetWriter(path, schema, compression=codec) as writer:
        for texts in groups:
            ids = [f"<urn:uuid:{rng.getrandbits(128):032x}>" for _ in texts]
            writer.write_table(pa.table({"text": texts, "id": ids}), row_group_size=len(texts))
