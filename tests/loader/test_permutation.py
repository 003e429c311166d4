"""The permutation: bijective for every size, random enough, and frozen."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import loader_oracle as oracle
from tokenmill.loader.order import Permutation, RowOrder

SIZES = [1, 2, 3, 5, 7, 17, 1000, 1_000_003]
EDGES = [(1 << bits) + off for bits in range(1, 21) for off in (-1, 0, 1) if (1 << bits) + off > 0]


@pytest.mark.parametrize("chunk", range(4))
def test_permutation_of_every_small_size_hits_every_number_once(chunk):
    for size in range(1 + chunk, 1100, 4):
        found = Permutation(size, 5)(np.arange(size))
        assert np.array_equal(np.sort(found), np.arange(size)), size


def test_permutation_at_the_edges_of_its_domain_hits_every_number_once():
    """Grain's rule visits an element twice, and the last one never, for 2^16 + 1."""
    for size in [*SIZES, *EDGES]:
        found = Permutation(size, 7, "edge")(np.arange(size))
        assert np.array_equal(np.bincount(found, minlength=size), np.ones(size)), size


@pytest.mark.parametrize("size", [1, 2, 6, 100, 65537, (1 << 33) + 1, (1 << 45) + 3])
def test_permutation_is_that_of_the_oracle(size):
    numbers = sorted({0, size - 1, size // 2, size // 3})
    found = Permutation(size, 3, "web", "rows", 2)(np.array(numbers)).tolist()
    assert found == [oracle.permuted(n, size, 3, "web", "rows", 2) for n in numbers]


def test_permutation_is_frozen():
    """Another version of NumPy, another machine, a later release: the same order."""
    assert Permutation(10, 0)(np.arange(10)).tolist() == GOLDEN_SMALL
    big = Permutation((1 << 40) + 1, 0, "web")(np.array([0, 1, 2, 1 << 40]))
    assert big.tolist() == GOLDEN_LARGE


GOLDEN_SMALL = [9, 1, 6, 5, 0, 8, 3, 4, 2, 7]
GOLDEN_LARGE = [977568324192, 217381064056, 15763423245, 801977014521]


def chi_square(table: np.ndarray) -> float:
    expected = table.sum() / table.size
    return float(((table - expected) ** 2 / expected).sum())


def test_low_bits_of_place_and_row_are_independent():
    """levanter's: within 1,024 places, `place mod 8` determines `row mod 8`."""
    size = 1 << 20
    found = Permutation(size, 0, "levanter")(np.arange(size))
    table = np.bincount(np.arange(size) % 64 * 64 + found % 64, minlength=4096)
    assert 3600 < chi_square(table) < 4600  # 3,969 degrees of freedom, sigma 89
    near = np.arange(1024)
    table = np.bincount(near % 8 * 8 + found[:1024] % 8, minlength=64)
    assert chi_square(table) < 110
    lag = np.corrcoef(found[:-1], found[1:])[0, 1]
    assert abs(lag) < 0.005


@pytest.mark.parametrize("size", [3, 4, 5])
def test_every_order_of_a_few_rows_comes_up_about_as_often(size):
    orders = dict.fromkeys(itertools.permutations(range(size)), 0)
    count = 20 * len(orders)
    for seed in range(count):
        orders[tuple(Permutation(size, seed)(np.arange(size)).tolist())] += 1
    degrees = len(orders) - 1
    assert chi_square(np.array(list(orders.values()))) < degrees + 5 * (2 * degrees) ** 0.5


def test_keys_of_seeds_epochs_and_sources_do_not_collide():
    """`seed + epoch` would: seed 0 in epoch 1 would be seed 1 in epoch 0."""
    turns = np.arange(300)
    orders = [
        RowOrder(100, "full", seed, source).rows(turns).reshape(3, 100)[epoch].tolist()
        for seed in (0, 1, 12)
        for source in ("a", "b", "1")
        for epoch in range(3)
    ]
    assert len({tuple(order) for order in orders}) == len(orders)


@pytest.mark.parametrize("num_rows", [1, 255, 256, 257, 5 * 256, 16384 - 1, 2 * 16384 + 300])
@pytest.mark.parametrize("shuffle", ["full", "block", None])
def test_order_gives_every_row_once_an_epoch_and_another_order_each_time(num_rows, shuffle):
    order = RowOrder(num_rows, shuffle, 3, "web")
    epochs = order.rows(np.arange(2 * num_rows)).reshape(2, num_rows)
    assert (np.sort(epochs, axis=1) == np.arange(num_rows)).all()
    assert (shuffle is None or num_rows == 1) == np.array_equal(*epochs)
    for turn in (0, num_rows - 1, num_rows, 2 * num_rows - 1):
        expected = oracle.row_at(turn, num_rows, shuffle, 3, "web")
        assert order.rows(np.array([turn])).tolist() == [expected]


def test_block_order_reads_few_blocks_at_a_time_and_leaves_no_short_block_at_the_end():
    order = RowOrder(40 * 16384 + 100, "block", 0, "web")
    rows = order.rows(np.arange(40 * 16384 + 100))
    assert len(np.unique(rows[:16384] // 256)) == 64
    tail = np.flatnonzero(rows >= 40 * 16384)
    assert tail.min() < 40 * 16384 - 5000
