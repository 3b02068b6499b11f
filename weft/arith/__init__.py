"""Reasoning about integer expressions: bounds, proofs, simplification, sets and iteration maps.

Read in this order: ``linear`` (polynomials), ``context`` (atoms and facts), ``bounds``, ``prove``, ``terms`` (normal forms), ``form``
(expressions to polynomials and back), ``rule`` and ``rules_*``, ``simplify``, ``analyzer``; then ``int_set``, ``iter_map``, ``solve``.
"""

from weft.arith.analyzer import Analyzer
from weft.arith.bounds import ConstIntBound, ModularSet
from weft.arith.int_set import (
    IntervalSet,
    estimate_region_lower_bound,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
    intersect,
    neg_inf,
    pos_inf,
    union,
)

__all__ = [
    "Analyzer", "ConstIntBound", "IntervalSet", "ModularSet", "estimate_region_lower_bound", "estimate_region_strict_bound",
    "estimate_region_upper_bound", "intersect", "neg_inf", "pos_inf", "union",
]  # fmt: skip
