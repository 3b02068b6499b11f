"""Reasoning about integer expressions: bounds, proofs, simplification, sets and iteration maps.

Read in this order: ``linear`` (polynomials), ``context`` (atoms and facts), ``bounds``, ``prove``, ``terms`` (normal
forms), ``form`` (expressions to polynomials and back), ``rule`` and ``rules_*``, ``simplify``, ``analyzer``; then
``int_set``, ``iter_map``, ``solve``, ``deduce``.
"""

from weft.arith.analyzer import Analyzer, CompareResult, Extension, ProofStrength
from weft.arith.bounds import ConstIntBound, ModularSet
from weft.arith.common_subexpr import detect_common_subexpr
from weft.arith.deduce import deduce_bound
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
from weft.arith.iter_map import (
    IterMapExpr,
    IterMapLevel,
    IterMapResult,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    detect_iter_map,
    inverse_affine_iter_map,
    iter_map_simplify,
    normalize_iter_map_to_expr,
    normalize_to_iter_sum,
)
from weft.arith.solve import (
    detect_clip_bound,
    detect_linear_equation,
    solve_linear_equations,
    solve_linear_inequalities,
)
from weft.arith.subspace import subspace_divide

IntSet = IntervalSet
