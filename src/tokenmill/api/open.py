"""`tokenmill.open`: reads a dataset from Python."""

from __future__ import annotations

import os

from tokenmill.config.arguments import suggesting
from tokenmill.dataset.opened import OpenedDataset, opened
from tokenmill.encodings import Encoding


@suggesting
def open(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    dtype: str | None = None,
    tokenizer: str | os.PathLike[str] | Encoding | None = None,
    pattern: str | None = None,
    eot_token: str | None = None,
    eot: str | None = None,
) -> OpenedDataset:
    """Open a dataset of any format, in a folder or an object store:

        data = tokenmill.open("data/mine")
        data["train"].num_tokens, len(data["train"])
        data["train"].tokens(0, 1024), data["train"].document(41), data["train"].text(41)

    Arrays are read-only NumPy arrays, and views of the mapped file if one local shard holds all the
    tokens. The arguments describe a folder that tokenmill did not write; `tokenizer` may also be
    the file of a dataset's tokenizer, which `text` needs.
    """
    if tokenizer is not None and not isinstance(tokenizer, Encoding):
        tokenizer = os.fspath(tokenizer)
    return opened(
        os.fspath(path),
        format_name=format,
        dtype=dtype,
        tokenizer=tokenizer,
        pattern=pattern,
        eot_token=eot_token,
        eot=eot,
    )
