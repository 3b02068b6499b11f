"""The analyzer: facts in scope, and the questions that passes ask about integer expressions."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from enum import IntEnum, IntFlag
from functools import partial
from math import gcd
from typing import Any

from weft import ir
from weft.arith.bounds import ConstIntBound, ModularSet, both_residues, bound_of, dtype_limits, modular_of
from weft.arith.context import NEG_INF, POS_INF, Context
from weft.arith.form import expr_key, is_stable, poly_of
from weft.arith.int_set import IntervalSet, eval_interval
from weft.arith.linear import Poly, add, atoms_of, constant, key, scale
from weft.arith.simplify import holds_nonneg, proves_zero, simplify
from weft.arith.terms import expand
from weft.error import InvalidArgument
from weft.runtime import Object


class ProofStrength(IntEnum):
    """How hard a proof is tried: the prover here always tries what TVM's does at the higher level."""

    DEFAULT = 0
    SYMBOLIC_BOUND = 1


class CompareResult(IntEnum):
    """What is known of the order of two numbers."""

    INCONSISTENT = 0
    EQ = 1
    LT = 2
    LE = 3
    GT = 4
    GE = 5
    NE = 6
    UNKNOWN = 7


class Extension(IntFlag):
    """What TVM's simplifier does only when asked; the one here always tries all of it."""

    NoExtensions = 0
    TransitivelyProveInequalities = 1
    ConvertBooleanToAndOfOrs = 2
    ApplyConstraintsToBooleanBranches = 4
    ComparisonOfProductAndSum = 8


