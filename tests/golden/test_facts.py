"""The fence, second list: facts.json."""

from __future__ import annotations

import pytest

from tests.golden import run
from tests.golden.facts import FACTS


@pytest.mark.parametrize("name", FACTS)
def test_facts_when_asked_for_then_those_of_the_golden_list(name, place):
    assert FACTS[name](place) == run.golden("facts.json")[name]
