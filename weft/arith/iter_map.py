"""Index expressions as maps of iterators: which parts of which loops make an index, and how to undo the map.

Each index is read as a sum of *splits* ``((mark // lower_factor) % extent) * scale`` plus a base, where a *mark* is an
input iterator or a compact sum of splits. The map is surjective when no part of a mark is used twice, and bijective
when all parts are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from weft import ir
from weft.arith.analyzer import Analyzer
from weft.arith.form import held, poly_of, to_expr
from weft.arith.int_set import inequalities
from weft.arith.linear import Poly, add, atoms_of, key


class IterMark(ir.Node):
    """A range of values ``0 .. extent - 1``: an input variable (counted from zero) or a sum of splits."""

    source: Any
    extent: ir.PrimExpr


class IterMapExpr(ir.Node, abstract=True):
    """A sum or a split."""


class IterSplitExpr(IterMapExpr):
    """``((source // lower_factor) % extent) * scale``."""

    source: IterMark
    lower_factor: ir.PrimExpr
    extent: ir.PrimExpr
    scale: ir.PrimExpr


class IterSumExpr(IterMapExpr):
    """The sum of `args` and `base`; the splits stand by falling scale."""

    args: tuple[IterSplitExpr, ...]
    base: ir.PrimExpr


class IterMapLevel(IntEnum):
    """What a map must be: each input part used exactly once, at most once, or anything."""

    BIJECTIVE = 0
    SURJECTIVE = 1
    NO_CHECK = 3
    Bijective = 0
    Surjective = 1
    NoCheck = 3

    @staticmethod
    def from_str(name: str) -> IterMapLevel:
        """Convert from the name, in any case."""
        return IterMapLevel.of(name.lower())

    @staticmethod
    def of(level: Any) -> IterMapLevel:
        """Convert from the level, its name in lower case, or None for no check."""
        if level is None:
            return IterMapLevel.NO_CHECK
        names = {
            "bijective": IterMapLevel.BIJECTIVE,
            "surjective": IterMapLevel.SURJECTIVE,
            "nocheck": IterMapLevel.NO_CHECK,
        }
        return names[level] if isinstance(level, str) else IterMapLevel(level)


class IterMapResult:
    """The sums found (empty where the indices are no such map), and why not."""

    __slots__ = ("errors", "indices", "padding_predicate")

    def __init__(self, indices: Sequence[IterSumExpr], errors: Sequence[str] = ()) -> None:
        self.indices, self.errors, self.padding_predicate = list(indices), list(errors), ir.as_expr(False)

    def __len__(self) -> int:
        return len(self.indices)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, at: int) -> IterSumExpr:
        return self.indices[at]


class _NoMap(Exception):
    """An index is not a sum of splits."""


class _Detector:
    """Reads indices over one set of input iterators."""

    def __init__(
        self, input_iters: Mapping[ir.Var, ir.Range], predicate: ir.PrimExpr, an: Analyzer, keep_units: bool = False
    ) -> None:
        self.an, self.keep_units = an, keep_units
        self.cx = an.context
        self.inputs: dict[int, tuple[IterMark, ir.PrimExpr]] = {}
        for var, dom in input_iters.items():
            an.bind(var, dom, allow_override=True)
            self.inputs[self.cx.var_atom(var)] = (
                IterMark(var if ir.is_const_int(dom.min, 0) else var - dom.min, dom.extent),
                dom.min,
            )
        self.running: dict[ir.PrimExpr, bool] = {}
        self.fused: dict[Any, IterMark] = {}
        self.limits: dict[Any, Poly] = {}
        for d in inequalities(self.cx, predicate):
            moving = {m: -c for m, c in d.items() if any(self._moves(a) for a in m)}
            rest = {m: c for m, c in d.items() if m not in moving}
            self.limits[key(moving)] = add(rest, {(): 1})

    def _moves(self, atom: int) -> bool:
        info = self.cx.atoms[atom]
        if atom in self.inputs:
            return True
        return any(self._moves(a) for p in info.args if isinstance(p, dict) for a in atoms_of(p))

    def index(self, e: ir.PrimExpr) -> IterSumExpr:
        """Read an expression as a sum of splits, as written: normal forms would mix the parts of a remainder."""
        splits: list[IterSplitExpr] = []
        base = self._collect(e, ir.const(1, e.dtype), splits)
        return self._normalize(splits, self.an.simplify(base), e)

    def _collect(self, e: ir.PrimExpr, scale: ir.PrimExpr, out: list[IterSplitExpr]) -> ir.PrimExpr:
        """Add the splits of ``scale * e`` to `out`; return what is left of it."""
        kind = type(e)
        if not self._runs(e):
            return scale * e
        if isinstance(e, ir.Var):
            mark, low = self.inputs[self.cx.var_atom(e)]
            if ir.is_const_int(mark.extent, 1) and not self.keep_units:
                return scale * low
            out.append(IterSplitExpr(mark, ir.const(1, e.dtype), mark.extent, self.an.simplify(scale)))
            return scale * low
        if kind in (ir.Add, ir.Sub):
            left = self._collect(e.a, scale, out)  # type: ignore[attr-defined]
            return left + self._collect(e.b, scale if kind is ir.Add else scale * -1, out)  # type: ignore[attr-defined]
        if isinstance(e, ir.Mul) and not (self._runs(e.a) and self._runs(e.b)):
            moving, still = (e.a, e.b) if self._runs(e.a) else (e.b, e.a)
            return self._collect(moving, self.an.simplify(scale * still), out)
        if isinstance(e, (ir.FloorDiv, ir.FloorMod)) and not self._runs(e.b):
            out.append(self._with_scale(self._split_of(e), scale))
            return ir.const(0, e.dtype)
        raise _NoMap(f"'{e}' is not a sum of scaled iterators, quotients and remainders")

    def _runs(self, e: ir.PrimExpr) -> bool:
        known = self.running.get(e)
        if known is None:
            inside = any(isinstance(v, ir.Var) and self.cx.var_atom(v) in self.inputs for v in ir.walk(e))
            known = self.running[e] = inside
        return known

    def _with_scale(self, split: IterSplitExpr, scale: ir.PrimExpr) -> IterSplitExpr:
        return IterSplitExpr(split.source, split.lower_factor, split.extent, self.an.simplify(split.scale * scale))

    def _split_of(self, e: ir.FloorDiv | ir.FloorMod) -> IterSplitExpr:
        dtype, an = e.dtype, self.an
        whole = self._fuse(self.index(e.a), dtype)
        divisor, one = an.simplify(e.b), ir.const(1, dtype)
        if an.can_prove(divisor >= whole.extent):
            return (
                whole
                if isinstance(e, ir.FloorMod)
                else IterSplitExpr(whole.source, an.simplify(whole.lower_factor * whole.extent), one, one)
            )
        if not an.can_prove_equal(ir.floormod(whole.extent, divisor), 0):
            raise _NoMap(f"extent {whole.extent} is not divisible by {divisor}")
        if isinstance(e, ir.FloorMod):
            return IterSplitExpr(whole.source, whole.lower_factor, divisor, one)
        return IterSplitExpr(
            whole.source,
            an.simplify(whole.lower_factor * divisor),
            an.simplify(ir.floordiv(whole.extent, divisor)),
            one,
        )

    def _fuse(self, total: IterSumExpr, dtype: str) -> IterSplitExpr:
        """Return a compact sum as one split with scale 1."""
        if not ir.is_const_int(total.base, 0):
            raise _NoMap(f"a sum with offset {total.base} is divided")
        if len(total.args) == 1 and ir.is_const_int(total.args[0].scale, 1):
            return total.args[0]
        if not total.args or not ir.is_const_int(total.args[-1].scale, 1):
            raise _NoMap("the innermost iterator of a divided sum has a stride")
        self._check_compact(total)
        extent = self.an.simplify(total.args[0].scale * total.args[0].extent)
        return self._mark(total, extent, dtype)

    def _check_compact(self, total: IterSumExpr) -> None:
        for outer, inner in zip(total.args, total.args[1:], strict=False):
            if not self.an.can_prove_equal(outer.scale, inner.scale * inner.extent):
                raise _NoMap(f"stride {outer.scale} does not follow extent {inner.extent} with stride {inner.scale}")

    def _check_stride(self, total: IterSumExpr) -> None:
        """Refuse a stride that may be 0, unless it is one of the extents, where 0 means that there is no iteration."""
        if not total.args or ir.is_const_int(total.args[-1].extent, 1):
            return
        stride = total.args[-1].scale
        extents = [mark.extent for mark, _ in self.inputs.values()]
        if not self.an.can_prove(ir.NE(stride, ir.const(0, stride.dtype))) and not any(
            self.an.can_prove_equal(stride, e) for e in extents
        ):
            raise _NoMap(f"the stride {stride} may be 0")

    def _mark(self, total: IterSumExpr, extent: ir.PrimExpr, dtype: str) -> IterSplitExpr:
        p = poly_of(self.cx, normalize_iter_map_to_expr(total))
        assert p is not None
        mark = self.fused.get(key(p))
        if mark is None:
            mark = self.fused[key(p)] = IterMark(total, extent)
        one = ir.const(1, dtype)
        return IterSplitExpr(mark, one, mark.extent, one)

    def _normalize(self, splits: list[IterSplitExpr], base: ir.PrimExpr, e: ir.PrimExpr) -> IterSumExpr:
        """Sort splits by falling scale, join neighbours of one mark, and apply a limit from the predicate."""
        ordered: list[IterSplitExpr] = []
        for s in splits:
            if ir.is_const_int(s.scale, 0):
                continue
            at = next((i for i, o in enumerate(ordered) if self._larger(s, o)), len(ordered))
            ordered.insert(at, s)
        joined: list[IterSplitExpr] = []
        for s in ordered:
            last = joined[-1] if joined else None
            if last is not None and self._continues(last, s):
                joined[-1] = IterSplitExpr(s.source, s.lower_factor, self.an.simplify(last.extent * s.extent), s.scale)
            else:
                joined.append(s)
        total = IterSumExpr(tuple(joined), base)
        p = poly_of(self.cx, e) or {}
        limit = self.limits.get(key({m: c for m, c in p.items() if any(self._moves(a) for a in m)}))
        if limit is not None and joined and ir.is_const_int(base, 0) and ir.is_const_int(joined[-1].scale, 1):
            extent = held(to_expr, self.cx, limit, e.dtype)
            return total if extent is None else IterSumExpr((self._mark(total, extent, e.dtype),), base)
        return total

    def _larger(self, a: IterSplitExpr, b: IterSplitExpr) -> bool:
        if self.an.can_prove_equal(a.scale, b.scale):
            return ir.is_const_int(b.extent, 1)
        return self.an.can_prove(a.scale > b.scale) or self.an.can_prove(
            ir.floordiv(a.scale, b.scale) * b.scale >= b.scale * 2
        )

    def _continues(self, outer: IterSplitExpr, inner: IterSplitExpr) -> bool:
        return (
            outer.source is inner.source
            and self.an.can_prove_equal(outer.lower_factor, inner.lower_factor * inner.extent)
            and self.an.can_prove_equal(outer.scale, inner.scale * inner.extent)
        )

    def check(self, sums: Sequence[IterSumExpr], level: IterMapLevel) -> None:
        """Raise unless the splits use each part of each mark at most (bijective: exactly) once."""
        for total in sums:
            self._check_compact(total)
            self._check_stride(total)
        used: dict[IterMark, list[IterSplitExpr]] = {}
        pending = [s for total in sums for s in total.args]
        seen: set[IterMark] = set()
        while pending:
            s = pending.pop()
            used.setdefault(s.source, []).append(s)
            if isinstance(s.source.source, IterSumExpr) and s.source not in seen:
                seen.add(s.source)
                pending += s.source.source.args
        for mark, splits in used.items():
            self._check_mark(mark, splits, level)
        if level is IterMapLevel.BIJECTIVE:
            for mark, _ in self.inputs.values():
                if mark not in used and not ir.is_const_int(mark.extent, 1):
                    raise _NoMap(f"iterator {mark.source} is not used")

    def _check_mark(self, mark: IterMark, splits: list[IterSplitExpr], level: IterMapLevel) -> None:
        expected: ir.PrimExpr = ir.const(1, mark.extent.dtype)
        left = list(splits)
        while left:
            match = next((s for s in left if self.an.can_prove_equal(s.lower_factor, expected)), None)
            if match is None:
                if level is IterMapLevel.BIJECTIVE:
                    raise _NoMap(f"parts of {mark.source} overlap or are missing")
                match = next(
                    (
                        s
                        for s in left
                        if self.an.can_prove_equal(ir.floormod(s.lower_factor, expected), 0)
                        and self.an.can_prove(s.lower_factor >= expected)
                    ),
                    None,
                )
                if match is None or any(
                    o is not match and self.an.can_prove(o.lower_factor < match.lower_factor) for o in left
                ):
                    raise _NoMap(f"parts of {mark.source} overlap")
            left.remove(match)
            expected = self.an.simplify(match.lower_factor * match.extent)
        if level is IterMapLevel.BIJECTIVE and not self.an.can_prove_equal(expected, mark.extent):
            raise _NoMap(f"a part of {mark.source} is not used")


def detect_iter_map(
    indices: Iterable[ir.PrimExpr],
    input_iters: Mapping[ir.Var, ir.Range],
    predicate: ir.ExprLike = ir.TRUE,
    check_level: IterMapLevel | str | None = IterMapLevel.SURJECTIVE,
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> IterMapResult:
    """Read indices as sums of iterator splits.

    Parameters
    ----------
    indices : iterable of PrimExpr
        The index expressions.
    input_iters : mapping of Var to Range
        The iterators.
    predicate : PrimExpr or bool
        A conjunction of comparisons that holds of the iterators; ``io*8 + ii < n`` bounds that sum.
    check_level : IterMapLevel or str
        ``"bijective"``, ``"surjective"`` or ``"nocheck"``.
    simplify_trivial_iterators : bool
        Whether iterators over one value count as that value.
    analyzer : Analyzer, optional
        What is known of other variables; it stays as it is.

    Returns
    -------
    IterMapResult
        ``indices`` has one sum per index, or nothing when some index does not fit; then ``errors`` says why.
    """
    an = Analyzer() if analyzer is None else analyzer.clone()
    level = IterMapLevel.of(check_level)
    try:
        detector = _Detector(input_iters, ir.as_expr(predicate), an, not simplify_trivial_iterators)
        sums = [detector.index(ir.as_expr(index)) for index in indices]
        if level is not IterMapLevel.NO_CHECK:
            detector.check(sums, level)
    except _NoMap as e:
        return IterMapResult((), (str(e),))
    return IterMapResult(sums)


def normalize_to_iter_sum(
    index: ir.ExprLike, input_iters: Mapping[ir.Var, ir.Range], analyzer: Analyzer | None = None
) -> IterSumExpr:
    """Read an index as a sum of iterator splits, which stand by falling scale; the base is what is no such split."""
    an = Analyzer() if analyzer is None else analyzer.clone()
    detector = _Detector(input_iters, ir.TRUE, an)
    index = ir.as_expr(index)
    base: ir.PrimExpr = ir.const(0, index.dtype)
    found: list[IterSplitExpr] = []
    for term in _terms(index):
        try:
            part = detector.index(term)
        except _NoMap:
            base = base + term
            continue
        found += part.args
        base = base + part.base
    order = {s: i for i, s in enumerate(found)}
    found.sort(key=lambda s: (-(ir.as_int(s.scale) or 0), order[s]))
    return IterSumExpr(tuple(found), an.simplify(base))


def _terms(e: ir.PrimExpr) -> list[ir.PrimExpr]:
    if isinstance(e, ir.Add):
        return [*_terms(e.a), *_terms(e.b)]
    return [e]


def normalize_iter_map_to_expr(expr: ir.PrimExpr | IterMark | IterSumExpr | IterSplitExpr) -> ir.PrimExpr:
    """Write a sum, split or mark as an ordinary expression."""
    if isinstance(expr, IterSumExpr):
        result: ir.PrimExpr | None = None
        for s in expr.args:
            term = normalize_iter_map_to_expr(s)
            result = term if result is None else result + term
        return expr.base if result is None else result + expr.base
    if isinstance(expr, IterSplitExpr):
        source = normalize_iter_map_to_expr(expr.source)
        end = Analyzer().simplify(expr.lower_factor * expr.extent)
        if not Analyzer().can_prove_equal(end, expr.source.extent):
            source = ir.floormod(source, end)
        return ir.floordiv(source, expr.lower_factor) * expr.scale
    if isinstance(expr, IterMark):
        return normalize_iter_map_to_expr(expr.source)
    return expr


def iter_map_simplify(
    indices: Iterable[ir.PrimExpr],
    input_iters: Mapping[ir.Var, ir.Range],
    predicate: ir.ExprLike = ir.TRUE,
    check_level: IterMapLevel | str | None = "surjective",
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> list[ir.PrimExpr]:
    """Simplify indices knowing the ranges of their iterators and a predicate."""
    listed = list(indices)
    an = Analyzer() if analyzer is None else analyzer.clone()
    for var, dom in input_iters.items():
        an.bind(var, dom, allow_override=True)
    with an.constraint_scope(ir.as_expr(predicate)):
        return [an.simplify(i) for i in listed]


def inverse_affine_iter_map(
    iter_map: Sequence[IterSumExpr], outputs: Sequence[ir.PrimExpr]
) -> dict[ir.Var, ir.PrimExpr]:
    """Return the value of each input variable from the values of the indices.

    Parameters
    ----------
    iter_map : sequence of IterSumExpr
        What :func:`detect_iter_map` gave at the bijective level.
    outputs : sequence of PrimExpr
        One value per index.
    """
    an = Analyzer()
    values: dict[IterMark, ir.PrimExpr] = {}
    inputs: dict[ir.Var, ir.PrimExpr] = {}

    def spread(total: IterSumExpr, value: ir.PrimExpr) -> None:
        value = value - total.base
        for position, s in enumerate(total.args):
            part = ir.floordiv(value, s.scale)
            if position:
                part = ir.floormod(part, s.extent)
            old = values.get(s.source)
            part = part * s.lower_factor
            values[s.source] = part if old is None else old + part

    for total, value in zip(iter_map, outputs, strict=True):
        spread(total, value)
    while values:
        inner = {s.source for mark in values for s in _splits_below(mark)}
        for mark in [m for m in values if m not in inner]:
            value = values.pop(mark)
            if isinstance(mark.source, IterSumExpr):
                spread(mark.source, value)
            elif isinstance(mark.source, ir.Var):
                inputs[mark.source] = an.simplify(value)
            else:  # a variable less its least value
                inputs[mark.source.a] = an.simplify(value + mark.source.b)
    return inputs


def _splits_below(mark: IterMark) -> list[IterSplitExpr]:
    if not isinstance(mark.source, IterSumExpr):
        return []
    return [s for arg in mark.source.args for s in (arg, *_splits_below(arg.source))]
