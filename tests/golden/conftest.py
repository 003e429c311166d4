from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.run import Place


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(Path(tmp_path_factory.mktemp("golden"), "place"))
