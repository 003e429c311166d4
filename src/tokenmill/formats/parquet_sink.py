"""A new file as pyarrow's parquet writer needs it."""

from __future__ import annotations

from tokenmill.formats.format import File


class Sink:
    closed = False

    def __init__(self, file: File) -> None:
        self._file: File | None = file
        self._num_bytes = 0

    def write(self, data: bytes) -> int:
        """After a failure nothing is written any more: a writer that is given up ends its file when
        it is collected, at any time, and its descriptor may be another file's by then."""
        if self._file is None:
            raise ValueError("the file was given up")
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
