"""datatrove's reader on the Hub: reads every document, and does nothing with it.

python benchmarks/peers/stream_datatrove.py REPO COMMIT NUM_PROC
"""

from __future__ import annotations

import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator


def unread(documents: Iterable[object], rank: int = 0, world_size: int = 1) -> Iterator[object]:
    deque(documents, maxlen=0)
    yield from ()


def main(repo: str, commit: str, num_proc: int) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import ParquetReader

    with tempfile.TemporaryDirectory() as logs:
        LocalPipelineExecutor(
            pipeline=[ParquetReader(f"hf://datasets/{repo}@{commit}/sample/10BT"), unread],
            tasks=12,
            workers=num_proc,
            logging_dir=logs,
        ).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
