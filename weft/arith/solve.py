"""Linear equations: coefficients of variables, bounds from comparisons, and integer solutions."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from weft.arith.analyzer import Analyzer
from weft.arith.form import held, mentions, poly_of, to_expr
from weft.arith.linear import Poly, add, atoms_of, coefficient_of, content, divide_exact, scale
from weft.arith.prove import replace_atom
from weft.arith.terms import floordiv, minimum
from weft.ir import EQ, GE, GT, LE, LT, And, Max, Min, Not, PrimExpr, Var, cast, find
from weft.ir import floordiv as floor_divided
from weft.spelling import also_called


@also_called(var_list="variables")
def detect_linear_equation(expr: PrimExpr, variables: Sequence[Var]) -> list[PrimExpr]:
    """Return ``[c0, ..., cn, base]`` with ``expr == c0*v0 + ... + cn*vn + base``, or an empty list."""
    an = Analyzer()
    p = poly_of(an.context, an.simplify(expr))
    if p is None:
        return []
    atoms = [an.context.var_atom(v) for v in variables]
    factors: list[Poly] = []
    for atom in atoms:
        split = coefficient_of(p, atom)
        if split is None or any(a in atoms for a in atoms_of(split[0])):
            return []
        factors.append(split[0])
        p = split[1]
    if any(_mentions(an, a, set(atoms)) for q in (*factors, p) for a in atoms_of(q)):
        return []
    found = [held(to_expr, an.context, q, expr.dtype) for q in (*factors, p)]
    return [f for f in found if f is not None] if None not in found else []


def determined(found: Sequence[tuple[PrimExpr, Var]], known: Container[Any]) -> Iterator[tuple[Var, PrimExpr]]:
    """Yield the variables that expressions and their values determine: ``2 * n + 1`` and an extent give ``n``, int64.

    Whoever asks for the next one has made the last one `known`.
    """
    progress = True
    while progress:
        progress = False
        for expr, value in found:
            free = {v for v in find(expr, Var) if v not in known}
            parts = detect_linear_equation(expr, list(free)) if len(free) == 1 else []
            if len(parts) == 2:
                factor, base = (cast("int64", x) for x in parts)
                yield free.pop(), floor_divided(value - base, factor)
                progress = True


def _mentions(an: Analyzer, atom: int, wanted: set[int]) -> bool:
    """Whether an atom, or what it is made of, is one of `wanted`."""
    if atom in wanted:
        return True
    info = an.context.atoms[atom]
    if any(_mentions(an, a, wanted) for q in info.args if isinstance(q, dict) for a in atoms_of(q)):
        return True
    return info.kind == "opaque" and mentions(an.context, info.node, wanted)


def _comparisons(condition: PrimExpr) -> list[PrimExpr]:
    """List what holds where a condition does; a bound of a minimum or maximum on the side that both have."""
    if isinstance(condition, And):
        return _comparisons(condition.a) + _comparisons(condition.b)
    if isinstance(condition, Not) and isinstance(condition.a, (LT, LE, GT, GE)):
        return _comparisons(_NEGATED[type(condition.a)](condition.a.a, condition.a.b))
    if isinstance(condition, (LT, LE, GT, GE)):
        a, b = condition.a, condition.b
        of_a, of_b = (Max, Min) if isinstance(condition, (LT, LE)) else (Min, Max)
        if isinstance(a, of_a):
            return [c for x in (a.a, a.b) for c in _comparisons(type(condition)(x, b))]
        if isinstance(b, of_b):
            return [c for x in (b.a, b.b) for c in _comparisons(type(condition)(a, x))]
    return [condition]


_NEGATED = {LT: GE, LE: GT, GT: LE, GE: LT}


def _nonneg_form(an: Analyzer, c: PrimExpr) -> list[Poly] | None:
    """Return polynomials all of which are nonnegative exactly when the comparison holds."""
    if not isinstance(c, (LT, LE, GT, GE, EQ)):
        return None
    a, b = poly_of(an.context, c.a), poly_of(an.context, c.b)
    if a is None or b is None:
        return None
    if isinstance(c, EQ):
        return [add(a, b, -1), add(b, a, -1)]
    d = add(b, a, -1) if isinstance(c, (LT, LE)) else add(a, b, -1)
    return [add(d, {(): -1}) if isinstance(c, (LT, GT)) else d]


@also_called(var_list="variables")
def detect_clip_bound(expr: PrimExpr, variables: Sequence[Var]) -> list[PrimExpr | None]:
    """Return ``[min0, max0, min1, max1, ...]`` that comparisons set for variables, None where they set none.

    The list is empty where a comparison is not linear with coefficient 1 in at most one of the variables.
    """
    an = Analyzer()
    atoms = [an.context.var_atom(v) for v in variables]
    bounds: list[tuple[Poly | None, Poly | None]] = [(None, None) for _ in variables]
    for c in _comparisons(expr):
        forms = _nonneg_form(an, c)
        if forms is None:
            return []
        for p in forms:
            touched = [i for i, a in enumerate(atoms) if any(_mentions(an, x, {a}) for x in atoms_of(p))]
            if len(touched) != 1:
                return []
            i = touched[0]
            split = coefficient_of(p, atoms[i])
            if (
                split is None
                or split[0] not in ({(): 1}, {(): -1})
                or any(_mentions(an, x, {atoms[i]}) for x in atoms_of(split[1]))
            ):
                return []
            low, high = bounds[i]
            if split[0][()] == 1:
                low = _tighter(an, low, scale(split[1], -1), "max", variables[i].dtype)
            else:
                high = _tighter(an, high, split[1], "min", variables[i].dtype)
            bounds[i] = (low, high)
    return [
        None if p is None else held(to_expr, an.context, p, v.dtype)
        for v, pair in zip(variables, bounds, strict=True)
        for p in pair
    ]


def _tighter(an: Analyzer, old: Poly | None, new: Poly, kind: str, dtype: str) -> Poly:
    return new if old is None else minimum(an.context, kind, old, new, dtype)


def solve_linear_equations(
    equations: Sequence[PrimExpr], variables: Sequence[Var], ranges: Mapping[Var, Any] | None = None
) -> dict[Var, PrimExpr] | None:
    """Solve equations ``a == b`` for variables by elimination over the integers.

    Returns
    -------
    dict or None
        The value of each variable that is determined, in terms of the others and of what is not listed; None where the
        equations contradict each other. A variable is only eliminated where its coefficient divides the rest of the
        equation.
    """
    an = Analyzer()
    for v, dom in (ranges or {}).items():
        an.bind(v, dom)
    cx = an.context
    pending = [add(poly_of(cx, e.a) or {}, poly_of(cx, e.b) or {}, -1) for e in equations if isinstance(e, EQ)]
    solved: dict[int, Poly] = {}
    progress = True
    while pending and progress:
        progress = False
        for p in list(pending):
            if not p or all(not m for m in p):
                pending.remove(p)
                if p:
                    return None
                progress = True
                break
            g = content(p, with_constant=False)
            if g > 1 and p.get((), 0) % g:
                return None
            found = _eliminate(cx, p, [cx.var_atom(v) for v in variables if cx.var_atom(v) not in solved])
            if found is not None:
                atom, value = found
                pending = [replace_atom(q, atom, value) for q in pending if q is not p]
                solved = {a: replace_atom(q, atom, value) for a, q in solved.items()}
                solved[atom] = value
                progress = True
                break
    found = ((v, held(to_expr, cx, solved[cx.var_atom(v)], v.dtype)) for v in variables if cx.var_atom(v) in solved)
    return {v: value for v, value in found if value is not None}


def _eliminate(cx: Any, p: Poly, atoms: Sequence[int]) -> tuple[int, Poly] | None:
    for atom in atoms:
        split = coefficient_of(p, atom)
        if split is None or not split[0] or any(m for m in split[0]):
            continue
        value = divide_exact(scale(split[1], -1), split[0])
        if value is not None:
            return atom, value
    return None


def solve_linear_inequalities(
    inequalities: Sequence[PrimExpr], variables: Sequence[Var], ranges: Mapping[Var, Any] | None = None
) -> dict[Var, tuple[PrimExpr | None, PrimExpr | None]]:
    """Bound each variable by inequalities, eliminating one after another (Fourier and Motzkin).

    Returns
    -------
    dict
        From variable to inclusive (least, largest) values; the bounds of a variable name only variables listed after
        it.
    """
    an = Analyzer()
    for v, dom in (ranges or {}).items():
        an.bind(v, dom)
    cx = an.context
    forms = [p for e in inequalities for c in _comparisons(e) for p in _nonneg_form(an, c) or []]
    result: dict[Var, tuple[PrimExpr | None, PrimExpr | None]] = {}
    for v in variables:
        atom = cx.var_atom(v)
        lower: list[tuple[int, Poly]] = []
        upper: list[tuple[int, Poly]] = []
        rest: list[Poly] = []
        for p in forms:
            split = coefficient_of(p, atom)
            if split is None or (split[0] and list(split[0]) != [()]):
                continue
            if not split[0]:
                rest.append(p)
            elif split[0][()] > 0:
                lower.append((split[0][()], split[1]))
            else:
                upper.append((-split[0][()], split[1]))
        low = _bound_from(
            [floordiv(cx, add(scale(q, -1), {(): c - 1}), {(): c}, v.dtype) for c, q in lower], an, "max", v.dtype
        )
        high = _bound_from([floordiv(cx, q, {(): c}, v.dtype) for c, q in upper], an, "min", v.dtype)
        result[v] = (
            None if low is None else held(to_expr, cx, low, v.dtype),
            None if high is None else held(to_expr, cx, high, v.dtype),
        )
        forms = rest + [add(scale(lq, uc), scale(uq, lc)) for lc, lq in lower for uc, uq in upper]
    return result


def _bound_from(parts: Sequence[Poly], an: Analyzer, kind: str, dtype: str) -> Poly | None:
    result: Poly | None = None
    for p in parts:
        result = _tighter(an, result, p, kind, dtype)
    return result
