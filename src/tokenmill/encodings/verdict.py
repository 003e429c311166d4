"""The verdict of the self-check: whether the fast engine is exact for an unknown file.

A process passes its verdict on to others, which then load only the fast engine: 0.45 s of CPU
instead of 1.5 for a vocabulary of 32,000 tokens. A verdict holds for the same bytes and the same
library versions, so it is only passed to processes of the same run.
"""

from __future__ import annotations

from collections.abc import Callable

from tokenmill.encodings.identity import EncodingId

_VERDICTS: dict[str, bool] = {}


def verdict_of(identity: EncodingId) -> bool | None:
    """Whether the fast engine is exact; None: not known, or nothing to check."""
    return _VERDICTS.get(identity.sha256)


def remember(identity: EncodingId, is_exact: bool | None) -> None:
    if is_exact is not None:
        _VERDICTS[identity.sha256] = is_exact


def is_exact(identity: EncodingId, check: Callable[[], bool]) -> bool:
    """The verdict, by the self-check if it is not known."""
    if identity.sha256 not in _VERDICTS:
        _VERDICTS[identity.sha256] = check()
    return _VERDICTS[identity.sha256]
