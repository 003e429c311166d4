"""`Tokenize` and `get_encoding` where users put them: the real `datasets`, the real `torch`.

What needs workers runs as a user's script in a process of its own, without network and with caches
in a temporary folder. Expected ids are tiktoken's (oracle.py).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path

import dill
import numpy as np
import pyarrow as pa
import pytest

import oracle
import tokenmill
from corpora import made_texts, write_corpus
from tokenmill.errors import ConfigError, InputError

TEXTS = ["hello world", "", "I'LL <|endoftext|>", "naïve 東京 👍🏽", " \n" * 40, "x" * 20_000]
EOT_POLICIES = ("append", "prepend", "both", "none")
START_METHODS = ("fork", "forkserver", "spawn")


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [*TEXTS, *made_texts(120, seed=3)]


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> str:
    return write_corpus("parquet", tmp_path_factory.mktemp("corpus"), list(texts))


def run_script(folder: Path, source: str, *arguments: str) -> dict[str, object]:
    """What a user's script, in a file of its own, printed as JSON on its last line."""
    script = folder / "prepare.py"
    script.write_text(source)
    environment = {
        **os.environ,
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TIKTOKEN_CACHE_DIR": "",
        "no_proxy": "*",
    }
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


# A call, without datasets.


@pytest.mark.parametrize("eot", EOT_POLICIES)
@pytest.mark.parametrize("name", ["gpt2", "cl100k_base"])
def test_call_when_rows_come_as_python_then_lists_of_ints_equal_tiktoken(name, eot):
    tokenize = tokenmill.Tokenize(name, eot=eot)
    expected = oracle.ids(TEXTS, eot, name)
    batch = tokenize({"text": TEXTS, "id": list(range(len(TEXTS)))})
    assert batch == {"ids": expected, "len": [len(ids) for ids in expected]}
    assert [tokenize({"text": text}) for text in TEXTS] == [
        {"ids": ids, "len": len(ids)} for ids in expected
    ]
    assert {type(one) for ids in batch["ids"] for one in ids} == {int}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()])
def test_call_when_rows_come_as_a_table_then_a_table_of_the_same_ids(kind):
    column = pa.array(["not in the slice", *TEXTS, *TEXTS], pa.string()).cast(kind)
    table = pa.table(
        {"text": pa.chunked_array([column.slice(1, 4), column.slice(5)]), "n": range(12)}
    )
    found = tokenmill.Tokenize("gpt2")(table)
    expected = oracle.ids(TEXTS + TEXTS)
    assert found.schema.equals(pa.schema({"ids": pa.list_(pa.int32()), "len": pa.int64()}))
    assert found["ids"].to_pylist() == expected
    assert found["len"].to_pylist() == [len(ids) for ids in expected]


def test_call_when_texts_are_dictionary_encoded_or_in_numpy_then_the_same_ids():
    tokenize, expected = tokenmill.Tokenize("gpt2"), oracle.ids(TEXTS)
    table = pa.table({"text": pa.array(TEXTS).dictionary_encode()})
    assert tokenize(table)["ids"].to_pylist() == expected
    for column in (np.array(TEXTS), np.array(TEXTS, object)):
        found = tokenize({"text": column})
        assert [ids.tolist() for ids in found["ids"]] == expected
        assert all(ids.dtype == np.int32 for ids in found["ids"])
        assert found["len"].tolist() == [len(ids) for ids in expected]


def test_call_when_all_documents_have_one_length_then_ids_stay_one_array_each():
    found = tokenmill.Tokenize("gpt2")({"text": np.array(["one", "two"])})
    assert found["ids"].shape == (2,) and found["ids"][1].tolist() == oracle.ids(["two"])[0]


def test_call_when_text_has_lone_surrogates_then_ids_are_those_of_the_replacement():
    tokenize = tokenmill.Tokenize("cl100k_base")
    expected = oracle.ids(["a\ufffdb 🙂", "c"], name="cl100k_base")
    assert tokenize({"text": ["a\ud800b \ud83d\ude42", "c"]})["ids"] == expected
    assert tokenize({"text": "a\ud800b \ud83d\ude42"})["ids"] == expected[0]


