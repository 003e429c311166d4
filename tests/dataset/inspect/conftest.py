from __future__ import annotations

import pytest

from corpora import made_texts
from inspected import prepared


@pytest.fixture(scope="session")
def small() -> list[str]:
    return made_texts(60, seed=3)


@pytest.fixture(scope="session")
def nano(tmp_path_factory, small) -> str:
    return prepared(tmp_path_factory.mktemp("nano"), small, val_fraction=0.2)
