"""Notes of a run. nanoGPT with any vocabulary: what we leave, plus the command we print, trains.

TRAIN does what matters of nanoGPT's train.py in words of our own: it reads both splits as uint16,
has GPT-2's vocabulary unless a meta.pkl says otherwise, embeds and learns, on the CPU.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import shlex
import subprocess
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

import tokenmill
import warm
from tokenmill.dataset.notes import embedding_rows, trainer_notes

TRAIN = """
import json, os
import numpy as np, torch

torch.manual_seed(1)
block_size = 16

def get_batch(split):
    if split == "train":
        tokens = np.memmap("data/mine/train.bin", dtype=np.uint16, mode="r")
    else:
        tokens = np.memmap("data/mine/val.bin", dtype=np.uint16, mode="r")
    starts = torch.randint(len(tokens) - block_size, (4,)).tolist()
    rows = [torch.from_numpy(tokens[i : i + block_size + 1].astype(np.int64)) for i in starts]
    batch = torch.stack(rows)
    return batch[:, :-1], batch[:, 1:], tokens[:20].tolist()

assert not os.path.exists("data/mine/meta.pkl")
meta_vocab_size = None
vocab_size = meta_vocab_size if meta_vocab_size is not None else 50304
model = torch.nn.Sequential(torch.nn.Embedding(vocab_size, 4), torch.nn.Linear(4, vocab_size))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
found = {"vocab_size": vocab_size}
for split in ("train", "val"):
    x, y, found[split] = get_batch(split)
    loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    assert torch.isfinite(loss)
