"""The changes that a trainer's script needs before it can train on a dataset.

Some trainers hard-code GPT-2's vocabulary and dtype. To read other tokens, one or two values must
be changed; our note gives a command that writes a changed copy beside the script. nanoGPT would
take the vocabulary size from a `meta.pkl`, but we write no pickle.
"""

from __future__ import annotations

from tokenmill.wording.plural import counted

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
