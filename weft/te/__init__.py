"""Tensor expressions: say what each element is, schedule later.

Read in this order: ``tensor``, ``compute``, ``create_prim_func``; then ``stage``, ``stages``, ``bound``,
``schedule_ops``, ``realize`` for ``create_schedule``.
"""

from weft.ir import add, div, floordiv, floormod, if_then_else, truncdiv, truncmod
from weft.ir import all_of as all
from weft.ir import any_of as any
from weft.ir import exact_const as const
from weft.ir import floordiv as indexdiv
from weft.ir import floormod as indexmod
from weft.ir import mul as multiply
from weft.ir import sub as subtract
from weft.te import hybrid, schedule
from weft.te.compute import (
    comm_reducer,
    compute,
    extern,
    extern_primfunc,
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
from weft.te.create_prim_func import create_prim_func, kernel_of_stages
from weft.te.gradient import gradient
from weft.te.schedule import InferBound, Schedule, ScheduleOps, Stage, create_schedule, schedule_to_prim_func
from weft.te.tensor import (
    BaseComputeOp,
    ComputeOp,
    ExternOp,
    Operation,
    PlaceholderOp,
    ScanOp,
    Tensor,
    TensorSlice,
    install_tensor_arithmetic,
)
from weft.te.tensor_intrin import TensorIntrin, decl_tensor_intrin
from weft.tir import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    ceil,
    clz,
    copysign,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    exp10,
    floor,
    fmod,
    hypot,
    infinity,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    max_value,
    min_value,
    nearbyint,
    nextafter,
    popcount,
    power,
    reinterpret,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
)
from weft.tir.schedule.index_map import IndexMap

AXIS_SEPARATOR = IndexMap.AXIS_SEPARATOR

__all__ = [
    "AXIS_SEPARATOR", "BaseComputeOp", "ComputeOp", "ExternOp", "InferBound", "Operation", "PlaceholderOp",
    "ScanOp", "Schedule", "ScheduleOps", "Stage", "Tensor", "TensorSlice", "abs", "acos", "acosh", "add", "all",
    "any", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "clz", "comm_reducer", "compute", "const", "copysign",
    "cos", "cosh", "create_prim_func", "create_schedule", "decl_tensor_intrin", "div", "erf", "exp", "exp10",
    "exp2", "extern", "extern_primfunc", "floor", "floordiv", "floormod", "fmod", "gradient", "highest", "hybrid",
    "hypot", "if_then_else", "indexdiv", "indexmod", "infinity", "install_tensor_arithmetic", "isfinite", "isinf",
    "isnan", "kernel_of_stages", "log", "log10", "log1p", "log2", "lowest", "max", "max_value", "min", "min_value",
    "multiply", "nearbyint", "nextafter", "placeholder", "popcount", "power", "prod", "reduce_axis", "reinterpret",
    "round", "rsqrt", "scan", "schedule", "schedule_to_prim_func", "sigmoid", "sin", "sinh", "size_var", "sqrt",
    "subtract", "sum", "tag_scope", "tan", "tanh", "thread_axis", "trunc", "truncdiv", "truncmod", "var",
]  # fmt: skip
