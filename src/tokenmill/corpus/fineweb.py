"""The files of each version of FineWeb and FineWeb-Edu.

The config `sample-10BT` is at the path `sample/10BT/`. Revisions are pinned, so that the same
command gives the same bytes next year.
"""

from __future__ import annotations

import glob
import os

from tokenmill.errors import InputError, unknown_name

VERSIONS = {"10B": "sample/10BT", "100B": "sample/100BT", "350B": "sample/350BT"}
REPOS = {True: "HuggingFaceFW/fineweb-edu", False: "HuggingFaceFW/fineweb"}
REVISIONS = {
    True: "87f09149ef4734204d70ed1d046ddc9ca3f2b8f9",
    False: "9bb295ddab0e05d785b879661af7260fed5140fc",
}
# The shard names of llm.c's and build-nanogpt's own scripts.
SHARD_NAMES = {
    ("llmc", True): "edu_fineweb",
    ("llmc", False): "fineweb",
    ("npy", True): "edufineweb",
    ("npy", False): "fineweb",
}


def fineweb_source(version: str, edu: bool = True, revision: str | None = None) -> str:
    """The hf:// source of a version: 10B, 100B or 350B."""
    if version not in VERSIONS:
        raise unknown_name("FineWeb version", version, tuple(VERSIONS))
    return f"hf://datasets/{REPOS[edu]}@{revision or REVISIONS[edu]}/{VERSIONS[version]}/*.parquet"


def local_fineweb_source(folder: str, version: str) -> str:
    """The same files, already downloaded: below `folder`, as by `hf download`, or in it."""
    for source in (
        os.path.join(folder, VERSIONS[version], "*.parquet"),
        os.path.join(folder, "*.parquet"),
    ):
        if glob.glob(source):
            return source
    raise InputError(
        f"no {VERSIONS[version]}/*.parquet and no *.parquet in {folder}",
        hint="--local-dir DIR is the folder that you passed to `hf download --local-dir`",
    )
