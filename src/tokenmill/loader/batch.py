"""What a trainer gets at a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

EXTRAS = ("cu_seqlens", "position_ids", "document_ids", "loss_mask")


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """A rank's rows of a step. `tokens` and `targets` are views of one array, shifted by one."""

    tokens: npt.NDArray[Any]  # (rows, seq_len)
    targets: npt.NDArray[Any]  # (rows, seq_len)
    rows: int  # the run's counter after this step, the same on every rank: `Loader.state_dict`
    # Where documents begin among the rows * seq_len inputs; then rows * seq_len, repeated.
    cu_seqlens: npt.NDArray[np.int32] | None = None
    position_ids: npt.NDArray[np.int32] | None = None  # (rows, seq_len), 0 where a document begins
    document_ids: npt.NDArray[np.int32] | None = None  # (rows, seq_len), from 0 in each row
    loss_mask: npt.NDArray[np.bool_] | None = None  # (rows, seq_len), of the targets

    @property
    def max_seqlen(self) -> int:
        """The length of a row, which the longest document may have. Constant, so that a compiled
        model is not compiled again."""
        return int(self.tokens.shape[1])

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Its arrays by name, without extras that were not requested."""
        names = ("tokens", "targets", *EXTRAS)
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}
