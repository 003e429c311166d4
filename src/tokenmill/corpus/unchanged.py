"""Checks that an input is still the one that was planned; if not, the run stops with a conflict.

A file is checked before it is read. An object has a tag and is checked once, after a slice has read
it: if its tag is still the planned one, everything that was read came from that object.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from tokenmill.corpus.source_files import object_digest
from tokenmill.corpus.spans import Input, known_ns
from tokenmill.errors import ConflictError, InputError, IntegrityError
from tokenmill.storage.objects import bucket, in_parallel

_HINT = (
    "restore the file with its time (cp -p) and run the same command again, "
    "or start again with --overwrite"
)


def require_unchanged(source: Input) -> None:
    """Raise ConflictError if the file is not the planned one. Objects with a tag are checked by
    `unchanged_objects` instead."""
    if source.has_tag:
        return
    try:
        found = os.stat(source.path)
    except OSError as error:
        raise InputError(f"cannot read {source.name}: {error.strerror}", hint=_HINT) from error
    if found.st_size != source.num_bytes or source.mtime_ns not in (0, known_ns(found)):
        raise ConflictError(
            f"{source.name} changed during the run "
            f"({source.num_bytes:,} bytes planned, {found.st_size:,} now, or modified since)",
            hint=_HINT,
        )


def require_unmodified(sources: Iterable[Input]) -> None:
    """Raise ConflictError if a local file was modified after it was read, during the run: later,
    nobody could tell, because the dataset is newer. A file that is gone was read before."""
    for source in sources:
        if source.mtime_ns and os.path.exists(source.path):
            require_unchanged(source)


@contextlib.contextmanager
def unchanged_objects(sources: Iterable[Input]) -> Iterator[None]:
    """Raise ConflictError at the end if an object is not the planned one.

    It replaces an error from reading the object, because the change explains that error.
    """
    tagged = [source for source in dict.fromkeys(sources) if source.has_tag]
    try:
        yield
    except (InputError, IntegrityError):
        _require_unchanged_objects(tagged)
        raise
    _require_unchanged_objects(tagged)


def _require_unchanged_objects(sources: list[Input]) -> None:
    looks = in_parallel(lambda source: bucket(source.path).look(source.path), sources)
    for source, found in zip(sources, looks, strict=True):
        if found is None:
            raise InputError(f"cannot read {source.name}: it is gone", hint=_HINT)
        if (found.num_bytes, object_digest(found)) != (source.num_bytes, source.digest):
            raise ConflictError(
                f"{source.name} changed during the run "
                f"({source.num_bytes:,} bytes and {source.digest} planned, "
                f"{found.num_bytes:,} and {object_digest(found)} now)",
                hint=_HINT,
            )
