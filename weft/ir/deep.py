"""Deep recursion on demand: structures nested thousands of levels deep are rare, but must not fail.

The size of new threads' stacks is the process's, so it is changed here alone, under a lock. The recursion limit is the
process's too, and that is why nothing here changes it: while it is raised, a thread with an ordinary stack may run into
the end of its stack, and lowering it under a thread that is deeper ends the process ("Cannot recover from stack
overflow"). A deep thread is given more levels of its own instead.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from functools import wraps
from typing import Any, TypeVar

from weft.error import WeftError
from weft.ir.ambient import CallersPool

T = TypeVar("T")
S = TypeVar("S")
N = TypeVar("N")
_LIMIT = 400_000
_STACK_BYTES = 1 << 29
_LEVELS = 500
_LOCK = threading.Lock()
_here = threading.local()


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
        _more_levels()
        try:
            result.set_result(fn())
        except BaseException as e:
            result.set_exception(e)

    thread = threading.Thread(target=copy_context().run, args=(run,))
    with _stacks_of(_STACK_BYTES):
        thread.start()
    thread.join()
    try:
        return result.result()
    except RecursionError:
        raise WeftError(
            "the program is nested too deeply",
            expected=f"at most some {_LIMIT // 10:,} levels",
            found="more",
            help="give names to parts of it",
        ) from None


def _more_levels() -> None:
    """Let the current thread, which has a deep stack, nest `_LIMIT` levels more.

    CPython 3.11 counts a thread's levels down at each call and up when one is left (``Py_LeaveRecursiveCall``), so to
    leave calls that were never entered is to have more of them: 50 ms. From 3.12 on, calls between Python functions
    have a count of their own, which take no stack, and whose limit is the process's: it is raised and stays.
    """
    if sys.version_info >= (3, 12):
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _LIMIT))
        return
    leave = ctypes.pythonapi.Py_LeaveRecursiveCall
    leave.argtypes, leave.restype = [], None
    for _ in range(_LIMIT):
        leave()


@contextmanager
def _stacks_of(size: int) -> Generator[None]:
    with _LOCK:
        before = threading.stack_size(size)
        try:
            yield
        finally:
            threading.stack_size(before)


def descending(visit: Callable[[S, N], T]) -> Callable[[S, N], T]:
    """Let a method that visits a node and what it is made of follow any depth: every `_LEVELS` it has a new stack.

    Nothing runs twice: users' methods may have effects.
    """

    @wraps(visit)
    def visiting(self: S, node: N) -> T:
        state = vars(self)
        state["_depth"] = depth = state.get("_depth", 0) + 1
        try:
            if depth % _LEVELS:
                return visit(self, node)
            with DeepPool(1) as pool:
                return pool.submit(visit, self, node).result()
        finally:
            state["_depth"] = depth - 1

    return visiting


class DeepPool(CallersPool):
    """Threads with stacks of 64 MB, for functions whose expressions nest deeply, that see their caller's contexts."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call."""
        with _stacks_of(_STACK_BYTES >> 3):  # it may start a thread
            return super().submit(fn, *args, **kwargs)
