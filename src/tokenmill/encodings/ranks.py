"""Rank files (`.tiktoken`): one token per line, the base64 of its bytes, a space, its id.

The ids are the merge order. A file that tiktoken would load and then panic on, or that would give
two tokens one id, is refused here with the line number.
"""

from __future__ import annotations

import binascii
from collections.abc import Collection

from tokenmill.errors import ConfigError

_LINE_HINT = "each line is the base64 of a token's bytes, a space, and its rank"


def parsed_ranks(data: bytes, where: str) -> dict[bytes, int]:
    """Token bytes -> id. `where` names the file in errors."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line:
            continue
        token, rank = _parsed_line(line, f"{where}, line {number}")
        if token in ranks:
            raise ConfigError(f"{where}, line {number}: the token {token!r} occurs twice")
        ranks[token] = rank
    _check_ids(ranks.values(), where)
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise ConfigError(
            f"{where}: {len(missing)} of the 256 single bytes are not tokens (the first is "
            f"0x{missing[0]:02x}), so it cannot encode all text"
        )
    return ranks


def known_ranks(data: bytes) -> dict[bytes, int]:
    """The same of a file whose sha256 says that it is one of ours: a fifth of the time."""
    words = data.split()
    return dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))


def _parsed_line(line: bytes, where: str) -> tuple[bytes, int]:
    try:
        encoded, rank = line.split(b" ")
        token = binascii.a2b_base64(encoded)
        # Decoding skips what is not base64; encoding again shows whether anything was skipped.
        if not token or binascii.b2a_base64(token, newline=False) != encoded:
            raise ValueError("not base64")
        if not rank.isdigit() or len(rank) > 9:
            raise ValueError("not a rank")
    except ValueError:
        shown = line[:60].decode("ascii", "backslashreplace")
        raise ConfigError(
            f"{where}: not a token and its rank: {shown!r}", hint=_LINE_HINT
        ) from None
    return token, int(rank)


def _check_ids(ids: Collection[int], where: str) -> None:
    if not ids:
        raise ConfigError(f"{where}: holds no ranks", hint=_LINE_HINT)
    if len(set(ids)) != len(ids):
        seen: set[int] = set()
        twice = next(rank for rank in ids if rank in seen or seen.add(rank))  # type: ignore[func-returns-value]
        raise ConfigError(f"{where}: two tokens have the rank {twice}")
    # p50k_base leaves one id free for <|endoftext|>; a table with more holes than tokens is not a
    # vocabulary, and would cost memory and a wider dtype.
    if max(ids) >= 2 * len(ids):
        raise ConfigError(f"{where}: the largest rank is {max(ids)}, for {len(ids)} tokens")
