"""Normal forms of quotients, remainders, minima and choices of polynomials.

``floordiv(p, q)`` takes out what divides exactly, drops what stays below the divisor, cancels common factors and
merges nested quotients; only what is left becomes an atom. It works the same for constant and symbolic divisors.
``expand`` writes every remainder ``a % b`` as ``a - b*(a // b)``, the form in which all equal index expressions
coincide.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from weft.arith.bounds import bound_of
from weft.arith.context import Context
from weft.arith.linear import Mono, Poly, add, atoms_of, constant, divmod_poly, key, mono_quotient, mul, scale
from weft.arith.prove import prove_nonneg, replace_atom
from weft.ir import DataType


def _single(p: Poly) -> tuple[Mono, int] | None:
    if len(p) == 1:
        ((m, c),) = p.items()
        return m, c
    return None


def _atom(cx: Context, kind: str, a: Poly, b: Poly, dtype: str) -> Poly:
    index = cx.intern((kind, key(a), key(b)), kind, (a, b), None, dtype)
    return cx.equal[index] if index in cx.equal else {(index,): 1}


def _below(cx: Context, p: Poly, limit: Poly) -> bool:
    """Whether ``0 <= p < limit``."""
    lo, hi = bound_of(cx, p)
    if hi < 0:
        return False
    if lo < 0 and not prove_nonneg(cx, p):
        return False
    return prove_nonneg(cx, add(add(limit, p, -1), constant(-1)))


def floordiv(cx: Context, a: Poly, b: Poly, dtype: str) -> Poly:
    """Return ``a // b`` in normal form; `b` is taken to be nonzero."""
    if not a:
        return a
    mono = _single(b)
    if mono is None:
        return _floordiv_sum(cx, a, b, dtype)
    m, c = mono
    if c < 0:
        return floordiv(cx, scale(a, -1), scale(b, -1), dtype)
    whole, rest = _take_out(a, m, c)
    if not rest:
        return whole
    lo, hi = bound_of(cx, rest)
    if not m:
        if lo // c == hi // c:
            return add(whole, constant(lo // c))
    elif _below(cx, rest, b):
        return whole
    elif hi < 0 and _below(cx, add(rest, b), b):
        return add(whole, constant(-1))
    split = _split_low(cx, rest, m, c) if bound_of(cx, b)[0] >= 0 else None
    if split is not None:
        return add(whole, floordiv(cx, split[1], split[3], dtype))  # (g*h + low) // (g*b) == h // b
    return add(whole, _quotient(cx, rest, b, dtype))


def _take_out(a: Poly, m: Mono, c: int) -> tuple[Poly, Poly]:
    """Split ``a`` into a multiple of the monomial ``c * m``, and the rest."""
    whole: Poly = {}
    rest: Poly = {}
    for am, ac in a.items():
        part = mono_quotient(am, m)
        if part is not None and ac % c == 0:
            whole[part] = ac // c
        elif not am and not m:
            if ac // c:
                whole[()] = ac // c
            rest[()] = ac % c
        else:
            rest[am] = ac
    return whole, rest


def _floordiv_sum(cx: Context, a: Poly, b: Poly, dtype: str) -> Poly:
    whole, rest = divmod_poly(a, b)
    if not rest:
        return whole
    if _below(cx, rest, b):
        return whole
    if bound_of(cx, rest)[1] < 0 and _below(cx, add(rest, b), b):
        return add(whole, constant(-1))
    return add(whole, _quotient(cx, rest, b, dtype))


def _common(m: Mono, other: Mono) -> Mono:
    rest, result = list(other), []
    for a in m:
        if a in rest:
            rest.remove(a)
            result.append(a)
    return tuple(result)


def _factors(rest: Poly, m: Mono, c: int) -> Iterator[tuple[Mono, int]]:
    """Yield divisors of the monomial ``c * m`` that some term of `rest` shares with it, largest first."""
    found = {(_common(rm, m), gcd(rc, c)) for rm, rc in rest.items() if rm}
    yield from sorted((f for f in found if f != ((), 1)), key=lambda f: (len(f[0]), f[1]), reverse=True)


def _split_low(cx: Context, rest: Poly, m: Mono, c: int) -> tuple[Poly, Poly, Poly, Poly] | None:
    """Write `rest` as ``g*h + low``, ``0 <= low < g``, for a divisor of ``c * m``: return g, h, low, ``c * m / g``."""
    for gm, gc in _factors(rest, m, c):
        high, low = _take_out(rest, gm, gc)
        g: Poly = {gm: gc}
        if not high or (gm and bound_of(cx, g)[0] < 0 and low):
            continue
        if not low or _below(cx, low, g):
            reduced = mono_quotient(m, gm)
            assert reduced is not None
            return g, high, low, {reduced: c // gc}
    return None


def _quotient(cx: Context, rest: Poly, b: Poly, dtype: str) -> Poly:
    """Return ``rest // b``, of which ``(x // d + k) // b`` is ``(x + k*d) // (d*b)`` for positive divisors.

    Where `k` varies, the type has to hold that numerator; it does where the program divides the same.
    """
    for m, coefficient in rest.items() if bound_of(cx, b)[0] >= 0 else ():
        if len(m) == 1 and coefficient == 1 and cx.atoms[m[0]].kind == "div":
            num, den = cx.atoms[m[0]].args
            if bound_of(cx, den)[0] >= 0:
                k = add(rest, {m: 1}, -1)
                moved, by = mul(k, den), mul(den, b)
                merged = add(num, moved)
                new = (by,) if (key(merged), dtype) in cx.divided else (num, moved, merged, by)
                reach = (abs(n) for p in new for n in bound_of(cx, p))
                if k.keys() <= {()} or max(reach) < 1 << min(DataType(dtype).bits - 1, 62):
                    return floordiv(cx, merged, by, dtype)
    return _atom(cx, "div", rest, b, dtype)


def floormod(cx: Context, a: Poly, b: Poly, dtype: str) -> Poly:
    """Return ``a % b`` in normal form; `b` is taken to be nonzero."""
    if not a:
        return a
    mono = _single(b)
    if mono is None:
        _, rest = divmod_poly(a, b)
        if not rest or _below(cx, rest, b):
            return rest
        return _atom(cx, "mod", rest, b, dtype)
    m, c = mono
    positive = c > 0 and (not m or bound_of(cx, b)[0] >= 0)
    if not positive:
        _, rest = _take_out(a, m, abs(c))
        return _atom(cx, "mod", rest, b, dtype) if rest else rest
    rest = _reduce_terms(cx, a, b, m, c)
    if not rest:
        return rest
    lo, hi = bound_of(cx, rest)
    if not m:
        if lo // c == hi // c:
            return add(rest, constant(-c * (lo // c)))
    elif _below(cx, rest, b):
        return rest
    elif hi < 0 and _below(cx, add(rest, b), b):
        return add(rest, b)
    split = _split_low(cx, rest, m, c)
    if split is None:
        return _atom(cx, "mod", rest, b, dtype)
    g, high, low, reduced = split  # (g*h + low) % (g*b) == g*(h % b) + low
    return add(mul(g, floormod(cx, high, reduced, dtype)), low)


def _reduce_terms(cx: Context, a: Poly, b: Poly, m: Mono, c: int) -> Poly:
    """Drop multiples of the divisor, and inner remainders by its multiples."""
    rest = _take_out(a, m, c)[1]
    if not m:
        rest = {rm: _remainder(rc, c) if rm else rc for rm, rc in rest.items()}
        rest = {rm: rc for rm, rc in rest.items() if rc}
    for rm in list(rest):
        if len(rm) == 1 and cx.atoms[rm[0]].kind == "mod":
            num, den = cx.atoms[rm[0]].args
            inner = _single(den)
            if inner is None or inner[1] % c or mono_quotient(inner[0], m) is None:
                continue
            return _reduce_terms(cx, add(add(rest, {rm: rest[rm]}, -1), scale(num, rest[rm])), b, m, c)
    return rest


def _remainder(value: int, c: int) -> int:
    """Return the remainder of `value` by `c` that has its sign."""
    return value % c if value >= 0 else -(-value % c)


def minimum(cx: Context, kind: str, a: Poly, b: Poly, dtype: str) -> Poly:
    """Return the minimum or maximum (`kind`) of two polynomials in normal form."""
    parts: list[Poly] = []
    for part in (*_flatten(cx, kind, a, dtype), *_flatten(cx, kind, b, dtype)):
        _insert(cx, kind, parts, part)
    if len(parts) == 1:
        return parts[0]
    shared = _shared_terms(cx, parts, dtype)
    if shared:
        parts = [add(p, shared, -1) for p in parts]
    args = tuple(sorted(parts, key=_order))
    index = cx.intern((kind, frozenset(key(p) for p in args)), kind, args, None, dtype)
    return add({(index,): 1}, shared)


def _order(p: Poly) -> tuple[bool, int, list[tuple[Mono, int]]]:
    return (not any(p), len(p), sorted(p.items()))


def _flatten(cx: Context, kind: str, p: Poly, dtype: str) -> tuple[Poly, ...]:
    for m, c in p.items():
        if len(m) == 1 and c == 1 and cx.atoms[m[0]].kind == kind:
            rest, parts = add(p, {m: 1}, -1), cx.atoms[m[0]].args
            if not (rest and any(_is_data(cx, part, dtype) for part in parts)):
                return tuple(add(part, rest) for part in parts)
    return (p,)


def _is_data(cx: Context, p: Poly, dtype: str) -> bool:
    """Whether a number may be any of its type, as elements of tensors are: what it is limited to may be added to."""
    if max(map(abs, bound_of(cx, p))) >> DataType(dtype).bits - 2 == 0:
        return False
    kinds = [(x.kind, x.args) for x in (cx.atoms[a] for a in atoms_of(p))]
    parts = [q for kind, args in kinds if kind in ("min", "max", "select") for q in args[kind == "select" :]]
    return ("opaque", ()) in kinds or any(_is_data(cx, q, dtype) for q in parts)


def _insert(cx: Context, kind: str, parts: list[Poly], part: Poly) -> None:
    """Add an operand unless another one makes it superfluous."""
    sign = 1 if kind == "min" else -1
    for i, other in enumerate(parts):
        difference = scale(add(part, other, -1), sign)
        if prove_nonneg(cx, difference):
            return
        if prove_nonneg(cx, scale(difference, -1)):
            del parts[i]
            _insert(cx, kind, parts, part)
            return
    parts.append(part)


def _shared_terms(cx: Context, parts: list[Poly], dtype: str) -> Poly:
    """Return the terms that all operands have, and the least constant where all vary."""
    first = parts[0]
    shared = {m: c for m, c in first.items() if m and all(p.get(m) == c for p in parts[1:])}
    if all(any(m and m not in shared for m in p) for p in parts):
        least = min(p.get((), 0) for p in parts)
        if least > 0 or (least and not any(_is_data(cx, p, dtype) for p in parts)):
            shared[()] = least
    return shared


def select(cx: Context, condition: object, a: Poly, b: Poly, dtype: str) -> Poly:
    """Return the choice between two polynomials under a condition given by its key."""
    if key(a) == key(b):
        return a
    index = cx.intern(("select", condition, key(a), key(b)), "select", (condition, a, b), None, dtype)
    return {(index,): 1}


def expand(cx: Context, p: Poly) -> Poly:
    """Write remainders through quotients, everywhere in `p`."""
    result = p
    for atom in atoms_of(p):
        definition = _expand_atom(cx, atom)
        if definition is not None:
            result = replace_atom(result, atom, definition)
    return result


def _expand_atom(cx: Context, atom: int) -> Poly | None:
    info = cx.atoms[atom]
    if info.kind not in ("mod", "div"):
        return None
    known = cx.expanded.get(atom)
    if known is None:
        num, den = expand(cx, info.args[0]), expand(cx, info.args[1])
        mono = _single(den)
        if mono is not None and not mono[0] and mono[1] > 0:
            # multiples of the divisor leave the quotient as they leave the remainder, so that the two meet again
            c = mono[1]
            whole = {rm: rc // c for rm, rc in num.items() if rm and rc >= c}
            quotient = add(whole, floordiv(cx, add(num, scale(whole, c), -1), den, info.dtype))
        else:
            quotient = floordiv(cx, num, den, info.dtype)
        known = add(num, mul(den, quotient), -1) if info.kind == "mod" else quotient
        cx.expanded[atom] = known
    return known
