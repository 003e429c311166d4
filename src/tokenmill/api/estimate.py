"""`tokenmill.estimate`: `tokenmill estimate`, as a function."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from tokenmill.config import Config
from tokenmill.config.arguments import suggesting
from tokenmill.encodings import Encoding
from tokenmill.estimate import Estimate
from tokenmill.estimate import estimate as estimated
from tokenmill.wording.quantities import Quantity


@suggesting
def estimate(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Mapping[str, Any],
    out: str | os.PathLike[str] = "",
    *,
    text_column: str = "text",
    template: str | None = None,
    lists: str | None = None,
    separator: str | None = None,
    input_format: str | None = None,
    where: str | None = None,
    sample: float | str | None = None,
    dedup: str | None = None,
    limit_tokens: Quantity | None = None,
    tokenizer: str | os.PathLike[str] | Encoding = "gpt2",
    pattern: str | None = None,
    eot_token: str | None = None,
    bos_token: str | None = None,
    eot: str | None = None,
    bos: str | None = None,
    format: str = "nanogpt",
    num_proc: Quantity | None = None,
) -> Estimate:
    """Estimate the tokens, size and run time of `prepare` from a sample, within seconds.

        found = tokenmill.estimate("corpus/*.parquet", tokenizer="o200k_base")
        found.num_tokens, found.num_tokens_low, found.num_tokens_high

    Writes nothing. With `out`, also checks the free space on its disk.
    """
    return estimated(Config(**locals()))
