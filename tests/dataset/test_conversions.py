"""What prepare and convert write passes verify and holds the same tokens: every pair of formats.

A case is a corpus, a source (format, --seq-len, EOT policy) and a target (format, --seq-len). What
is in the folders is read by tests/shard_oracle.py, which shares no code with tokenmill; what should
be there comes from tiktoken by way of tests/oracle.py.
"""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import xxhash

import oracle
import shard_oracle
import tokenmill
from corpora import made_texts, write_corpus
from tokenmill.dataset.convert import Target, convert
from tokenmill.dataset.dataset import open_dataset
from tokenmill.dataset.verify import verify
from tokenmill.errors import ConfigError, InputError
from tokenmill.formats import NAMES, get_format

SEQ_LEN = 16
VAL_FRACTION = 0.3
EOT_ID = oracle.EOT["gpt2"]
SHORT = [text[:60] for text in made_texts(14, seed=3)]
CORPORA = {
    "many": SHORT,
    "one": [SHORT[0]],
    # Chance holds out none of these, and all of these.
    "train-only": [text for text in SHORT if xxhash.xxh3_64_intdigest(text.encode()) >> 63][:4],
    "val-only": [text for text in SHORT if xxhash.xxh3_64_intdigest(text.encode()) >> 62 == 0][:2],
    "empty": ["", *SHORT[:6], "", "", *SHORT[6:9], ""],
    # Validation gets one document of three tokens: with --seq-len it is all tail.
    "tail": [*SHORT[:5], "mill"],
}


@dataclass(frozen=True)
class Variant:
    format: str
    seq_len: int

    def __str__(self) -> str:
        return f"{self.format}-{self.seq_len}" if self.seq_len else self.format

    @property
    def options(self) -> dict[str, object]:
        traits = get_format(self.format).traits
        options: dict[str, object] = {} if traits.one_file else {"shard_tokens": 96}
        return options | ({"seq_len": self.seq_len} if traits.samples else {})

    @property
    def drops_tail(self) -> bool:
        return bool(self.seq_len and get_format(self.format).traits.boundaries)

    @property
    def keeps_documents(self) -> bool:
        return get_format(self.format).traits.boundaries and not self.seq_len


VARIANTS = [Variant(name, 0) for name in NAMES]
VARIANTS += [Variant(name, SEQ_LEN) for name in NAMES if get_format(name).traits.samples]


def held_out(text: str) -> bool:
    return xxhash.xxh3_64_intdigest(text.encode(), 0) < int(VAL_FRACTION * (1 << 64))


def expected(texts: list[str], eot: str, val: str, variant: Variant) -> dict[str, list[int]]:
    """Each split's tokens by tiktoken, with all of the tail."""
    sides = {
        "train": [text for text in texts if val != "fraction" or not held_out(text)],
        "val": [text for text in texts if val == "fraction" and held_out(text)],
    }
    if val == "fraction" and not (sides["train"] and sides["val"]):
        return divided(oracle.ids(texts, eot), variant)
    return {split: list(itertools.chain(*oracle.ids(side, eot))) for split, side in sides.items()}


def divided(documents: list[list[int]], variant: Variant) -> dict[str, list[int]]:
    """Where chance chose no document or all: the last tokens are held out, in whole samples or
    documents where the format has such, and none if that leaves nothing to train on."""
    tokens = list(itertools.chain(*documents))
    num_val = max(1, round(len(tokens) * VAL_FRACTION))
    if variant.seq_len:
        num_train = (len(tokens) - max(num_val, SEQ_LEN)) // SEQ_LEN * SEQ_LEN
        num_val = len(tokens) - num_train if num_train > 0 else 0
    if variant.keeps_documents:
        ends = list(itertools.accumulate(map(len, documents)))
        train = max([ends[0], *(end for end in ends if end <= len(tokens) - num_val)])
        num_val = len(tokens) - train
    middle = len(tokens) - num_val
    return {"train": tokens[:middle], "val": tokens[middle:]}


