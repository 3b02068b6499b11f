"""Tuning without templates: the loops of a computation are found by search.

Read in this order: ``workload_registry``, ``transform_step``, ``loop_state``, ``compute_dag``, ``measure``,
``measure_record``, ``cost_model``, ``sketch``, ``search_policy``, ``search_task``, ``task_scheduler``. Kernels of whole
models are tuned by ``weft.tune``.
"""

import sys

from weft._aliases import names_of
from weft.auto_scheduler import (
    compute_dag,
    cost_model,
    dispatcher,
    loop_state,
    measure,
    measure_record,
    search_policy,
    search_task,
    task_scheduler,
    workload_registry,
)
from weft.auto_scheduler.compute_dag import ComputeDAG, LayoutRewriteOption
from weft.auto_scheduler.cost_model import RandomModel, XGBModel
from weft.auto_scheduler.dispatcher import ApplyHistoryBest, ApplyHistoryBestOrSample, DispatchContext
from weft.auto_scheduler.measure import (
    LocalBuilder,
    LocalRPCMeasureContext,
    LocalRunner,
    MeasureInput,
    MeasureResult,
    RPCRunner,
)
from weft.auto_scheduler.measure_record import RecordReader, RecordToFile, load_best_record, load_records, save_records
from weft.auto_scheduler.search_policy import EmptyPolicy, PreloadCustomSketchRule, PreloadMeasuredStates, SketchPolicy
from weft.auto_scheduler.search_task import HardwareParams, SearchTask, TuningOptions
from weft.auto_scheduler.task_scheduler import TaskScheduler
from weft.auto_scheduler.workload_registry import make_workload_key, register_workload

__all__ = [
    "ApplyHistoryBest",
    "ApplyHistoryBestOrSample",
    "ComputeDAG",
    "DispatchContext",
    "EmptyPolicy",
    "HardwareParams",
    "LayoutRewriteOption",
    "LocalBuilder",
    "LocalRPCMeasureContext",
    "LocalRunner",
    "MeasureInput",
    "MeasureResult",
    "PreloadCustomSketchRule",
    "PreloadMeasuredStates",
    "RPCRunner",
    "RandomModel",
    "RecordReader",
    "RecordToFile",
    "SearchTask",
    "SketchPolicy",
    "TaskScheduler",
    "TuningOptions",
    "XGBModel",
    "compute_dag",
    "cost_model",
    "dispatcher",
    "load_best_record",
    "load_records",
    "loop_state",
    "make_workload_key",
    "measure",
    "measure_record",
    "register_workload",
    "save_records",
    "search_policy",
    "search_task",
    "task_scheduler",
    "workload_registry",
]

_ffi_api = sys.modules[__name__]  # TVM's name of what its C++ calls

_RELAY = {n: "weft.relay.auto_scheduler" for n in ("extract_tasks", "is_auto_scheduler_enabled")}
__getattr__ = names_of("weft.auto_scheduler", _RELAY, listed=True)
