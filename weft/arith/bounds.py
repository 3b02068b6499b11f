"""Constant bounds and residues of polynomials and atoms.

``bound_of`` gives inclusive integer limits, with ``NEG_INF``/``POS_INF`` where there is none. A divisor that is known
to be at least zero counts as positive: a division by a zero extent is never executed.
"""

from __future__ import annotations

from functools import cache
from math import gcd, lcm
from typing import NamedTuple

from weft.arith.context import NEG_INF, POS_INF, Atom, Context
from weft.arith.linear import Mono, Poly, add
from weft.ir import CallIntrin, Cast, DataType, Div, Mod, SizeVar

Limits = tuple[int, int]


class ConstIntBound(NamedTuple):
    """Inclusive limits of an integer expression."""

    min_value: int
    max_value: int

    POS_INF = POS_INF  # type: ignore[misc]
    NEG_INF = NEG_INF  # type: ignore[misc]


class ModularSet(NamedTuple):
    """The integers ``coeff * k + base``; a constant has ``coeff == 0``."""

    coeff: int
    base: int


def _clamp(value: int) -> int:
    return POS_INF if value >= POS_INF else NEG_INF if value <= NEG_INF else value


def _product(p: Limits, q: Limits) -> Limits:
    corners = (p[0] * q[0], p[0] * q[1], p[1] * q[0], p[1] * q[1])
    return _clamp(min(corners)), _clamp(max(corners))


def bound_of(cx: Context, p: Poly) -> Limits:
    """Return the constant limits of a polynomial."""
    lo = hi = 0
    for m, c in p.items():
        if not m:
            mlo = mhi = 1
        elif len(m) == 1:
            mlo, mhi = cx.bounds.get(m[0]) or atom_bound(cx, m[0])
        else:
            mlo, mhi = cx.bounds.get(m) or _mono_bound(cx, m)
        if c < 0:
            mlo, mhi = mhi, mlo
        # an infinite limit stays infinite, whatever is added afterwards
        lo = NEG_INF if lo <= NEG_INF or mlo in (NEG_INF, POS_INF) else lo + mlo * c
        hi = POS_INF if hi >= POS_INF or mhi in (NEG_INF, POS_INF) else hi + mhi * c
    if NEG_INF < lo and hi < POS_INF:
        return lo, hi
    return _clamp(lo), _clamp(hi)


def _mono_bound(cx: Context, m: Mono) -> Limits:
    result: Limits = (1, 1)
    for atom in dict.fromkeys(m):
        limits = atom_bound(cx, atom)
        power = m.count(atom)
        if power % 2 == 0:
            square = _product(limits, limits)
            low = 0 if limits[0] <= 0 <= limits[1] else _clamp(min(x * x for x in limits))
            limits = (low, square[1])
            power //= 2
        for _ in range(power):
            result = _product(result, limits)
    cx.bounds[m] = result
    return result


def atom_bound(cx: Context, atom: int) -> Limits:
    """Return the constant limits of an atom."""
    known = cx.bounds.get(atom)
    if known is not None:
        return known
    info = cx.atoms[atom]
    cx.bounds[atom] = dtype_limits(info.dtype)  # what holds while a range that names itself is looked at
    lo, hi = _KINDS[info.kind](cx, info)
    limit = cx.limits.get(atom)
    if limit is not None:
        lo, hi = max(lo, limit[0]), min(hi, limit[1])
    cx.bounds[atom] = (lo, hi)
    return lo, hi


@cache
def dtype_limits(dtype: str) -> Limits:
    """Return the least and the largest value of a data type, as far as it has some."""
    dt = DataType(dtype)
    if dt == "bool":
        return 0, 1
    if dt.code == "int" and dt.bits < 64:
        return -(1 << (dt.bits - 1)), (1 << (dt.bits - 1)) - 1
    if dt.code == "uint":
        return 0, _clamp((1 << dt.bits) - 1)
    return NEG_INF, POS_INF


def _var(cx: Context, info: Atom) -> Limits:
    lo, hi = dtype_limits(info.dtype)
    if isinstance(info.node, SizeVar):
        lo = 0
    first, last = cx.ranges.get(info.index, (None, None))
    if first is not None:
        lo = max(lo, bound_of(cx, first)[0])
    if last is not None:
        hi = min(hi, bound_of(cx, last)[1])
    return lo, hi


def _floordiv(x: int, y: int) -> int:
    return x if x in (NEG_INF, POS_INF) else x // y


def _div(cx: Context, info: Atom) -> Limits:
    num, den = (bound_of(cx, p) for p in info.args)
    if not is_positive_divisor(cx, info.args[1]):
        return dtype_limits(info.dtype)
    low, high = max(1, den[0]), max(1, den[1])
    least = _floordiv(num[0], low) if num[0] < 0 else 0 if high == POS_INF else _floordiv(num[0], high)
    most = _floordiv(num[1], low) if num[1] >= 0 else -1 if high == POS_INF else _floordiv(num[1], high)
    return least, min(most, _most_times(cx, *info.args)) if any(info.args[1]) else most


def _most_times(cx: Context, num: Poly, den: Poly) -> int:
    """The greatest quotient by a divisor that is no number, where it ends the dividend: ``i // n`` of ``i < 8 * n``."""
    for m, c in list(num.items()):
        last = cx.ranges.get(m[0], (None, None))[1] if len(m) == 1 and c > 0 else None
        if last is not None and any(last):
            num = add(add(num, {m: c}, -1), last, c)
    lead = max(den, key=len)
    times = num.get(lead, 0) // den[lead] if den[lead] > 0 else 0
    return times - 1 if times > 0 and bound_of(cx, add(num, den, -times))[1] < 0 else POS_INF