def test_call_when_batch_is_empty_then_nothing():
    tokenize = tokenmill.Tokenize("gpt2")
    assert tokenize({"text": []}) == {"ids": [], "len": []}
    empty = tokenize(pa.table({"text": pa.array([], pa.string())}))
    assert empty.num_rows == 0 and empty.schema.field("ids").type == pa.list_(pa.int32())


def test_call_when_column_and_eot_token_are_named_then_these_are_used():
    tokenize = tokenmill.Tokenize("cl100k_base", text_column="body", eot_token="<|endofprompt|>")
    assert tokenize({"body": "hello", "text": None})["ids"] == [15339, 100276]


def test_call_when_tokenizer_is_a_file_then_equals_the_named_one(tmp_path):
    path = tmp_path / "mine.tiktoken"
    path.write_bytes((Path(oracle.VOCAB) / "r50k_base.tiktoken").read_bytes())
    tokenize = tokenmill.Tokenize(path, pattern="gpt2", eot_token=50256)
    assert tokenize({"text": TEXTS})["ids"] == oracle.ids(TEXTS)
    copy = pickle.loads(pickle.dumps(tokenize))  # noqa: S301
    assert copy({"text": TEXTS})["ids"] == oracle.ids(TEXTS)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"text": None}, "column 'text' is None"),
        ({"text": ["a", "b", None]}, "column 'text', row 2 of the batch is None"),
        (pa.table({"text": ["a", None]}), "column 'text', row 1 of the batch is None"),
        (pa.table({"text": pa.nulls(2)}), "column 'text', row 0 of the batch is None"),
    ],
)
def test_call_when_text_is_none_then_the_error_names_column_row_and_filter(rows, said):
    with pytest.raises(InputError, match=said) as caught:
        tokenmill.Tokenize("gpt2")(rows)
    assert caught.value.hint == "dataset = dataset.filter(lambda row: row['text'] is not None)"


@pytest.mark.parametrize(
    ("rows", "kind", "said"),
    [
        ({"body": ["a"]}, ConfigError, r"unknown column 'text'; known: body"),
        (pa.table({"body": ["a"]}), ConfigError, r"text_column='body'"),
        (pa.table({"text": [1]}), ConfigError, "column 'text' is int64, not text"),
        ({"text": ["a", 1]}, InputError, "column 'text' is not text"),
        (pa.table({"text": [b"ok", b"\xff"]}), InputError, "row 1 of the batch: invalid UTF-8"),
        ("text", ConfigError, "leave input_columns out"),
    ],
)
def test_call_when_rows_are_wrong_then_the_error_says_how(rows, kind, said):
    with pytest.raises(kind, match=said):
        tokenmill.Tokenize("gpt2")(rows)


def test_call_when_a_text_cannot_be_encoded_then_the_error_names_it(monkeypatch):
    from tokenmill.encodings import Encoding, TokenArray

    failing = TokenArray(np.empty(0, np.uint32), np.zeros(3, np.int64), {1: "a panic"})
    monkeypatch.setattr(Encoding, "encode_array", lambda self, texts: failing)
    with pytest.raises(InputError, match="row 1 of the batch: gpt2 cannot encode it: a panic"):
        tokenmill.Tokenize("gpt2")({"text": ["a", "b"]})


def test_tokenize_when_options_are_wrong_then_refused_when_made():
    with pytest.raises(ConfigError, match="eot is one of append, prepend, both, none; got 'apend'"):
        tokenmill.Tokenize("gpt2", eot="apend")
    with pytest.raises(ConfigError, match="unknown encoding 'gpt3'"):
        tokenmill.Tokenize("gpt3")
    with pytest.raises(ConfigError, match="has its pattern"):
        tokenmill.Tokenize(tokenmill.get_encoding("gpt2"), pattern="gpt2")


# What travels.


