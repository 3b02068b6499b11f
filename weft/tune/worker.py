"""What runs in the processes in which candidates are compiled and measured.

What a kernel does to the process, to crash it, to hang it, to print, is nothing to the tuner. Requests of
``weft.runtime.worker``, by ``do``:

``compile``: ``func`` (as JSON), ``target``, ``decisions`` for one that is not scheduled, ``known`` -> ``state``,
``mark`` (the schedule's fingerprint), ``code``
``prepare``: ``code``, ``name``, ``cases`` (:class:`Case`), ``cold_bytes`` -> ``us``, of the kernel that others are
compared with
``measure``: ``code``, ``name``, ``rounds`` -> ``ratio``, ``us``, or ``wrong``, what differs
``time``: ``code``, ``name``, ``case``, ``number``, ``repeat``, ``min_repeat_ms``, ``inputs``, ``expected`` ->
``seconds``, one a repeat, or ``wrong``
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.error import ScheduleError
from weft.ir import load_json
from weft.runtime import Tensor, numpy_dtype, tensor
from weft.target import Target, compile_func, load_objects
from weft.tune.case import Argument, Case
from weft.tune.space import mark_of, schedule_as_decided

_SAMPLE_NS = 1_000_000
"""How long one sample takes at least, in calls one after another."""

_HOPELESS = 1.15
"""A candidate that takes this much longer in the first rounds is not measured on."""

_FIRST_ROUNDS = 3


class Place:
    """Where kernels are loaded, what their arguments are, and the clock: this process."""

    def load(self, code: bytes, name: str) -> Callable[..., Any]:
        """Make a function of an object file's."""
        return load_objects([code], [name])[name]

    def tensor(self, value: np.ndarray) -> Tensor:
        """Copy an array to where kernels read it."""
        return tensor(value)

    def seconds(self, kernel: Callable[..., Any], sets: deque[list[Any]], calls: int) -> float:
        """Time a kernel, with one set of arguments after the other; seconds a call."""
        start = time.perf_counter_ns()
        for _ in range(calls):
            sets.rotate(1)
            kernel(*sets[0])
        return (time.perf_counter_ns() - start) / calls / 1e9


