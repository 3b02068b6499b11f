"""Tensor expressions: say what each element is, schedule later.

Read in this order: ``tensor``, ``compute``, ``create_prim_func``; then ``stage``, ``bound``, ``schedule_ops``, ``realize`` for ``create_schedule``.
"""

from weft.ir import all_of as all  # noqa: A004 - TVM's names
from weft.ir import any_of as any  # noqa: A004
from weft.ir import const, div, floordiv, floormod, if_then_else, truncdiv, truncmod
from weft.te.compute import (
    comm_reducer,
    compute,
    extern,
    highest,
    lowest,
    max,
    min,
    placeholder,
    prod,
    reduce_axis,
    scan,
    size_var,
    sum,
    tag_scope,
    thread_axis,
    var,
)
from weft.te.create_prim_func import create_prim_func
from weft.te import schedule  # noqa: I001 - after the modules it is made of
from weft.te.schedule import InferBound, Schedule, ScheduleOps, Stage, create_schedule, schedule_to_prim_func
from weft.te.tensor import BaseComputeOp, ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp, Tensor, TensorSlice