def without_tail(splits: dict[str, list[int]], variant: Variant) -> dict[str, list[int]]:
    """What of these tokens fills samples; splits that then hold nothing are not there."""
    step = SEQ_LEN if variant.drops_tail else 1
    cut = {split: ids[: len(ids) - len(ids) % step] for split, ids in splits.items()}
    return {split: ids for split, ids in cut.items() if ids}


def told_apart(ids: list[int], eot: str) -> list[list[int]]:
    """The documents of a stream by its EOT ids, slowly."""
    found: list[list[int]] = [[]]
    is_inside = bool(ids) and ids[0] != EOT_ID
    for token in ids:
        begins = token == EOT_ID and (eot == "prepend" or (eot == "both" and not is_inside))
        if begins and found[-1]:
            found.append([])
        found[-1].append(token)
        if token == EOT_ID and (eot == "append" or (eot == "both" and is_inside)):
            found.append([])
        if token == EOT_ID:
            is_inside = not is_inside
    return [document for document in found if document]


def require_whole(folder: Path) -> None:
    report = verify(str(folder), num_proc=1)
    assert report.is_whole, [f"{f.place}: {f.message}" for f in report.failures]


def require_same(folder: Path, variant: Variant, splits: dict[str, list[int]], eot: str) -> None:
    assert shard_oracle.tokens(folder, variant.format) == splits
    if variant.keeps_documents:
        found = shard_oracle.documents(folder, variant.format)
        assert found == {split: told_apart(ids, eot) for split, ids in splits.items()}


def converted(source: Path, out: Path, variant: Variant) -> None:
    target = Target(out=str(out), format=variant.format, drop=("tail",), **variant.options)
    convert(open_dataset(str(source)), target)


def prepared(
    texts: list[str], out: Path, variant: Variant, eot: str, val: str
) -> dict[str, list[int]]:
    """Prepare a dataset, and what must be in it; nothing, if it is refused, and that is right."""
    source = write_corpus("jsonl", out.parent, texts)
    if val == "first-shard" and get_format(variant.format).traits.one_file:
        val = "none"
    splits = expected(texts, eot, val, variant)
    fraction = VAL_FRACTION if val == "fraction" else None
    options = {"val": val, "val_fraction": fraction, "eot": eot, "empty": "keep", "num_proc": 1}
    if not without_tail(splits, variant):
        with pytest.raises(InputError, match=f"fill no sample of {SEQ_LEN}"):
            tokenmill.prepare(source, out, format=variant.format, **options, **variant.options)
        assert not (out / "tokenmill.json").exists()
        return {}
    tokenmill.prepare(source, out, format=variant.format, **options, **variant.options)
    require_whole(out)
    found = shard_oracle.tokens(out, variant.format)
    if val == "first-shard":  # where shards end is the business of other tests
        whole = without_tail(splits, variant)["train"]
        assert found.get("val", []) + found.get("train", []) == whole
    else:
        assert found == without_tail(splits, variant)
    if variant.keeps_documents:
        apart = shard_oracle.documents(out, variant.format)
        assert apart == {split: told_apart(ids, eot) for split, ids in found.items()}
    return found


POLICIES = [
    ("append", "fraction"),
    ("prepend", "first-shard"),
    ("both", "fraction"),
    ("both", "first-shard"),
]


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize(("eot", "val"), POLICIES)
def test_every_pair_of_formats_passes_verify_and_holds_the_same_tokens(
    corpus, eot, val, scratch, share
):
    """A share of the pairs for each corpus and policy, another one each time."""
    apart = itertools.cycle(variant for variant in VARIANTS if variant.keeps_documents)
    offset = [*CORPORA].index(corpus) + POLICIES.index((eot, val))
    for number, variant in enumerate(VARIANTS):
        first = scratch / "first"
        tokens = prepared(CORPORA[corpus], first, variant, eot, val)
        for target in VARIANTS[(number + offset) % share :: share] if tokens else ():
            second, third = scratch / "second", scratch / "third"
            left = without_tail(tokens, target)
            if not left:
                with pytest.raises(ConfigError, match=f"no split fills a sample of {SEQ_LEN}"):
                    converted(first, second, target)
                continue
            converted(first, second, target)
            require_whole(second)
            require_same(second, target, left, eot)
            if variant.drops_tail or target.drops_tail:
                # A tail that was left out before is remembered by every later conversion.
                onward = next(apart)
                converted(second, third, onward)
                require_whole(third)
                require_same(third, onward, left, eot)
                shutil.rmtree(third)
            shutil.rmtree(second)
        shutil.rmtree(first, ignore_errors=True)


