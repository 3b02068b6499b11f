"""Schedules that tuning found, for the kernels of Relay programs that are built inside of ``with``.

They come from a database of ``weft.meta_schedule``, or from a log of ``weft.auto_scheduler`` or ``weft.autotvm``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

import weft
from weft import ir, meta_schedule, tir
from weft.relax.transform import MetaScheduleApplyDatabase
from weft.relax.transform.lower_ops import KERNEL_SOURCES, KernelSource, kernel_key
from weft.target import Target

Sources = dict[str, KernelSource]
_FromLog = Callable[[Target, KernelSource, str], tir.PrimFunc | None]


@contextmanager
def kernel_sources(wanted: bool = False) -> Generator[Sources | None]:
    """Collect what the kernels that are made inside are made of, where a log or who calls asks for it."""
    if not wanted and not (KERNEL_SOURCES.current is None and _logs()):
        yield KERNEL_SOURCES.current
        return
    found = KERNEL_SOURCES.enter({})
    try:
        yield found
    finally:
        KERNEL_SOURCES.leave(found)


def _logs() -> list[_FromLog]:
    """The logs that are open: of ``weft.auto_scheduler`` where the context of the passes wants it."""
    asked = ir.PassContext.current().config.get("relay.backend.use_auto_scheduler")
    sketches = ir.Ambient.current_of("auto_scheduler.DispatchContext") if asked else None
    templates = ir.Ambient.current_of("autotvm.DispatchContext")
    logs: list[_FromLog] = []
    if sketches is not None:
        logs.append(lambda target, source, name: sketches.kernel(target, source.args, name))
    if templates is not None:
        of_kernels = weft.autotvm.task.kernels
        logs.append(
            lambda target, source, name: of_kernels.from_log(templates, target, source.args, source.anchor(), name)
        )
    return logs


def scheduled(kernels: ir.IRModule, target: Target) -> ir.IRModule:
    """Schedule kernels as the current logs and database say; others, and all without them, are scheduled as ever."""
    logs, sources = _logs(), KERNEL_SOURCES.current
    if logs and sources:
        kernels = kernels.with_functions(
            {v: _from_logs(f, v.name_hint, logs, sources, target) for v, f in kernels.items()}
        )
    if meta_schedule.Database.current() is None:
        return kernels
    with target:
        return MetaScheduleApplyDatabase()(kernels)


def _from_logs(func: ir.BaseFunc, name: str, logs: list[_FromLog], sources: Sources, target: Target) -> ir.BaseFunc:
    if not isinstance(func, tir.PrimFunc):
        return func
    source = sources.get(kernel_key(func))
    made = next(filter(None, (log(target, source, name) for log in logs)), None) if source is not None else None
    return func if made is None else made.with_attr({**dict(func.attrs.items), "tir.is_scheduled": True})