class _Prepared:
    """One call of the kernel under test: sets of arguments, and what the untuned kernel returns."""

    def __init__(self, case: Case, cold_bytes: int, place: Place) -> None:
        rng = np.random.default_rng(0)
        self.weight = case.calls
        self.initial = [_random(rng, a) for a in case.arguments]
        self.written = [i for i, a in enumerate(case.arguments) if a.written]
        cold = [i for i, a in enumerate(case.arguments) if a.cold and not a.written and a.dtype != "int"]
        size = sum(self.initial[i].nbytes for i in cold)
        copies = max(1, min(64, -(-cold_bytes // size))) if size else 1
        shared = [place.tensor(v) if isinstance(v, np.ndarray) else v for v in self.initial]
        self.place, self.sets = place, deque([shared])
        for _ in range(copies - 1):
            self.sets.append([place.tensor(v) if i in cold else shared[i] for i, v in enumerate(self.initial)])
        self.calls = 1
        self.expected: list[np.ndarray] = []

    def results(self, kernel: Callable[..., Any]) -> list[np.ndarray]:
        """Run a kernel on fresh outputs and return them."""
        arguments = self.sets[0]
        for i in self.written:
            assert isinstance(arguments[i], Tensor)
            arguments[i].copyfrom(self.initial[i])
        kernel(*arguments)
        return [arguments[i].numpy().copy() for i in self.written]

    def sample_us(self, kernel: Callable[..., Any]) -> float:
        """Time some calls; microseconds a call."""
        return self.place.seconds(kernel, self.sets, self.calls) * 1e6


class Service:
    """What the process remembers between requests."""

    longest = 300
    place = Place()

    def __init__(self) -> None:
        self.cases: list[_Prepared] = []
        self.kernel: Any = None

    def compile(
        self, func: str, target: str, decisions: dict[str, Any] | None = None, known: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Compile a function that is scheduled, or that `decisions` schedule."""
        machine = Target(target)
        made: Any = load_json(func)
        if decisions is not None:
            try:
                made = schedule_as_decided(made, machine, decisions)
            except ScheduleError as e:
                return {"state": "refused", "mark": "", "why": e.what}
        mark = mark_of(made)
        if mark in known:
            return {"state": "same", "mark": mark}
        return {"state": "built", "mark": mark, "code": compile_func(made, machine)}

    def prepare(self, code: bytes, name: str, cases: Sequence[Case], cold_bytes: int) -> dict[str, Any]:
        """Run and time the kernel that others are compared with."""
        self.kernel = self.place.load(code, name)
        self.cases = [_Prepared(case, cold_bytes, self.place) for case in cases]
        for case in self.cases:
            case.expected = case.results(self.kernel)
            once = min(case.sample_us(self.kernel) for _ in range(3))
            case.calls = max(1, min(200, int(_SAMPLE_NS / 1e3 / max(once, 0.1))))
        us = sum(case.weight * min(case.sample_us(self.kernel) for _ in range(5)) for case in self.cases)
        return {"us": us}

    def measure(self, code: bytes, name: str, rounds: int) -> dict[str, Any]:
        """Compare a kernel with the untuned one, in turns."""
        kernel = self.place.load(code, name)
        for case in self.cases:
            wrong = _difference(case.results(kernel), case.expected)
            if wrong:
                return {"wrong": wrong}
        mine: list[float] = []
        plain: list[float] = []
        for i in range(rounds):
            order = [(kernel, mine), (self.kernel, plain)]
            for function, taken in order if i % 2 else reversed(order):
                taken.append(sum(case.weight * case.sample_us(function) for case in self.cases))
            if i + 1 == _FIRST_ROUNDS and min(mine) > _HOPELESS * min(plain):
                break
        ratio = max(min(mine) / min(plain), statistics.median(mine) / statistics.median(plain))
        return {"ratio": ratio, "us": min(mine)}

    def time(
        self,
        code: bytes,
        name: str,
        case: Case,
        number: int = 1,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        inputs: Sequence[np.ndarray] | None = None,
        expected: Sequence[np.ndarray] | None = None,
    ) -> dict[str, Any]:
        """Time a kernel by itself: `number` calls a repeat, more where they take less than `min_repeat_ms`."""
        kernel, rng = self.place.load(code, name), np.random.default_rng(0)
        given = inputs if inputs is not None else [_random(rng, a) for a in case.arguments]
        values = [self.place.tensor(v) if isinstance(v, np.ndarray) else v for v in given]
        kernel(*values)
        if expected is not None:
            found = [v.numpy() for v in values[-len(expected) :]]
            wrong = _difference(found, [np.asarray(e) for e in expected])
            if wrong:
                return {"wrong": wrong}
        seconds: list[float] = []
        while len(seconds) < repeat:
            each = self.place.seconds(kernel, deque([values]), number)
            if each * number * 1e3 < min_repeat_ms:
                number = int(max(number * 1.618, min_repeat_ms / 1e3 / max(each, 1e-9) + 1))
            else:
                seconds.append(each)
        return {"seconds": seconds}


def _random(rng: np.random.Generator, argument: Argument) -> Any:
    """Make values: normal floats; small integers, which are valid indices too."""
    if argument.dtype == "int":
        return argument.shape[0]
    dtype = numpy_dtype(argument.dtype)
    if dtype.kind == "f" or dtype.name.startswith(("bfloat", "float")):
        return rng.standard_normal(argument.shape, np.float32).astype(dtype)
    low, high = (0, 2) if dtype.itemsize > 1 or dtype.kind == "b" else (0, 100)
    return rng.integers(low, high, argument.shape).astype(dtype)


def _difference(found: list[np.ndarray], expected: list[np.ndarray]) -> str:
    """Say where results are not what the untuned kernel computes; empty where they are."""
    for n, (a, b) in enumerate(zip(found, expected, strict=True)):
        exact = b.dtype.kind in "iub"
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(y)
        if not np.array_equal(finite, np.isfinite(x)):
            return f"output {n} is not finite where it was, or the other way round"
        scale = float(np.abs(y[finite]).max(initial=0.0))
        error = float(np.abs(x[finite] - y[finite]).max(initial=0.0))
        if error > (0.0 if exact else scale * (2e-2 if b.dtype.itemsize < 4 else 1e-4)):
            return f"output {n} differs by {error:.3g}, its largest is {scale:.3g}"
    return ""
