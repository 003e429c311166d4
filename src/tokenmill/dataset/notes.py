"""Notes: what to know about a finished dataset before training on it, made from its manifest when
they are shown.

Some trainers hard-code GPT-2's vocabulary and dtype. To read other tokens, one or two values must
be changed; our note gives a command that writes a changed copy beside the script. nanoGPT would
take the vocabulary size from a `meta.pkl`, but we write no pickle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tokenmill.encode.record import Counts
from tokenmill.encodings import EncodingId
from tokenmill.formats import get_format
from tokenmill.wording.plural import counted

if TYPE_CHECKING:
    from tokenmill.dataset.manifest import Manifest, SplitTotals


# A validation split of fewer documents gets a note: it depends too much on chance.
FEW_DOCUMENTS = 10
# A trainer reads blocks of 1,024 tokens and the token after; a smaller split has none.
BLOCK_TOKENS = 1025


def split_words(manifest: Manifest) -> str:
    """How the validation split was chosen, in words."""
    rule, options = manifest.split_rule, manifest.identity["options"]
    if rule == "tokens" and "val" not in manifest.splits:
        rule = "none"
    if rule == "documents":
        return f"{options['val_fraction']:.4g} of all documents, by a hash of their text"
    if rule == "none" and "val" in manifest.splits:  # foreign shards, converted
        return "the same as in the shards that this was converted from"
    rules = {
        "tokens": "the last tokens: there are too few documents to choose among",
        "first-shard": "the first shard",
        "none": "nothing is held out",
    }
    return rules.get(rule, rule)


def notes_on(manifest: Manifest) -> Iterator[str]:
    options = manifest.identity["options"]
    encoding = EncodingId.from_plain({**manifest.identity["encoding"], "source": None})
    for name, source in manifest.sources.items():
        if not source.counts.num_written:
            yield f"source {name} has no document in this dataset"
    yield from training_notes(options["format"], options["dtype"], options["eot"], encoding)
    yield from _split_notes(options, manifest.splits, manifest.split_rule)
    if (limit := options.get("limit_tokens")) is not None:
        reached = f"not reached: the sources have {manifest.num_tokens:,} tokens"
        if manifest.last_document:
            reached = f"reached: the last document is {manifest.last_document}"
        yield f"--limit-tokens {limit:,} is {reached}"
    yield from _document_notes(manifest.counts, options)


def training_notes(
    format_name: str, dtype: str, eot: str | None, encoding: EncodingId
) -> list[str]:
    """Notes that follow from the tokens alone, whichever tool wrote them."""
    return [
        *trainer_notes(format_name, dtype, encoding.n_vocab),
        *_template_notes(eot, encoding),
    ]


def _template_notes(eot: str | None, encoding: EncodingId) -> list[str]:
    """A tokenizer.json may name a token to put before each text; we do so only if asked to."""
    bos = encoding.bos
    if bos is None or (bos == encoding.eot and eot in ("prepend", "both")):
        return []
    if encoding.bos_token is not None:
        return []
    note = f"the template of {encoding.name}, which begins every text with {bos}, is not applied"
    if " " in bos:  # several tokens
        return [note]
    if eot in ("prepend", "both"):
        return [f"{note}; to begin documents with it: --bos prepend --eot append"]
    return [f"{note}; to begin documents with it: --bos prepend"]


def _split_notes(
    options: Mapping[str, Any], splits: Mapping[str, SplitTotals], rule: str
) -> list[str]:
    found = []
    val = splits.get("val")
    if "train" not in splits:
        found.append(
            "all tokens are in the validation shard: the corpus is smaller than one shard; "
            "use a smaller --shard-tokens, --val-fraction 0.01 or --no-val"
        )
    elif rule == "tokens" and val is not None:
        found.append(
            f"val is the last {counted(val.num_tokens, 'token')} of the corpus: there are too few "
            f"documents to hold some out by chance{_too_few(options, splits)}"
        )
    elif rule == "first-shard" and val is not None and _is_shrunk(options, val):
        found.append(
            f"val is the first shard, {counted(val.num_tokens, 'token')}: shards are small because "
            f"the corpus is; with --shard-tokens they are what you say{_too_few(options, splits)}"
        )
    elif options["val"] != "none" and val is None:
        found.append("nothing is held out for validation: there is too little to hold some out")
    elif rule == "documents" and val is not None and _is_few(val):
        more = f": for more, --val-fraction {_larger_fraction(options, splits)}"
        more = _too_few(options, splits) or more
        found.append(
            f"val holds only {counted(val.num_documents, 'document')}, "
            f"{counted(val.num_tokens, 'token')}{more}"
        )
    return found + [
        f"the last {counted(totals.num_tail_tokens, 'token')} of {split}: too few to fill a sample "
        f"of {options['seq_len']:,}, left out"
        for split, totals in splits.items()
        if totals.num_tail_tokens
    ]


def _is_few(val: SplitTotals) -> bool:
    return val.num_documents < FEW_DOCUMENTS or val.num_tokens < BLOCK_TOKENS


def _too_few(options: Mapping[str, Any], splits: Mapping[str, SplitTotals]) -> str:
    """The end of a note on a validation split without a block for a trainer. Formats of samples
    have their own length."""
    if splits["val"].num_tokens >= BLOCK_TOKENS or options.get("seq_len"):
        return ""
    is_enough = sum(split.num_tokens for split in splits.values()) >= 4 * BLOCK_TOKENS
    way = f"--val-fraction {_larger_fraction(options, splits)}" if is_enough else "add text"
    return f"; blocks of {BLOCK_TOKENS - 1:,} tokens need {BLOCK_TOKENS:,} at least: {way}"


def _larger_fraction(options: Mapping[str, Any], splits: Mapping[str, SplitTotals]) -> str:
    """A fraction that holds out enough documents and tokens, on average."""
    num_documents = sum(split.num_documents for split in splits.values())
    num_tokens = sum(split.num_tokens for split in splits.values())
    needed = max(2 * FEW_DOCUMENTS / max(1, num_documents), 2 * BLOCK_TOKENS / num_tokens)
    wanted = max(needed, 2 * (options.get("val_fraction") or 0.0))
    shares = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
    return next((f"{share:g}" for share in shares if wanted <= share), "0.5")


def _is_shrunk(options: Mapping[str, Any], val: SplitTotals) -> bool:
    """Whether shards are smaller than usual because the corpus is small."""
    usual = get_format(options["format"]).defaults.shard_tokens
    return options["shard_tokens"] is None and usual is not None and val.num_tokens < usual


def _document_notes(counts: Counts, options: Mapping[str, Any]) -> list[str]:
    found = []
    if counts.num_filtered:
        by_source = {f"of {name}": own for name, own in options.get("named", {}).items()}
        why = " and ".join(
            f"--{name} {own[name]!r}{whose and f' ({whose})'}"
            for whose, own in {"": options, **by_source}.items()
            for name in ("where", "sample")
            if own.get(name)
        )
        found.append(
            f"{counts.num_filtered:,} of {counted(counts.num_rows, 'row')} filtered: {why}"
        )
    if counts.num_duplicates:
        rows = counted(counts.num_rows, "row")
        found.append(
            f"{counts.num_duplicates:,} of {rows} have the text of an earlier one: --dedup"
        )
    if counts.num_replaced:
        found.append(f"{counted(counts.num_replaced, 'document')} had bytes replaced by U+FFFD")
    if counts.num_quarantined:
        found.append("what was left out, and why: tokenmill-quarantine.jsonl")
    return found


# The value in the source of nanoGPT, build-nanogpt and llm.c: 50,257 ids, rounded up.
GPT2_ROWS = 50304
_ROUNDED_TO = 128  # GPUs multiply matrices of such sizes faster


def embedding_rows(n_vocab: int) -> int:
    """The vocabulary size of the model: `n_vocab`, rounded up."""
    return -(-n_vocab // _ROUNDED_TO) * _ROUNDED_TO


def trainer_notes(format_name: str, dtype: str, n_vocab: int) -> list[str]:
    """Notes on what to change; empty if the trainer reads the tokens without changes.

    A note may have a second line: a command to paste.
    """
    if format_name == "nanogpt":
        return _nanogpt(dtype, n_vocab)
    if n_vocab <= GPT2_ROWS:
        return []
    rows = embedding_rows(n_vocab)
    if format_name == "npy":
        return [
            f"build-nanogpt's train_gpt2.py makes a model of {GPT2_ROWS:,} ids, these tokens need "
            f"{n_vocab:,}. A copy of it that fits:\n"
            f"sed -e 's/vocab_size={GPT2_ROWS}/vocab_size={rows}/' train_gpt2.py "
            f"> train_gpt2_{rows}.py"
        ]
    if format_name == "llmc":
        wide = "; of llm.c, only train_llama3.py reads uint32" if dtype == "uint32" else ""
        return [
            f"llm.c and modded-nanogpt make a model of {GPT2_ROWS:,} ids, these tokens need "
            f"{n_vocab:,}: set vocab_size to {rows} in the script that you train with{wide}"
        ]
    return []


def _nanogpt(dtype: str, n_vocab: int) -> list[str]:
    rows = embedding_rows(n_vocab)
    edits = []
    if dtype != "uint16":
        edits.append(f"-e 's/np\\.uint16/np.{dtype}/'")
    if rows != GPT2_ROWS:
        edits.append(f"-e 's/else {GPT2_ROWS}/else {rows}/'")
    if not edits:
        return []
    advice = "A copy of it that fits"
    if dtype == "uint16" and rows < GPT2_ROWS:
        advice = "It trains as it is; a copy that makes a smaller model"
    return [
        f"nanoGPT's train.py reads uint16 and makes a model of {GPT2_ROWS:,} ids, these tokens are "
        f"{dtype} with {counted(n_vocab, 'id')}. {advice}:\n"
        f"sed {' '.join(edits)} train.py > train_{rows}.py"
    ]