def _mod(cx: Context, info: Atom) -> Limits:
    num, den = (bound_of(cx, p) for p in info.args)
    if not is_positive_divisor(cx, info.args[1]):
        return dtype_limits(info.dtype)
    top = POS_INF if den[1] == POS_INF else max(0, den[1] - 1)
    if num[0] >= 0:
        top = min(top, num[1])
    if den[0] == den[1]:
        coeff, base = modular_of(cx, info.args[0])
        step = gcd(coeff, den[0])
        if step > 1:
            return base % step, min(top, den[0] - step + base % step)
    return 0, top


def _choice(cx: Context, info: Atom) -> Limits:
    parts = [bound_of(cx, p) for p in (info.args[1:] if info.kind == "select" else info.args)]
    low, high = max if info.kind == "max" else min, min if info.kind == "min" else max
    return low(lo for lo, _ in parts), high(hi for _, hi in parts)


def _opaque(cx: Context, info: Atom) -> Limits:
    limits = dtype_limits(info.dtype)
    node = info.node
    if isinstance(node, Cast):
        source = DataType(node.value.dtype)
        if source == "bool" or source.is_integer:
            inner = dtype_limits(source)
            if limits[0] <= inner[0] and inner[1] <= limits[1]:
                return inner
    if isinstance(node, (Div, Mod)):  # rounded to zero: no further from it than the dividend
        (lo, hi), den = (bound_of(cx, p) for p in info.args)
        if isinstance(node, Div) and den[0] < 0:
            lo, hi = min(lo, -hi), max(hi, -lo)
        return max(limits[0], min(0, lo)), min(limits[1], max(0, hi))
    if isinstance(node, CallIntrin):
        name = getattr(node.op, "name", "")
        parts = [bound_of(cx, p) for p in info.args if isinstance(p, dict)]
        if name == "tir.abs" and parts:
            (lo, hi), *_ = parts
            return (lo if lo > 0 else -hi if hi < 0 else 0), _clamp(max(abs(lo), abs(hi)))
        if name == "tir.bitwise_and":
            tops = [hi for lo, hi in parts if lo >= 0]
            if tops:
                return 0, min(tops)
        if name in ("tir.popcount", "tir.clz"):
            return 0, 64
    return limits


_KINDS = {"var": _var, "div": _div, "mod": _mod, "opaque": _opaque, **dict.fromkeys(("min", "max", "select"), _choice)}


def is_positive_divisor(cx: Context, p: Poly) -> bool:
    """Whether a divisor is positive, given that it is not zero."""
    return bound_of(cx, p)[0] >= 0


def modular_of(cx: Context, p: Poly) -> ModularSet:
    """Return the residue class that all values of a polynomial are in."""
    coeff, base = 0, 0
    for m, c in p.items():
        mc, mb = 0, 1
        for atom in m:
            ac, ab = _atom_modular(cx, atom)
            mc, mb = gcd(gcd(mc * ac, mc * ab), mb * ac), mb * ab
        coeff, base = gcd(coeff, mc * c), base + mb * c
    return ModularSet(coeff, base % coeff if coeff else base)


def _atom_modular(cx: Context, atom: int) -> ModularSet:
    known = cx.moduli.get(atom)
    if known is not None:
        return ModularSet(*known)
    info = cx.atoms[atom]
    if info.kind in ("min", "max"):
        return _union([modular_of(cx, p) for p in info.args])
    if info.kind == "select":
        return _union([modular_of(cx, p) for p in info.args[1:]])
    if info.kind in ("div", "mod", "opaque"):
        return _quotient_modular(cx, info)
    if info.kind == "var":
        first, last = cx.ranges.get(atom, (None, None))
        if first is not None and first == last:
            return modular_of(cx, first)
    return ModularSet(1, 0)


def _union(parts: list[ModularSet]) -> ModularSet:
    coeff, base = parts[0]
    for c, b in parts[1:]:
        coeff = gcd(gcd(coeff, c), base - b)
    return ModularSet(coeff, base % coeff if coeff else base)


def _quotient_modular(cx: Context, info: Atom) -> ModularSet:
    """Return the residue class of a quotient, a remainder or masked bits, by a constant."""
    node, kind = info.node, info.kind
    masks = isinstance(node, CallIntrin) and getattr(node.op, "name", "") == "tir.bitwise_and"
    known = kind != "opaque" or masks or isinstance(node, (Div, Mod))
    if not known or len(info.args) != 2 or set(info.args[1]) != {()}:
        return ModularSet(1, 0)
    den = info.args[1][()] + masks
    coeff, base = modular_of(cx, info.args[0])
    step = gcd(coeff, den)
    if den <= 0 or (masks and den & (den - 1)) or (isinstance(node, (Div, Mod)) and base):
        return ModularSet(1, 0)
    if kind == "mod" or masks or isinstance(node, Mod):
        return ModularSet(step, base % step)
    return ModularSet(coeff // den, base // den % (coeff // den)) if coeff and step == den else ModularSet(1, 0)


def both_residues(a: ModularSet, b: ModularSet) -> ModularSet:
    """Return the residue class of what is in two of them; the first, where nothing is in both."""
    common = gcd(a.coeff, b.coeff)
    if (b.base - a.base) % common:
        return a
    turns = (b.base - a.base) // common * pow(a.coeff // common, -1, b.coeff // common)
    coeff = lcm(a.coeff, b.coeff)
    return ModularSet(coeff, (a.base + a.coeff * turns) % coeff)
