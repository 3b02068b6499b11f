"""Tuning of TIR: traces of schedules are measured and kept, by workload.

Read in this order: ``arg_info``, ``database``, ``builder``, ``runner``, ``space_generator``, ``search_strategy``,
``cost_model``, ``measure_callback``, ``tune_context``, ``task_scheduler``, ``tune``. By default the schedules are those
that the rules of ``weft.tir.schedule`` have to offer. Programs of Relax: ``weft.relax.meta_schedule``.
"""

from weft._aliases import names_of
from weft.meta_schedule import (
    arg_info,
    builder,
    cost_model,
    database,
    feature_extractor,
    measure_callback,
    mutator,
    postproc,
    runner,
    schedule_rule,
    search_strategy,
    space_generator,
    task_scheduler,
)
from weft.meta_schedule.builder import Builder
from weft.meta_schedule.cost_model import CostModel
from weft.meta_schedule.database import Database, MeasureCandidate, TuningRecord, Workload
from weft.meta_schedule.feature_extractor import FeatureExtractor
from weft.meta_schedule.measure_callback import MeasureCallback
from weft.meta_schedule.mutator import Mutator
from weft.meta_schedule.postproc import Postproc
from weft.meta_schedule.profiler import Profiler
from weft.meta_schedule.runner import Runner
from weft.meta_schedule.schedule_rule import ScheduleRule
from weft.meta_schedule.search_strategy import SearchStrategy
from weft.meta_schedule.space_generator import SpaceGenerator
from weft.meta_schedule.task_scheduler import TaskScheduler
from weft.meta_schedule.tune import compile_tir, tune_tasks, tune_te, tune_tir
from weft.meta_schedule.tune_config import ApplyHistoryBest, TuneConfig
from weft.meta_schedule.tune_context import ExtractedTask, TuneContext
from weft.support.derived import derived_object

__all__ = [
    "ApplyHistoryBest",
    "Builder",
    "CostModel",
    "Database",
    "ExtractedTask",
    "FeatureExtractor",
    "MeasureCallback",
    "MeasureCandidate",
    "Mutator",
    "Postproc",
    "Profiler",
    "Runner",
    "ScheduleRule",
    "SearchStrategy",
    "SpaceGenerator",
    "TaskScheduler",
    "TuneConfig",
    "TuneContext",
    "TuningRecord",
    "Workload",
    "arg_info",
    "builder",
    "compile_tir",
    "cost_model",
    "database",
    "derived_object",
    "feature_extractor",
    "measure_callback",
    "mutator",
    "postproc",
    "runner",
    "schedule_rule",
    "search_strategy",
    "space_generator",
    "task_scheduler",
    "tune_tasks",
    "tune_te",
    "tune_tir",
]

__getattr__ = names_of(
    "weft.meta_schedule", dict.fromkeys(("extract_task_from_relay", "tune_relay"), "weft.relay.tune_config")
)
