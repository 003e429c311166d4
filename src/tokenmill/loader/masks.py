"""What attention and loss make of where documents begin in a batch.

Rows are longer by one than their inputs: the last token is only a target, and no document that
begins there has an input in the row. Padding is a document of its own, the last of its row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.loader.rows import Buffer, Flags
from tokenmill.permutation import Numbers

# Room in cu_seqlens: a document in so many tokens. If it is too little, the room is doubled.
TOKENS_PER_DOCUMENT = 64


def document_ids(starts: Flags) -> npt.NDArray[np.int32]:
    """Which document of its row each input belongs to, counted from 0."""
    return np.cumsum(starts[:, :-1], axis=1, dtype=np.int32) - 1


def position_ids(starts: Flags) -> npt.NDArray[np.int32]:
    """Where each input is in its document, from 0; the row's first input is at 0."""
    places = np.arange(starts.shape[1] - 1, dtype=np.int32)
    return places - np.maximum.accumulate(np.where(starts[:, :-1], places, 0), axis=1)


def loss_mask(starts: Flags, tokens: Buffer, eot_ids: Numbers, num_real: Numbers) -> Flags:
    """Whether a target belongs to the document of its input. The EOT id that says that a document
    is over counts as its own, also where it begins the next one, or the padding. Each row has its
    EOT id, -1 if documents have none, and its number of tokens before the padding."""
    is_end: Flags = (tokens[:, 1:] == eot_ids) & (tokens[:, :-1] != eot_ids)
    is_real: Flags = np.arange(1, tokens.shape[1]) <= num_real
    return (~starts[:, 1:] | is_end) & is_real


def cu_seqlens(starts: Flags) -> npt.NDArray[np.int32]:
    """Where documents begin among all inputs of the batch, rows one after the other, then the
    number of inputs, repeated. Its length is fixed, so that nothing is compiled again."""
    num_rows, seq_len = starts.shape[0], starts.shape[1] - 1
    found = np.flatnonzero(starts[:, :-1])
    room = num_rows * (1 + seq_len // TOKENS_PER_DOCUMENT) + 1
    while room < len(found) + 1:
        room *= 2
    padded = np.full(room, num_rows * seq_len, np.int32)
    padded[: len(found)] = found
    return padded
