"""Parallel work in threads, for functions that release the GIL: hashing, disk and network
access."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

INTERRUPTED_SECONDS = 1.5
Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(
    work: Callable[[Item], Result], items: Iterable[Item | None], num_threads: int
) -> Iterator[Result]:
    """The results of `work` for each item, in order.

    Items are drawn as threads become free. None means that no item is ready until the next result
    has been taken.
    """
    source = iter(items)
    if num_threads <= 1:
        for item in source:
            if item is not None:
                yield work(item)
        return
    pool = ThreadPoolExecutor(num_threads, "tokenmill")
    waiting: collections.deque[Future[Result]] = collections.deque()
    is_drawn = False
    try:
        while not is_drawn or waiting:
            while not is_drawn and len(waiting) < 2 * num_threads:
                try:
                    item = next(source)
                except StopIteration:
                    is_drawn = True
                    break
                if item is None:
                    break
                waiting.append(pool.submit(work, item))
            if waiting:
                wait([waiting[0]], return_when=FIRST_COMPLETED)
                yield waiting.popleft().result()
    except Exception:
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    except BaseException:  # interrupted: running work may end, but is not waited for long
        pool.shutdown(wait=False, cancel_futures=True)
        wait([future for future in waiting if not future.cancelled()], INTERRUPTED_SECONDS)
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
