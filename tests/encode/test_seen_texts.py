"""`SeenTexts` against a set."""

from __future__ import annotations

import numpy as np
import pytest

from tokenmill.encode.seen_texts import SeenTexts


@pytest.mark.parametrize("num_buckets", [1, 3, 256])
@pytest.mark.parametrize("num_values", [40, 1 << 63])
def test_add_when_batches_of_any_kind_then_equals_a_set(num_buckets, num_values):
    rng = np.random.default_rng(num_buckets)
    seen, known = SeenTexts(num_buckets), set()
    for _ in range(60):
        # Of few different numbers: the same bucket, the same half of a hash, the same hash, zeros.
        hashes = rng.integers(0, num_values, (int(rng.integers(0, 300)), 2), np.uint64)
        again = hashes[rng.integers(0, 2, len(hashes)) == 0]
        for some in (hashes, again):
            expected = []
            for pair in map(tuple, some.tolist()):
                expected.append(pair not in known)
                known.add(pair)
            assert seen.add(some).tolist() == expected
