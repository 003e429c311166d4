"""A new file, with the methods that pyarrow's parquet writer calls."""

from __future__ import annotations

from tokenmill.formats.format import File


class Sink:
    closed = False

    def __init__(self, file: File) -> None:
        self._file: File | None = file
        self._num_bytes = 0

    def write(self, data: bytes) -> int:
        """After a failure, all later writes are refused: pyarrow's writer writes a footer when it
        is garbage-collected, and the descriptor may belong to another file by then."""
        if self._file is None:
            raise ValueError("an earlier write failed")
        file, self._file = self._file, None
        file.write(data)
        self._file = file
        self._num_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self._num_bytes

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """The creator of the file closes it."""
