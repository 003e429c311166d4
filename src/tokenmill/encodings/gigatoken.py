"""The fast engine: gigatoken on Arrow buffers, made exact and bounded in memory.

Exact. gigatoken's ids are the reference's except where a code point is newer than the reference's
Unicode tables. Documents with such a code point (unicode_gap.py), and documents on which gigatoken
raises or panics, are encoded by the reference instead.

Bounded. gigatoken remembers every word it has seen. On natural text that is what makes it fast (150
MB/s at first, 400 once warm) and stays small: 19 MB after 59 MB of English, 95 MB after 75 MB in
eight other languages. On words that never repeat, its tables keep doubling, holding old and new at
once: 174 MB after 14 MB of text, 341 MB after 30 MB (600 MB resident on the way), and the process
at 870 MB after 120 MB. So its growth is measured around every call (under 0.1 ms), and past
`CACHE_BYTES` it is dropped and rebuilt: 40 ms for gpt2, 230 for o200k_base. The limit is just
before the doubling that would cost 600 MB. Measured with it, in a process that encodes 4 MB at a
time:

    200 MB of random words         peak 457 MB (gpt2), 448 (cl100k), 461 (o200k); 9 to 12 rebuilds
    605 MB of multilingual text    peak 320 MB (gpt2), 314 (cl100k), 342 (o200k); none
    476 MB of English              peak 223 MB (gpt2), 230 (cl100k), 251 (o200k); none

Allocations of other threads are counted too, which may cause an early rebuild, never a wrong id.

Text is handed over in steps of at most `STEP_BYTES`, so that growth is noticed in time; a single
larger document is handed over whole.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tokenmill.encodings.awkward_shim import encode_batch
from tokenmill.encodings.reference import NOT_FAILURES, ReferenceLoader, encoded_documents
from tokenmill.encodings.tokens import TokenArray, concatenated, copied
from tokenmill.encodings.unicode_gap import CodePointSet

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


CACHE_BYTES = 160 << 20
STEP_BYTES = 6 << 20


class GigatokenEngine:
    """`build` makes a tokenizer without special tokens; `reference` is loaded when first needed."""

    def __init__(
        self, build: Callable[[], Any], reference: ReferenceLoader, gap: CodePointSet
    ) -> None:
        self._build = build
        self._reference = reference
        self._gap = gap
        self._tokenizer: Any = build()
        self._cache_bytes = 0
        self.num_builds = 1

    def encode(self, texts: pa.LargeStringArray, dtype: str = "uint32") -> TokenArray:
        data, offsets = text_buffers(texts)
        steps, refused = [], set()
        for start, stop in _steps(offsets):
            step = self._encoded(data, offsets[start : stop + 1], dtype)
            refused |= {start + position for position in step.failed}
            steps.append(step)
        tokens = concatenated(steps)
        slow = refused.union(self._gap.documents_holding_any(data, offsets))
        if not slow:
            return tokens
        documents, failed = encoded_documents(self._reference(), texts, sorted(slow))
        tokens = TokenArray(tokens.ids, tokens.offsets)
        return tokens.with_documents(documents, failed)

    def _encoded(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], dtype: str
    ) -> TokenArray:
        """The documents' ids; `failed` are those that gigatoken refused."""
        try:
            return self._measured_call(data, offsets, dtype)
        except NOT_FAILURES:
            raise
        except BaseException:
            self._drop()  # its state after a panic is undefined
        one_by_one = []
        for position in range(len(offsets) - 1):
            try:
                one = self._measured_call(data, offsets[position : position + 2], dtype)
            except NOT_FAILURES:
                raise
            except BaseException as error:
                self._drop()
                one = _refused(str(error))
            one_by_one.append(one)
        return concatenated(one_by_one)

    def _measured_call(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], dtype: str
    ) -> TokenArray:
        if self._tokenizer is None:
            self._tokenizer = self._build()
            self.num_builds += 1
        before = heap_bytes()
        ids, ends = encode_batch(self._tokenizer, data, offsets)
        # A copy, because gigatoken's buffer is up to twice as large as needed: keeping it would
        # waste memory and count as growth.
        tokens = TokenArray(copied(ids, dtype), ends)
        del ids
        after = heap_bytes()
        if before is not None and after is not None:
            self._cache_bytes += after - before - tokens.ids.nbytes - tokens.offsets.nbytes
            if self._cache_bytes > CACHE_BYTES:
                self._drop()
        return tokens

    def _drop(self) -> None:
        """Forget all words. The next call builds a new tokenizer."""
        self._tokenizer = None
        self._cache_bytes = 0
        return_freed_memory()


def text_buffers(
    texts: pa.LargeStringArray,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The array's bytes and its n + 1 offsets, not copied; the first offset of a slice is not 0."""
    import numpy as np
    import pyarrow as pa

    assert texts.type == pa.large_string() and texts.null_count == 0, (texts.type, texts.null_count)
    _, offsets_buffer, data_buffer = texts.buffers()
    data = np.empty(0, np.uint8) if not data_buffer else np.frombuffer(data_buffer, np.uint8)
    if not offsets_buffer:  # Arrow allows an empty array to have none
        return data, np.zeros(1, np.int64)
    offsets = np.frombuffer(offsets_buffer, np.int64, len(texts) + 1, 8 * texts.offset)
    return data, offsets


def _steps(offsets: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Runs of documents of at most STEP_BYTES together, or of one document; at least one run."""
    start, num_documents = 0, len(offsets) - 1
    while True:
        limit = offsets[start] + STEP_BYTES
        stop = int(offsets.searchsorted(limit, side="right")) - 1
        stop = min(max(stop, start + 1), num_documents)
        yield start, stop
        if stop == num_documents:
            return
        start = stop


def _refused(message: str) -> TokenArray:
    import numpy as np

    return TokenArray(np.empty(0, np.uint32), np.zeros(2, np.int64), {0: message})


# glibc's `mallinfo2` counts bytes in use exactly, over all arenas, in under 0.1 ms; resident memory
# is the fallback elsewhere on Linux, which also counts freed memory that was not returned. Other
# systems have neither.


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def heap_bytes() -> int | None:
    """Bytes in use on the C heap, or resident bytes, or None."""
    mallinfo2 = _libc_function("mallinfo2")
    if mallinfo2 is not None:
        info = mallinfo2()
        return int(info.uordblks + info.hblkhd)
    return resident_bytes()


def resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def return_freed_memory() -> None:
    """Return freed memory to the system. Without it about 10 % of a dropped engine stays."""
    malloc_trim = _libc_function("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


@functools.cache
def _libc_function(name: str) -> Callable[..., _Mallinfo2] | None:
    """A function of the C library, or None where it has none of that name (macOS, musl)."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError, TypeError):
        return None
    if name == "mallinfo2":
        function.restype = _Mallinfo2
    else:
        function.argtypes = [ctypes.c_size_t]
    return function  # type: ignore[no-any-return]
