"""One browser for the tests of a file; they are skipped where there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.look.view.browsing import CHROMIUM


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium: apt install chromium")
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    options.append("--host-resolver-rules=MAP evil.test 127.0.0.1")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=options)
        yield chromium
        chromium.close()
