"""Schedules: transformations that change how a function computes and never what.

Read in this order: ``instruction``, ``trace``, ``state``, ``recording``, ``schedule``; the primitives by kind in
``loops``, ``merge``, ``annotate``, ``blocks``, ``compute_at``, ``reduction``, ``cache``, ``layout``, ``reindex``,
``epilogue_fusion``, ``pad_einsum``, ``padding``, ``iteration``, ``blockize``, ``tensorize``; then ``rules/``, which
apply them by analysis, and ``explain``, which says what they decided. ``stmt_refs`` is for functions rewritten by
hand.
"""

from weft.error import ScheduleError
from weft.tir.schedule import analysis as analysis
from weft.tir.schedule import transform as transform
from weft.tir.schedule.explain import Estimate, KernelReport, ScheduleReport, explain_schedule, report_of
from weft.tir.schedule.index_map import IndexMap
from weft.tir.schedule.instruction import BlockRV, ExprRV, Instruction, InstructionKind, LoopRV
from weft.tir.schedule.rules import (
    Knob,
    Knobs,
    Refusal,
    ScheduleRecord,
    default_schedule,
    noting_schedules,
    schedule_choices,
    schedule_func,
)
from weft.tir.schedule.schedule import Schedule
from weft.tir.schedule.stmt_refs import (
    BlockDependenceInfo,
    BlockScope,
    CachedFlags,
    Dependency,
    DepKind,
    ScheduleDebugMask,
    StmtSRef,
)
from weft.tir.schedule.stmt_refs import StmtRefs as ScheduleState
from weft.tir.schedule.tensorize import TensorIntrin
from weft.tir.schedule.trace import Trace

SBlockRV, SBlockScope = BlockRV, BlockScope
SBlockDependenceInfo = BlockDependenceInfo