@pytest.mark.parametrize("kind", [tokenmill.Tokenize, tokenmill.get_encoding])
def test_pickle_and_dill_when_used_before_then_small_and_unchanged(kind):
    one = kind("cl100k_base")
    fresh = [pickle.dumps(one), dill.dumps(one)]
    assert all(len(data) < 600 for data in fresh)
    if isinstance(one, tokenmill.Tokenize):
        one({"text": TEXTS})
    else:
        one.encode_ordinary_batch(TEXTS)
    assert [pickle.dumps(one), dill.dumps(one)] == fresh
    assert pickle.loads(fresh[0]) == dill.loads(fresh[1]) == one  # noqa: S301


def test_equality_when_anything_differs_then_unequal():
    one = tokenmill.Tokenize("gpt2")
    assert one == tokenmill.Tokenize(tokenmill.get_encoding("gpt2")) != object()
    assert hash(one) == hash(tokenmill.Tokenize("gpt2"))
    assert repr(one) == "Tokenize('gpt2', text_column='text', eot='append')"
    for other in (("cl100k_base",), ("gpt2", "body"), ("gpt2", "text", "none")):
        assert tokenmill.Tokenize(*other) != one


# In Dataset.map.

FORMATS = """
import json, sys
from datasets import Dataset
import tokenmill

dataset = Dataset.from_parquet(sys.argv[1])
tokenize = tokenmill.Tokenize("gpt2")
found = {}
for name, options in {
    "rows": {}, "batched": {"batched": True, "batch_size": 7},
    "removed": {"batched": True, "remove_columns": ["text", "id"]},
    "one batch": {"batched": True, "batch_size": None},
}.items():
    found[name] = dataset.map(tokenize, **options)
for kind in ("arrow", "numpy", "pandas", "torch"):
    formatted = dataset.with_format(kind)
    found[kind] = formatted.map(tokenize, batched=True).with_format(None)
found["arrow rows"] = dataset.with_format("arrow").map(tokenize).with_format(None)
stream = dataset.to_iterable_dataset()
answer = {
    name: [str(result.features["ids"].feature.dtype), str(result.features["len"].dtype),
           sorted(result.column_names), list(result["ids"]), list(result["len"])]
    for name, result in found.items()
}
answer["text kept"] = list(found["batched"]["text"]) == list(dataset["text"])
for name, rows in {
    "stream": stream.map(tokenize),
    "stream, batched": stream.map(tokenize, batched=True, batch_size=5),
    "stream, arrow": stream.with_format("arrow").map(tokenize, batched=True).with_format(None),
}.items():
    rows = list(rows)
    answer[name] = [[list(map(int, row["ids"])) for row in rows], [row["len"] for row in rows]]
print(json.dumps(answer))
"""


def test_map_when_batched_or_not_in_any_format_or_streaming_then_the_same_ids(
    tmp_path, parquet, texts
):
    found = run_script(tmp_path, FORMATS, parquet)
    expected = oracle.ids(texts)
    lengths = [len(ids) for ids in expected]
    assert found.pop("text kept") is True
    for name in ("stream", "stream, batched", "stream, arrow"):
        assert found.pop(name) == [expected, lengths], name
    for name in ("removed", "arrow", "arrow rows", "pandas"):
        assert found[name][2] == ["ids", "len"], name
    for name in ("rows", "batched", "one batch", "numpy"):
        assert found[name][2] == ["id", "ids", "len", "text"], name
    assert found.pop("torch")[3:] == [expected, lengths]
    for name, (ids_dtype, len_dtype, _, ids, lens) in found.items():
        assert (ids_dtype, len_dtype) == ("int32", "int64"), name
        assert (ids, lens) == (expected, lengths), name


