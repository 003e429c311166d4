"""The contract of formats (tokenmill.testing), for every one that is registered."""

from __future__ import annotations

from tokenmill.formats import NAMES, get_format
from tokenmill.testing import FormatContract

for name in NAMES:
    globals()[f"Test{name.title()}"] = type(
        f"Test{name.title()}", (FormatContract,), {"format": get_format(name)}
    )
