"""Between expressions and polynomials: ``poly_of`` reads, ``to_expr`` writes, ``cost`` says which is simpler.

Only int32 and int64 scalars have polynomials; the width does not matter to them, so widening casts, and narrowing ones
that lose nothing, disappear. Everything else of an integer type is an opaque atom.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from weft.arith.bounds import bound_of
from weft.arith.context import Context, structural_key
from weft.arith.linear import Mono, Poly, add, atoms_of, constant, key, mul, scale
from weft.arith.terms import floordiv, floormod, minimum, select
from weft.ir import (
    IS_EXPR,
    IS_VAR,
    Add,
    CallIntrin,
    Cast,
    DataType,
    Dispatch,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    Node,
    Op,
    PrimExpr,
    Select,
    SizeVar,
    Sub,
    Var,
)

__all__ = ["cost", "expr_key", "is_pure", "poly_of", "to_expr"]

_INDEX_TYPES = frozenset(("int32", "int64"))
_LIMITS = {"int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1)}
_MAX_PRODUCT = 48

lift = Dispatch("polynomial of an expression", (PrimExpr,), default=lambda e, cx: _opaque(cx, e))


def poly_of(cx: Context, expr: PrimExpr) -> Poly | None:
    """Return the polynomial of an expression, or None where its type has none."""
    hit = cx.polys.get(id(expr))
    if hit is not None:
        return hit[1]
    result = lift(expr, cx)
    cx.polys[id(expr)] = (expr, result)
    return result


@lift.on(IntImm)
def _int(e: IntImm, cx: Context) -> Poly | None:
    return constant(e.value) if e.dtype in _INDEX_TYPES else None


@lift.on(Var, SizeVar)
def _var(e: Var, cx: Context) -> Poly | None:
    if e.dtype not in _INDEX_TYPES:
        return None
    atom = cx.var_atom(e)
    return cx.equal[atom] if atom in cx.equal else {(atom,): 1}


@lift.on(Add)
def _add(e: Add, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.a), poly_of(cx, e.b)
    return None if a is None or b is None else add(a, b)


@lift.on(Sub)
def _sub(e: Sub, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.a), poly_of(cx, e.b)
    return None if a is None or b is None else add(a, b, -1)


@lift.on(Mul)
def _mul(e: Mul, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.a), poly_of(cx, e.b)
    if a is None or b is None:
        return None
    if len(a) * len(b) <= _MAX_PRODUCT:
        return mul(a, b)
    # The key must not ask for this polynomial again, as `expr_key` of the product would.
    return {(cx.intern(("product", key(a), key(b)), "opaque", (a, b), e, e.dtype),): 1}


@lift.on(FloorDiv)
def _floordiv(e: FloorDiv, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.a), poly_of(cx, e.b)
    if a is None or b is None:
        return None
    return floordiv(cx, a, b, e.dtype) if b else {}  # by zero gives 0, as everywhere in TIR


@lift.on(FloorMod)
def _floormod(e: FloorMod, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.a), poly_of(cx, e.b)
    if a is None or b is None:
        return None
    return floormod(cx, a, b, e.dtype) if b else {}


@lift.on(Div, Mod)
def _truncated(e: Div | Mod, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.a), poly_of(cx, e.b)
    if a is None or b is None:
        return None
    if not b:
        return {}
    if bound_of(cx, a)[0] < 0 or bound_of(cx, b)[0] < 0:
        return _opaque(cx, e)
    return (floordiv if isinstance(e, Div) else floormod)(cx, a, b, e.dtype)


@lift.on(Min, Max)
def _minmax(e: Min | Max, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.a), poly_of(cx, e.b)
    return None if a is None or b is None else minimum(cx, "min" if isinstance(e, Min) else "max", a, b, e.dtype)


@lift.on(Select)
def _select(e: Select, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.true_value), poly_of(cx, e.false_value)
    if a is None or b is None:
        return None
    result = select(cx, expr_key(cx, e.condition), a, b, e.dtype)
    for atom in atoms_of(result):
        info = cx.atoms[atom]
        if info.kind == "select" and info.node is None:
            info.node = e
    return result


@lift.on(Cast)
def _cast(e: Cast, cx: Context) -> Poly | None:
    if e.dtype not in _INDEX_TYPES:
        return None
    inner = poly_of(cx, e.value)
    if inner is None:
        return _opaque(cx, e)
    if e.dtype == "int32" and e.value.dtype == "int64":
        low, high = _LIMITS["int32"]
        lo, hi = bound_of(cx, inner)
        if lo < low or hi > high:
            return _opaque(cx, e)
    return inner


@lift.on(CallIntrin)
def _call(e: CallIntrin, cx: Context) -> Poly | None:
    if e.dtype not in _INDEX_TYPES:
        return None
    name = getattr(e.op, "name", "")
    if name == "tir.likely":
        return poly_of(cx, e.args[0])
    if name in ("tir.shift_left", "tir.shift_right") and isinstance(e.args[1], IntImm) and 0 <= e.args[1].value < 63:
        a = poly_of(cx, e.args[0])
        if a is not None:
            power = 1 << e.args[1].value
            return scale(a, power) if name == "tir.shift_left" else floordiv(cx, a, constant(power), e.dtype)
    return _opaque(cx, e)


def _opaque(cx: Context, e: PrimExpr) -> Poly | None:
    if e.dtype not in _INDEX_TYPES:
        return None
    args = tuple(
        p for p in (poly_of(cx, a) for a in getattr(e, "args", ()) if isinstance(a, PrimExpr)) if p is not None
    )
    index = cx.intern(expr_key(cx, e), "opaque", args, e, e.dtype)
    return {(index,): 1}


def is_pure(e: PrimExpr) -> bool:
    """Whether two evaluations of a call, with equal arguments, give equal values."""
    name = getattr(e.op, "name", "") if isinstance(e, CallIntrin) else "tir."
    return name.startswith("tir.") and not name.startswith(("tir.call_", "tir.tvm_", "tir.atomic", "tir.random"))


def expr_key(cx: Context, e: Any) -> Hashable:
    """Return a key that two expressions share when they are equal up to the normal form of their integer parts."""
    if IS_EXPR[type(e)]:
        if type(e) is CallIntrin and not is_pure(e):
            return id(e)
        if IS_VAR[type(e)]:
            return id(e)
        if type(e) in _ARITHMETIC:
            p = poly_of(cx, e)
            if p is not None:
                return key(p)
        fields = e.__struct_fields__
        return (type(e), *[expr_key(cx, getattr(e, f)) for f in fields if f != "span"])
    if type(e) is tuple:
        return tuple([expr_key(cx, x) for x in e])
    if isinstance(e, Node) and not isinstance(e, Op):
        return structural_key(e)
    return id(e) if isinstance(e, Op) else e


_ARITHMETIC = frozenset((Add, Sub, Mul, FloorDiv, FloorMod, Min, Max, IntImm, Select))


# --- writing ----------------------------------------------------------------------------------------------------------


def to_expr(cx: Context, p: Poly, dtype: str) -> PrimExpr:
    """Write a polynomial as an expression: positive terms, then subtracted ones, then the constant."""
    if not p:
        return IntImm(DataType(dtype), 0)
    positive = [(m, c) for m, c in p.items() if m and c > 0]
    negative = [(m, c) for m, c in p.items() if m and c < 0]
    rest = p.get((), 0)
    if not positive and negative and rest > 0:
        result: PrimExpr | None = IntImm(DataType(dtype), rest)
        rest = 0
    elif not positive and negative:
        m, c = negative.pop(0)
        result = Mul(_product(cx, m, 1, dtype), IntImm(DataType(dtype), c))
    else:
        result = None
    for m, c in positive:
        term = _product(cx, m, c, dtype)
        result = term if result is None else Add(result, term)
    for m, c in negative:
        term = _product(cx, m, -c, dtype)
        result = Sub(result, term)  # type: ignore[arg-type]
    if result is None:
        return IntImm(DataType(dtype), rest)
    if rest:
        result = Add(result, IntImm(DataType(dtype), rest)) if rest > 0 else Sub(result, IntImm(DataType(dtype), -rest))
    return result


def _product(cx: Context, m: Mono, c: int, dtype: str) -> PrimExpr:
    result = atom_expr(cx, m[0], dtype)
    for atom in m[1:]:
        result = Mul(result, atom_expr(cx, atom, dtype))
    return result if c == 1 else Mul(result, IntImm(DataType(dtype), c))


def atom_expr(cx: Context, atom: int, dtype: str) -> PrimExpr:
    """Return the expression of an atom, converted to `dtype`."""
    info = cx.atoms[atom]
    node = info.node
    if node is None:
        node = info.node = _write(cx, info)
    if node.dtype == dtype:
        return node
    cached = cx.emitted.get((atom, dtype))
    if cached is None:
        cached = cx.emitted[atom, dtype] = Cast(DataType(dtype), node)
    return cached


_WRITERS = {"div": FloorDiv, "mod": FloorMod, "min": Min, "max": Max}


def _write(cx: Context, info: Any) -> PrimExpr:
    cls = _WRITERS[info.kind]
    parts = [to_expr(cx, p, info.dtype) for p in info.args]
    result = parts[0]
    for part in parts[1:]:
        result = cls(result, part)
    return result


_COSTS = {
    Add: 10,
    Sub: 10,
    Mul: 10,
    FloorDiv: 25,
    FloorMod: 26,
    Div: 25,
    Mod: 25,
    Min: 15,
    Max: 15,
    Select: 15,
    Cast: 6,
}


def cost(cx: Context, e: Any) -> int:
    """Estimate the work that an expression stands for; the simplifier never returns a costlier one."""
    kind = type(e)
    if kind is Var or kind is SizeVar or kind is IntImm:
        return 1
    hit = cx.costs.get(id(e))
    if hit is not None:
        return hit[1]
    total = _COSTS.get(kind, 20)
    for f in e.__struct_fields__:
        child = getattr(e, f)
        if IS_EXPR[type(child)]:
            total += cost(cx, child)
        elif type(child) is tuple:
            total += sum([cost(cx, x) for x in child if IS_EXPR[type(x)]])
    cx.costs[id(e)] = (e, total)
    return total
