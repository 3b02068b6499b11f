"""Schedules that tuning found, for the kernels of Relay programs that are built inside of ``with``.

They come from a database of ``weft.meta_schedule``, or from a log of ``weft.auto_scheduler``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.ir import Ambient, BaseFunc, IRModule, PassContext
from weft.meta_schedule import Database
from weft.relax.transform import MetaScheduleApplyDatabase
from weft.relax.transform.lower_ops import KERNEL_SOURCES, KernelSource, kernel_key
from weft.target import Target
from weft.tir import PrimFunc

Sources = dict[str, KernelSource]


@contextmanager
def kernel_sources(wanted: bool = False) -> Iterator[Sources | None]:
    """Collect what the kernels that are made inside are made of, where a log or who calls asks for it."""
    if not wanted and not (KERNEL_SOURCES.current is None and _log() is not None):
        yield KERNEL_SOURCES.current
        return
    found = KERNEL_SOURCES.enter({})
    try:
        yield found
    finally:
        KERNEL_SOURCES.leave(found)


def _log() -> Any:
    """The log of ``weft.auto_scheduler`` that is open, where the context of the passes wants it."""
    asked = PassContext.current().config.get("relay.backend.use_auto_scheduler")
    return Ambient.current_of("auto_scheduler.DispatchContext") if asked else None


def scheduled(kernels: IRModule, target: Target) -> IRModule:
    """Schedule kernels as the current log and database say; others, and all without them, are scheduled as ever."""
    log, sources = _log(), KERNEL_SOURCES.current
    if log is not None and sources:
        made = {v: _from_log(f, v.name_hint, log, sources, target) for v, f in kernels.items()}
        kernels = kernels.with_functions(made)
    if Database.current() is None:
        return kernels
    with target:
        return MetaScheduleApplyDatabase()(kernels)


def _from_log(func: BaseFunc, name: str, log: Any, sources: Sources, target: Target) -> BaseFunc:
    source = sources.get(kernel_key(func)) if isinstance(func, PrimFunc) else None
    made = log.kernel(target, source.args, name) if source is not None else None
    return func if made is None else made.with_attr({**dict(func.attrs.items), "tir.is_scheduled": True})
