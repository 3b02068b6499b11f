"""What the schedule rules decided about the kernels of a model, wherever those were compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.ir import IRModule
from weft.tir import PrimFunc
from weft.tir.schedule import KernelReport, ScheduleRecord, ScheduleReport, report_of

__all__ = ["schedule_report"]


def schedule_report(kernels: IRModule, noted: Mapping[str, str], target: Any) -> ScheduleReport:
    """Put the records of kernels together, which came from this process, one beside it or the cache.

    Parameters
    ----------
    kernels : IRModule
        The TIR functions, in block form.
    noted : mapping of str to str
        Their records by name, as :meth:`ScheduleRecord.as_json` wrote them.
    target : Target
        What they were compiled for.
    """
    found: list[KernelReport] = []
    for var, func in kernels.items():
        name = var.name_hint
        if isinstance(func, PrimFunc) and name in noted:
            found.append(report_of(name, func, ScheduleRecord.from_json(noted[name]), target))
    return ScheduleReport(tuple(found))
