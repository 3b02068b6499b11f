"""Tuning of schedules written by hand: a template leaves knobs open, tuners decide them by measuring.

Read in this order: ``task``, ``measure``, ``record``, ``tuner``, ``database``. Kernels without a template are tuned by
``weft.tune``.
"""

# Tasks before what records and measures them.
from weft.autotvm import task  # isort: skip
from weft.autotvm import database, env, measure, record, tuner
from weft.autotvm.env import GLOBAL_SCOPE
from weft.autotvm.measure import (
    LocalBuilder,
    LocalRunner,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    RPCRunner,
    measure_option,
)
from weft.autotvm.task import ApplyFixedConfig as apply_fixed_config
from weft.autotvm.task import ApplyGraphBest as apply_graph_best
from weft.autotvm.task import ApplyHistoryBest as apply_history_best
from weft.autotvm.task import ConfigEntity, ConfigSpace, DispatchContext, FallbackContext, create, get_config, template
from weft.autotvm.tuner import callback
