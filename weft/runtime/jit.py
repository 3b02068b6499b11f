"""Compilation of hot paths: kernels of symbolic shapes get kernels of their own for the shapes that stay hot.

The machine counts calls by shape (``native/src/hot_kernel.cc``) and asks; one thread in the background compiles; the
machine goes on with the kernel for any shape until, and wherever, it has another. ``WEFT_JIT=0`` switches it off.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tvm_ffi

from weft import environment
from weft.runtime.module import Module

HOT_CALLS = 200
HOT_NS = 1_000_000

_next = tvm_ffi.get_global_func("weft.jit_next")
_finish = tvm_ffi.get_global_func("weft.jit_finish")
_stop = tvm_ffi.get_global_func("weft.jit_stop")
_watch = tvm_ffi.get_global_func("weft.jit_watch")
_hot_shapes = tvm_ffi.get_global_func("weft.jit_hot_shapes")


class Recompilable(NamedTuple):
    """How to compile a kernel for a shape."""

    places: Sequence[tuple[int, int]]
    """Argument and dimension where each number of a shape is read; dimension -1: the argument is that number."""
    compile: Callable[[Sequence[int]], tuple[Module, str]]
    """From these numbers to a module and the kernel's name in it."""


class HotShape(NamedTuple):
    """What became of a kernel for one shape."""

    name: str
    shape: tuple[int, ...]
    """The numbers that are read at the kernel's places."""
    state: str
    """``counting``, ``requested``, ``specialised``, ``failed``, or ``slower``: its own kernel was, and is left."""
    calls: int
    specialised_calls: int
    best_us: float | None
    """The fastest call of the kernel for any shape that was timed."""
    specialised_best_us: float | None


def enabled_by_default() -> bool:
    """Whether machines compile hot shapes unless they are told."""
    return environment.JIT.read()


def watch(
    owner: object, machine: tvm_ffi.Module, primitives: Sequence[str], kernels: Mapping[str, Recompilable]
) -> None:
    """Let a machine count the calls of kernels, and compile those that are hot; before its first call only.

    Parameters
    ----------
    owner : object
        As long as it lives, requests are answered.
    machine : tvm_ffi.Module
        A virtual machine.
    primitives : sequence of str
        The functions that it calls, at their places.
    kernels : mapping of str to Recompilable
        Those that can be compiled for shapes.
    """
    numbers: list[int] = []
    for index, name in enumerate(primitives):
        kernel = kernels.get(name)
        if kernel is not None:
            flat = [n for place in kernel.places for n in place]
            number = int(_watch(machine, index, flat, HOT_CALLS, HOT_NS))
            _COMPILER.kernels[number] = kernel
            numbers.append(number)
    if numbers:
        weakref.finalize(owner, _COMPILER.forget, numbers)
        _COMPILER.start()


def hot_shapes(machine: tvm_ffi.Module) -> list[HotShape]:
    """Return what became of the kernels that a machine watches, the busiest first."""
    rows = [
        HotShape(str(name), tuple(int(d) for d in shape), str(state), int(calls), int(special), _us(best), _us(own))
        for name, shape, state, calls, special, best, own in _hot_shapes(machine)
    ]
    return sorted(rows, key=lambda r: -r.calls)


def _us(ns: int) -> float | None:
    return None if ns < 0 else ns / 1e3


class _Compiler:
    """The thread that compiles, for all machines of the process; it begins with the first."""

    errors: list[Exception]
    """Of compilations that failed, the last ones."""

    def __init__(self) -> None:
        self.kernels: dict[int, Recompilable] = {}
        self.errors = []
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._ended = False

    def start(self) -> None:
        """Begin, also in a forked process, where the thread of the parent is not."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="weft-jit", daemon=True)
                self._thread.start()

    def forget(self, numbers: Sequence[int]) -> None:
        """A machine is gone."""
        for number in numbers:
            self.kernels.pop(number, None)

    def stop(self) -> None:
        """End before the interpreter does: a thread inside the code generator would not survive its end."""
        self._ended = True
        _stop(True)
        if self._thread is not None:
            self._thread.join(timeout=30)

    def _run(self) -> None:
        while not self._ended:
            request = _next(1000)
            if request is not None:
                self._answer(*(int(n) for n in request))

    def _answer(self, number: int, *shape: int) -> None:
        kernel = self.kernels.get(number)
        module, symbol = None, ""
        if kernel is not None:
            try:
                module, symbol = kernel.compile(shape)
            except Exception as e:  # the kernel for any shape stays in its place
                self.errors = [*self.errors[-19:], e]
        _finish(number, shape, module, symbol)


_COMPILER = _Compiler()
atexit.register(_COMPILER.stop)
