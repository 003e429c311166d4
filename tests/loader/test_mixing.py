"""Mixing: by weight at every place, whatever the weights, stages and names."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loader_oracle as oracle
from tokenmill.errors import ConfigError
from tokenmill.loader.mixing import Mixture, stage_of, whole_weights

WEIGHTS = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.one_of(st.integers(1, 1000), st.floats(0.001, 1000)),
    min_size=2,
)


def mixture_of(stages: list[tuple[int, dict[str, float]]], seed: int = 0) -> Mixture:
    names = sorted(stages[0][1])
    return Mixture(names, [stage_of(start, weights, names) for start, weights in stages], seed)


@settings(max_examples=50, deadline=None)
@given(weights=WEIGHTS, later=st.integers(1, 60), seed=st.integers(0, 9), data=st.data())
def test_mixture_when_asked_anywhere_then_the_oracles_order(weights, later, seed, data):
    other = dict(zip(weights, reversed(weights.values()), strict=True))
    other[min(other)] = 0
    stages = [(0, weights), (later, other)]
    mixture = mixture_of(stages, seed)
    whole = [(start, dict(mixture.stages[n].weights)) for n, (start, _) in enumerate(stages)]
    expected = oracle.sources_in_order(whole, seed, 130)
    turns = [Counter(expected[:place])[name] for place, name in enumerate(expected)]
    start = data.draw(st.integers(0, 129))
    stop = data.draw(st.integers(start + 1, 130))
    sources, numbers = mixture.at(start, stop)
    assert [mixture.names[n] for n in sources.tolist()] == expected[start:stop]
    assert numbers.tolist() == turns[start:stop]
    counts = Counter(expected[:stop])
    assert mixture.counts(stop) == [counts[name] for name in mixture.names]


@pytest.mark.parametrize("num_sources", [2, 3, 10, 100])
def test_mixture_is_never_two_rows_off_what_the_weights_say(num_sources):
    rng = random.Random(num_sources)
    for _ in range(12):
        weights = {
            f"s{n:03}": rng.choice([rng.random(), rng.randint(1, 9), rng.random() ** 6])
            for n in range(num_sources)
        }
        mixture = mixture_of([(0, {name: weight or 1 for name, weight in weights.items()})])
        sources, _ = mixture.at(0, 4000)
        counts = np.cumsum(sources[:, None] == np.arange(num_sources), axis=0)
        [stage] = mixture.stages
        shares = np.array([dict(stage.weights)[name] for name in mixture.names]) / stage.total
        planned = np.arange(1, 4001)[:, None] * shares
        assert np.abs(counts - planned).max() < 2


def test_mixture_far_into_a_run_is_exact_where_floats_and_32_bits_are_not():
    mixture = mixture_of([(0, {"a": 0.7, "b": 0.2, "c": 0.1})])
    place = 10**13 + 5
    for count, share in zip(mixture.counts(place), (7, 2, 1), strict=True):
        assert abs(count - Fraction(place * share, 10)) < 2
    assert sum(mixture.counts(place)) == place
    sources, turns = mixture.at(place, place + 1000)
    before, after = mixture.counts(place), mixture.counts(place + 1000)
    for number in range(3):
        own = turns[sources == number].tolist()
        assert own == list(range(before[number], after[number]))


def test_weights_as_people_write_them_are_exact():
    assert whole_weights({"a": 0.7, "b": 0.3}) == {"a": 7, "b": 3}
    assert whole_weights({"a": 1e-3, "b": 0, "c": 2}) == {"a": 1, "c": 2000}
    thirds = whole_weights({"a": 1 / 3, "b": 2 / 3})
    assert abs(thirds["b"] / thirds["a"] - 2) < 1e-11


def test_order_of_a_mixture_is_frozen():
    """Another machine, a later release: the same order, in which states of older runs go on."""
    mixture = mixture_of([(0, {"a": 0.7, "b": 0.3}), (30, {"a": 1, "b": 2})])
    order = "".join(mixture.names[number] for number in mixture.at(0, 60)[0])
    assert order == "aaabaaabbbaaaababaaabaaaaabaababbbababbbabbabbbbaabbbaabbbaa"


def test_sources_in_another_order_are_the_same_mixture():
    """torchtitan's: reordering the list reseeds the others."""
    one = mixture_of([(0, {"a": 1, "b": 2, "c": 2})])
    other = mixture_of([(0, {"c": 2, "b": 2, "a": 1})])
    assert [a.tolist() for a in one.at(0, 100)] == [a.tolist() for a in other.at(0, 100)]


@pytest.mark.parametrize("weights", [{"a": 1, "b": 1}, {"a": 0.7, "b": 0.3}])
def test_no_rank_sees_one_source_only(weights):
    """Periodic interleave and a row for each of 8 ranks."""
    sources, _ = mixture_of([(0, weights)]).at(0, 8000)
    shares = (sources.reshape(-1, 8) == 0).mean(axis=0)
    assert (np.abs(shares - weights["a"] / sum(weights.values())) < 0.1).all()


def test_end_is_the_last_place_before_a_source_is_used_up():
    mixture = mixture_of([(0, {"a": 3, "b": 1}), (40, {"a": 1, "b": 1})])
    end = mixture.end([60, 1000])
    assert mixture.counts(end)[0] == 60 and mixture.counts(end + 1)[0] == 61


def test_mistakes_in_weights_are_named():
    with pytest.raises(ConfigError, match=r"(?s)'cod'.*did you mean 'code'"):
        stage_of(0, {"web": 1, "cod": 1}, ["web", "code"])
    with pytest.raises(ConfigError, match="have none for code"):
        stage_of(0, {"web": 1}, ["web", "code"])
    with pytest.raises(ConfigError, match="weight of web is -1"):
        stage_of(0, {"web": -1, "code": 1}, ["web", "code"])
    with pytest.raises(ConfigError, match="all weights are 0"):
        stage_of(0, {"web": 0, "code": 0}, ["web", "code"])
