"""The options of a run.

options.py    `Config`: every option, once, and sources with a name
kinds.py      the values that an option can have
file.py       reads options from a `tokenmill.toml`
partition.py  `--partition I/N`
names.py      what other tools call an option; arguments.py checks the arguments of Python functions
"""

from __future__ import annotations

from tokenmill.config.options import Config, of_source
from tokenmill.config.partition import Partition

__all__ = ["Config", "Partition", "of_source"]
