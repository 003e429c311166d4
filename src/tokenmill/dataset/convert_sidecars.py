"""Copies the sidecars (--keep) of a dataset that is converted: its documents and their order stay
the same."""

from __future__ import annotations

import os

from tokenmill.assemble.sidecars import Sidecar
from tokenmill.assemble.writing import created
from tokenmill.dataset.dataset import Dataset
from tokenmill.dataset.kept_rows import sidecars_of
from tokenmill.dataset.manifest import OutputFile
from tokenmill.encode.record import SPLITS
from tokenmill.errors import IntegrityError
from tokenmill.storage import files

_COPY_BYTES = 1 << 20


def carried_sidecars(source: Dataset, folder: str) -> tuple[Sidecar, ...]:
    """Copy the sidecars of `source` into a folder. Raises IntegrityError if one has changed."""
    if source.manifest is None:
        return ()
    listed = [file for split in SPLITS for file in sidecars_of(source.manifest, split)]
    return tuple(_copied(source, file, folder) for file in listed)


def _copied(source: Dataset, listed: OutputFile, folder: str) -> Sidecar:
    files.make_folder(os.path.dirname(os.path.join(folder, listed.name)))
    with source.files.in_order(listed.name) as data, created(folder, listed.name) as file:
        while piece := data.read(_COPY_BYTES):
            file.write(piece)
    if file.digest != listed.sha256:
        raise IntegrityError(
            f"{source.files.path_of(listed.name)} has changed since it was written",
            hint=f"what else is wrong? tokenmill verify {source.name}",
        )
    return Sidecar(listed.name, listed.num_documents or 0, file.num_bytes, file.digest)
