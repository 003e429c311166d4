"""The estimate in a separate process (disk_check.py): config on stdin, estimate on stdout."""

from __future__ import annotations

import json
import sys

from tokenmill.config import Config
from tokenmill.estimate.estimation import estimate

if __name__ == "__main__":
    plain = json.load(sys.stdin)
    found = estimate(Config(**{**plain, "sources": tuple(plain["sources"])}))
    print(json.dumps(found.to_plain()))
