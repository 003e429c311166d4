"""The options of a run. `options.py` has `Config`, which refuses what contradicts itself;
`named_source.py` a source with options of its own; `partition.py` a share of a run; `file.py` reads
them from a `tokenmill.toml`.
"""

from __future__ import annotations

from tokenmill.config.options import (
    BAD_DOCUMENT_POLICIES,
    BOS_POLICIES,
    COUNTS,
    DEDUP_POLICIES,
    DTYPES,
    EMPTY_POLICIES,
    EOT_POLICIES,
    LIST_POLICIES,
    OWN_COLUMNS,
    RUNNERS,
    SPECIAL_TOKENS,
    VAL_POLICIES,
    Config,
    columns_in,
    of_source,
)
from tokenmill.config.partition import Partition

__all__ = [
    "BAD_DOCUMENT_POLICIES",
    "BOS_POLICIES",
    "COUNTS",
    "DEDUP_POLICIES",
    "DTYPES",
    "EMPTY_POLICIES",
    "EOT_POLICIES",
    "LIST_POLICIES",
    "OWN_COLUMNS",
    "RUNNERS",
    "SPECIAL_TOKENS",
    "VAL_POLICIES",
    "Config",
    "Partition",
    "columns_in",
    "of_source",
]