print(json.dumps(found))
"""
COMMAND = re.compile(r"^ +(sed .* train\.py > (train_\d+\.py))$", re.MULTILINE)


def word_tokenizer(path: Path, num_ids: int) -> str:
    """A tokenizer.json with so many ids, the largest of them used by the corpus."""
    words = {f"word{number}": number for number in range(num_ids - 1)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="word0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    tokenizer.save(str(path))
    return str(path)


def corpus(folder: Path, num_ids: int) -> str:
    path = folder / "corpus.jsonl"
    words = [f"word{num_ids - 2 - number}" for number in range(min(50, num_ids - 2))]
    texts = [" ".join([*words[at % 40 :], "the miller ground 中文"]) for at in range(200)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


def trained(folder: Path, script: str) -> dict[str, object] | str:
    """What the script read, or its error. In this process: to import torch takes seconds."""
    said = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(said):
        try:
            runpy.run_path(script)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    found: dict[str, object] = json.loads(said.getvalue())
    return found


def tokenmill_says(folder: Path, *words: str) -> str:
    done = warm.tokenmill(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("tokenizer", "dtype", "edited", "unedited"),
    [
        ("gpt2", "uint16", None, "right"),
        ("cl100k_base", "uint32", 100352, "wrong"),
        (1_000, "uint16", 1024, "right"),
        (60_000, "uint16", 60032, "IndexError"),
        (70_000, "uint32", 70016, "wrong"),
    ],
)
def test_dataset_and_printed_command_train(tmp_path, tokenizer, dtype, edited, unedited):
    (tmp_path / "train.py").write_text(TRAIN)
    source = corpus(tmp_path, tokenizer if isinstance(tokenizer, int) else 1000)
    name = tokenizer
    if isinstance(tokenizer, int):
        name = word_tokenizer(tmp_path / "mine.json", tokenizer)
    options = ("--tokenizer", name, "--val-fraction", "0.2", "--num-proc", "1")
    said = tokenmill_says(tmp_path, "prepare", source, "-o", "data/mine", *options)

    script = "train.py"
    if edited is None:
        assert "nanoGPT" not in said
    else:
        [(command, script)] = COMMAND.findall(said)
        assert COMMAND.findall(tokenmill_says(tmp_path, "inspect", "data/mine")) == [
            (command, script)
        ]
        subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    assert (tmp_path / "train.py").read_text() == TRAIN

    encoding = tokenmill.get_encoding(name)
    rows = [json.loads(line)["text"] for line in Path(source).read_text().splitlines()]
    beginnings = [[*encoding.encode_ordinary(row), encoding.eot_token][:20] for row in rows]
    right = trained(tmp_path, script)
    assert isinstance(right, dict), right
    assert right["vocab_size"] == (edited or 50304) >= encoding.n_vocab
    for split in ("train", "val"):
        assert any(right[split][: len(beginning)] == beginning for beginning in beginnings)

    # Without the command it is as promised: right, wrong without a word, or an error.
    found = trained(tmp_path, "train.py")
    if unedited == "IndexError":
        assert found == "IndexError: index out of range in self"
    else:
        assert (found == {**right, "vocab_size": 50304}) == (unedited == "right")


def test_command_fits_the_text_of_nanogpts_own_train_py():
    """Both of its places, as they have stood there since 2023."""
    [note] = trainer_notes("nanogpt", "uint32", 100277)
    command = note.splitlines()[1].removesuffix(" train.py > train_100352.py")
    theirs = "dtype=np.uint16, mode='r')\nmeta_vocab_size if meta_vocab_size is not None else 50304"
    found = subprocess.run(
        ["bash", "-c", command], input=theirs, capture_output=True, text=True, check=True
    )
    assert found.stdout == theirs.replace("uint16", "uint32").replace("50304", "100352")


def test_rows_are_enough_and_gpt2s_are_nanogpts():
    assert [embedding_rows(n) for n in (1, 128, 129, 50257, 50281)] == [128, 128, 256, 50304, 50304]
    assert trainer_notes("nanogpt", "uint16", 50281) == []


@pytest.mark.parametrize("name", ["npy", "llmc"])
def test_other_trainers_with_gpt2s_vocabulary_are_told_of_too(name):
    assert trainer_notes(name, "uint16", 50257) == trainer_notes("megatron", "uint32", 10**6) == []
    [note] = trainer_notes(name, "uint32", 100277)
    assert "100352" in note and ("train_llama3.py" in note) == (name == "llmc")


# ---- what else the summary says of a tokenizer file


def a_tokenizer(path: Path, template: str) -> str:
    tokenizer = Tokenizer(models.WordLevel({"the": 0, "miller": 1}, unk_token="the"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["</s>", "<s>"])
    if template:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("<s>", 3), ("</s>", 2)]
        )
    tokenizer.save(str(path))
    return str(path)


@pytest.mark.parametrize(
    ("template", "options", "is_said"),
    [
        ("", (), False),
        ("$A </s>", (), False),
        ("<s> $A </s>", (), True),
        ("<s> $A", ("--eot-token", "<s>", "--eot", "prepend"), False),
    ],
)
def test_eot_is_named_and_a_template_that_is_not_applied_is_said_once(
    tmp_path, template, options, is_said
):
    name = a_tokenizer(tmp_path / "mine.json", template)
    (tmp_path / "c.jsonl").write_text('{"text": "the miller"}\n' * 50)
    options = ("--tokenizer", name, "--no-val", "--num-proc", "1", *options)
    said = tokenmill_says(tmp_path, "prepare", "c.jsonl", "-o", "out", *options)
    assert ("EOT <s> (3) prepended" if "<s>" in options else "EOT </s> (2) appended") in said
    assert said.count("is not applied") == is_said
    seen = tokenmill_says(tmp_path, "inspect", "out", "--tokenizer", name)
    assert seen.count("is not applied") == is_said
    if is_said:
        [asked] = re.findall(r"to begin documents with it: (.*)$", said, re.M)
        again = ("prepare", "c.jsonl", "-o", "again", *options, *shlex.split(asked))
        assert "is not applied" not in tokenmill_says(tmp_path, *again)
        assert (tmp_path / "again/train.bin").read_bytes()[:2] == b"\x03\0"
