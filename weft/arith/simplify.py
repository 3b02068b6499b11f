"""The simplifier: a table from node class to rule, bottom-up; polynomials for integers, rule tables for the rest.

Each function takes a node and returns a simpler equal one or the node itself. An integer expression is replaced by
what its polynomial writes only where that costs less, so that expressions keep the shape their author gave them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

from weft import ir
from weft.arith import rules_add, rules_cmp, rules_div, rules_minmax
from weft.arith.bounds import bound_of
from weft.arith.context import Context
from weft.arith.form import cost, expr_key, held, poly_of, to_expr
from weft.arith.linear import Poly, add, atoms_of, coefficient_of, constant, content, divide_exact, key, mul, scale
from weft.arith.prove import prove_nonneg, prove_nonzero
from weft.arith.terms import expand, floormod
from weft.arith.witness import is_refuted

rules = ir.Dispatch("simplifier", (ir.PrimExpr,))


def simplify(an: Any, e: ir.PrimExpr) -> ir.PrimExpr:
    """Simplify one expression under the facts of an analyzer."""
    if type(e) is ir.IntImm:
        return e
    memo = an.context.simplified
    hit = memo.get(e)
    if hit is not None:
        return hit
    result = rules.rule[type(e)](e, an)
    cx = an.context
    kind = type(result)
    if result is not e and kind in _BUILD:  # equal ones of a context are one node, which passes behind visit once
        a, b = result.a, result.b  # type: ignore[attr-defined]
        result = cx.emitted.setdefault((kind, _mark(a), _mark(b)), result)
    cx.simplified[e] = cx.simplified[result] = result
    return result


def _mark(e: ir.PrimExpr) -> object:
    return (e.value, e.dtype) if type(e) is ir.IntImm else id(e)


@rules.on(ir.Var, ir.SizeVar)
def _var(e: ir.Var, an: Any) -> ir.PrimExpr:
    cx = an.context
    if e.dtype == "bool":
        return _known(e, an) or e
    if not cx.equal or not cx.knows_var(e):
        return e
    value = cx.equal.get(cx.var_atom(e))
    replaced = None if value is None else held(to_expr, cx, value, e.dtype)
    return e if replaced is None or cost(cx, replaced) > 1 else replaced


@rules.on(ir.IntImm, ir.FloatImm, ir.StringImm)
def _leaf(e: ir.PrimExpr, an: Any) -> ir.PrimExpr:
    return e


@rules.on(ir.PrimExpr)
def _generic(e: ir.PrimExpr, an: Any) -> ir.PrimExpr:
    """Simplify the scalar operands of loads and other nodes; buffers stay as they are."""
    new = ir.rebuild(e, lambda x: simplify(an, x) if ir.IS_EXPR[type(x)] else x)
    p = poly_of(an.context, new)
    if p is not None:
        _remember(an.context, p, new)
    elif new.dtype == "bool":
        return _known(new, an) or new
    return new


_BUILD: dict[type, Callable[[Any, Any], ir.PrimExpr]] = {
    ir.Add: ir.add,
    ir.Sub: ir.sub,
    ir.Mul: ir.mul,
    ir.FloorDiv: ir.floordiv,
    ir.FloorMod: ir.floormod,
    ir.Div: ir.div,
    ir.Mod: ir.truncmod,
    ir.Min: ir.min_,
    ir.Max: ir.max_,
    ir.LT: ir.less,
    ir.LE: ir.less_equal,
    ir.EQ: ir.equal,
    ir.NE: ir.not_equal,
}
_TABLES = {
    **dict.fromkeys((ir.Add, ir.Sub, ir.Mul), rules_add.RULES),
    **dict.fromkeys((ir.FloorDiv, ir.FloorMod, ir.Div, ir.Mod), rules_div.RULES),
    **dict.fromkeys((ir.LT, ir.LE, ir.GT, ir.GE, ir.EQ, ir.NE), rules_cmp.RULES),
    **dict.fromkeys((ir.Min, ir.Max), rules_minmax.RULES),
}


def _operands(e: Any, an: Any) -> ir.PrimExpr:
    """Return `e` with simplified operands, folded where both are constants."""
    a, b, kind = e.a, e.b, type(e)
    a = a if type(a) is ir.IntImm else simplify(an, a)
    b = b if type(b) is ir.IntImm else simplify(an, b)
    if type(a) in _IMMEDIATE or type(b) in _IMMEDIATE:
        if kind in _DIVISIONS and isinstance(b, ir.IntImm) and b.value == 0:
            return e if a is e.a and b is e.b else kind(a, b)
        built: Any = _BUILD[kind](a, b)
        if type(built) is not kind or built.a is not a or built.b is not b:
            return built
    return e if a is e.a and b is e.b else kind(a, b)


_IMMEDIATE = (ir.IntImm, ir.FloatImm)
_DIVISIONS = (ir.FloorDiv, ir.FloorMod, ir.Div, ir.Mod)


def _apply(table: Any, e: ir.PrimExpr, an: Any) -> ir.PrimExpr:
    """Apply the rules of a table; what they return is simplified again."""
    result = table.apply(e, an)
    return e if result is None else simplify(an, result)


@rules.on(ir.Add, ir.Sub, ir.Mul)
def _linear(e: Any, an: Any) -> ir.PrimExpr:
    cx = an.context
    keep: Any = _operands(e, an)
    kind = type(keep)
    if kind not in (ir.Add, ir.Sub, ir.Mul):
        return simplify(an, keep) if keep is not e else e
    p = poly_of(cx, keep)
    if p is None:
        return _apply(_TABLES[kind], keep, an)
    if kind is not ir.Sub and type(keep.a) is ir.IntImm:
        keep = kind(keep.b, keep.a)
        p = poly_of(cx, keep)
        assert p is not None
    pa, pb = poly_of(cx, keep.a), poly_of(cx, keep.b)
    assert pa is not None and pb is not None
    size = len(pa) * len(pb) if kind is ir.Mul else len(pa) + len(pb)
    best = keep
    if len(p) < size or (kind is ir.Mul and type(keep.b) is ir.IntImm and not ir.IS_VAR[type(keep.a)]):
        best = _cheaper(cx, keep, p)
    if len(p) > 1 and _may_collect(cx, p):
        best = _cheaper(cx, best, _collect(cx, expand(cx, p)))
    if best is keep and len(p) > 1:
        best = _apply(_TABLES[kind], keep, an) if type(keep.a) in _CHOICES and type(keep.b) in _CHOICES else keep
    return best


def _may_collect(cx: Any, p: Poly) -> bool:
    """Whether a sum has remainders, or subtracts a multiple of a quotient."""
    for m, c in p.items():
        for a in m:
            kind = cx.atoms[a].kind
            if kind == "mod" or (kind == "div" and c < 0):
                return True
    return False


_CHOICES = (ir.Min, ir.Max, ir.Select)


def _cheaper(cx: Any, e: ir.PrimExpr, p: Poly) -> ir.PrimExpr:
    new = held(to_expr, cx, p, e.dtype)
    return new if new is not None and cost(cx, new) < cost(cx, e) else e


def _collect(cx: Any, p: Poly) -> Poly:
    """Write ``k*a - k*b*(a // b)`` as ``k*(a % b)`` again, where that makes a polynomial shorter."""
    for atom in sorted(atoms_of(p), reverse=True):
        info = cx.atoms[atom]
        if info.kind != "div":
            continue
        split = coefficient_of(p, atom)
        if split is None or not split[0]:
            continue
        num, den = info.args
        factor = divide_exact(split[0], scale(den, -1))
        if factor is None:
            continue
        whole = add(num, mul(den, {(atom,): 1}), -1)
        shorter = add(add(p, mul(factor, whole), -1), mul(factor, floormod(cx, num, den, info.dtype)))
        if len(shorter) < len(p):
            p = shorter
    return p


@rules.on(ir.FloorDiv, ir.FloorMod, ir.Div, ir.Mod)
def _division(e: Any, an: Any) -> ir.PrimExpr:
    cx = an.context
    keep: Any = _operands(e, an)
    if type(keep) not in _DIVISIONS:
        return keep
    p = poly_of(cx, keep)
    if p is None:
        return _apply(rules_div.RULES, keep, an)
    best = _cheaper(cx, keep, p)
    if best is keep:
        q = expand(cx, p)
        if key(q) != key(p):
            best = _cheaper(cx, keep, _collect(cx, q))
    if best is not keep:
        return simplify(an, best)  # the terms that were put together may be simpler yet; each round is cheaper
    _remember(cx, p, keep)
    return best


def _remember(cx: Any, p: Poly, e: ir.PrimExpr) -> None:
    """Let the atom that is exactly `e` be written as `e`."""
    if len(p) != 1:
        return
    ((m, c),) = p.items()
    if len(m) == 1 and c == 1:
        info = cx.atoms[m[0]]
        if info.dtype == e.dtype and info.kind != "var" and (info.node is None or cost(cx, e) <= cost(cx, info.node)):
            info.node = e


@rules.on(ir.Min, ir.Max)
def _minmax(e: Any, an: Any) -> ir.PrimExpr:
    cx = an.context
    keep: Any = _operands(e, an)
    if type(keep) not in (ir.Min, ir.Max):
        return keep
    p = poly_of(cx, keep)
    if p is None:
        if keep.a is keep.b:
            return keep.a
        return _apply(rules_minmax.RULES, keep, an) if ir.DataType(keep.dtype).is_integer else keep
    best = _cheaper(cx, keep, p)
    if best is keep:
        best = _apply(rules_minmax.RULES, keep, an)
    if best is keep:
        _remember(cx, p, keep)
    return best


def holds_nonneg(cx: Context, p: Poly) -> bool:
    """Whether ``p >= 0`` is provable, as it stands or with its remainders written out."""
    if prove_nonneg(cx, p):
        return True
    if any(cx.atoms[a].kind in ("mod", "div") for a in atoms_of(p)):
        q = expand(cx, p)
        return key(q) != key(p) and prove_nonneg(cx, q)
    return False


@rules.on(ir.GT, ir.GE)
def _swapped(e: Any, an: Any) -> ir.PrimExpr:
    return simplify(an, (ir.LT if type(e) is ir.GT else ir.LE)(e.b, e.a))


@rules.on(ir.LT, ir.LE)
def _order(e: Any, an: Any) -> ir.PrimExpr:
    cx = an.context
    keep: Any = _operands(e, an)
    kind = type(keep)
    if kind not in (ir.LT, ir.LE):
        return keep
    pa, pb = poly_of(cx, keep.a), poly_of(cx, keep.b)
    if pa is None or pb is None:
        if keep.a is keep.b and ir.DataType(keep.a.dtype).is_integer:
            return _truth(kind is ir.LE, keep.dtype)
        return _known(keep, an) or _apply(rules_cmp.RULES, keep, an)
    d = add(pb, pa, -1)
    if kind is ir.LT:
        d = add(d, constant(-1))
    if holds_nonneg(cx, d):
        return ir.TRUE
    if holds_nonneg(cx, add(scale(d, -1), constant(-1))):
        return ir.FALSE
    g = content(d, with_constant=False)
    near = abs(d.get((), 0)) >> ir.DataType(keep.a.dtype).bits - 2 == 0  # sums with a farther number may wrap
    if near and (g > 1 or len(d) < len(pa) + len(pb)):
        new = held(_write_order, cx, {m: c // g for m, c in d.items() if c // g}, keep.a.dtype)
        if new is not None and cost(cx, new) < cost(cx, keep):
            keep = new
    return _apply(rules_cmp.RULES, keep, an)


def _truth(value: bool, dtype: str) -> ir.PrimExpr:
    lanes = ir.DataType(dtype).lanes
    result = ir.TRUE if value else ir.FALSE
    return result if lanes == 1 else ir.Broadcast(result, lanes)


def _write_order(cx: Any, d: Poly, dtype: str) -> ir.PrimExpr:
    """Write ``d >= 0`` as a comparison without negative terms on either side."""
    above = {m: c for m, c in d.items() if m and c > 0}
    below = {m: -c for m, c in d.items() if m and c < 0}
    k = d.get((), 0)
    if not below:
        return ir.LT(to_expr(cx, constant(-k - 1), dtype), to_expr(cx, above, dtype))
    if not above:
        return ir.LT(to_expr(cx, below, dtype), to_expr(cx, constant(k + 1), dtype))
    if k < 0:
        return ir.LT(to_expr(cx, add(below, constant(-k - 1)), dtype), to_expr(cx, above, dtype))
    if k == 0:
        return ir.LE(to_expr(cx, below, dtype), to_expr(cx, above, dtype))
    return ir.LT(to_expr(cx, below, dtype), to_expr(cx, add(above, constant(k + 1)), dtype))


@rules.on(ir.EQ, ir.NE)
def _equality(e: Any, an: Any) -> ir.PrimExpr:
    cx = an.context
    keep: Any = _operands(e, an)
    kind = type(keep)
    if kind not in (ir.EQ, ir.NE):
        return keep
    pa, pb = poly_of(cx, keep.a), poly_of(cx, keep.b)
    if pa is None or pb is None:
        if keep.a is keep.b and not ir.DataType(keep.a.dtype).is_float:
            return _truth(kind is ir.EQ, keep.dtype)
        return _known(keep, an) or _apply(rules_cmp.RULES, keep, an)
    d = add(pa, pb, -1)
    if proves_zero(cx, d):
        return _truth(kind is ir.EQ, keep.dtype)
    if prove_nonzero(cx, d):
        return _truth(kind is ir.NE, keep.dtype)
    if len(d) < len(pa) + len(pb):
        g = content(d)
        d = {m: c // g for m, c in d.items()}
        k = d.get((), 0)
        above = {m: c for m, c in d.items() if m and c > 0}
        below = {m: -c for m, c in d.items() if m and c < 0}
        left, right = (above, add(below, constant(-k))) if above else (below, constant(k))
        sides = held(to_expr, cx, left, keep.a.dtype), held(to_expr, cx, right, keep.a.dtype)
        if None not in sides and cost(cx, new := kind(*sides)) < cost(cx, keep):  # type: ignore[arg-type]
            return new
    return _apply(rules_cmp.RULES, keep, an)


def proves_zero(cx: Context, d: Poly) -> bool:
    """Whether a polynomial is zero for all values."""
    if not d:
        return True
    lo, hi = bound_of(cx, d)
    if lo > 0 or hi < 0:
        return False
    if lo == hi == 0:
        return True
    if is_refuted(cx, d) or is_refuted(cx, scale(d, -1)):
        return False
    if any(cx.atoms[a].kind in ("mod", "div") for a in atoms_of(d)) and not expand(cx, d):
        return True
    return holds_nonneg(cx, d) and holds_nonneg(cx, scale(d, -1))


def _known(e: ir.PrimExpr, an: Any) -> ir.PrimExpr | None:
    """Return the truth of a condition that a constraint in scope states literally."""
    truth = an.context.truth
    if not truth:
        return None
    value = truth.get(expr_key(an.context, e))
    return None if value is None else _truth(value, e.dtype)


@rules.on(ir.And, ir.Or)
def _connective(e: Any, an: Any) -> ir.PrimExpr:
    """Simplify each term of a chain by itself, then where those before it hold, then where all others hold."""
    kind, build = (ir.And, ir.logical_and) if type(e) is ir.And else (ir.Or, ir.logical_or)

    def holding(others: Sequence[ir.PrimExpr]) -> Any:
        return an.constraint_scope(*(x if kind is ir.And else ir.logical_not(x) for x in others))

    def joined(x: Any) -> ir.PrimExpr:
        if type(x) is not kind:
            return next(new)
        a, b = joined(x.a), joined(x.b)
        if isinstance(a, ir.IntImm) or isinstance(b, ir.IntImm):
            return build(a, b)
        keep = x if a is x.a and b is x.b else kind(a, b)
        return _known(keep, an) or _apply(rules_cmp.LOGIC, keep, an)

    terms = [simplify(an, x) for x in _terms(e, kind)]
    open_ = [n for n, x in enumerate(terms) if type(x) is not ir.IntImm]  # the others say nothing of these
    with ExitStack() as before:
        for last, n in pairwise(open_):
            before.enter_context(holding([terms[last]]))
            terms[n] = simplify(an, terms[n])
    for n in open_[-2::-1]:
        with holding([terms[m] for m in open_ if m != n]):
            terms[n] = simplify(an, terms[n])
    new = iter(terms)
    return joined(e)


def _terms(e: Any, kind: type) -> list[Any]:
    return [*_terms(e.a, kind), *_terms(e.b, kind)] if type(e) is kind else [e]


@rules.on(ir.Not)
def _not(e: ir.Not, an: Any) -> ir.PrimExpr:
    a = simplify(an, e.a)
    if isinstance(a, ir.IntImm):
        return ir.logical_not(a)
    keep = e if a is e.a else ir.Not(a)
    inner = a
    if isinstance(inner, (ir.LT, ir.LE, ir.GT, ir.GE)) and ir.DataType(inner.a.dtype).is_float:
        return keep  # with NaN, neither a < b nor b <= a holds
    return _apply(rules_cmp.LOGIC, keep, an)


@rules.on(ir.Select)
def _select(e: ir.Select, an: Any) -> ir.PrimExpr:
    condition, a, b = _choice(e.condition, e.true_value, e.false_value, an, both=True)
    if b is None:
        return a
    if type(condition) is ir.EQ and poly_of(an.context, b) is not None:
        with an.constraint_scope(condition):
            alike = an.same(simplify(an, a), simplify(an, b))
        if alike:
            return b  # as of select(n == 1, 1, n)
    keep = e
    if condition is not e.condition or a is not e.true_value or b is not e.false_value:
        built = ir.select(condition, a, b)
        if not isinstance(built, ir.Select):
            return built
        keep = built
    p = poly_of(an.context, keep)
    if p is not None:
        _remember(an.context, p, keep)
    return _apply(rules_minmax.SELECT, keep, an)


def _choice(
    condition: ir.PrimExpr, a: ir.PrimExpr, b: ir.PrimExpr, an: Any, both: bool = False
) -> tuple[ir.PrimExpr, ir.PrimExpr, ir.PrimExpr | None]:
    """Simplify a condition, and each side where it holds; a decided choice is ``(_, value, None)``.

    Where `both` sides are evaluated, one that reads memory does so without the condition, too.
    """
    condition = simplify(an, condition)
    value = _uniform(condition)
    if value is not None:
        return condition, simplify(an, a if value else b), None
    if ir.DataType(condition.dtype).lanes == 1:
        a = _under(an, condition, a) if not (both and _reads(a)) else simplify(an, a)
        b = _under(an, ir.logical_not(condition), b) if not (both and _reads(b)) else simplify(an, b)
    else:
        a, b = simplify(an, a), simplify(an, b)
    if an.same(a, b):
        return condition, a, None
    return condition, a, b


def _uniform(condition: ir.PrimExpr) -> bool | None:
    if isinstance(condition, ir.Broadcast):
        condition = condition.value
    return bool(condition.value) if isinstance(condition, ir.IntImm) else None


def _reads(e: ir.PrimExpr) -> bool:
    return any(getattr(n, "reads_memory", False) for n in ir.walk(e))


def _under(an: Any, condition: ir.PrimExpr, e: ir.PrimExpr) -> ir.PrimExpr:
    if isinstance(e, (ir.IntImm, ir.FloatImm, ir.Var)):
        return simplify(an, e)
    with an.constraint_scope(condition):
        return simplify(an, e)


@rules.on(ir.Let)
def _let(e: ir.Let, an: Any) -> ir.PrimExpr:
    value = simplify(an, e.value)
    if isinstance(value, (ir.IntImm, ir.FloatImm, ir.Var)):
        return simplify(an, ir.substitute(e.body, {e.var: value}))
    if poly_of(an.context, value) is not None and not an.context.knows_var(e.var):
        an.bind_bounds(e.var, value)
    body = simplify(an, e.body)
    return e if value is e.value and body is e.body else ir.Let(e.var, value, body)


@rules.on(ir.Cast)
def _cast(e: ir.Cast, an: Any) -> ir.PrimExpr:
    cx = an.context
    value = simplify(an, e.value)
    constant = isinstance(value, (ir.IntImm, ir.FloatImm))
    keep = e if value is e.value and not constant else ir.cast(e.dtype, value)
    if not isinstance(keep, ir.Cast):
        return keep
    p = poly_of(cx, keep)
    if p is None:
        return keep
    best = _cheaper(cx, keep, p)
    if best is keep and isinstance(keep.value, ir.Cast) and poly_of(cx, keep.value.value) is p:  # nothing is cut off
        best = ir.cast(keep.dtype, keep.value.value)
    return best


@rules.on(ir.Ramp)
def _ramp(e: ir.Ramp, an: Any) -> ir.PrimExpr:
    base, stride = simplify(an, e.base), simplify(an, e.stride)
    if e.lanes == 1:
        return base
    if isinstance(stride, ir.IntImm) and stride.value == 0:
        return ir.Broadcast(base, e.lanes)
    return e if base is e.base and stride is e.stride else ir.Ramp(base, stride, e.lanes)


@rules.on(ir.Broadcast)
def _broadcast(e: ir.Broadcast, an: Any) -> ir.PrimExpr:
    value = simplify(an, e.value)
    return value if e.lanes == 1 else e if value is e.value else ir.Broadcast(value, e.lanes)


@rules.on(ir.CallIntrin)
def _call(e: ir.CallIntrin, an: Any) -> ir.PrimExpr:
    name = getattr(e.op, "name", "")
    if name == "tir.if_then_else":
        given, yes, no = e.args
        condition, a, b = _choice(given, yes, no, an)
        if b is None:
            return a
        if condition is e.args[0] and a is e.args[1] and b is e.args[2]:
            return e
        return ir.CallIntrin(e.dtype, e.op, (condition, a, b), e.attrs)
    if name == "tir.likely":
        inner = simplify(an, e.args[0])
        if isinstance(inner, ir.IntImm):
            return inner
        return e if inner is e.args[0] else ir.CallIntrin(e.dtype, e.op, (inner,), e.attrs)
    new = _generic(e, an)
    p = poly_of(an.context, new)
    return new if p is None else _cheaper(an.context, new, p)
