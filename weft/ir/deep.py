"""Deep recursion on demand: structures nested thousands of levels deep are rare, but must not fail."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["with_deep_stack"]

T = TypeVar("T")
_LIMIT = 400_000
_STACK_BYTES = 1 << 29
_LOCK = threading.Lock()


def with_deep_stack(fn: Callable[[], T]) -> T:
    """Return ``fn()``; should it exceed the recursion limit, run it again on a thread with a stack of 512 MB.

    `fn` must not have left effects behind when it failed.
    """
    try:
        return fn()
    except RecursionError:
        pass
    result: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(fn())
        except BaseException as e:
            failure.append(e)

    with _LOCK:
        limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK_BYTES)
        try:
            sys.setrecursionlimit(_LIMIT)
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        finally:
            threading.stack_size(size)
            sys.setrecursionlimit(limit)
    if failure:
        raise failure[0]
    return result[0]
