"""Checks of schedules that tests share: a trace does the same when it is written down and run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import error, ir, tir
from weft.tir.function import PrimFunc
from weft.tir.schedule.schedule import Schedule
from weft.tir.schedule.trace import Trace


def assert_structural_equal_ignore_global_symbol(func1: PrimFunc, func2: PrimFunc, *args: Any, **kwargs: Any) -> None:
    """Assert that two functions are structurally equal, whatever they are called.

    Raises
    ------
    ValueError
        When they differ; the message says where.
    """
    first, second = (f.with_attr("global_symbol", "main") for f in (func1, func2))
    ir.assert_structural_equal(first, second, *args, **kwargs)


def verify_trace_roundtrip(
    sch: Schedule,
    mod: PrimFunc | ir.IRModule,
    *,
    debug_mask: str | int = "all",
    text_format: str | Sequence[str] = ("python", "json"),
) -> Schedule:
    """Write a schedule's trace down, run it on the program that the schedule began with, and compare.

    Parameters
    ----------
    sch : Schedule
        The schedule whose trace is checked.
    mod : PrimFunc or IRModule
        What it began with.
    debug_mask : str or int
        As of :class:`Schedule`.
    text_format : str or sequence of str
        ``"python"``, ``"json"``, or several.

    Returns
    -------
    Schedule
        The schedule that the written trace made; its function and trace equal those of `sch`.

    Raises
    ------
    ValueError, AssertionError
        When the function or the trace differs.
    """
    if not isinstance(text_format, str):
        return [verify_trace_roundtrip(sch, mod, debug_mask=debug_mask, text_format=f) for f in text_format][-1]
    new = Schedule(mod, debug_mask=debug_mask)
    written = "\n".join(sch.trace.as_python())
    if text_format == "json":
        Trace.apply_json_to_schedule(sch.trace.as_json(), new)
    elif text_format == "python":
        exec(written, {"T": tir, "inf": float("inf"), **vars(ir), **vars(tir)}, {"sch": new})
    else:
        raise error.InvalidArgument("a trace has no such form", expected="'python' or 'json'", found=repr(text_format))
    ir.assert_structural_equal(new.mod, sch.mod)
    again = "\n".join(new.trace.as_python())
    assert again == written, f"the trace differs when it is run again:\n{written}\n---\n{again}"
    return new
