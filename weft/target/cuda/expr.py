"""Expressions in CUDA C.

Integer division by zero gives 0, minimum and maximum pass NaN on, a float that no integer can hold saturates: as on
every target. Overflow of signed integers is undefined, as in CUDA C. Vectors are refused: threads are the lanes.
"""

from __future__ import annotations

import math
import re

from weft import ir
from weft.error import CodegenError
from weft.tir import Buffer, BufferLoad

__all__ = ["EXPR", "Emitter", "c_type"]

_TYPES = {
    "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long",
    "float16": "weft_float16", "bfloat16": "weft_bfloat16", "float32": "float", "float64": "double",
}  # fmt: skip
_NARROW = ("float16", "bfloat16")
_LIBM = frozenset((
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "expm1", "sqrt", "cbrt", "rsqrt", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "floor", "ceil", "trunc",
    "nearbyint", "fabs", "pow", "atan2", "hypot", "fmod", "copysign", "nextafter", "fma", "ldexp",
))  # fmt: skip
_RENAMED = {"round": "nearbyint", "power": "pow"}
_OWN_INT = frozenset(("abs", "shift_left", "shift_right", "popcount", "clz", "pow"))
_BITS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
_SHUFFLES = {"tvm_warp_shuffle": "__shfl_sync", "tvm_warp_shuffle_up": "__shfl_up_sync",
             "tvm_warp_shuffle_down": "__shfl_down_sync"}  # fmt: skip


