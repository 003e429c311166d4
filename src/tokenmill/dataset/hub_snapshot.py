"""A dataset on the Hugging Face Hub, read through its cache: `hf://datasets/OWNER/NAME[@REVISION]`.

Its files are downloaded once into `huggingface_hub`'s cache, with their hashes compared
(corpus/hub.py), so that offline mode finds them. A snapshot there is a folder of links to blobs,
which may be links into a store that all repositories share: links that stay within the cache are
followed.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING

from tokenmill.corpus.hub_names import MAIN, SCHEME, HubFile, HubSource
from tokenmill.errors import ConfigError
from tokenmill.storage.folder_files import FolderFiles

if TYPE_CHECKING:
    from tokenmill.corpus.hub import Hub

_URL = re.compile(rf"{SCHEME}(?:datasets/)?(\w[\w.-]*/\w[\w.-]*)(?:@([^/:]+))?(/.*)?")


def snapshot_files(url: str) -> FolderFiles:
    """The files of a dataset, or of a folder of it, after downloading those that are missing."""
    from tokenmill.corpus.hub import Hub  # 25 ms, and every run imports this module

    match = _URL.fullmatch(url)
    if match is None:
        raise ConfigError(
            f"not a dataset on the Hub: {url!r}",
            hint="write hf://datasets/OWNER/NAME, or with @REVISION or /FOLDER after it",
        )
    repo, revision, folder = match[1], match[2] or MAIN, (match[3] or "").strip("/")
    source = HubSource(repo, revision.replace("%2F", "/"), f"{folder}/**" if folder else "**")
    with contextlib.closing(Hub(None, lambda message: None)) as hub:
        found = hub.files(source)
        missing = [file for file in found if not hub.is_here(file)]
        with contextlib.closing(hub.downloads(missing)) as downloads:
            downloads.wait()
        hub.keep_revisions()
        snapshot = _snapshot(hub, found[0])
    cache = os.path.dirname(os.path.dirname(os.path.dirname(snapshot)))
    return FolderFiles(os.path.join(snapshot, folder) if folder else snapshot, within=cache)


def _snapshot(hub: Hub, file: HubFile) -> str:
    return hub.local_path(file).removesuffix("/" + file.path)
