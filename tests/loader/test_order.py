"""Rows that are looked up are those that are computed."""

from __future__ import annotations

import random

import numpy as np
import pytest

import loader_oracle as oracle
from tokenmill.loader.order import TURNS_AT_ONCE, RowOrder


@pytest.mark.parametrize("shuffle", ["full", "block"])
def test_rows_looked_up_are_those_of_the_oracle_over_the_ends_of_epochs(shuffle):
    num_rows = TURNS_AT_ONCE + 700
    order = RowOrder(num_rows, shuffle, 3, "web")
    edges = [0, TURNS_AT_ONCE, num_rows, 2 * TURNS_AT_ONCE, 2 * num_rows]
    turns = [max(0, edge + step) for edge in edges for step in (-2, -1, 0, 1)]
    turns += random.Random(0).sample(range(3 * num_rows), 50)
    expected = [oracle.row_at(turn, num_rows, shuffle, 3, "web") for turn in turns]
    assert order.rows(np.array(turns)).tolist() == expected
    assert order.computed(np.array(turns)).tolist() == expected
