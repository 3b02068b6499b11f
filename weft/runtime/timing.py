"""Timing of functions, in TVM's form."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm_ffi

from weft.error import InvalidArgument
from weft.ffi import convert_argument, get_global_func
from weft.runtime.device import Device

_time_function = tvm_ffi.get_global_func("weft.time_function")


class BenchmarkResult:
    """Seconds per call, one number a repeat, and their statistics.

    Parameters
    ----------
    results : sequence of float
        Seconds.
    """

    def __init__(self, results: Sequence[float]) -> None:
        self.results = list(results)
        values = np.asarray(self.results) if self.results else np.zeros(1)
        self.mean = float(np.mean(values))
        self.std = float(np.std(values))
        self.median = float(np.median(values))
        self.min = float(np.min(values))
        self.max = float(np.max(values))

    def __str__(self) -> str:
        head = "Execution time summary:\n"
        names = ("mean (ms)", "median (ms)", "max (ms)", "min (ms)", "std (ms)")
        values = (self.mean, self.median, self.max, self.min, self.std)
        row = "".join(f"{n:^12} " for n in names) + "\n  "
        return head + row + " ".join(f"{v * 1e3:^12.4f}" for v in values)

    def __repr__(self) -> str:
        fields = ", ".join(f"{k}={getattr(self, k)}" for k in ("min", "mean", "median", "max", "std", "results"))
        return f"BenchmarkResult({fields})"


def time_function(
    function: Callable[..., Any],
    args: Sequence[Any],
    *,
    number: int = 10,
    repeat: int = 1,
    min_repeat_ms: int = 0,
    limit_zero_time_iterations: int = 100,
    cooldown_interval_ms: int = 0,
    repeats_to_cooldown: int = 1,
    cache_flush_bytes: int = 0,
    f_preproc: str = "",
    dev: Device | None = None,
) -> BenchmarkResult:
    """Time calls of a packed function; see `Module.time_evaluator` for the parameters."""
    if not callable(function):
        raise InvalidArgument("what is timed is a function", found=repr(function))
    if min(number, repeat) < 1:
        raise InvalidArgument(
            "nothing is timed", expected="'number' and 'repeat' of 1 and more", found=f"{number} and {repeat}"
        )
    values = [convert_argument(a) for a in args]
    where = dev.__dlpack_device__() if dev is not None else (Device.kDLCPU, 0)
    preproc = get_global_func(f_preproc) if f_preproc else None
    junk = np.zeros(cache_flush_bytes, np.uint8)

    def before(first: bool) -> None:
        nonlocal junk
        if first and preproc is not None:
            preproc(*values)
        junk += 1

    seconds = _time_function(
        function,
        number,
        repeat,
        min_repeat_ms,
        limit_zero_time_iterations,
        cooldown_interval_ms,
        repeats_to_cooldown,
        *where,
        before if f_preproc or cache_flush_bytes else None,
        *values,
    )
    return BenchmarkResult([float(s) for s in seconds])