class Emitter:
    """The state of emission: lines, names, element types of pointers, and the thread axes around."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[ir.Var, str] = {}
        self.taken: set[str] = set()
        self.params: list[ir.Var] = []
        self.pointers: dict[ir.Var, str] = {}
        self.stored: set[ir.Var] = set()
        self.axes: set[str] = set()  # the thread axes around the current statement
        self.dynamic_shared = 0  # bytes

    def emit(self, line: str) -> None:
        """Add a line."""
        self.lines.append("  " * self.depth + line)

    def fresh(self, var: ir.Var) -> str:
        """Name a variable."""
        base = "v_" + re.sub(r"\W", "_", var.name)
        name, n = base, 0
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.taken.add(name)
        self.names[var] = name
        return name

    def define(self, var: ir.Var, value: str) -> None:
        """Declare a variable with its value."""
        self.emit(f"{c_type(var.dtype, var)} {self.fresh(var)} = {value};")

    def name(self, var: ir.Var) -> str:
        """Return the name of a variable."""
        if var not in self.names:
            raise CodegenError(f"variable '{var.name}' has no value in the kernel", where=var.span)
        return self.names[var]

    def element(self, buffer: Buffer, indices: tuple[ir.PrimExpr, ...]) -> str:
        """An element of a flat buffer, to read or to assign."""
        if len(indices) != 1:
            raise CodegenError(f"'{buffer.name}' is not flat", found=f"{len(indices)} indices")
        of, name = c_type(buffer.dtype, buffer), self.name(buffer.data)
        pointer = name if self.pointers.get(buffer.data) == of else f"(({of}*){name})"
        return f"{pointer}[{EXPR(indices[0], self)}]"


def c_type(dtype: str, at: ir.Node) -> str:
    """The C type of a value, in memory too."""
    if str(dtype) not in _TYPES:
        raise CodegenError(
            f"target cuda has no code for '{dtype}' yet", where=at.span, expected=f"one of {', '.join(_TYPES)}"
        )
    return _TYPES[str(dtype)]


def _not_expr(e: ir.PrimExpr, s: Emitter) -> str:
    raise CodegenError(f"target cuda has no code for {type(e).__name__} yet", where=e.span, found=str(e))


EXPR = ir.Dispatch("CUDA expression", (ir.PrimExpr,), default=_not_expr)


@EXPR.on(ir.Var)
def _var(e: ir.Var, s: Emitter) -> str:
    return s.name(e)


@EXPR.on(ir.IntImm)
def _int(e: ir.IntImm, s: Emitter) -> str:
    return _integer(e.value, e.dtype, c_type(e.dtype, e))


def _integer(value: int, dtype: str, of: str) -> str:
    if value == -(1 << 63):
        return "(-9223372036854775807LL - 1)"
    suffix = {"int64": "LL", "uint64": "ULL", "uint32": "U"}.get(str(dtype), "")
    return f"{value}" if dtype == "int32" and value >= 0 else f"({of})({value}{suffix})"


@EXPR.on(ir.FloatImm)
def _float(e: ir.FloatImm, s: Emitter) -> str:
    of = c_type(e.dtype, e)
    if math.isfinite(e.value):
        return f"({of})({float(e.value).hex()}{'f' if e.dtype != 'float64' else ''})"
    bits = "0x7fc00000" if math.isnan(e.value) else "0x7f800000"
    return f"({of})({'-' if e.value < 0 else ''}__int_as_float({bits}))"


@EXPR.on(ir.Cast)
def _cast(e: ir.Cast, s: Emitter) -> str:
    of, value = c_type(e.dtype, e), EXPR(e.value, s)
    source, result = ir.DataType(e.value.dtype), ir.DataType(e.dtype)
    if source.is_float and result.code in ("int", "uint"):
        signed = result.code == "int"
        high = (1 << (result.bits - signed)) - 1
        low = -high - 1 if signed else 0
        wide = "double" if e.value.dtype == "float64" else "float"
        return f"weft_saturate<{of}, {wide}>({value}, {_integer(low, e.dtype, of)}, {_integer(high, e.dtype, of)})"
    if e.dtype in _NARROW:
        return f"({of})(float)({value})"
    return f"({of})({value})"


@EXPR.on(BufferLoad)
def _load(e: BufferLoad, s: Emitter) -> str:
    c_type(e.dtype, e)
    if e.predicate is not None:
        _not_expr(e, s)
    return s.element(e.buffer, e.indices)


_INFIX = {
    ir.Add: "+",
    ir.Sub: "-",
    ir.Mul: "*",
    ir.EQ: "==",
    ir.NE: "!=",
    ir.LT: "<",
    ir.LE: "<=",
    ir.GT: ">",
    ir.GE: ">=",
    ir.And: "&&",
    ir.Or: "||",
}


@EXPR.on(*_INFIX)
def _infix(e: ir.Add, s: Emitter) -> str:
    text = f"({EXPR(e.a, s)} {_INFIX[type(e)]} {EXPR(e.b, s)})"
    narrow = ir.DataType(e.dtype).bits < 32 and e.dtype != "bool"  # C computes wider
    return f"({c_type(e.dtype, e)}){text}" if narrow else text


_CALLS = {ir.FloorDiv: "weft_floordiv", ir.FloorMod: "weft_floormod", ir.Min: "weft_min", ir.Max: "weft_max"}


@EXPR.on(*_CALLS)
def _binary_call(e: ir.FloorDiv | ir.FloorMod | ir.Min | ir.Max, s: Emitter) -> str:
    of, name, a, b = c_type(e.dtype, e), _CALLS[type(e)], EXPR(e.a, s), EXPR(e.b, s)
    if isinstance(e, (ir.FloorDiv, ir.FloorMod)) and ir.DataType(e.dtype).is_float:
        return f"({of}){name}_float<{'double' if e.dtype == 'float64' else 'float'}>({a}, {b})"
    return f"{name}<{of}>({a}, {b})"


@EXPR.on(ir.Div, ir.Mod)
def _divide(e: ir.Div | ir.Mod, s: Emitter) -> str:
    a, b, of = EXPR(e.a, s), EXPR(e.b, s), c_type(e.dtype, e)
    if ir.DataType(e.dtype).is_float:
        return f"({of})({a} / {b})" if isinstance(e, ir.Div) else f"({of})fmod{_suffix(e.dtype)}({a}, {b})"
    return f"{'weft_div' if isinstance(e, ir.Div) else 'weft_mod'}<{of}>({a}, {b})"


def _suffix(dtype: str) -> str:
    return "" if dtype == "float64" else "f"


@EXPR.on(ir.Not)
def _not(e: ir.Not, s: Emitter) -> str:
    return f"(!{EXPR(e.a, s)})"


@EXPR.on(ir.Select)
def _select(e: ir.Select, s: Emitter) -> str:
    return f"({EXPR(e.condition, s)} ? {EXPR(e.true_value, s)} : {EXPR(e.false_value, s)})"


@EXPR.on(ir.Let)
def _let(e: ir.Let, s: Emitter) -> str:
    value = EXPR(e.value, s)
    return f"[&] {{ {c_type(e.var.dtype, e)} {s.fresh(e.var)} = {value}; return {EXPR(e.body, s)}; }}()"


@EXPR.on(ir.CallIntrin)
def _call(e: ir.CallIntrin, s: Emitter) -> str:
    name = (e.op.name if isinstance(e.op, ir.Op) else str(e.op)).removeprefix("tir.")
    name = _RENAMED.get(name, name)
    if name in ("tvm_storage_sync", "call_extern", "call_pure_extern", "address_of"):
        return _special(e, name, s)
    of = ir.DataType(e.args[0].dtype) if e.args and isinstance(e.args[0], ir.PrimExpr) else ir.DataType("handle")
    args = [EXPR(a, s) if isinstance(a, ir.PrimExpr) else "" for a in e.args]
    if name == "likely":
        return args[0]
    if name == "if_then_else":
        return f"({args[0]} ? {args[1]} : {args[2]})"
    if name in _BITS:
        return f"({c_type(e.dtype, e)})({args[0]} {_BITS[name]} {args[1]})"
    if name == "bitwise_not":
        return f"({c_type(e.dtype, e)})({'!' if of.code == 'bool' else '~'}{args[0]})"
    if name in ("isnan", "isinf", "isfinite"):
        wide = "double" if str(of) == "float64" else "float"
        return f"weft_{name}<{wide}>({args[0]})" if of.is_float else ("true" if name == "isfinite" else "false")
    if name == "reinterpret":
        return f"weft_reinterpret<{c_type(e.dtype, e)}, {c_type(str(of), e)}>({args[0]})"
    if name in _SHUFFLES:
        return f"{_SHUFFLES[name]}({args[0]}, {args[1]}, {args[2]}, {args[3]})"
    if name == "tvm_warp_activemask":
        return f"({c_type(e.dtype, e)})__activemask()"
    if name in _OWN_INT and of.code in ("int", "uint", "bool"):
        return f"weft_{name}<{c_type(e.dtype, e)}>({', '.join(args)})"
    return _math(e, name, args)


def _math(e: ir.CallIntrin, name: str, args: list[str]) -> str:
    dt = ir.DataType(e.dtype)
    if name == "fma" and not dt.is_float:
        return f"({c_type(e.dtype, e)})({args[0]} * {args[1]} + {args[2]})"
    name = "fabs" if name == "abs" else name
    if dt.is_float and dt.lanes == 1:
        of, f = c_type(e.dtype, e), _suffix(e.dtype)
        if name == "sigmoid":
            return f"({of})(1 / (1 + exp{f}(-({args[0]}))))"
        if name in _LIBM:
            return f"({of}){name}{f}({', '.join(args)})"
    raise CodegenError(f"target cuda has no code for intrinsic 'tir.{name}' of {e.dtype} yet", where=e.span)


def _special(e: ir.CallIntrin, name: str, s: Emitter) -> str:
    """Calls with arguments that are no values."""
    if name == "tvm_storage_sync":
        return "__syncwarp()" if getattr(e.args[0], "value", "") == "warp" else "__syncthreads()"
    if name == "address_of" and isinstance(e.args[0], BufferLoad):
        return f"(&{s.element(e.args[0].buffer, e.args[0].indices)})"
    if isinstance(e.args[0], ir.StringImm):
        return f"{e.args[0].value}({', '.join(EXPR(a, s) for a in e.args[1:] if isinstance(a, ir.PrimExpr))})"
    return _not_expr(e, s)
