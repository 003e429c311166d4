"""`tokenmill.push`: `tokenmill push`, as a function."""

from __future__ import annotations

import os

from tokenmill.config.arguments import suggesting
from tokenmill.dataset.push import Pushed
from tokenmill.dataset.push import push as pushed

__all__ = ["Pushed", "push"]


@suggesting
def push(
    folder: str | os.PathLike[str],
    repo: str,
    *,
    private: bool = False,
    revision: str = "main",
    overwrite: bool = False,
) -> Pushed:
    """Upload a finished dataset to the Hugging Face Hub, and return what the repository then holds.

    `repo` is OWNER/NAME and `revision` a branch; each is created if it does not exist. The dataset
    is verified first, and afterwards its hashes are compared with the Hub's. Calling it again after
    an interruption uploads what is missing. Another dataset is replaced only with `overwrite`; a
    README.md that you wrote or edited stays.
    """
    return pushed(os.fspath(folder), repo, private=private, revision=revision, overwrite=overwrite)