@Object.register
class Analyzer:
    """Reasons about integer expressions under what is known of their variables.

    Examples
    --------
    >>> an = Analyzer()
    >>> i, n = Var("i"), SizeVar("n")
    >>> an.bind(i, Range(as_expr(0), n))
    >>> an.can_prove(i * 4 + 3 < n * 4)
    True
    """

    def __init__(self) -> None:
        self.context = Context()
        self.enabled_extensions = Extension.NoExtensions

    @property
    def is_z3_enabled(self) -> bool:
        """Whether proofs are left to an SMT solver as well: no."""
        return False

    def clone(self) -> Analyzer:
        """Return an analyzer that knows the same and learns on its own."""
        twin = Analyzer()
        twin.context, twin.enabled_extensions = self.context.copy(), self.enabled_extensions
        return twin

    # --- facts ---

    def bind(self, var: ir.Var, expr: Any, allow_override: bool = False) -> None:
        """State the range of a variable, or what it equals.

        Parameters
        ----------
        var : Var
            The variable.
        expr : Range or PrimExpr
            ``Range(min, extent)``, or an expression (a range of extent 1 is one too).
        allow_override : bool
            Whether a variable that has a range already may get another one.

        Raises
        ------
        InvalidArgument
            When `var` has another range and `allow_override` is False.
        """
        if isinstance(expr, ir.Range):
            if ir.is_const_int(expr.extent, 1):
                self._bind_value(var, expr.min, allow_override)
            else:
                self._bind_range(var, expr, allow_override)
        else:
            self._bind_value(var, ir.as_expr(expr, var.dtype), allow_override)

    def _bind_range(self, var: ir.Var, dom: ir.Range, allow_override: bool) -> None:
        cx = self.context
        fresh = not cx.knows_var(var)
        first, extent = poly_of(cx, dom.min), poly_of(cx, dom.extent)
        if first is None or extent is None:
            return
        limits = (first, add(add(first, extent), constant(-1)))
        old = cx.ranges.get(cx.var_atom(var))
        if old is None or [key(p) for p in old if p is not None] != [key(p) for p in limits]:
            self._state(var, cx.ranges, limits, fresh, allow_override)

    def _bind_value(self, var: ir.Var, value: ir.PrimExpr, allow_override: bool) -> None:
        cx = self.context
        p = poly_of(cx, simplify(self, value))
        if p is None:
            return
        fresh = not cx.knows_var(var)
        atom = cx.var_atom(var)
        if atom not in atoms_of(p) and (atom not in cx.equal or key(cx.equal[atom]) != key(p)):
            self._state(var, cx.equal, p, fresh, allow_override)

    def _state(self, var: ir.Var, table: dict[int, Any], value: Any, fresh: bool, allow_override: bool) -> None:
        """Enter what a variable, which nothing was derived of where it is `fresh`, is instead of what it was."""
        cx, atom = self.context, self.context.var_atom(var)
        if not allow_override and (atom in cx.ranges or atom in cx.equal):
            raise InvalidArgument(
                f"variable '{var.name}' is bound to a different range already",
                help="pass allow_override=True where the new range is meant to replace the old one",
            )
        cx.ranges.pop(atom, None)
        cx.equal.pop(atom, None)
        table[atom] = value
        if not fresh:
            cx.witnesses = None
            cx.clear_memos()

    def bind_bounds(self, var: ir.Var, value: ir.PrimExpr) -> None:
        """State that a variable stands for `value`, but keep writing the variable where it is used."""
        p = poly_of(self.context, value)
        if p is not None:
            self.context.ranges[self.context.var_atom(var)] = (p, p)
            self.context.witnesses = None

    def _forget(self, var: ir.Var) -> None:
        """Drop what is known of a variable; what ties it to others is of its old values, too."""
        cx, atom = self.context, self.context.var_atom(var)
        for table in (cx.ranges, cx.limits, cx.moduli, cx.equal):
            table.pop(atom, None)
        cx.facts = {a: tuple(p for p in known if atom not in atoms_of(p)) for a, known in cx.facts.items()}

    def update(self, var: ir.Var, info: ConstIntBound | ModularSet | IntervalSet, override: bool = False) -> None:
        """Learn limits or the residue class of a variable; `override` replaces what was known."""
        if override:
            self._forget(var)
        if isinstance(info, ModularSet):
            if info.coeff > 1:
                self._assume(ir.floormod(var, info.coeff) == info.base % info.coeff)
            elif info.coeff == 0:
                self.bind(var, ir.const(info.base, var.dtype), allow_override=override)
            self.context.clear_memos()
            return
        if isinstance(info, IntervalSet):
            if info.has_lower_bound:
                self._assume(var >= info.min_value)
            if info.has_upper_bound:
                self._assume(var <= info.max_value)
            self.context.clear_memos()
            return
        if not isinstance(info, ConstIntBound):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(
                "what a variable is updated with is limits, a residue class or an interval", found=type(info).__name__
            )
        low, high = info
        if low > NEG_INF and high < POS_INF:
            start = ir.const(low, var.dtype)
            self.bind(
                var, ir.Range.from_min_extent(start, ir.const(high - low + 1, var.dtype)), allow_override=override
            )
        elif low > NEG_INF or high < POS_INF:
            self._assume(var >= ir.const(low, var.dtype) if low > NEG_INF else var <= ir.const(high, var.dtype))
            self.context.clear_memos()

    def mark_global_non_neg(self, *exprs: ir.PrimExpr) -> None:
        """State that variables, or other expressions, are never negative."""
        for p in (poly_of(self.context, e) for e in exprs):
            if p is not None:
                self._add_fact(p)
                self.context.clear_memos()

    @contextmanager
    def constraint_scope(self, constraint: ir.PrimExpr, *more: ir.PrimExpr) -> Generator[None, None, None]:
        """Take `constraint`, and others, as true inside a ``with`` block."""
        cx = self.context
        saved = cx.snapshot()
        try:
            for c in (constraint, *more):
                self._assume(c)
            cx.clear_memos()
            yield
        finally:
            cx.restore(saved)

    def _assume(self, condition: Any, holds: bool = True) -> None:
        """Add that a condition holds, or that it does not, to the facts."""
        kind = type(condition)
        cx = self.context
        if kind is (ir.And if holds else ir.Or):
            self._assume(condition.a, holds)
            self._assume(condition.b, holds)
        elif kind is ir.Not:
            self._assume(condition.a, not holds)
        elif kind is ir.CallIntrin and getattr(condition.op, "name", "") == "tir.likely":
            self._assume(condition.args[0], holds)
        elif kind is not ir.IntImm and is_stable(condition):
            a, b = (poly_of(cx, e) for e in (condition.a, condition.b)) if kind in _OPPOSITE else (None, None)
            if a is None or b is None:
                cx.truth[expr_key(cx, condition)] = holds
            else:
                self._assume_comparison(kind if holds else _OPPOSITE[kind], add(a, b, -1))

    def _assume_comparison(self, kind: type, d: Poly) -> None:
        """Add ``d <kind> 0`` to the facts."""
        cx = self.context
        if kind in (ir.LT, ir.LE):
            self._add_fact(add(scale(d, -1), constant(-1 if kind is ir.LT else 0)))
        elif kind in (ir.GT, ir.GE):
            self._add_fact(add(d, constant(-1 if kind is ir.GT else 0)))
        elif kind is ir.NE:
            cx.nonzero = cx.nonzero | {key(d)}
            lo, hi = bound_of(cx, d)
            if lo == 0:
                self._add_fact(add(d, constant(-1)))
            elif hi == 0:
                self._add_fact(add(scale(d, -1), constant(-1)))
        else:
            self._add_fact(d)
            self._add_fact(scale(d, -1))
            self._define(d)

    def _define(self, d: Poly) -> None:
        """From ``d == 0``, take the definition of an atom that the rest of ``d`` does not hold."""
        cx = self.context
        terms = [(m, c) for m, c in d.items() if m]
        singles = [(m[0], c) for m, c in terms if len(m) == 1 and abs(c) == 1 and m[0] not in cx.equal]
        if len(terms) != 1 or not singles:
            return
        atom, c = singles[0]
        value = constant(-c * d.get((), 0))
        cx.equal[atom] = value
        info = cx.atoms[atom]
        if (info.kind != "mod" and not isinstance(info.node, ir.Mod)) or any(info.args[1].keys()):
            return
        num, den = info.args
        target, *more = [m for m in num if m] or [()]
        if more or len(target) != 1 or den[()] <= 0:
            return
        step, first = den[()], value.get((), 0) - num.get((), 0)  # num[target] * target is first modulo step
        common = gcd(num[target], step)
        if first % common == 0:
            known, step = ModularSet(*cx.moduli.get(target[0], (1, 0))), step // common
            found = ModularSet(step, first // common * pow(num[target] // common, -1, step) % step)
            cx.moduli[target[0]] = both_residues(found, known)
        if info.kind == "mod" and num == {target: 1}:
            quotient = cx.intern(("div", key(num), key(den)), "div", (num, den), None, info.dtype)
            cx.equal[target[0]] = add({(quotient,): den[()]}, value)

    def _add_fact(self, p: Poly) -> None:
        """Add ``p >= 0`` to the facts, and to the limits of its atom where it has only one."""
        self._add_one_fact(p)
        if any(self.context.atoms[a].kind == "mod" for a in atoms_of(p)):
            self._add_one_fact(expand(self.context, p))

    def _add_one_fact(self, p: Poly) -> None:
        cx = self.context
        atoms = atoms_of(p)
        if atoms and all(p in cx.facts.get(atom, ()) for atom in atoms):
            return
        cx.untried.append(p)
        for atom in atoms:
            cx.facts[atom] = (*cx.facts.get(atom, ()), p)
        terms = [(m, c) for m, c in p.items() if m]
        if len(terms) == 1 and len(terms[0][0]) == 1:
            (m, c), k = terms[0], p.get((), 0)
            lo, hi = cx.limits.get(m[0], (NEG_INF, POS_INF))
            cx.limits[m[0]] = (max(lo, -(k // c)), hi) if c > 0 else (lo, min(hi, k // -c))

    # --- questions ---

    def simplify(self, expr: Any, steps: int = 2) -> Any:
        """Return a simpler equal expression, or `expr` itself where there is nothing to simplify.

        Parameters
        ----------
        expr : PrimExpr
            The expression.
        steps : int
            How many times to go over it (TVM's parameter; one step reaches a fixed point nearly always).
        """
        if type(expr) is ir.IntImm:
            return expr
        if not ir.IS_EXPR[type(expr)]:
            expr = ir.as_expr(expr)
        self.context.trim()
        known = self.context.simplified
        for _ in range(steps):
            before, expr = expr, known.get(expr)
            if expr is None:
                expr = ir.with_deep_stack(partial(simplify, self, before))
            if expr is before:
                break
        return expr

    rewrite_simplify = simplify
    canonical_simplify = simplify

    def can_prove(self, expr: Any, strength: int = 0) -> bool:
        """Whether a condition holds for all values that the facts allow."""
        if isinstance(expr, bool):
            return expr
        result = self.simplify(expr)
        return isinstance(result, ir.IntImm) and result.value != 0

    def can_prove_equal(self, lhs: Any, rhs: Any) -> bool:
        """Whether two expressions are equal for all values that the facts allow."""
        if lhs is rhs:
            return True
        lhs, rhs = ir.as_expr(lhs), ir.as_expr(rhs)
        pa, pb = poly_of(self.context, lhs), poly_of(self.context, rhs)
        if pa is None or pb is None:
            return lhs.dtype == rhs.dtype and self.same(self.simplify(lhs), self.simplify(rhs))
        if proves_zero(self.context, add(pa, pb, -1)):
            return True
        choices = any(ir.find(e, ir.Select) for e in (lhs, rhs))  # which `simplify` may write in another way
        return choices and self.same(self.simplify(lhs), self.simplify(rhs))

    def can_prove_less(self, a: Any, b: Any) -> bool:
        """Whether ``a < b`` for all values that the facts allow."""
        return self._proves_sign(b, a, -1)

    def can_prove_greater_equal(self, a: Any, b: Any) -> bool:
        """Whether ``a >= b`` for all values that the facts allow."""
        return self._proves_sign(a, b, 0)

    def _proves_sign(self, a: Any, b: Any, offset: int) -> bool:
        pa, pb = poly_of(self.context, ir.as_expr(a)), poly_of(self.context, ir.as_expr(b))
        if pa is None or pb is None:
            return False
        return holds_nonneg(self.context, add(add(pa, pb, -1), constant(offset)))

    def same(self, a: Any, b: Any) -> bool:
        """Whether two expressions are equal up to the normal form of their integer parts."""
        return a is b or (a.dtype == b.dtype and expr_key(self.context, a) == expr_key(self.context, b))

    def const_int_bound(self, expr: Any) -> ConstIntBound:
        """Return inclusive constant limits of an integer expression."""
        p = poly_of(self.context, ir.as_expr(expr))
        if p is None:
            value = expr.value if isinstance(expr, ir.IntImm) else None
            return ConstIntBound(value, value) if value is not None else ConstIntBound(*dtype_limits(expr.dtype))
        lo, hi = bound_of(self.context, p)
        return ConstIntBound(lo, hi)

    def const_int_bound_is_bound(self, var: ir.Var) -> bool:
        """Whether a range, a limit or a value of a variable was stated."""
        atom = self.context.var_atom(var)
        cx = self.context
        return any(atom in table for table in (cx.ranges, cx.limits, cx.equal, cx.facts))

    def try_compare(self, lhs: Any, rhs: Any, propagate_inequalities: bool = True) -> CompareResult:
        """Compare two integer expressions by what is known; chains of inequalities are always followed."""
        if self.can_prove_equal(lhs, rhs):
            return CompareResult.EQ
        for a, b, strict, weak in (
            (lhs, rhs, CompareResult.LT, CompareResult.LE),
            (rhs, lhs, CompareResult.GT, CompareResult.GE),
        ):
            if self.can_prove_less(a, b):
                return strict
            if self.can_prove_greater_equal(b, a):
                return weak
        return CompareResult.NE if self.can_prove(ir.not_equal(lhs, rhs)) else CompareResult.UNKNOWN

    def modular_set(self, expr: Any) -> ModularSet:
        """Return the residue class of an integer expression."""
        while isinstance(expr, ir.Let):
            expr = ir.substitute(expr.body, {expr.var: expr.value})
        p = poly_of(self.context, ir.as_expr(expr))
        return ModularSet(1, 0) if p is None else modular_of(self.context, p)

    def int_set(self, expr: ir.PrimExpr, dom_map: Mapping[Any, Any] | None = None) -> Any:
        """Return the interval of an expression while variables run over their domains.

        Parameters
        ----------
        dom_map : mapping of Var to Range or IntervalSet
            The variables that run; all others stay symbolic. Left out: those of which numbers bound both sides.
        """
        if dom_map is None:
            known = {v: self.const_int_bound(v) for v in ir.find(expr, ir.Var)}
            dom_map = {
                v: IntervalSet(ir.const(b.min_value, v.dtype), ir.const(b.max_value, v.dtype))
                for v, b in known.items()
                if b.min_value > max(NEG_INF, dtype_limits(v.dtype)[0]) and b.max_value < dtype_limits(v.dtype)[1]
            }
        return ir.with_deep_stack(lambda: eval_interval(expr, dom_map, self))


_OPPOSITE: dict[type, type] = {ir.LT: ir.GE, ir.LE: ir.GT, ir.GT: ir.LE, ir.GE: ir.LT, ir.EQ: ir.NE, ir.NE: ir.EQ}