@pytest.mark.parametrize("options", [{}, {"full": True}], ids=["files", "sources"])
def test_a_split_that_was_all_tail_is_remembered_through_conversions(options, scratch):
    """mds leaves nothing of val; nanogpt and megatron after it have no val, and say so."""
    texts = [*SHORT[:9], next(text for text in SHORT[9:] if held_out(text))]
    texts = [text for text in texts[:-1] if not held_out(text)] + texts[-1:]
    source = write_corpus("jsonl", scratch, texts)
    tokenmill.prepare(
        source, scratch / "mds", format="mds", seq_len=64, val_fraction=VAL_FRACTION, num_proc=1
    )
    here = scratch / "mds"
    for number, name in enumerate(["nanogpt", "megatron", "parquet"]):
        converted(here, scratch / str(number), Variant(name, 0))
        here = scratch / str(number)
        report = verify(str(here), num_proc=1, **options)
        assert report.is_whole, report.failures
        assert {check.status for check in report.checks if check.name == "sources"} == {
            "passed" if options else "skipped"
        }
        totals = json.loads((here / "tokenmill.json").read_bytes())["splits"]["val"]
        [lost] = oracle.ids(texts[-1:])
        assert totals["num_tokens"] == 0 and totals["num_tail_tokens"] == len(lost)


def test_a_document_too_many_or_too_few_is_noticed_in_spite_of_a_tail(scratch):
    """What a tail excuses is the last document, and no other."""
    source = write_corpus("jsonl", scratch, SHORT)
    tokenmill.prepare(source, scratch / "mds", format="mds", seq_len=16, val="none", num_proc=1)
    converted(scratch / "mds", scratch / "out", Variant("datatrove", 0))
    require_whole(scratch / "out")
    path = next((scratch / "out").rglob("*.ds.index"))
    ends = np.fromfile(path, "<u8")
    for damaged in (np.delete(ends, 1), np.insert(ends, 1, ends[0] + 1)):
        damaged.tofile(path)
        report = verify(str(scratch / "out"), num_proc=1)
        assert {"EOT", "boundaries"} <= {
            check.name for check in report.checks if check.status == "failed"
        }


@pytest.mark.parametrize("eot", ["append", "prepend", "both"])
def test_a_split_may_be_cut_at_any_token(eot, scratch):
    """Between a document's text and its last EOT id, too, or within some empty documents."""
    whole = oracle.ids(["a mill", "", "", "flour"], eot)
    ends = list(itertools.accumulate(map(len, whole)))
    tokens = list(itertools.chain(*whole))
    source = write_corpus("jsonl", scratch, ["a mill", "", "", "flour"])
    for cut in range(1, len(tokens)):
        first, second = scratch / f"llmc-{cut}", scratch / f"megatron-{cut}"
        tokenmill.prepare(source, first, format="llmc", eot=eot, shard_tokens=cut, num_proc=1)
        converted(first, second, Variant("megatron", 0))
        require_whole(second)
        bounds = [0, *sorted({*ends, cut})]
        pieces = [tokens[start:stop] for start, stop in itertools.pairwise(bounds)]
        num_val = bounds.index(cut)
        expected = {"train": pieces[num_val:], "val": pieces[:num_val]}
        assert shard_oracle.documents(second, "megatron") == expected, cut
        converted(second, scratch / f"back-{cut}", Variant("nanogpt", 0))
        require_whole(scratch / f"back-{cut}")
