"""Thrift's compact protocol as a tree that can be changed and written again: parquet's headers.

Only for mutations: the tree keeps types as written, so that anything can be put anywhere.
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
INTEGERS = (I16, I32, I64)


@dataclass
class Struct:
    fields: list[list[Any]]  # [id, type, value]

    def get(self, number: int) -> Any:
        return next((value for id_, _, value in self.fields if id_ == number), None)

    def set(self, number: int, value: Any) -> None:
        for field in self.fields:
            if field[0] == number:
                field[2] = value


@dataclass
class Sequence:
    kind: int
    items: list[Any]


def parsed(data: bytes, start: int = 0) -> tuple[Struct, int]:
    """The struct at `start`, and where it ends."""
    reader = _Reader(data, start)
    return reader.struct(), reader.at


def written(struct: Struct) -> bytes:
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def zigzag(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def bytes(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def struct(self) -> Struct:
        fields: list[list[Any]] = []
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            fields.append([number, head & 15, self.value(head & 15)])
        return Struct(fields)

    def value(self, kind: int, in_list: bool = False) -> Any:
        if kind in (TRUE, FALSE):
            return self.byte() if in_list else None
        if kind == BYTE:
            return self.byte()
        if kind in INTEGERS:
            return self.zigzag()
        if kind == DOUBLE:
            return self.bytes(8)
        if kind == BINARY:
            return self.bytes(self.varint())
        if kind in (LIST, SET):
            head = self.byte()
            count = self.varint() if head >> 4 == 15 else head >> 4
            return Sequence(head & 15, [self.value(head & 15, True) for _ in range(count)])
        assert kind == STRUCT, kind
        return self.struct()


def _varint(out: bytearray, value: int) -> None:
    value &= (1 << 70) - 1
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _zigzag(out: bytearray, value: int) -> None:
    _varint(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for number, kind, value in struct.fields:
        if 0 < number - last < 16:
            out.append((number - last) << 4 | kind & 15)
        else:
            out.append(kind & 15)
            _zigzag(out, number)
        last = number
        _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any, in_list: bool = False) -> None:
    if kind in (TRUE, FALSE):
        if in_list:
            out.append(1 if value is True or not isinstance(value, int) else value & 0xFF)
    elif isinstance(value, int):
        if kind == BYTE:
            out.append(value & 0xFF)
        else:
            _zigzag(out, value)
    elif isinstance(value, bytes):
        if kind == BINARY:
            _varint(out, len(value))
        out += value
    elif isinstance(value, Sequence):
        count = len(value.items)
        out.append((15 if count > 14 else count) << 4 | value.kind & 15)
        if count > 14:
            _varint(out, count)
        for item in value.items:
            _write_value(out, value.kind, item, True)
    elif isinstance(value, Struct):
        _write_struct(out, value)
