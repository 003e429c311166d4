"""GPT-2's mapping of bytes to letters, in which byte-level vocabularies are written."""

from __future__ import annotations


def byte_level_alphabet() -> dict[str, bytes]:
    """Letter -> byte: printable ones stand for themselves, others follow U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): bytes([byte]) for byte in printable}
    return letters | {chr(0x100 + i): bytes([byte]) for i, byte in enumerate(others)}
