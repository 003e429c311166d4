"""BOS and EOT apart, from files to shards and back, against a loop over tiktoken and tokenizers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import oracle
import tokenmill
from corpora import made_texts
from tokenmill.encodings import get_encoding
from tokenmill.errors import ConfigError

BOS, EOT = 100276, 100257  # <|endofprompt|> and <|endoftext|> of cl100k_base
CL100K = {"tokenizer": "cl100k_base", "bos_token": "<|endofprompt|>"}


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [text for text in made_texts(120, seed=7) if text]


@pytest.fixture(scope="module")
def source(texts, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("corpus") / "a.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=20)
    return str(path)


@pytest.fixture(scope="module")
def tokenizer_json(texts, tmp_path_factory) -> Path:
    """A tokenizer.json as Llama's: its template begins every text with <s>."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    path = tmp_path_factory.mktemp("llama") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def prepared(source: str, out: Path, **options) -> tokenmill.Manifest:
    given = {"val": "none", "slice_bytes": 9000, "num_proc": 1, **options}
    return tokenmill.prepare(source, out, **given)


def documents(texts: list[str], eot: str) -> list[list[int]]:
    return [[BOS, *ids] for ids in oracle.ids(texts, eot, "cl100k_base")]


@pytest.mark.parametrize(("num_proc", "eot"), [(1, "append"), (2, "none"), (4, "append")])
def test_bos_when_any_number_of_workers_then_the_oracles_tokens(
    num_proc, eot, texts, source, tmp_path
):
    manifest = prepared(source, tmp_path, **CL100K, eot=eot, num_proc=num_proc)
    expected = documents(texts, eot)
    assert (tmp_path / "train.bin").read_bytes() == oracle.stream(expected, "<u4")
    assert manifest.num_documents == len(texts)
    assert manifest.identity["encoding"]["bos_token"] == BOS
    assert tokenmill.verify(tmp_path, full=True).is_whole
    train = tokenmill.open(tmp_path)["train"]
    assert [ids.tolist() for ids in train] == expected
    assert train.text(5) == texts[5] and train[5].tolist() == expected[5]
    assert (
        train.document(5, specials=False).tolist()
        == oracle.ids([texts[5]], "none", "cl100k_base")[0]
    )


@pytest.mark.parametrize("format", ["megatron", "parquet", "mds", "litdata", "olmo", "datatrove"])
def test_bos_when_the_format_keeps_boundaries_then_documents_come_back_and_convert(
    format, texts, source, tmp_path
):
    seq_len = "document" if format in ("mds", "litdata") else None
    eot = "none" if format in ("parquet", "mds", "litdata") else "append"
    options = {} if seq_len is None else {"seq_len": seq_len}
    prepared(source, tmp_path / "a", **CL100K, eot=eot, format=format, **options)
    train = tokenmill.open(tmp_path / "a")["train"]
    assert [ids.tolist() for ids in train] == documents(texts, eot)
    tokenmill.convert(tmp_path / "a", tmp_path / "b", format="nanogpt")
    assert (tmp_path / "b" / "train.bin").read_bytes() == oracle.stream(
        documents(texts, eot), "<u4"
    )
    for folder in ("a", "b"):
        assert tokenmill.verify(tmp_path / folder).is_whole
    assert tokenmill.open(tmp_path / "b")["train"].text(-1) == texts[-1]


def test_bos_when_it_is_the_eot_token_then_is_eot_on_both_sides(texts, source, tmp_path):
    prepared(source, tmp_path, bos_token="<|endoftext|>", eot="append")
    both = oracle.stream(oracle.ids(texts, "both"))
    assert (tmp_path / "train.bin").read_bytes() == both
    again = prepared(source, tmp_path, eot="both")  # the same dataset
    assert again.identity["options"]["eot"] == "both"


def test_bos_when_a_document_lacks_it_then_verify_says_which(texts, source, tmp_path):
    prepared(source, tmp_path, **CL100K)
    path = tmp_path / "train.bin"
    tokens = np.fromfile(path, "<u4")
    tokens[np.flatnonzero(tokens == BOS)[7]] = 11
    tokens.tofile(path)
    shown = str(tokenmill.verify(tmp_path))
    assert "should begin a document with its BOS id" in shown and "document 7" in shown


