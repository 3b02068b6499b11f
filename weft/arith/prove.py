"""Proofs that a polynomial is never negative.

A proof eliminates atoms, the most deeply defined first. Each atom stands under *facts*, polynomials known to be at
least zero: a loop variable ``i`` in ``[0, n)`` under ``i`` and ``n - 1 - i``; a quotient ``t = a // b`` under ``a -
b*t`` and ``b*t - a + b - 1``; a minimum under its operands; and the conditions in scope. If ``p = C*x + R`` and the
fact is ``A*x + S >= 0`` with ``A`` and ``C`` of the same sign, then ``|A|*p - |C|*fact`` no longer holds ``x``; as
``p`` is an integer, it is nonnegative where that plus ``|A| - 1`` is. Undecided minima, maxima and choices are also
split into cases. The search has a step budget, so a failure costs bounded time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from math import gcd

from weft.arith.bounds import atom_bound, bound_of, modular_of
from weft.arith.context import NEG_INF, POS_INF, Context, Knowledge
from weft.arith.linear import Poly, add, atoms_of, coefficient_of, constant, content, divide_exact, key, mul, scale
from weft.arith.witness import is_refuted

_STEPS, _DEPTH, _TERMS = 12, 9, 24


def prove_nonneg(cx: Context, p: Poly) -> bool:
    """Whether ``p >= 0`` can be shown."""
    lo, hi = bound_of(cx, p)
    if lo >= 0 or hi < 0:
        return lo >= 0
    if not any(cx.ranks.get(a, 1) or a in cx.facts for a in atoms_of(p)):
        return False
    k = key(p)
    known = cx.proofs.get(k)
    if known is None:
        known = cx.proofs[k] = not is_refuted(cx, p) and _found(cx, p, k)
    return known


def _found(cx: Context, p: Poly, k: Hashable) -> bool:
    """What a search finds, or has found while the same was known of every atom that it can meet."""
    earlier = cx.searches.get(k)
    if earlier is None or any(cx.known_of(a) != known for a, known in earlier[1].items()):
        met: dict[int, Knowledge] = {}
        open_ = atoms_of(p)
        while open_:
            atom = open_.pop()
            met[atom] = cx.known_of(atom)
            open_ |= _met_from(cx, atom, met[atom]) - met.keys()
        earlier = cx.searches[k] = _search(cx, p, _DEPTH, [_STEPS], set()), met
    return earlier[0]


def _met_from(cx: Context, atom: int, known: Knowledge) -> set[int]:
    """The atoms that what is known of an atom, or what it is made of, names."""
    earlier = cx.named.get(atom)
    if earlier is None or earlier[0] != known:
        parts = (*known[0], *known[1], *cx.atoms[atom].args)
        earlier = cx.named[atom] = known, {a for q in parts if isinstance(q, dict) for m in q for a in m}
    return earlier[1]


def prove_nonzero(cx: Context, p: Poly) -> bool:
    """Whether ``p != 0`` can be shown."""
    lo, hi = bound_of(cx, p)
    if lo > 0 or hi < 0:
        return True
    if key(p) in cx.nonzero or key(scale(p, -1)) in cx.nonzero:
        return True
    coeff, base = modular_of(cx, p)
    if coeff > 1 and base % coeff:
        return True
    one = constant(-1)
    return prove_nonneg(cx, add(p, one)) or prove_nonneg(cx, add(scale(p, -1), one))


def sign_of(cx: Context, p: Poly) -> int:
    """Return 1 where ``p >= 0``, -1 where ``p <= 0``, 0 where constant bounds do not tell."""
    lo, hi = bound_of(cx, p)
    return 1 if lo >= 0 else -1 if hi <= 0 else 0


def _search(cx: Context, p: Poly, depth: int, budget: list[int], failed: set[Hashable]) -> bool:
    lo, hi = bound_of(cx, p)
    if lo >= 0:
        return True
    if hi < 0 or depth == 0 or len(p) > _TERMS:
        return False
    p = _reduce(p)
    k = key(p)
    if k in failed or budget[0] <= 0:
        return False
    budget[0] -= 1
    tried = 0
    for atom in sorted(atoms_of(p), key=lambda a: (cx.rank(a), a), reverse=True):
        split = coefficient_of(p, atom)
        if split is None or not _helps(cx, atom, split[0]):
            continue
        sign = sign_of(cx, split[0])
        if sign == 0:
            continue
        usable = False
        for successors in _eliminations(cx, p, atom, split[0], sign):
            usable = True
            if all(_search(cx, q, depth - 1, budget, failed) for q in successors):
                return True
            if budget[0] <= 0:
                return False
        tried += usable
        if tried == 2:
            break
    failed.add(k)
    return False


def _helps(cx: Context, atom: int, factor: Poly) -> bool:
    """Whether eliminating an atom can tell more than its constant limits, which were looked at already."""
    if atom in cx.facts or cx.atoms[atom].kind not in ("var", "opaque") or any(factor.keys()):
        return True
    return any(end is not None and any(end) for end in cx.ranges.get(atom, ()))


def _reduce(p: Poly) -> Poly:
    """Divide by the common factor of all coefficients but the constant, rounding that down."""
    g = content(p, with_constant=False)
    if g <= 1:
        return p
    reduced = {m: c // g for m, c in p.items()}
    return {m: c for m, c in reduced.items() if c}


def _eliminations(cx: Context, p: Poly, atom: int, factor: Poly, sign: int) -> Iterator[list[Poly]]:
    """Yield lists of polynomials without `atom`; that all of one list are nonnegative proves ``p >= 0``."""
    info = cx.atoms[atom]
    if info.kind in ("min", "max") and (info.kind == "min") == (sign > 0):
        yield [replace_atom(p, atom, part) for part in info.args]
    elif info.kind == "select":
        yield [replace_atom(p, atom, part) for part in info.args[1:]]
    elif info.kind == "mod" and (whole := _through_quotient(cx, p, *info.args)) is not None:
        yield [replace_atom(p, atom, whole)]
    for fact in _facts(cx, atom, sign):
        split = coefficient_of(fact, atom)
        if split is None:
            continue
        fact_factor = split[0]
        if not fact_factor or sign_of(cx, fact_factor) != sign:
            continue
        quotient = divide_exact(factor, fact_factor)
        if quotient is not None and bound_of(cx, quotient)[0] >= 0:
            yield [add(p, mul(quotient, fact), -1)]
        elif len(factor) == len(fact_factor) == 1 and () in factor and () in fact_factor:
            g = gcd(factor[()], fact_factor[()])
            size = abs(fact_factor[()]) // g
            yield [add(add(scale(p, size), fact, -(abs(factor[()]) // g)), constant(size - 1))]
        elif info.kind == "div" or bound_of(cx, scale(fact_factor, sign))[0] > 0:
            size, amount = scale(fact_factor, sign), scale(factor, sign)
            yield [add(add(mul(p, size), mul(amount, fact), -1), add(size, constant(-1)))]


def _through_quotient(cx: Context, p: Poly, a: Poly, b: Poly) -> Poly | None:
    """Write ``a % b`` as ``a - b * (a // b)`` where `p` has that quotient, so that the two meet."""
    forms = {(key(a), key(b))}
    if len(a) == 1:
        ((m, c),) = a.items()
        inner = cx.atoms[m[0]] if len(m) == c == 1 else None
        if inner is not None and inner.kind == "div":  # a quotient of a quotient is one
            forms.add((key(inner.args[0]), key(mul(inner.args[1], b))))
    for q in atoms_of(p):
        info = cx.atoms[q]
        if info.kind == "div" and (key(info.args[0]), key(info.args[1])) in forms:
            return add(a, mul(b, {(q,): 1}), -1)
    return None


def _facts(cx: Context, atom: int, sign: int) -> Iterator[Poly]:
    """Yield polynomials known to be nonnegative that bound `atom` from below (`sign` 1) or above (-1)."""
    yield from cx.facts.get(atom, ())
    info = cx.atoms[atom]
    x: Poly = {(atom,): 1}
    if info.kind == "var":
        first, last = cx.ranges.get(atom, (None, None))
        if sign > 0 and first is not None:
            yield add(x, first, -1)
        elif sign < 0 and last is not None:
            yield add(last, x, -1)
    elif info.kind == "div":
        num, den = info.args
        if bound_of(cx, den)[0] >= 0:
            product = mul(den, x)
            yield add(num, product, -1) if sign < 0 else add(add(add(product, num, -1), den), constant(-1))
    elif info.kind == "mod" and sign < 0:
        yield from _limits_of_remainder(cx, x, *info.args)
    elif (info.kind == "min" and sign < 0) or (info.kind == "max" and sign > 0):
        for part in info.args:
            yield add(part, x, -1) if sign < 0 else add(x, part, -1)
    lo, hi = atom_bound(cx, atom)
    if sign > 0 and lo > NEG_INF:
        yield add(x, constant(lo), -1)
    elif sign < 0 and hi < POS_INF:
        yield add(constant(hi), x, -1)


def _limits_of_remainder(cx: Context, x: Poly, num: Poly, den: Poly) -> Iterator[Poly]:
    if bound_of(cx, den)[0] >= 0:
        yield add(add(den, x, -1), constant(-1))
        if bound_of(cx, num)[0] >= 0:
            yield add(num, x, -1)


def replace_atom(p: Poly, atom: int, value: Poly) -> Poly:
    """Return `p` with an atom replaced by a polynomial."""
    result: Poly = {}
    for m, c in p.items():
        n = m.count(atom)
        term: Poly = {tuple(a for a in m if a != atom): c}
        for _ in range(n):
            term = mul(term, value)
        result = add(result, term)
    return result