# The user's script is nanoGPT's in its manner; only the import and get_encoding are ours.
WORKERS = """
import json, os, sys
import multiprocess
import tokenmill
from datasets import Dataset

enc = tokenmill.get_encoding("cl100k_base")

def tokenize(example):
    ids = enc.encode_ordinary(example["text"])
    ids.append(enc.eot_token)
    return {"ids": ids, "len": len(ids), "pid": os.getpid()}

if __name__ == "__main__":
    multiprocess.set_start_method(sys.argv[2])
    enc.encode_ordinary("the parent has used its engine " * 1000)
    dataset = Dataset.from_parquet(sys.argv[1])
    own = dataset.map(tokenize, remove_columns=["text"], num_proc=2)
    ours = dataset.map(tokenmill.Tokenize("cl100k_base"), batched=True, batch_size=20, num_proc=2)
    print(json.dumps({
        "own": list(own["ids"]), "ours": list(ours["ids"]),
        "workers": len(set(own["pid"]) - {os.getpid()}),
        "method": multiprocess.get_start_method(),
    }))
"""


@pytest.mark.parametrize("method", START_METHODS)
def test_map_when_workers_start_by_any_method_then_the_same_ids(tmp_path, parquet, texts, method):
    found = run_script(tmp_path, WORKERS, parquet, method)
    expected = oracle.ids(texts, name="cl100k_base")
    assert found["method"] == method and found["workers"] == 2
    assert found["own"] == expected
    assert found["ours"] == expected


CACHE = """
import json, os, sys
import tokenmill
from datasets import Dataset
from datasets.fingerprint import Hasher

enc = tokenmill.get_encoding("gpt2")

def tokenize(example):
    return {"ids": enc.encode_ordinary(example["text"])}

if __name__ == "__main__":
    ours = tokenmill.Tokenize("gpt2")
    before = [Hasher.hash(ours), Hasher.hash(tokenize), Hasher.hash(enc)]
    if sys.argv[2] == "used":
        ours({"text": ["used", "before"]})
        enc.encode_ordinary("used")
        enc.special_tokens_set
    after = [Hasher.hash(tokenmill.Tokenize("gpt2")), Hasher.hash(tokenize), Hasher.hash(enc)]
    assert Hasher.hash(ours) == after[0]
    dataset = Dataset.from_parquet(sys.argv[1])
    maps = [
        dataset.map(ours, batched=True, num_proc=2),
        dataset.map(ours),
        dataset.map(tokenize, num_proc=2),
    ]
    files = [cache["filename"] for one in maps for cache in one.cache_files]
    print(json.dumps({
        "hashes": [before, after],
        "fingerprints": [one._fingerprint for one in maps],
        "files": {file: [os.stat(file).st_mtime_ns, os.stat(file).st_ino] for file in files},
        "folder": sorted(os.listdir(os.path.dirname(files[0]))),
        "other": Hasher.hash(tokenmill.Tokenize("gpt2", eot="none")),
    }))
"""


def test_map_when_run_again_in_a_new_process_then_the_cache_is_hit(tmp_path, parquet):
    first = run_script(tmp_path, CACHE, parquet, "fresh")
    again = run_script(tmp_path, CACHE, parquet, "used")
    assert first["hashes"][0] == first["hashes"][1] == again["hashes"][0] == again["hashes"][1]
    assert len(first["files"]) >= 3
    assert again == first  # the same files, not written again, and no others beside them
    assert first["other"] != first["hashes"][0][0]


