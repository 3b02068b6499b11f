"""Witnesses: values of all atoms that satisfy every fact, found by trying some.

What is negative for a witness cannot be proved nonnegative, which spares most proofs that fail their search. An atom
gets its value when it is first asked for: a variable one within its range, everything else what its parts say. A
witness that contradicts a fact, or a bound that proofs rely on, is given up.
"""

from weft.arith.bounds import atom_bound
from weft.arith.context import Context, Witness
from weft.arith.linear import Poly

_COUNT = 14
_WIDE = 1 << 30  # a range as wide as this is of a dimension
_DIMENSIONS = (7, 1, 33, 2, 100, 513, 64, 12, 5, 260, 1023, 839, 119, 4095)
"""The last ones leave remainders, so that no loop over what tiles of 8, 6, 4, 3 or 2 leave is empty."""
_ALIKE = (0, 1, 2, 3, 4, 10, 11, 12, 13)
"""Witnesses in which all dimensions have the same number, their own."""


class _ContradictionError(Exception):
    """A witness does not satisfy what is known."""


def is_refuted(cx: Context, p: Poly) -> bool:
    """Whether ``p < 0`` for some values that satisfy all facts."""
    return any(w.alive and _is_negative(cx, w, p) for w in _witnesses(cx))


def _witnesses(cx: Context) -> list[Witness]:
    """Return the witnesses of the facts in force."""
    if cx.witnesses is None:
        cx.witnesses = [Witness(i) for i in range(_COUNT)]
        cx.untried = list({id(p): p for facts in cx.facts.values() for p in facts}.values())
    if cx.untried:
        facts, cx.untried = cx.untried, []
        cx.witnesses = [w for w in cx.witnesses if not any(_is_negative(cx, w, p, True) for p in facts)]
    return cx.witnesses


def _is_negative(cx: Context, w: Witness, p: Poly, contradicted: bool = False) -> bool:
    """Whether ``p < 0``; `contradicted` for witnesses that are none."""
    if not w.alive:
        return contradicted
    try:
        return _value(cx, w, p) < 0
    except _ContradictionError:
        w.alive = False
        return contradicted


def _value(cx: Context, w: Witness, p: Poly) -> int:
    total = 0
    values = w.values
    for m, c in p.items():
        for a in m:
            v = values.get(a)
            c *= _atom(cx, w, a) if v is None else v
        total += c
    return total


def _atom(cx: Context, w: Witness, atom: int) -> int:
    """Give an atom its value."""
    if atom in w.open:
        raise _ContradictionError  # ranges that name each other
    w.open.add(atom)
    low, high = atom_bound(cx, atom)
    info = cx.atoms[atom]
    if info.kind in ("div", "mod"):
        num, den = (_value(cx, w, p) for p in info.args)
        if den <= 0:
            raise _ContradictionError
        value = num // den if info.kind == "div" else num % den
    elif info.kind in ("min", "max"):
        value = (min if info.kind == "min" else max)(_value(cx, w, p) for p in info.args)
    elif info.kind == "select":
        value = _value(cx, w, info.args[1 + (w.seed + atom) % 2])
    elif info.kind == "var" and atom in cx.equal:
        value = _value(cx, w, cx.equal[atom])
    else:
        first, last = cx.ranges.get(atom, (None, None)) if info.kind == "var" else (None, None)
        low = low if first is None else max(low, _value(cx, w, first))
        high = high if last is None else min(high, _value(cx, w, last))
        value = _chosen(w.seed, atom, low, high)
    if not low <= value <= high:
        raise _ContradictionError
    w.open.discard(atom)
    w.values[atom] = value
    return value


def _chosen(seed: int, atom: int, low: int, high: int) -> int:
    """Choose a value of a range: its ends, its middle, or some value."""
    if low > high:
        raise _ContradictionError
    if high - low >= _WIDE:
        start = low if low > -_WIDE else high - 2 * _WIDE if high < _WIDE else -3 * (seed == 6)
        return start + _DIMENSIONS[(seed + 3 * atom * (seed not in _ALIKE)) % _COUNT]
    mixed = (atom * 2654435761 + seed * 40503) >> 3
    way = seed if seed < 3 else mixed % 4
    return (low, high, (low + high) // 2, low + mixed // 4 % (high - low + 1))[way]
