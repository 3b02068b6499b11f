"""Measuring configurations: builders make code, runners time it.

Read in this order: ``measure``, ``executor``, ``methods``.
"""

from weft.autotvm.measure import executor, measure
from weft.autotvm.measure.executor import Executor
from weft.autotvm.measure.measure import (
    Builder,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    Runner,
    create_measure_batch,
)
from weft.autotvm.measure.methods import LocalBuilder, LocalRunner, RPCRunner, measure_option, request_remote
