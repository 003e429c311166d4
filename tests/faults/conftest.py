"""Faults are counted by operations on the disk, so nothing of other processes may add to them."""

from __future__ import annotations

import tempfile

import pytest


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path_factory, monkeypatch):
    """A run removes the scratch folders of killed ones, also of those that other tests killed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
