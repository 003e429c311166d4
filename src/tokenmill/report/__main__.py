"""Stretches of a split, counted by a process of its own (exact.py): order on stdin, counts on
stdout."""

from __future__ import annotations

import json
import sys

from tokenmill.report.exact import serve

if __name__ == "__main__":
    serve(json.load(sys.stdin), sys.stdout.buffer)
