"""Expressions as C: a rule for each kind of node.

Arithmetic that C leaves open goes through the functions of the prelude.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from weft import ir
from weft.error import CodegenError
from weft.machine import UNKNOWN, Machine
from weft.tir import Buffer, BufferLoad

__all__ = ["EXPR", "Emitter", "memory_type", "string", "value_type"]

_TYPES = {
    "bool": "bool", "float32": "float", "float64": "double", "handle": "void*",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_LIBM = frozenset((
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "floor", "ceil", "trunc", "nearbyint", "fabs", "pow",
    "atan2", "hypot", "fmod", "copysign", "nextafter", "fma",
))  # fmt: skip
_RENAMED = {"round": "nearbyint", "power": "pow"}
_SPECIAL = ("ret", "address_of", "tvm_call_packed", "call_packed", "tvm_call_cpacked")
_OWN = frozenset(("abs", "rsqrt", "sigmoid"))
_OWN_INT = frozenset(("abs", "pow", "shift_left", "shift_right", "popcount", "clz"))


class Emitter:
    """The state of emission: lines, names of variables, element types of pointers, memory to free."""

    def __init__(self, machine: Machine = UNKNOWN) -> None:
        self.machine = machine
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[ir.Var, str] = {}
        self.taken: set[str] = set()
        self.pointee: dict[ir.Var, str] = {}
        self.cleanup: list[str] = []
        self.result = ""  # the pointer to where a returned value goes, where the function returns one
        self.imported: set[str] = set()  # functions of the modules that this one imports

    def emit(self, line: str) -> None:
        """Add a line."""
        self.lines.append("  " * self.depth + line)

    def fresh(self, var: ir.Var, prefix: str = "v_") -> str:
        """Name a variable."""
        base = prefix + re.sub(r"[^A-Za-z0-9_]", "_", var.name)
        name, n = base, 0
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.taken.add(name)
        self.names[var] = name
        return name

    def leave(self, unless: str, kind: str, message: str, values: Sequence[str] = ()) -> None:
        """Free memory and raise, unless a condition holds; with `values`, the message is a format for them."""
        free = "".join(f"free({p}); " for p in reversed(self.cleanup))
        arguments = [string(message), *(f"(long long)({v})" for v in values)] if values else ['"%s"', string(message)]
        fail = f"return weft_fail({string(kind)}, {', '.join(arguments)});"
        self.emit(f"if (!({unless})) {{ {free}{fail} }}")

    def element(self, buffer: Buffer, indices: Sequence[ir.PrimExpr]) -> str:
        """An element of a flat buffer, to read or to assign."""
        if len(indices) != 1 or buffer.data not in self.names:
            raise CodegenError(
                f"buffer '{buffer.name}' is not flat, or has no memory here", found=f"{len(indices)} indices"
            )
        of, name = memory_type(buffer.dtype, buffer), self.names[buffer.data]
        pointer = name if self.pointee.get(buffer.data) == of else f"(({of}*){name})"
        return f"{pointer}[{EXPR(indices[0], self)}]"


def value_type(dtype: str, at: ir.Node) -> str:
    """The C type of a value."""
    if str(dtype) not in _TYPES:
        raise CodegenError(f"target c has no code for '{dtype}'", where=at.span, expected=f"one of {', '.join(_TYPES)}")
    return _TYPES[str(dtype)]


def memory_type(dtype: str, at: ir.Node) -> str:
    """The C type of an element in memory."""
    return "uint8_t" if dtype == "bool" else value_type(dtype, at)


def string(text: str) -> str:
    """A string literal."""
    plain = {ord('"'): '\\"', ord("\\"): "\\\\"}
    return '"' + "".join(plain.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in text.encode()) + '"'


def _not_expr(e: ir.PrimExpr, s: Emitter) -> str:
    raise CodegenError(f"target c has no code for {type(e).__name__}", where=e.span, found=str(e))


EXPR = ir.Dispatch("C expression", (ir.PrimExpr,), default=_not_expr)


# --- expressions ------------------------------------------------------------------------------------------------------


@EXPR.on(ir.Var)
def _var(e: ir.Var, s: Emitter) -> str:
    if e not in s.names:
        raise CodegenError(f"variable '{e.name}' has no value", where=e.span, help="make it a parameter")
    return s.names[e]


@EXPR.on(ir.IntImm)
def _int(e: ir.IntImm, s: Emitter) -> str:
    if e.value == -(1 << 63):
        return "INT64_MIN"
    return f"(({value_type(e.dtype, e)}){e.value}{'ULL' if e.value >= 1 << 63 else 'LL'})"


@EXPR.on(ir.FloatImm)
def _float(e: ir.FloatImm, s: Emitter) -> str:
    if math.isfinite(e.value):
        return f"(({value_type(e.dtype, e)}){float(e.value).hex()})"
    return f"(({value_type(e.dtype, e)}){'NAN' if math.isnan(e.value) else 'INFINITY' if e.value > 0 else '-INFINITY'})"


@EXPR.on(ir.Cast)
def _cast(e: ir.Cast, s: Emitter) -> str:
    value, of = EXPR(e.value, s), value_type(e.dtype, e)
    if ir.DataType(e.value.dtype).is_float and ir.DataType(e.dtype).code in ("int", "uint"):
        return f"weft_saturate_{e.dtype}({value})"
    return f"(({of}){value})"


@EXPR.on(BufferLoad)
def _load(e: BufferLoad, s: Emitter) -> str:
    if e.predicate is not None:
        _not_expr(e, s)
    return f"({s.element(e.buffer, e.indices)} != 0)" if e.dtype == "bool" else s.element(e.buffer, e.indices)


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
    return f"(({value_type(e.dtype, e)})({EXPR(e.a, s)} {_INFIX[type(e)]} {EXPR(e.b, s)}))"


_CALLS = {ir.Div: "div", ir.Mod: "mod", ir.FloorDiv: "floordiv", ir.FloorMod: "floormod", ir.Min: "min", ir.Max: "max"}


@EXPR.on(*_CALLS)
def _binary_call(e: ir.Div, s: Emitter) -> str:
    value_type(e.dtype, e)
    return f"weft_{_CALLS[type(e)]}_{e.dtype}({EXPR(e.a, s)}, {EXPR(e.b, s)})"


@EXPR.on(ir.Not)
def _not(e: ir.Not, s: Emitter) -> str:
    return f"(!{EXPR(e.a, s)})"


@EXPR.on(ir.Select)
def _select(e: ir.Select, s: Emitter) -> str:
    return f"({EXPR(e.condition, s)} ? {EXPR(e.true_value, s)} : {EXPR(e.false_value, s)})"


@EXPR.on(ir.Let)
def _let_expr(e: ir.Let, s: Emitter) -> str:
    s.names[e.var] = f"({EXPR(e.value, s)})"
    return EXPR(e.body, s)


_MEMBERS = {1: "data", 2: "shape", 3: "strides", 4: "ndim", 5: "dtype.code", 6: "dtype.bits", 7: "dtype.lanes",
            8: "byte_offset", 9: "device.id", 10: "device.type"}  # fmt: skip
"""Fields of DLTensor, as Apache TVM numbers them for ``tvm_struct_get``."""


def _field(e: ir.CallIntrin, args: Sequence[str]) -> str:
    """A field of a tensor or a packed value, or an element of an array."""
    of, field = value_type(e.dtype, e), ir.as_int(e.args[2])
    if field in _MEMBERS:
        return f"(({of})((DLTensor*){args[0]})[{args[1]}].{_MEMBERS[field]})"
    if field == 13:
        return f"((({of})((TVMFFIAny*){args[0]})[{args[1]}].type_index))"
    if field == 15:
        kind = "v_ptr" if e.dtype == "handle" else "v_float64" if e.dtype == "float64" else "v_int64"
        return f"(({of})((TVMFFIAny*){args[0]})[{args[1]}].{kind})"
    if field == 17:
        return f"((({of}*){args[0]})[{args[1]}])"
    known = ", ".join(map(str, (*_MEMBERS, 13, 15, 17)))
    raise CodegenError("tvm_struct_get of a field that target c does not know", where=e.span,
                       expected=f"one of {known}", found=str(e.args[2]))  # fmt: skip


_FORMS = {
    "likely": "{0}",
    "if_then_else": "({0} ? {1} : {2})",
    "prefetch": "__builtin_prefetch({0})",
    "isnullptr": "({0} == 0)",
    "handle_add_byte_offset": "((void*)((char*){0} + {1}))",
}
_BITS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}


@EXPR.on(ir.CallIntrin)
def _call(e: ir.CallIntrin, s: Emitter) -> str:
    name = (e.op.name if isinstance(e.op, ir.Op) else str(e.op)).removeprefix("tir.")
    name = _RENAMED.get(name, name)
    if name in _SPECIAL:
        return _special(e, name, s)
    of = ir.DataType(e.args[0].dtype) if e.args and isinstance(e.args[0], ir.PrimExpr) else ir.DataType("handle")
    args = [EXPR(a, s) if isinstance(a, ir.PrimExpr) and not isinstance(a, ir.StringImm) else "" for a in e.args]
    if name == "tvm_struct_get":
        return _field(e, args)
    if name in _FORMS:
        return _FORMS[name].format(*args)
    if name in _BITS:
        return f"(({value_type(e.dtype, e)})({args[0]} {_BITS[name]} {args[1]}))"
    if name == "bitwise_not":
        return f"(({value_type(e.dtype, e)})({'!' if of.code == 'bool' else '~'}{args[0]}))"
    if name in ("isnan", "isinf", "isfinite"):
        return f"({name}({args[0]}) != 0)" if of.is_float else f"({'true' if name == 'isfinite' else 'false'})"
    if name == "reinterpret":
        source, result = value_type(str(of), e), value_type(e.dtype, e)
        return f"((union {{ {source} from; {result} to; }}){{ .from = {args[0]} }}).to"
    if (of.is_float and name in _OWN) or (of.code in ("int", "uint") and name in _OWN_INT):
        return f"weft_{name}_{e.dtype}({', '.join(args)})"
    if name == "fma" and not of.is_float:
        return f"(({value_type(e.dtype, e)})({args[0]} * {args[1]} + {args[2]}))"
    if name in _LIBM and e.dtype in ("float32", "float64"):
        return f"{name}{'f' if e.dtype == 'float32' else ''}({', '.join(args)})"
    raise CodegenError(f"target c has no code for intrinsic 'tir.{name}' of {e.dtype}", where=e.span)


def _special(e: ir.CallIntrin, name: str, s: Emitter) -> str:
    """Calls with arguments that are no values."""
    if name != "address_of":
        return _return(e, s) if name == "ret" else _packed(e, s)
    if not isinstance(e.args[0], BufferLoad):
        return _not_expr(e, s)
    return f"((void*)&{s.element(e.args[0].buffer, e.args[0].indices)})"


def _any(a: ir.Node, s: Emitter) -> str:
    """The initializer of a packed value."""
    if isinstance(a, ir.StringImm):
        return f"{{ .type_index = 8, .v_ptr = (void*){string(a.value)} }}"
    if not isinstance(a, ir.PrimExpr):
        raise CodegenError("target c passes no tensors to packed functions", where=a.span, help="use target 'llvm'")
    dt = ir.DataType(a.dtype)
    index, field = (3, "v_float64") if dt.is_float else (4, "v_ptr") if dt.code == "handle" else (1, "v_int64")
    return f"{{ .type_index = {2 if dt.code == 'bool' else index}, .{field} = {EXPR(a, s)} }}"


def _return(e: ir.CallIntrin, s: Emitter) -> str:
    """Put a value where the caller finds the result, and leave the function."""
    free = "".join(f"free({p}); " for p in reversed(s.cleanup))
    return f"({{ *{s.result} = (TVMFFIAny){_any(e.args[0], s)}; {free}return 0; 0; }})"


def _packed(e: ir.CallIntrin, s: Emitter) -> str:
    """A call of a packed function by name; its arguments are numbers, strings and pointers."""
    name, fields = e.args[0], [_any(a, s) for a in e.args[1:]]
    if not isinstance(name, ir.StringImm):
        raise CodegenError("call_packed needs the name of a function", where=e.span, found=str(name))
    n, known = len(fields), "NULL" if name.value in s.imported else "&known"
    free = "".join(f"free({p}); " for p in reversed(s.cleanup))
    dt = ir.DataType(e.dtype)
    result = f"a[{n}].{'v_ptr' if dt.code == 'handle' else 'v_int64'}"
    if dt.is_float:
        result = f"(a[{n}].type_index == 3 ? a[{n}].v_float64 : (double)a[{n}].v_int64)"
    value = "(void)0" if dt.code == "void" else f"({value_type(e.dtype, e)}){result}"
    return (
        f"({{ static void* known; TVMFFIAny a[] = {{ {', '.join([*fields, '{0}'])} }}; "
        f"if (weft_call({string(name.value)}, {known}, a, {n})) {{ {free}return -1; }} {value}; }})"
    )
