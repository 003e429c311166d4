"""Tells a table in a .txt file (JSON lines, CSV, TSV) from plain text, by the first lines.

Only where prose, code or a poem cannot look the same: two lines that are JSON objects; or a header
of plain names without spaces, and after it at least three records with as many fields. A header of
sentences, or a space after a comma, is prose.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass

MIN_OBJECTS = 2
MIN_RECORDS = 3  # after the header
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}")
_DELIMITERS = {"csv": ",;", "tsv": "\t"}


@dataclass(frozen=True, slots=True)
class LikelyTable:
    kind: str  # for --input-format
    row: dict[str, object]  # the first one

    @property
    def longest(self) -> str:
        """The column whose field is longest in the first row."""
        return max(self.row, key=lambda name: len(str(self.row[name])))


def likely_table(head: str) -> LikelyTable | None:
    """What a file of text with this beginning, cut at a line end, is more likely to be."""
    lines = [line for line in head.splitlines() if line.strip()]
    if len(lines) < MIN_OBJECTS:
        return None
    return _objects(lines) or _records(lines)


def _objects(lines: list[str]) -> LikelyTable | None:
    if not all(line.lstrip().startswith("{") for line in lines[:MIN_OBJECTS]):
        return None
    try:
        found = [json.loads(line) for line in lines[:MIN_OBJECTS]]
    except (ValueError, RecursionError):  # of brackets without end, too
        return None
    return LikelyTable("jsonl", found[0]) if all(found) else None


def _records(lines: list[str]) -> LikelyTable | None:
    for kind, delimiters in _DELIMITERS.items():
        for delimiter in delimiters:
            names = lines[0].split(delimiter)
            is_header = len(names) > 1 and len(set(names)) == len(names)
            if not is_header or not all(map(_NAME.fullmatch, names)):
                continue
            try:
                records = list(csv.reader(lines[1:], delimiter=delimiter))
            except csv.Error:
                continue
            if len(records) > MIN_RECORDS:
                records.pop()  # a quoted field may be cut by the end of the lines
            is_even = all(len(record) == len(names) for record in records)
            # A column without a field is the end of statements or verses.
            is_filled = is_even and all(map(any, zip(*records, strict=True)))
            if is_filled and len(records) >= MIN_RECORDS:
                return LikelyTable(kind, dict(zip(names, records[0], strict=True)))
    return None
