"""Tuning the kernels of Relax programs by ``weft.meta_schedule``, and compiling with what was found."""

from collections.abc import Mapping
from typing import Any

from weft import ir, meta_schedule, runtime
from weft.relax.transform.bind_params import BindParams
from weft.relax.transform.meta_schedule import (
    MetaScheduleApplyDatabase,
    extract_tasks,
    extracted_tasks_to_tune_contexts,
    tune_relax,
)
from weft.relax.vm_build import build
from weft.target import Target, TargetLike

__all__ = ["compile_relax", "extract_tasks", "extracted_tasks_to_tune_contexts", "tune_relax"]


def compile_relax(
    database: meta_schedule.Database,
    mod: ir.IRModule,
    target: TargetLike,
    params: Mapping[str, Any] | None = None,
    enable_warning: bool = False,
) -> runtime.VMExecutable:
    """Compile a program with the schedules of a database; other kernels are scheduled as ever."""
    target = Target(target)
    if params:
        mod = BindParams("main", params)(mod)
    with target, database:
        return build(MetaScheduleApplyDatabase(enable_warning=enable_warning)(mod), target)
