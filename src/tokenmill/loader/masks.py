"""Masks and ids for attention and loss, from where documents begin in a batch.

A row has one token more than inputs: the last token is only a target. Padding counts as a document
of its own, the last of its row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.loader.permutation import Numbers
from tokenmill.loader.rows import Buffer, Flags

# cu_seqlens has room for one document per this many tokens; if that is too little, it is doubled.
TOKENS_PER_DOCUMENT = 64


def document_ids(starts: Flags) -> npt.NDArray[np.int32]:
    """Which document of its row each input belongs to, counted from 0."""
    return np.cumsum(starts[:, :-1], axis=1, dtype=np.int32) - 1


def position_ids(starts: Flags) -> npt.NDArray[np.int32]:
    """The position of each input in its document; the row's first input has 0."""
    places = np.arange(starts.shape[1] - 1, dtype=np.int32)
    return places - np.maximum.accumulate(np.where(starts[:, :-1], places, 0), axis=1)


def loss_mask(starts: Flags, tokens: Buffer, eot_ids: Numbers, num_real: Numbers) -> Flags:
    """Whether a target belongs to the document of its input. The EOT id that ends a document counts
    as its own, even if it begins the next one. Padding is never a target. `eot_ids` has the EOT id
    of each row, -1 if documents have none; `num_real` its number of tokens before the padding."""
    is_end: Flags = (tokens[:, 1:] == eot_ids) & (tokens[:, :-1] != eot_ids)
    is_real: Flags = np.arange(1, tokens.shape[1]) < num_real
    return (~starts[:, 1:] | is_end) & is_real


def cu_seqlens(starts: Flags) -> npt.NDArray[np.int32]:
    """Where documents begin among all inputs of the batch, row after row, then the number of
    inputs, repeated. Its length is fixed, so that a compiled model is not compiled again."""
    num_rows, seq_len = starts.shape[0], starts.shape[1] - 1
    found = np.flatnonzero(starts[:, :-1])
    room = num_rows * (1 + seq_len // TOKENS_PER_DOCUMENT) + 1
    while room < len(found) + 1:
        room *= 2
    padded = np.full(room, num_rows * seq_len, np.int32)
    padded[: len(found)] = found
    return padded
