"""Encoded documents as two arrays: what engines return and the mill consumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TokenArray:
    """The ids of n documents, end to end: document i is `ids[offsets[i]:offsets[i + 1]]`.

    A document that no engine could encode has no ids and is in `failed` with the reason.
    """

    ids: npt.NDArray[np.unsignedinteger]  # uint32, or the requested dtype if they fit
    offsets: npt.NDArray[np.int64]  # n + 1 of them; the first is 0
    failed: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def document(self, position: int) -> npt.NDArray[np.unsignedinteger]:
        return self.ids[self.offsets[position] : self.offsets[position + 1]]

    def with_documents(
        self, documents: Mapping[int, Sequence[int]], failed: Mapping[int, str]
    ) -> TokenArray:
        """A copy in which the documents at these positions have other ids."""
        import numpy as np

        lengths = np.diff(self.offsets)
        parts, end = [], 0
        for position in sorted(documents):
            parts.append(self.ids[end : self.offsets[position]])
            parts.append(np.asarray(documents[position], dtype=np.uint32))
            lengths[position] = len(documents[position])
            end = self.offsets[position + 1]
        parts.append(self.ids[end:])
        return TokenArray(np.concatenate(parts), _offsets(lengths), {**self.failed, **failed})


def token_array(documents: Sequence[Sequence[int]], failed: Mapping[int, str]) -> TokenArray:
    """Lists of ids as one array."""
    import numpy as np

    lengths = np.fromiter(map(len, documents), dtype=np.int64, count=len(documents))
    parts = [np.asarray(ids, dtype=np.uint32) for ids in documents]
    ids = np.concatenate(parts) if parts else np.empty(0, dtype=np.uint32)
    return TokenArray(ids, _offsets(lengths), failed)


def copied(ids: npt.NDArray[np.uint32], dtype: str) -> npt.NDArray[np.unsignedinteger]:
    """A copy, in that dtype if all fit into it: a copy and a cast in one pass."""
    import numpy as np

    fits = dtype == "uint32" or int(ids.max(initial=0)) <= np.iinfo(dtype).max
    return ids.astype(dtype if fits else ids.dtype)


def concatenated(arrays: Sequence[TokenArray]) -> TokenArray:
    """The documents of several arrays, in order, as one array."""
    import numpy as np

    if len(arrays) == 1:
        return arrays[0]
    failed: dict[int, str] = {}
    first = 0
    for array in arrays:
        failed.update({first + position: reason for position, reason in array.failed.items()})
        first += len(array)
    lengths = [np.diff(array.offsets) for array in arrays]
    ids = [array.ids for array in arrays]
    return TokenArray(
        np.concatenate(ids) if ids else np.empty(0, dtype=np.uint32),
        _offsets(np.concatenate(lengths) if lengths else np.empty(0, dtype=np.int64)),
        failed,
    )


def _offsets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    import numpy as np

    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
