"""`tokenmill.convert`: `tokenmill convert`, as a function."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tokenmill.api.tokenizer import encoding_named
from tokenmill.config.arguments import suggesting
from tokenmill.config.kinds import COUNT, SEQ_LEN
from tokenmill.dataset.convert import Target
from tokenmill.dataset.convert import convert as converted
from tokenmill.dataset.dataset import open_dataset
from tokenmill.dataset.manifest import Manifest
from tokenmill.encodings import Encoding
from tokenmill.wording.quantities import Quantity


@suggesting
def convert(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: str,
    name: str | None = None,
    shard_tokens: Quantity | None = None,
    seq_len: Quantity | None = None,
    dtype: str = "auto",
    drop: str | Iterable[str] = (),
    overwrite: bool = False,
    from_format: str | None = None,
    from_dtype: str | None = None,
    tokenizer: str | os.PathLike[str] | Encoding | None = None,
    pattern: str | None = None,
    eot_token: str | None = None,
    eot: str | None = None,
) -> Manifest:
    """Write a finished dataset in another format without tokenizing again, and return the manifest.

    The token streams do not change. Calling it again with the same arguments resumes an interrupted
    conversion. `drop` names what may be left out if the format cannot hold it: "boundaries",
    "tail". The last six arguments describe a folder that tokenmill did not write.
    """
    target = Target(
        out=os.fspath(out),
        format=format,
        name=name,
        shard_tokens=None if shard_tokens is None else COUNT.checked("shard_tokens", shard_tokens),
        seq_len=None if seq_len is None else SEQ_LEN.checked("seq_len", seq_len),
        dtype=dtype,
        drop=(drop,) if isinstance(drop, str) else tuple(drop),
        overwrite=overwrite,
    )
    encoding = encoding_named(tokenizer, pattern, eot_token)
    opened = open_dataset(
        os.fspath(source), format_name=from_format, dtype=from_dtype, encoding=encoding, eot=eot
    )
    return converted(opened, target, encoding)
