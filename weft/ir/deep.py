"""Deep recursion on demand: structures nested thousands of levels deep are rare, but must not fail.

The size of new threads' stacks and the recursion limit are the process's, so both are changed here alone, under a lock.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

from weft.error import WeftError
from weft.ir.ambient import CallersPool

__all__ = ["DeepPool", "with_deep_stack"]

T = TypeVar("T")
_LIMIT = 400_000
_STACK_BYTES = 1 << 29
_LOCK = threading.Lock()
_here = threading.local()
_deep: list[int] = []
"""The usual recursion limit, once for each deep thread that runs."""


def with_deep_stack(fn: Callable[[], T]) -> T:
    """Return ``fn()``; should it exceed the recursion limit, run it again on a thread with a stack of 512 MB.

    `fn` must not have left effects behind when it failed.

    Raises
    ------
    WeftError
        When that is not deep enough either.
    """
    try:
        return fn()
    except RecursionError:
        if getattr(_here, "deep", False):
            raise  # to where the thread was started
    result: Future[T] = Future()

    def run() -> None:
        _here.deep = True
        try:
            result.set_result(fn())
        except BaseException as e:
            result.set_exception(e)

    thread = threading.Thread(target=copy_context().run, args=(run,))
    with _LOCK:
        _deep.append(_deep[0] if _deep else sys.getrecursionlimit())
        sys.setrecursionlimit(_LIMIT)
    try:
        with _stacks_of(_STACK_BYTES):
            thread.start()
        thread.join()
    finally:
        with _LOCK:
            usual = _deep.pop()
            if not _deep:
                sys.setrecursionlimit(usual)
    try:
        return result.result()
    except RecursionError:
        raise WeftError(
            "the program is nested too deeply", expected=f"at most some {_LIMIT // 10:,} levels", found="more",
            help="give names to parts of it",
        ) from None  # fmt: skip


@contextmanager
def _stacks_of(size: int) -> Generator[None]:
    with _LOCK:
        before = threading.stack_size(size)
        try:
            yield
        finally:
            threading.stack_size(before)


class DeepPool(CallersPool):
    """Threads with stacks of 64 MB, for functions whose expressions nest deeply, that see their caller's contexts."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call."""
        with _stacks_of(_STACK_BYTES >> 3):  # it may start a thread
            return super().submit(fn, *args, **kwargs)
