"""What the oracles say of the golden cases, where they reach: the documents' ids, by loops,
tiktoken and the models' own libraries. It shares no code with tokenmill."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import sentencepiece
import tiktoken
import tokenizers
import xxhash

import oracle
import shard_oracle
import vocabularies
from tests.golden import corpus
from tests.golden.cases import PREPARE
from tests.golden.corpus import MORE, RANKS, ROWS, Row

Ids = list[int]
Texts = Sequence[str]
Encode = Callable[[str], Ids]
BOS = 100276  # <|endofprompt|> of cl100k_base


def written(rows: Sequence[Row]) -> list[str]:
    return [row["text"] for row in rows if row["text"] is not None]


def sampled(rows: Sequence[Row], name: str, size: int, share: float, seed: int = 0) -> list[Row]:
    """splitmix64 of the file's hash and the row's number."""
    key = xxhash.xxh3_64_intdigest(f"0 {size} {name}".encode(), seed)
    found = []
    for number, row in enumerate(rows, 1):
        state = (key + number * 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
        if (state ^ state >> 31) < share * 2**64:
            found.append(row)
    return found


def of_docs(share: float, seed: int = 0) -> list[Row]:
    return sampled(ROWS, "docs.jsonl", len(corpus.json_lines(ROWS)), share, seed)


def limited(texts: Texts, num_tokens: int) -> list[str]:
    """Whole documents that are not empty until there are so many tokens, EOT counted."""
    some = [text for text in texts if text]
    sizes = itertools.accumulate(len(ids) for ids in oracle.ids(some))
    return some[: 1 + next(n for n, size in enumerate(sizes) if size >= num_tokens)]


def _templated(rows: Sequence[Row]) -> list[str]:
    return [f"{row['title']}: {row['text'] or ''}" for row in rows]


def _named() -> list[str]:
    web = written([row for row in ROWS if row["score"] >= 2])
    lists = [part for row in ROWS for part in row["parts"]]
    return limited([*web, *lists, *_templated(MORE) * 2, *written(ROWS)], 70_000)


ALL = written(ROWS)
TEXTS: dict[str, Callable[[], Texts]] = {
    "input txt": lambda: [ROWS[2]["text"]],
    "input txt, bom and crlf": lambda: ["one\r", "two\r", "\r", "three\r"],
    "input txt, giant": lambda: [corpus.GIANT],
    "input folder": lambda: written(MORE),  # one kind
    "input several": lambda: [*ALL, *ALL, *written(MORE)],
    **dict.fromkeys(
        ("input nested, jsonl", "input nested, parquet"),
        lambda: [row["meta"]["text"] for row in ROWS],
    ),
    "input other column": lambda: [row["title"] for row in ROWS],
    "input lists joined": lambda: ["\n\n".join(row["parts"]) for row in ROWS],
    "input lists joined by": lambda: ["+".join(row["parts"]) for row in ROWS],
    "input lists of documents": lambda: [part for row in ROWS for part in row["parts"]],
    "input template": lambda: [
        f"{row['title']} ({row['lang'] or ''}):\n{row['text'] or ''}" for row in ROWS
    ],
    "input template, csv": lambda: _templated(ROWS),
    "input bad rows": lambda: written(ROWS[:40]),
    "where": lambda: [
        row["text"]
        for row in ROWS
        if row["text"] is not None
        and ((row["score"] >= 3 and row["lang"] == "en") or len(row["text"]) > 900)
    ],
    "where, csv": lambda: written(
        [row for row in ROWS if row["score"] >= 3 and row["lang"] == "de"]  # not null
    ),
    "where, parquet": lambda: written(
        [row for row in ROWS if row["meta"]["length"] > 50 and row["score"] not in (1, 2)]
    ),
    "sample": lambda: written(of_docs(0.5)),
    "sample, seed": lambda: written(of_docs(0.5, seed=3)),
    "dedup": lambda: list(dict.fromkeys(written([*ROWS, *MORE]))),
    "limit-tokens": lambda: limited(ALL, 2000),
    "limit-docs": lambda: written(ROWS[:33]),
    "several: shuffle, split": lambda: [*ALL, *written(MORE)],
    "several: first shard": lambda: [*ALL, *(row["text"] or "" for row in ROWS)],
    "several: named sources": _named,
    "several: bos, eot, wide": lambda: ALL,
    "several: kinds, copies": lambda: list(dict.fromkeys(ALL)),
}
# Where another option makes other documents of them.
_ALL_OF_DOCS = [
    name
    for name, typed in PREPARE.items()
    if typed.startswith("IN/docs.")
    and name not in TEXTS
    and not name.startswith(("pack", "several", "bos", "seq-len"))
    and "mds" not in name
    and "o200k" not in typed
    and "p50k" not in typed
]
TEXTS |= {name: lambda: ALL for name in [*_ALL_OF_DOCS, "input txt, separator", "input json array"]}
TEXTS |= {"bos-token": lambda: ALL}


def documents(name: str, keeps_empty: bool = False) -> list[Ids]:
    """The ids of each document of a case, without EOT."""
    encode = _encode_of(name)
    return [encode(text) for text in TEXTS[name]() if text or keeps_empty]


def _encode_of(name: str) -> Encode:
    typed = PREPARE[name].split()
    chosen = typed[typed.index("--tokenizer") + 1] if "--tokenizer" in typed else "gpt2"
    if chosen.startswith("PUBLISHED/"):
        file = chosen.removeprefix("PUBLISHED/")
        [found] = [p for p in vocabularies.PUBLISHED.values() if p.file == file]
        before = [found.its_truth().specials[found.bos]] if "--bos" in typed else []
        encode = found.its_truth().encode
        return lambda text: before + encode(text)
    if chosen.startswith("VOCAB/"):
        return _OWN[chosen.removeprefix("VOCAB/")]()
    before = [BOS] if "--bos-token" in typed else []
    ordinary = oracle.reference(chosen).encode_ordinary
    return lambda text: before + ordinary(text)


def _of_ranks(pattern: str, first: int = 0) -> Encode:
    ranks = {token: rank for rank, token in enumerate(RANKS)}
    made = tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda text: [first + rank for rank in made.encode_ordinary(text)]


def _of_json() -> Encode:
    made = tokenizers.Tokenizer.from_str(json.dumps(corpus._tokenizer_json()))
    made.encode_special_tokens = True
    return lambda text: made.encode(text, add_special_tokens=False).ids


def _of_pair() -> Encode:
    vocab, merges = corpus._pair()
    pairs = [tuple(merge.split(" ")) for merge in merges]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, pairs))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return lambda text: made.encode(text, add_special_tokens=False).ids


def _of_model(kind: int) -> Encode:
    made = sentencepiece.SentencePieceProcessor(model_proto=corpus._sentencepiece(kind))
    before = [1] if kind == 2 else []
    return lambda text: before + made.encode(text)


_OWN = {
    "tiny.tiktoken": lambda: _of_ranks(oracle.CL100K_PATTERN),
    "tokenizer.json": _of_json,
    "pair": _of_pair,
    "tekken.json": lambda: _of_ranks(corpus._tekken()["config"]["pattern"], first=30),
    "bpe.model": lambda: _of_model(2),
    "unigram.model": lambda: _of_model(1),
}


def found(name: str, folder: Path) -> tuple[list[Ids], list[Ids]]:
    """A case's documents in the order of its files, and the oracle's; sorted, if shuffled or held
    out by a hash. Without EOT, all of them as one."""
    manifest = json.loads((folder / "tokenmill.json").read_text())
    options, eot = manifest["identity"]["options"], manifest["identity"]["encoding"]["eot_token"]
    tokens = shard_oracle.tokens(folder, options["format"], options["dtype"])
    is_tail = manifest["split_rule"] == "tokens"  # the last ones are held out
    splits = ("train", "val") if is_tail else ("val", "train")
    stream = [token for split in splits for token in tokens.get(split, [])]
    expected = documents(name, options["empty"] == "keep")
    if options["eot"] == "none":
        return [stream], [list(itertools.chain.from_iterable(expected))]
    pieces: list[Ids] = [[]]
    for token in stream:
        if token == eot:
            pieces.append([])
        else:
            pieces[-1].append(token)
    inside = {"append": slice(0, -1), "prepend": slice(1, None), "both": slice(1, None, 2)}
    if options["shuffle"] or manifest["split_rule"] == "documents":
        return sorted(pieces[inside[options["eot"]]]), sorted(expected)
    return pieces[inside[options["eot"]]], expected
