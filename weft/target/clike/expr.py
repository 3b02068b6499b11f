"""Expressions: a rule for each kind of node that languages like C write alike.

Arithmetic that C leaves open goes through the functions of :func:`arithmetic`.
"""

from __future__ import annotations

import math

from weft import error, ir, tir
from weft.target.clike.emitter import Emitter

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
_CALLS = {ir.Div: "div", ir.Mod: "mod", ir.FloorDiv: "floordiv", ir.FloorMod: "floormod", ir.Min: "min", ir.Max: "max"}
_BITS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
_RENAMED = {"round": "nearbyint", "power": "pow"}
SUBROUTINE = "call of another function of the module"  # in tables of what a language writes its own way
_OWN = frozenset(("abs", "rsqrt", "sigmoid", "isnan", "isinf", "isfinite"))
_OWN_INT = frozenset(("abs", "pow", "shift_left", "shift_right", "popcount", "clz"))


def refused(e: ir.Node, s: Emitter) -> str:
    """The rule of nodes that have none."""
    raise s.refuse(e)


EXPR = ir.Dispatch("expression like C's", (ir.PrimExpr,), default=refused)


@EXPR.on(ir.Var)
def _var(e: ir.Var, s: Emitter) -> str:
    return s.name(e)


@EXPR.on(ir.IntImm)
def _int(e: ir.IntImm, s: Emitter) -> str:
    of = s.type_of(e.dtype, e)
    if e.value == -(1 << 63):
        return s.cast(of, f"-0x7fffffffffffffff{s.long_suffix} - 1")
    if e.dtype == "int32" and e.value >= 0:
        return str(e.value)
    ending = {"int64": s.long_suffix, "uint64": f"U{s.long_suffix}", "uint32": "U"}.get(str(e.dtype), "")
    return s.cast(of, f"{e.value}{ending}")


@EXPR.on(ir.FloatImm)
def _float(e: ir.FloatImm, s: Emitter) -> str:
    if math.isfinite(e.value):
        return s.convert(e.dtype, f"{float(e.value).hex()}{'' if e.dtype == 'float64' else 'f'}", e)
    return s.convert(e.dtype, f"{'-' if e.value < 0 else ''}{s.nan if math.isnan(e.value) else s.infinity}", e)


@EXPR.on(ir.Cast)
def _cast(e: ir.Cast, s: Emitter) -> str:
    value, source = s.expr(e.value), str(e.value.dtype)
    if ir.DataType(source).is_float and ir.DataType(e.dtype).code in ("int", "uint"):
        return f"weft_saturate_{s.computed_as.get(source, source)}_{e.dtype}({value})"
    wide = s.computed_as.get(str(e.dtype))
    return s.convert(e.dtype, s.cast(s.types[wide], value) if wide else value, e)


@EXPR.on(tir.BufferLoad)
def _load(e: tir.BufferLoad, s: Emitter) -> str:
    if e.predicate is not None:
        raise s.refuse(e)
    s.type_of(e.dtype, e)
    return s.loads.get(str(e.dtype), "{0}").format(s.element(e.buffer, e.indices))


@EXPR.on(*_INFIX)
def _infix(e: ir.Add, s: Emitter) -> str:
    return s.convert(e.dtype, f"{s.expr(e.a)} {_INFIX[type(e)]} {s.expr(e.b)}", e)


@EXPR.on(*_CALLS)
def _binary_call(e: ir.Div, s: Emitter) -> str:
    return _own(_CALLS[type(e)], e, str(e.dtype), [s.expr(e.a), s.expr(e.b)], s)


def _own(name: str, e: ir.PrimExpr, dtype: str, args: list[str], s: Emitter) -> str:
    """A call of a function of :func:`arithmetic`."""
    s.type_of(e.dtype, e)
    wide = s.computed_as.get(dtype)
    text = f"weft_{name}_{wide or dtype}({', '.join(args)})"
    return s.convert(e.dtype, text, e) if wide else text


@EXPR.on(ir.Not)
def _not(e: ir.Not, s: Emitter) -> str:
    return f"(!{s.expr(e.a)})"


@EXPR.on(ir.Select)
def _select(e: ir.Select, s: Emitter) -> str:
    return f"({s.expr(e.condition)} ? {s.expr(e.true_value)} : {s.expr(e.false_value)})"


@EXPR.on(ir.CallIntrin)
def _call(e: ir.CallIntrin, s: Emitter) -> str:
    name = e.op.name.removeprefix("tir.") if isinstance(e.op, ir.Op) else SUBROUTINE
    name = _RENAMED.get(name, name)
    if name in s.special:
        return s.special[name](e, s)
    args = [s.expr(a) if isinstance(a, ir.PrimExpr) and not isinstance(a, ir.StringImm) else "" for a in e.args]
    if name in s.forms:
        return s.forms[name].format(*args, t="" if e.dtype == "void" else s.type_of(e.dtype, e))
    if name == SUBROUTINE or not e.args or not isinstance(e.args[0], ir.PrimExpr):
        raise s.refuse(e)
    of = ir.DataType(e.args[0].dtype)
    text = _bits(e, name, of, args, s) or _math(e, name, of, args, s)
    if text is None:
        raise error.CodegenError(f"target {s.target} has no code for intrinsic 'tir.{name}' of {e.dtype}", where=e.span)
    return text


def _bits(e: ir.CallIntrin, name: str, of: ir.DataType, args: list[str], s: Emitter) -> str | None:
    result = s.type_of(e.dtype, e)
    if name in _BITS:
        return s.cast(result, f"{args[0]} {_BITS[name]} {args[1]}")
    if name == "bitwise_not":
        return s.cast(result, f"{'!' if of.code == 'bool' else '~'}{args[0]}")
    if name in ("isnan", "isinf", "isfinite") and not of.is_float:
        return "true" if name == "isfinite" else "false"
    return None


def _math(e: ir.CallIntrin, name: str, of: ir.DataType, args: list[str], s: Emitter) -> str | None:
    result = s.type_of(e.dtype, e)
    if of.is_float and of.lanes == 1:
        wide = s.computed_as.get(str(of), str(of))
        if name in s.libm:
            text = f"{s.renamed.get(name, name)}{s.float32_suffix if wide == 'float32' else ''}({', '.join(args)})"
            return s.convert(e.dtype, text, e) if str(of) in s.computed_as else text
        return _own(name, e, str(of), args, s) if name in _OWN else None
    if (name in _OWN_INT and of.code in ("int", "uint")) or name == "abs":
        return _own(name, e, str(of), args, s)
    return s.cast(result, f"{args[0]} * {args[1]} + {args[2]}") if name == "fma" else None
