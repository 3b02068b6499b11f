"""Between expressions and polynomials: ``poly_of`` reads, ``to_expr`` writes, ``cost`` says which is simpler.

Only int32 and int64 scalars have polynomials; the width does not matter to them, so widening casts, and narrowing ones
that lose nothing, disappear. Everything else of an integer type is an opaque atom.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable
from typing import Any

from weft import ir
from weft.arith.bounds import bound_of
from weft.arith.context import Context, structural_key
from weft.arith.linear import Mono, Poly, add, atoms_of, constant, key, mul, scale
from weft.arith.terms import floordiv, floormod, minimum, select
from weft.error import InvalidArgument

_INDEX_TYPES = frozenset(("int32", "int64"))
_MAX_PRODUCT = 48

lift = ir.Dispatch("polynomial of an expression", (ir.PrimExpr,), default=lambda e, cx: _opaque(cx, e))


def poly_of(cx: Context, expr: ir.PrimExpr) -> Poly | None:
    """Return the polynomial of an expression, or None where its type has none."""
    polys = cx.polys
    if expr in polys:
        return polys[expr]
    result = cx.polys[expr] = lift.rule[type(expr)](expr, cx)
    return result


@lift.on(ir.IntImm)
def _int(e: ir.IntImm, cx: Context) -> Poly | None:
    return constant(e.value) if e.dtype in _INDEX_TYPES else None


@lift.on(ir.Var, ir.SizeVar)
def _var(e: ir.Var, cx: Context) -> Poly | None:
    if e.dtype not in _INDEX_TYPES:
        return None
    atom = cx.var_atom(e)
    return cx.equal[atom] if atom in cx.equal else {(atom,): 1}


@lift.on(ir.Add, ir.Sub)
def _sum(e: ir.Add | ir.Sub, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.a), poly_of(cx, e.b)
    return None if a is None or b is None else add(a, b, -1 if type(e) is ir.Sub else 1)


@lift.on(ir.Mul)
def _mul(e: ir.Mul, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.a), poly_of(cx, e.b)
    if a is None or b is None:
        return None
    if len(a) * len(b) <= _MAX_PRODUCT:
        return mul(a, b)
    # The key must not ask for this polynomial again, as `expr_key` of the product would.
    return {(cx.intern(("product", key(a), key(b)), "opaque", (a, b), e, e.dtype),): 1}


@lift.on(ir.FloorDiv)
def _floordiv(e: ir.FloorDiv, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.a), poly_of(cx, e.b)
    if a is None or b is None:
        return None
    cx.divided[key(a), e.dtype] = None
    return floordiv(cx, a, b, e.dtype) if b else {}  # by zero gives 0, as everywhere in TIR


@lift.on(ir.FloorMod)
def _floormod(e: ir.FloorMod, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.a), poly_of(cx, e.b)
    if a is None or b is None:
        return None
    return floormod(cx, a, b, e.dtype) if b else {}


@lift.on(ir.Div, ir.Mod)
def _truncated(e: ir.Div | ir.Mod, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.a), poly_of(cx, e.b)
    if a is None or b is None:
        return None
    if not b:
        return {}
    if bound_of(cx, a)[0] < 0 or bound_of(cx, b)[0] < 0:
        return _opaque(cx, e, e.a, e.b)
    return (floordiv if isinstance(e, ir.Div) else floormod)(cx, a, b, e.dtype)


@lift.on(ir.Min, ir.Max)
def _minmax(e: ir.Min | ir.Max, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.a), poly_of(cx, e.b)
    return None if a is None or b is None else minimum(cx, "min" if isinstance(e, ir.Min) else "max", a, b, e.dtype)


@lift.on(ir.Select)
def _select(e: ir.Select, cx: Context) -> Poly | None:
    a, b = poly_of(cx, e.true_value), poly_of(cx, e.false_value)
    if a is None or b is None:
        return None
    result = select(cx, expr_key(cx, e.condition), a, b, e.dtype)
    for atom in atoms_of(result):
        info = cx.atoms[atom]
        if info.kind == "select" and info.node is None:
            info.node = e
    return result


@lift.on(ir.Cast)
def _cast(e: ir.Cast, cx: Context) -> Poly | None:
    if e.dtype not in _INDEX_TYPES:
        return None
    inner = poly_of(cx, e.value)
    if inner is None:
        return _opaque(cx, e)
    if e.dtype == "int32" and e.value.dtype == "int64":
        lo, hi = bound_of(cx, inner)
        if lo < -(1 << 31) or hi >= 1 << 31:
            return _opaque(cx, e)
    return inner


@lift.on(ir.CallIntrin)
def _call(e: ir.CallIntrin, cx: Context) -> Poly | None:
    if e.dtype not in _INDEX_TYPES:
        return None
    name = getattr(e.op, "name", "")
    if name == "tir.likely":
        return poly_of(cx, e.args[0])
    if name in ("tir.shift_left", "tir.shift_right") and isinstance(e.args[1], ir.IntImm):
        a = poly_of(cx, e.args[0])
        if a is not None and 0 <= e.args[1].value < ir.DataType(e.dtype).bits - 1:  # longer ones are no product
            power = 1 << e.args[1].value
            return scale(a, power) if name == "tir.shift_left" else floordiv(cx, a, constant(power), e.dtype)
    return _opaque(cx, e)


def _opaque(cx: Context, e: ir.PrimExpr, *parts: ir.PrimExpr) -> Poly | None:
    if e.dtype not in _INDEX_TYPES:
        return None
    below = parts or getattr(e, "args", ())
    args = tuple(p for p in (poly_of(cx, a) for a in below if isinstance(a, ir.PrimExpr)) if p is not None)
    index = cx.intern(expr_key(cx, e), "opaque", args, e, e.dtype)
    return {(index,): 1}


def is_pure(e: ir.PrimExpr) -> bool:
    """Whether two evaluations of a call, with equal arguments, give equal values."""
    name = getattr(e.op, "name", "") if isinstance(e, ir.CallIntrin) else "tir."
    return name.startswith("tir.") and not name.startswith(("tir.call_", "tir.tvm_", "tir.atomic", "tir.random"))


def is_stable(e: ir.PrimExpr) -> bool:
    """Whether a value stays while statements run: it reads no memory and calls nothing impure."""
    stack: list[Any] = [e]
    while stack:
        e = stack.pop()
        if type(e).__name__ in ("BufferLoad", "ProducerLoad") or (isinstance(e, ir.CallIntrin) and not is_pure(e)):
            return False
        stack.extend(ir.children(e))
    return True


def conjuncts(condition: ir.PrimExpr) -> list[ir.PrimExpr]:
    """Split a condition at its ``and``s."""
    if isinstance(condition, ir.And):
        return conjuncts(condition.a) + conjuncts(condition.b)
    return [] if isinstance(condition, ir.IntImm) and condition.value else [condition]


def mentions(cx: Context, node: object, atoms: Container[int]) -> bool:
    """Whether a variable in an expression is one of `atoms`."""
    stack: list[Any] = [node]
    while stack:
        e = stack.pop()
        if isinstance(e, ir.Var) and cx.var_atom(e) in atoms:
            return True
        if isinstance(e, ir.PrimExpr):
            stack.extend(getattr(e, f) for f in e.__struct_fields__)
        elif type(e) is tuple:
            stack.extend(e)
    return False


def expr_key(cx: Context, e: object) -> Hashable:
    """Return a key that two expressions share when they are equal up to the normal form of their integer parts."""
    if ir.IS_EXPR[type(e)]:
        if ir.IS_VAR[type(e)] or (type(e) is ir.CallIntrin and not is_pure(e)):
            return e
        if type(e) in _ARITHMETIC:
            p = poly_of(cx, e)  # type: ignore[arg-type]
            if p is not None:
                return key(p)
        fields: tuple[str, ...] = e.__struct_fields__  # type: ignore[attr-defined]
        return (type(e), *[expr_key(cx, getattr(e, f)) for f in fields if f != "span"])
    if type(e) is tuple:
        return tuple([expr_key(cx, x) for x in e])
    if isinstance(e, ir.Node) and not isinstance(e, ir.Op):
        return structural_key(e)
    return e.hex() if isinstance(e, float) else e


_ARITHMETIC = frozenset((ir.Add, ir.Sub, ir.Mul, ir.FloorDiv, ir.FloorMod, ir.Min, ir.Max, ir.IntImm, ir.Select))


# --- writing ----------------------------------------------------------------------------------------------------------


def to_expr(cx: Context, p: Poly, dtype: str) -> ir.PrimExpr:
    """Write a polynomial as an expression: positive terms and constant, then what is subtracted.

    Raises
    ------
    InvalidArgument
        When the type does not hold a number.
    """
    if not p:
        return ir.IntImm(ir.DataType(dtype), 0)
    positive = [(m, c) for m, c in p.items() if m and c > 0]
    negative = [(m, c) for m, c in p.items() if m and c < 0]
    rest = p.get((), 0)
    if not positive and negative and rest > 0:
        result: ir.PrimExpr | None = ir.IntImm(ir.DataType(dtype), rest)
        rest = 0
    elif not positive and negative:
        m, c = negative.pop(0)
        result = ir.Mul(_product(cx, m, 1, dtype), ir.IntImm(ir.DataType(dtype), c))
    else:
        result = None
    for m, c in positive:
        term = _product(cx, m, c, dtype)
        result = term if result is None else ir.Add(result, term)
    if rest > 0 and negative and result is not None:
        result = ir.Add(result, ir.IntImm(ir.DataType(dtype), rest))
        rest = 0
    for m, c in negative:
        term = _product(cx, m, -c, dtype)
        result = ir.Sub(result, term)  # type: ignore[arg-type]
    if result is None:
        return ir.IntImm(ir.DataType(dtype), rest)
    if rest:
        result = (
            ir.Add(result, ir.IntImm(ir.DataType(dtype), rest))
            if rest > 0
            else ir.Sub(result, ir.IntImm(ir.DataType(dtype), -rest))
        )
    return result


def held(write: Callable[..., ir.PrimExpr], *args: Any) -> ir.PrimExpr | None:
    """Write an expression; None where it has a number that its type does not hold, which would wrap."""
    try:
        return write(*args)
    except InvalidArgument:
        return None


def _product(cx: Context, m: Mono, c: int, dtype: str) -> ir.PrimExpr:
    """Write a term; equal ones of a context are one node, so that what visits expressions visits them once."""
    known = cx.emitted.get((m, c, dtype))
    if known is not None:
        return known
    result = atom_expr(cx, m[0], dtype)
    for atom in m[1:]:
        result = ir.Mul(result, atom_expr(cx, atom, dtype))
    if c != 1:
        result = ir.Mul(result, ir.IntImm(ir.DataType(dtype), c))
    cx.emitted[m, c, dtype] = result
    return result


def atom_expr(cx: Context, atom: int, dtype: str) -> ir.PrimExpr:
    """Return the expression of an atom, converted to `dtype`."""
    info = cx.atoms[atom]
    node = info.node
    if node is None:
        node = info.node = _write(cx, info)
    if node.dtype == dtype:
        return node
    cached = cx.emitted.get((atom, dtype))
    if cached is None:
        cached = cx.emitted[atom, dtype] = ir.Cast(ir.DataType(dtype), node)
    return cached


_WRITERS = {"div": ir.FloorDiv, "mod": ir.FloorMod, "min": ir.Min, "max": ir.Max}


def _write(cx: Context, info: Any) -> ir.PrimExpr:
    cls = _WRITERS[info.kind]
    parts = [to_expr(cx, p, info.dtype) for p in info.args]
    result = parts[0]
    for part in parts[1:]:
        result = cls(result, part)
    return result


_COSTS: dict[type, int] = {
    ir.Add: 10,
    ir.Sub: 10,
    ir.Mul: 10,
    ir.FloorDiv: 25,
    ir.FloorMod: 26,
    ir.Div: 25,
    ir.Mod: 25,
    ir.Min: 15,
    ir.Max: 15,
    ir.Select: 15,
    ir.Cast: 6,
}


_BINARY = frozenset(_COSTS) - {ir.Select, ir.Cast}


def cost(cx: Context, e: ir.PrimExpr) -> int:
    """Estimate the work that an expression stands for; the simplifier never returns a costlier one."""
    kind = type(e)
    if kind is ir.Var or kind is ir.SizeVar or kind is ir.IntImm:
        return 1
    hit = cx.costs.get(e)
    if hit is not None:
        return hit
    total = _COSTS.get(kind, 20)
    if kind in _BINARY:
        total += cost(cx, e.a) + cost(cx, e.b)  # type: ignore[attr-defined]
    else:
        for child in ir.children(e):
            if ir.IS_EXPR[type(child)]:
                total += cost(cx, child)  # type: ignore[arg-type]
    cx.costs[e] = total
    return total
