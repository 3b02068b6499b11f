"""Polynomials over atoms: the canonical form in which integer expressions are compared and combined.

A polynomial is a ``dict`` from monomial to nonzero integer coefficient; a monomial is a sorted tuple of atom numbers
and ``()`` is the constant one. The zero polynomial is the empty dict. Polynomials are values: no function here changes
its arguments. Insertion order is order of first appearance, so that what is rebuilt from a polynomial reads like what
it came from.
"""

from __future__ import annotations

from math import gcd

Mono = tuple[int, ...]
Poly = dict[Mono, int]
ZERO: Poly = {}


def constant(value: int) -> Poly:
    """Return the constant polynomial."""
    return {(): value} if value else ZERO


def add(p: Poly, q: Poly, factor: int = 1) -> Poly:
    """Return ``p + factor * q``."""
    if not q:
        return p
    result = dict(p)
    for m, c in q.items():
        total = result.get(m, 0) + c * factor
        if total:
            result[m] = total
        else:
            result.pop(m, None)
    return result


def scale(p: Poly, factor: int) -> Poly:
    """Return ``factor * p``."""
    if factor == 1:
        return p
    return {m: c * factor for m, c in p.items()} if factor else ZERO


def mul(p: Poly, q: Poly) -> Poly:
    """Return ``p * q``."""
    if len(q) == 1 and () in q:
        return scale(p, q[()])
    if len(p) == 1 and () in p:
        return scale(q, p[()])
    result: Poly = {}
    for mp, cp in p.items():
        for mq, cq in q.items():
            m = tuple(sorted(mp + mq)) if mp and mq else mp or mq
            total = result.get(m, 0) + cp * cq
            if total:
                result[m] = total
            else:
                result.pop(m, None)
    return result


def key(p: Poly) -> frozenset[tuple[Mono, int]]:
    """Return what two polynomials share exactly when they are equal."""
    return frozenset(p.items())


def atoms_of(p: Poly) -> set[int]:
    """Return the atoms of a polynomial."""
    return {a for m in p for a in m}


def content(p: Poly, *, with_constant: bool = True) -> int:
    """Return the greatest common divisor of the coefficients (0 where there is none)."""
    g = 0
    for m, c in p.items():
        if m or with_constant:
            g = gcd(g, c)
    return g


def mono_quotient(m: Mono, divisor: Mono) -> Mono | None:
    """Return ``m / divisor`` as a monomial, or None where it is not one."""
    if not divisor:
        return m
    rest = list(m)
    for a in divisor:
        try:
            rest.remove(a)
        except ValueError:
            return None
    return tuple(rest)


def coefficient_of(p: Poly, atom: int) -> tuple[Poly, Poly] | None:
    """Return ``(c, r)`` with ``p == c * atom + r`` and no `atom` in either; None where `atom` is not linear."""
    factor: Poly = {}
    rest: Poly = {}
    for m, c in p.items():
        n = m.count(atom)
        if n == 0:
            rest[m] = c
        elif n == 1:
            reduced = list(m)
            reduced.remove(atom)
            factor[tuple(reduced)] = c
        else:
            return None
    return factor, rest


def _leading(p: Poly) -> Mono:
    return max(p, key=lambda m: (len(m), m))


def divmod_poly(p: Poly, q: Poly) -> tuple[Poly, Poly]:
    """Return ``(s, r)`` with ``p == s * q + r`` where no term of ``r`` is divisible by the leading term of ``q``."""
    lead = _leading(q)
    lead_c = q[lead]
    quotient: Poly = {}
    rest, remainder = dict(p), {}
    while rest:
        m = _leading(rest)
        c = rest[m]
        part = mono_quotient(m, lead)
        if part is None or c % lead_c:
            remainder[m] = rest.pop(m)
            continue
        factor = {part: c // lead_c}
        quotient = add(quotient, factor)
        rest = add(rest, mul(q, factor), -1)
    return quotient, {m: remainder[m] for m in p if m in remainder} | remainder


def divide_exact(p: Poly, q: Poly) -> Poly | None:
    """Return ``p / q`` where that is a polynomial with integer coefficients, else None."""
    if not q:
        return None
    if len(q) == 1:
        ((qm, qc),) = q.items()
        result: Poly = {}
        for m, c in p.items():
            part = mono_quotient(m, qm)
            if part is None or c % qc:
                return None
            result[part] = c // qc
        return result
    s, r = divmod_poly(p, q)
    return s if not r else None
