"""Turns OSError of the output storage into OutputError (exit 4) with the path and advice."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from tokenmill.errors import OutputError, TokenmillError

_ADVICE = {
    errno.ENOSPC: "make room on that disk, then run the same command again: it resumes",
    errno.EDQUOT: "your quota is used up: make room, then run the same command again: it resumes",
    errno.EFBIG: "the file-size limit was hit: raise it (ulimit -f), or lower --shard-tokens",
    errno.EACCES: "choose a folder you may write to with -o, or change its permissions",
    errno.EPERM: "choose a folder you may write to with -o, or change its permissions",
    errno.EROFS: "that file system is read-only: choose another folder with -o",
    errno.EIO: "the disk reported an error: check it (dmesg), then run the same command again",
    errno.ENOENT: "the folder, or what it is a link to, is gone: make it, or choose one with -o",
    errno.ENOTDIR: "a part of that path is a file: choose another folder with -o",
    errno.ENAMETOOLONG: "choose a shorter path with -o or a shorter --name",
    errno.EMFILE: "too many open files: raise the limit (ulimit -n)",
}
_OTHER_ADVICE = "fix the storage, then run the same command again"


@contextlib.contextmanager
def as_output_error(doing: str, path: str, hint: str | None = None) -> Iterator[None]:
    """Turn an OSError into an OutputError; without a hint, with the advice for its errno."""
    try:
        yield
    except TokenmillError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        hint = hint or _ADVICE.get(error.errno or 0, _OTHER_ADVICE)
        raise OutputError(f"cannot {doing} {path}: {reason}", hint=hint) from error