# nanoGPT's data/openwebtext/prepare.py, with a local file in place of the download.
NANOGPT = """
import hashlib, json, os, sys
import numpy as np
from datasets import Dataset
import tokenmill

num_proc = 2
enc = tokenmill.get_encoding("gpt2")

def process(example):
    ids = enc.encode_ordinary(example['text'])
    ids.append(enc.eot_token)
    out = {'ids': ids, 'len': len(ids)}
    return out

if __name__ == '__main__':
    dataset = Dataset.from_parquet(sys.argv[1], split="train").select_columns(["text"])
    split_dataset = dataset.train_test_split(test_size=0.1, seed=2357, shuffle=True)
    split_dataset['val'] = split_dataset.pop('test')
    answer = {"texts": {split: list(dset["text"]) for split, dset in split_dataset.items()}}
    for variant, function, options in (
        ("own", process, {}),
        ("ours", tokenmill.Tokenize("gpt2"), {}),
        ("ours, batched", tokenmill.Tokenize("gpt2"), {"batched": True}),
    ):
        tokenized = split_dataset.map(
            function, remove_columns=['text'], desc="tokenizing the splits", num_proc=num_proc,
            **options,
        )
        for split, dset in tokenized.items():
            arr_len = np.sum(dset['len'], dtype=np.uint64)
            filename = f'{variant}-{split}.bin'
            dtype = np.uint16
            arr = np.memmap(filename, dtype=dtype, mode='w+', shape=(arr_len,))
            total_batches = 5
            idx = 0
            for batch_idx in range(total_batches):
                batch = dset.shard(
                    num_shards=total_batches, index=batch_idx, contiguous=True
                ).with_format('numpy')
                arr_batch = np.concatenate(batch['ids'])
                arr[idx : idx + len(arr_batch)] = arr_batch
                idx += len(arr_batch)
            arr.flush()
    print(json.dumps(answer))
"""


def test_nanogpt_script_when_encoder_or_function_is_ours_then_the_bins_are_tiktokens(
    tmp_path, parquet
):
    found = run_script(tmp_path, NANOGPT, parquet)
    for split in ("train", "val"):
        expected = oracle.stream(oracle.ids(found["texts"][split]))
        for variant in ("own", "ours", "ours, batched"):
            assert (tmp_path / f"{variant}-{split}.bin").read_bytes() == expected, (variant, split)


NULLS = """
import json, sys
from datasets import Dataset
import tokenmill

dataset = Dataset.from_parquet(sys.argv[1])
try:
    dataset.map(tokenmill.Tokenize("gpt2"), batched=True, num_proc=2)
except tokenmill.errors.InputError as error:
    print(json.dumps({"message": error.message, "hint": error.hint}))
"""


def test_map_when_a_worker_meets_none_then_our_error_arrives_whole(tmp_path):
    path = write_corpus("parquet", tmp_path / "corpus", ["a", "b", "c", None])
    found = run_script(tmp_path, NULLS, path)
    assert "column 'text', row 1 of the batch is None" in found["message"]
    assert found["hint"].startswith("dataset = dataset.filter(")


# In a DataLoader.

LOADER = """
import json, os, sys
import torch
from torch.utils.data import DataLoader, Dataset
import tokenmill

enc = tokenmill.get_encoding("gpt2")

class Texts(Dataset):
    def __init__(self, texts):
        self.texts = texts
        self.enc = tokenmill.get_encoding("gpt2")
        self.tokenize = tokenmill.Tokenize("gpt2")

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        text = self.texts[i]
        return (enc.encode_ordinary(text), self.enc.encode_ordinary(text),
                self.tokenize({"text": text})["ids"], os.getpid())

def collate(rows):
    return [[torch.tensor(ids) for ids in row[:3]] + [row[3]] for row in rows]

if __name__ == "__main__":
    texts = json.loads(sys.argv[1])
    loader = DataLoader(Texts(texts), batch_size=2, num_workers=2, collate_fn=collate,
                        multiprocessing_context=sys.argv[2])
    rows = [row for batch in loader for row in batch]
    print(json.dumps({
        "ids": [[ids.tolist() for ids in row[:3]] for row in rows],
        "workers": len({row[3] for row in rows} - {os.getpid()}),
    }))
"""


@pytest.mark.parametrize("method", ["spawn"])
def test_dataloader_when_workers_are_spawned_then_encodings_work_in_them(tmp_path, method):
    found = run_script(tmp_path, LOADER, json.dumps(TEXTS), method)
    plain, marked = oracle.ids(TEXTS, "none"), oracle.ids(TEXTS)
    assert found["ids"] == [[a, a, b] for a, b in zip(plain, marked, strict=True)]
    assert found["workers"] == 2


def test_pool_when_spawned_then_tokenize_works_as_a_plain_function():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.map(tokenmill.Tokenize("gpt2"), [{"text": TEXTS}])
    assert found[0]["ids"] == oracle.ids(TEXTS)
