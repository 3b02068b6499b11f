"""OpenCL C beside what all languages like C share: address spaces, numbers of 16 bits, threads, sub-groups.

A number of 16 bits is 16 bits of memory; its value is a float, rounded after each operation, which every device can.
Vectors are refused: threads are the lanes.
"""

from __future__ import annotations

from typing import ClassVar

from weft import ir
from weft.target import clike
from weft.target.gpu import AXES

_WHOLE = {8: "char", 16: "short", 32: "int", 64: "long"}
TYPES = {
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}{name}" for sign in ("", "u") for bits, name in _WHOLE.items()},
    **dict.fromkeys(("float16", "bfloat16", "float32"), "float"),
    "float64": "double",
}
EXPR = ir.Dispatch("OpenCL expression", (ir.PrimExpr,), default=clike.EXPR.default, extends=clike.EXPR)
EXPR.on(ir.Let)(clike.let)


def _barrier(e: ir.CallIntrin, s: Emitter) -> str:
    scope = "sub_group_barrier" if getattr(e.args[0], "value", "") == "warp" else "barrier"
    return f"{scope}(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)"


def _reinterpret(e: ir.CallIntrin, s: Emitter) -> str:
    source, result = str(e.args[0].dtype), str(e.dtype)
    bits = s.stores.get(source, "{0}").format(s.expr(e.args[0]))
    return s.loads.get(result, "{0}").format(f"as_{s.memory_type(result, e)}({bits})")


class Emitter(clike.DeviceEmitter):
    """The state of emission of a kernel."""

    target = "opencl"
    expressions = EXPR
    statements = clike.DEVICE_STMT
    types = TYPES
    memory_types: ClassVar = {"bool": "uchar", "float16": "ushort", "bfloat16": "ushort"}
    loads: ClassVar = {"bool": "({0} != 0)", "float16": "weft_from_float16({0})", "bfloat16": "weft_from_bfloat16({0})"}
    stores: ClassVar = {"float16": "weft_to_float16({0})", "bfloat16": "weft_to_bfloat16({0})"}
    conversions: ClassVar = {"float16": "weft_float16", "bfloat16": "weft_bfloat16"}
    float32_suffix = ""
    long_suffix = "L"
    thread_axes: ClassVar = {
        tag: f"get_{'group' if tag.startswith('block') else 'local'}_id({'xyz'.index(tag[-1])})" for tag in AXES
    }
    shared_prefix = shared_space = "__local "
    global_space = "__global "
    renamed: ClassVar = {"nearbyint": "rint"}
    forms: ClassVar = {
        **clike.Emitter.forms,
        "tvm_warp_shuffle": "weft_shuffle({1}, {2}, {3})",
        "tvm_warp_shuffle_up": "weft_shuffle_up({1}, {2}, {3})",
        "tvm_warp_shuffle_down": "weft_shuffle_down({1}, {2}, {3})",
        "tvm_warp_activemask": "(({t})0)",
    }
    special: ClassVar = {**clike.DeviceEmitter.special, "tvm_storage_sync": _barrier, "reinterpret": _reinterpret}
