"""The buckets of a shuffle: ranges of keys, each small enough to sort in memory."""

from __future__ import annotations

from tokenmill.config import Config
from tokenmill.formats import DTYPE_BYTES

BUCKET_BYTES = 32 << 20
MAX_BUCKETS = 4096
# A nominal value, for text that was not sampled: English is near 4.4 with gpt2, Chinese 1.5.
TEXT_BYTES_PER_TOKEN = 4.0


def num_buckets_of(config: Config, text_bytes: int) -> int:
    """How many buckets this much text needs; 0 without --shuffle. Not estimated from the text,
    because every worker must get the same number."""
    if not config.shuffle:
        return 0
    nominal_bytes = int(text_bytes / TEXT_BYTES_PER_TOKEN) * DTYPE_BYTES[config.dtype]
    return max(1, min(MAX_BUCKETS, nominal_bytes // BUCKET_BYTES))
