"""A dataset on the Hugging Face Hub, read through its cache: `hf://datasets/OWNER/NAME[@REVISION]`.

Its files are downloaded once into `huggingface_hub`'s cache, with their hashes compared
(storage/hub.py), so that offline mode finds them. A snapshot there is a folder of links to blobs,
which may be links into a store that all repositories share: links that stay within the cache are
followed.
"""

from __future__ import annotations

import contextlib
import os
import re

from tokenmill.corpus.hub_names import MAIN, SCHEME, HubSource
from tokenmill.errors import ConfigError
from tokenmill.storage.folder_files import FolderFiles

_URL = re.compile(rf"{SCHEME}(?:datasets/)?(\w[\w.-]*/\w[\w.-]*)(?:@([^/:]+))?(/.*)?")


def snapshot_files(url: str) -> FolderFiles:
    """The files of a dataset, or of a folder of it, after downloading those that are missing."""
    # 25 ms, and every run imports this module
    from tokenmill.corpus.downloads import Downloads
    from tokenmill.corpus.hub_listing import HubListing
    from tokenmill.storage.hub import Hub

    match = _URL.fullmatch(url)
    if match is None:
        raise ConfigError(
            f"not a dataset on the Hub: {url!r}",
            hint="write hf://datasets/OWNER/NAME, or with @REVISION or /FOLDER after it",
        )
    repo, revision, folder = match[1], match[2] or MAIN, (match[3] or "").strip("/")
    source = HubSource(repo, revision.replace("%2F", "/"), f"{folder}/**" if folder else "**")
    with contextlib.closing(Hub(lambda message: None)) as hub:
        listing = HubListing(hub, {})
        found = listing.files(source)
        with contextlib.closing(Downloads(hub, found)) as downloads:
            downloads.wait()
        for commit in listing.used.values():
            hub.keep_revision(source.repo, source.revision, commit)
        snapshot = hub.place(found[0]).removesuffix("/" + found[0].path)
    cache = os.path.dirname(os.path.dirname(os.path.dirname(snapshot)))
    return FolderFiles(os.path.join(snapshot, folder) if folder else snapshot, within=cache)
