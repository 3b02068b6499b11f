"""CUDA C++ beside what all languages like C share: types of 16 bits, threads, warps.

Overflow of signed integers is undefined, as in CUDA C. Vectors are refused: threads are the lanes.
"""

from __future__ import annotations

from typing import ClassVar

from weft import ir
from weft.target import clike
from weft.target.gpu import AXES

_WHOLE = {8: "char", 16: "short", 32: "int", 64: "long long"}
TYPES = {
    "bool": "bool",
    "int8": "signed char",
    **{f"int{bits}": name for bits, name in _WHOLE.items() if bits > 8},
    **{f"uint{bits}": f"unsigned {name}" for bits, name in _WHOLE.items()},
    "float16": "weft_float16",
    "bfloat16": "weft_bfloat16",
    "float32": "float",
    "float64": "double",
}
EXPR = ir.Dispatch("CUDA expression", (ir.PrimExpr,), default=clike.EXPR.default, extends=clike.EXPR)


@EXPR.on(ir.Let)
def _let(e: ir.Let, s: Emitter) -> str:
    value = s.expr(e.value)
    return f"[&] {{ {s.type_of(e.var.dtype, e)} {s.fresh(e.var)} = {value}; return {s.expr(e.body)}; }}()"


def _barrier(e: ir.CallIntrin, s: Emitter) -> str:
    return "__syncwarp()" if getattr(e.args[0], "value", "") == "warp" else "__syncthreads()"


def _reinterpret(e: ir.CallIntrin, s: Emitter) -> str:
    source, result = (s.type_of(x.dtype, e) for x in (e.args[0], e))
    return f"weft_reinterpret<{result}, {source}>({s.expr(e.args[0])})"


class Emitter(clike.DeviceEmitter):
    """The state of emission of a kernel."""

    target = "cuda"
    expressions = EXPR
    statements = clike.DEVICE_STMT
    types = TYPES
    nan = "__int_as_float(0x7fc00000)"
    infinity = "__int_as_float(0x7f800000)"
    thread_axes: ClassVar = {tag: tag for tag in AXES}
    shared_prefix = "alignas(16) __shared__ "
    forms: ClassVar = {
        **clike.Emitter.forms,
        "tvm_warp_shuffle": "__shfl_sync({0}, {1}, {2}, {3})",
        "tvm_warp_shuffle_up": "__shfl_up_sync({0}, {1}, {2}, {3})",
        "tvm_warp_shuffle_down": "__shfl_down_sync({0}, {1}, {2}, {3})",
        "tvm_warp_activemask": "({t})__activemask()",
    }
    special: ClassVar = {**clike.DeviceEmitter.special, "tvm_storage_sync": _barrier, "reinterpret": _reinterpret}
