"""Where documents begin in a batch, and what attention and loss make of it.

Where the format stores boundaries, or two EOT ids stand between documents, the index of the dataset
says it (dataset/document_bounds.py). Where one EOT id ends or begins a document, the row itself
shows it, and nothing has to be scanned. Rows are longer by one than their inputs: the last token is
only a target, and no document that begins there has an input in the row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.loader.permutation import Numbers
from tokenmill.loader.rows import Buffer, SplitRows

Flags = npt.NDArray[np.bool_]
# Room in cu_seqlens: a document in so many tokens. If it is too little, the room is doubled.
TOKENS_PER_DOCUMENT = 64


def starts_of(rows: SplitRows, numbers: Numbers, tokens: Buffer) -> Flags:
    """Whether a document begins at each token of these rows. A row's first token counts as one."""
    stream = rows.split.stream
    found = np.zeros(tokens.shape, np.bool_)
    if not stream.has_boundaries and stream.eot == "append":
        found[:, 1:] = tokens[:, :-1] == stream.eot_id
    elif not stream.has_boundaries and stream.eot == "prepend":
        found[:, 1:] = tokens[:, 1:] == stream.eot_id
    else:
        bounds = rows.split.bounds
        for place, start in enumerate((numbers * rows.seq_len).tolist()):
            found[place, bounds.ends_between(start, start + rows.seq_len) - start] = True
    found[:, 0] = True
    return found


def document_ids(starts: Flags) -> npt.NDArray[np.int32]:
    """The how manieth document of its row each input belongs to, from 0."""
    return np.cumsum(starts[:, :-1], axis=1, dtype=np.int32) - 1


def position_ids(starts: Flags) -> npt.NDArray[np.int32]:
    """Where each input is in its document, from 0; the row's first input is at 0."""
    places = np.arange(starts.shape[1] - 1, dtype=np.int32)
    return places - np.maximum.accumulate(np.where(starts[:, :-1], places, 0), axis=1)


def loss_mask(starts: Flags, tokens: Buffer, eot_ids: Numbers) -> Flags:
    """Whether a target belongs to the document of its input. The EOT id that says that a document
    is over counts as its own, also where it begins the next one. `eot_ids` has one for each row."""
    is_end: Flags = (tokens[:, 1:] == eot_ids) & (tokens[:, :-1] != eot_ids)
    return ~starts[:, 1:] | is_end


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