def test_limit_tokens_when_documents_have_bos_then_counts_it(texts, source, tmp_path):
    prepared(source, tmp_path, **CL100K, limit_tokens=900)
    kept: list[list[int]] = []
    for document in documents(texts, "append"):
        kept += [document] if sum(map(len, kept)) < 900 else []
    assert (tmp_path / "train.bin").read_bytes() == oracle.stream(kept, "<u4")


def test_loader_when_documents_have_bos_then_masks_follow_it(texts, source, tmp_path):
    prepared(source, tmp_path, **CL100K, eot="none")
    loader = tokenmill.Loader(
        tmp_path, batch_size=2, seq_len=64, shuffle=None, extras=("document_ids", "loss_mask")
    )
    batch = next(iter(loader))
    is_start = np.asarray(batch.tokens) == BOS
    is_start[:, 0] = True
    assert (np.asarray(batch.document_ids) == np.cumsum(is_start, axis=1) - 1).all()


@pytest.mark.parametrize("is_file", [True, False])
def test_rows_when_documents_have_bos_then_are_written_without_a_separator(
    is_file, source, tokenizer_json, tmp_path
):
    options = {"tokenizer": tokenizer_json, "bos": "prepend", "eot_token": "</s>"}
    prepared(source, tmp_path / "a", **(options if is_file else CL100K), eot="none")
    tokenmill.pack(tmp_path / "a", seq_len=64, write=tmp_path / "rows")
    manifest = tokenmill.Manifest.load(str(tmp_path / "rows"))
    written = manifest.identity["options"]
    assert (written["eot"], written.get("bos")) == ("none", None)
    assert manifest.num_tokens % 64 == 0
    assert tokenmill.verify(tmp_path / "rows").is_whole
    batches = [
        np.asarray(
            next(
                iter(
                    tokenmill.Loader(
                        tmp_path / folder, batch_size=2, seq_len=64, packed=True, shuffle=None
                    )
                )
            ).tokens
        )
        for folder in ("a", "rows")
    ]
    assert (batches[0] == batches[1]).all()


def test_foreign_shards_when_only_bos_begins_documents_then_it_is_inferred(
    tokenizer_json, texts, tmp_path
):
    library = Tokenizer.from_file(str(tokenizer_json))
    expected = [library.encode(text).ids for text in texts]
    (tmp_path / "train.bin").write_bytes(oracle.stream(expected))
    found = tokenmill.open(tmp_path, tokenizer=str(tokenizer_json))["train"]
    assert [ids.tolist() for ids in found] == expected and found.text(4) == texts[4]
    tokenmill.convert(tmp_path, tmp_path / "b", format="parquet", tokenizer=str(tokenizer_json))
    assert [x.tolist() for x in tokenmill.open(tmp_path / "b")["train"]] == expected


def test_bos_when_ranks_have_no_such_token_then_it_is_given_with_its_id(texts, source, tmp_path):
    vocabulary = tmp_path / "own.tiktoken"
    vocabulary.write_bytes((Path(oracle.VOCAB) / "r50k_base.tiktoken").read_bytes() + b"\n")
    options = {"tokenizer": vocabulary, "pattern": "gpt2", "eot_token": "<|end|>=50256"}
    out = tmp_path / "out"
    prepared(source, out, **options, bos_token="<|start|>=50300")
    expected = [[50300, *ids] for ids in oracle.ids(texts)]
    assert (out / "train.bin").read_bytes() == oracle.stream(expected)
    opened = tokenmill.open(out, tokenizer=str(vocabulary))["train"]
    assert opened.text(0) == texts[0]
    encoding = get_encoding(vocabulary, pattern="gpt2", eot="<|end|>=50256", bos="<|start|>=50300")
    assert encoding.bos_token == 50300 and encoding.decode([50300]) == "<|start|>"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bos": "prepend"}, "gpt2: which special token begins a document"),
        ({**CL100K, "eot": "both"}, "cannot begin with both BOS and EOT"),
        ({**CL100K, "format": "npy"}, "npy's --eot prepend"),
        ({**CL100K, "bos": "none"}, "--bos-token with --bos none"),
        ({"tokenizer": "cl100k_base", "bos_token": "<s>"}, "no special token '<s>'"),
        ({"bos": "append"}, "--bos is one of prepend, none; got 'append'"),
    ],
)
def test_bos_when_it_cannot_be_then_says_what_to_type(options, message, source, tmp_path):
    with pytest.raises(ConfigError, match=message):
        prepared(source, tmp_path, **options)
