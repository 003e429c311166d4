"""The options of a run.

options.py       `Config`: all options, validated when it is made
named_source.py  a source with its own options
partition.py     `--partition I/N`
file.py          reads options from a `tokenmill.toml`
"""

from __future__ import annotations

from tokenmill.config.options import Config, of_source
from tokenmill.config.partition import Partition

__all__ = ["Config", "Partition", "of_source"]
