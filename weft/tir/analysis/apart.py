"""Whether instances of a block, and iterations of a loop, touch elements of their own, so that their order is free."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from weft import arith, ir
from weft.tir.analysis.access import access_regions, loads_of, relax_region, stores_of, substitute_ranges
from weft.tir.analysis.cover import cuts_nothing
from weft.tir.analysis.structure import bind_domains, child_realizes, conjuncts, iter_values_of, path_to, used_vars
from weft.tir.buffer import Buffer, BufferRegion
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, IfThenElse, Stmt

_POINTS = 1 << 16  # so many points of a domain are looked at one by one
_Box = tuple[ir.Range | None, ...]
_ARITHMETIC: dict[type, np.ufunc] = {
    ir.Add: np.add,
    ir.Sub: np.subtract,
    ir.Mul: np.multiply,
    ir.FloorDiv: np.floor_divide,
    ir.FloorMod: np.mod,
    ir.Min: np.minimum,
    ir.Max: np.maximum,
}


def values_apart(
    exprs: Sequence[ir.PrimExpr], domain: Mapping[ir.Var, ir.Range], predicate: ir.PrimExpr = ir.TRUE
) -> bool:
    """Whether `exprs` are known to differ, in one of them at least, at any two points of a domain."""
    moving = {v: r for v, r in domain.items() if not ir.is_const_int(r.extent, 1)}
    if not moving or moving.keys() <= {e for e in exprs if isinstance(e, ir.Var)}:
        return True
    if moving.keys() - used_vars(*exprs):
        return False
    fixed = {v: r.min for v, r in domain.items() if v not in moving}
    mixed = [ir.substitute(e, fixed) for e in exprs if not used_vars(e).isdisjoint(moving)]
    if moving.keys() <= _found_again(mixed, set(moving)):
        return True
    sums = arith.detect_iter_map(mixed, domain, predicate, "bijective").indices
    if sums and all(_is_no_zero(part.scale) for total in sums for part in total.args):
        return True
    extents = [ir.as_int(r.extent) for r in moving.values()]
    known = [n for n in extents if n is not None]
    if len(known) < len(extents) or not 0 < math.prod(known) <= _POINTS:
        return 0 in known
    starts = [n for r in moving.values() if (n := ir.as_int(r.min)) is not None]
    if len(starts) < len(moving) or not _adds_outer(mixed, set(moving)):
        return False
    points = np.indices(known).reshape(len(known), -1)
    at = {v: np.asarray(0) for v in used_vars(*mixed)}
    at |= {v: p + start for v, p, start in zip(moving, points, starts, strict=True)}
    places = [values_at(e, at) for e in mixed]
    found = [np.broadcast_to(p, points.shape[1]) for p in places if p is not None]
    if len(found) < len(places):
        return False
    numbers = np.sort(numbered(found, points.shape[1]))
    return bool((numbers[1:] != numbers[:-1]).all())


def _found_again(exprs: Sequence[ir.PrimExpr], moving: set[ir.Var]) -> set[ir.Var]:
    """The variables whose values follow from those of `exprs` by solving one at a time, as `v` from `v // c, v % c`."""
    found: set[ir.Var] = set()
    pieces = [_digits(e) for e in exprs]

    def solve(e: ir.PrimExpr) -> None:
        if isinstance(e, ir.Var):
            found.add(e)
        elif isinstance(e, ir.Cast):
            solve(e.value)
        elif isinstance(e, (ir.Add, ir.Sub)):
            for known, rest in ((e.a, e.b), (e.b, e.a)):
                if (used_vars(known) & moving) <= found:
                    solve(rest)
        elif isinstance(e, ir.Mul) and isinstance(e.b, ir.IntImm) and e.b.value:
            solve(e.a)
        elif isinstance(e, (ir.FloorDiv, ir.FloorMod)):
            whole, low, high = _digits(e)
            others = [(at, to) for other, at, to in pieces if ir.structural_equal(other, whole)]
            if whole is not e and _all_digits([(low, high), *others]):
                solve(whole)

    for _ in moving:
        for e in exprs:
            solve(e)
    return found


def _digits(e: ir.PrimExpr) -> tuple[ir.PrimExpr, ir.PrimExpr, ir.PrimExpr | None]:
    """What `e` holds digits of, and which: it is ``whole // low % (high // low)``, without the remainder for None."""
    e = _bare(e)
    sizes = isinstance(e, (ir.FloorDiv, ir.FloorMod)) and all(isinstance(v, ir.SizeVar) for v in used_vars(e.b))
    if not sizes or (isinstance(e.b, ir.IntImm) and e.b.value <= 0):  # type: ignore[attr-defined]
        return e, ir.const(1, e.dtype), None
    whole, low, high = _digits(e.a)  # type: ignore[attr-defined]
    end = low * ir.cast(low.dtype, e.b)  # type: ignore[attr-defined]
    if high is not None and not _divides(end, high):
        return e, ir.const(1, e.dtype), None
    return (whole, end, high) if isinstance(e, ir.FloorDiv) else (whole, low, end)


def _all_digits(pieces: Iterable[tuple[ir.PrimExpr, ir.PrimExpr | None]]) -> bool:
    """Whether digits leave none out: where some begin at what the others tell the remainder of."""
    left = list(pieces)
    known: ir.PrimExpr | None = ir.const(1, left[0][0].dtype)  # the remainder by this number is told
    while known is not None:
        more = next((p for p in left if _divides(p[0], known)), None)
        if more is None:
            return False
        left.remove(more)
        less = more[1] is not None and (ir.as_int(more[1]) or math.inf) < (ir.as_int(known) or 0)
        known = known if less else more[1]
    return True


def _divides(a: ir.PrimExpr, b: ir.PrimExpr) -> bool:
    if isinstance(a, ir.IntImm) and (a.value == 1 or isinstance(b, ir.IntImm)):
        return a.value == 1 or (ir.as_int(b) or 0) % a.value == 0
    return arith.Analyzer().can_prove_equal(a, b)


def _is_no_zero(scale: ir.PrimExpr) -> bool:
    """Whether a stride is a number other than 0, or made of dimensions, of which one that is 0 has no elements."""
    stride = arith.Analyzer().simplify(scale)
    return (
        stride.value != 0
        if isinstance(stride, ir.IntImm)
        else all(isinstance(v, ir.SizeVar) for v in used_vars(stride))
    )


def _bare(e: ir.PrimExpr) -> ir.PrimExpr:
    return _bare(e.value) if isinstance(e, ir.Cast) else e


def _adds_outer(exprs: Sequence[ir.PrimExpr], moving: set[ir.Var]) -> bool:
    """Whether variables outside of the domain are only added, so that they move all values alike."""

    def fits(e: ir.PrimExpr) -> bool:
        if used_vars(e).isdisjoint(moving) or used_vars(e) <= moving:
            return True
        return isinstance(e, (ir.Add, ir.Sub)) and fits(e.a) and fits(e.b)

    return all(fits(e) for e in exprs)


def values_at(expr: ir.PrimExpr, points: Mapping[ir.Var, np.ndarray]) -> np.ndarray | None:
    """Evaluate an index at many points; None where it has more than integer arithmetic."""
    if isinstance(expr, ir.IntImm):
        return np.asarray(expr.value)
    if isinstance(expr, ir.Var):
        return points.get(expr)
    if isinstance(expr, ir.Cast):
        return values_at(expr.value, points)
    if type(expr) not in _ARITHMETIC or not isinstance(expr, ir.BinaryOp):
        return None
    a, b = values_at(expr.a, points), values_at(expr.b, points)
    return None if a is None or b is None else _ARITHMETIC[type(expr)](a, b)


def numbered(places: list[np.ndarray], count: int) -> np.ndarray:
    """One number for each of `count` points, equal where all indices are: rows are slow to sort."""
    numbers, bound = np.zeros(count, np.int64), 1
    for index in places:
        within = index - index.min()
        extent = int(within.max()) + 1
        if bound * extent > 1 << 62:
            numbers, bound = np.unique(numbers, return_inverse=True)[1], count
        numbers, bound = numbers * extent + within, bound * extent
    return numbers


def accumulates(block: Block) -> bool:
    """Whether a block changes elements of which it needs the old values, or starts a reduction anew."""
    own = [w.buffer for w in block.writes]
    return block.init is not None or any(r.buffer is b for r in block.reads for b in own)


def writes_apart(block: Block) -> bool:
    """Whether each value of the data-parallel variables of a block writes elements of its own."""
    domain = {iv.var: iv.dom for iv in block.iter_vars if iv.iter_type == "data_par"}
    known = {v: r for v, r in domain.items() if r is not None}
    return len(known) == len(domain) and all(_apart(w, known) for w in block.writes)


def _apart(region: BufferRegion, domain: Mapping[ir.Var, ir.Range]) -> bool:
    plain = {r.min for r in region.region if ir.is_const_int(r.extent, 1)}
    if all(v in plain for v, r in domain.items() if not ir.is_const_int(r.extent, 1)):
        return True
    analyzer = arith.Analyzer()
    for v, r in domain.items():
        analyzer.bind(v, r)
    return values_apart(_tiles(region.region, analyzer), domain)


def _tiles(ranges: Iterable[ir.Range], analyzer: arith.Analyzer) -> list[ir.PrimExpr]:
    """Number the ranges that start at multiples of their extents: different numbers are different elements."""
    places = []
    for r in ranges:
        tile = r.min if ir.is_const_int(r.extent, 1) else analyzer.simplify(r.min // r.extent)
        if tile is r.min or analyzer.can_prove_equal(tile * r.extent, r.min):
            places.append(tile)
    return places


def initialises(block: Block) -> bool:
    """Whether the init of a block stores the elements that its body changes, and the body reads no others of them."""
    init, body = block.init, block.body
    reducing = {iv.var for iv in block.iter_vars if iv.iter_type != "data_par"}
    if init is None or any(not used_vars(s.indices).isdisjoint(reducing) for s in stores_of(init)):
        return False  # the init runs at the first value of each reduction variable only
    stores, starts = stores_of(body), stores_of(init)
    if isinstance(body, BufferStore) and isinstance(init, BufferStore):
        places = [init, *loads_of(body.value, body.buffer)]
        return all(p.buffer is body.buffer and ir.structural_equal(p.indices, body.indices) for p in places)
    analyzer = bind_domains(arith.Analyzer(), block)
    hidden = (*block.alloc_buffers, *(m.buffer for m in block.match_buffers))
    reads, writes = access_regions([body], analyzer, hidden)
    begun = {w.buffer: w.region for w in access_regions([init], analyzer, hidden)[1]}
    own = {w.buffer for w in writes}
    if not stores or not starts:  # an intrinsic's body says by its regions only what it does
        return True
    return all(ir.structural_equal(begun.get(r.buffer), r.region) for r in (*writes, *reads) if r.buffer in own)


def instances_apart(loops: Iterable[For], realize: BlockRealize, kinds: tuple[str, ...] = ("data_par",)) -> bool:
    """Whether no two iterations of `loops` run a block with the same values of its variables of these kinds.

    Loops that no such value depends on do not count.
    """
    values = [v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True) if iv.iter_type in kinds]
    used = used_vars(*values)
    ranges = {f.loop_var: ir.Range.from_min_extent(f.min, f.extent) for f in loops if f.loop_var in used}
    moving = {v for v, r in ranges.items() if not ir.is_const_int(r.extent, 1)}
    if moving <= {v for v in values if isinstance(v, ir.Var)}:
        return True
    if any(not used_vars(r.min, r.extent).isdisjoint(ranges) for r in ranges.values()):
        return False
    return values_apart([v for v in values if not used_vars(v).isdisjoint(ranges)], ranges, realize.predicate)


def tied_iterations(body: Stmt, loops: Sequence[For], analyzer: arith.Analyzer) -> tuple[Buffer, str] | None:
    """Find blocks in the body of nested loops of which one uses what another made in another iteration.

    Parameters
    ----------
    body : Stmt
        What the innermost of `loops` runs.
    loops : sequence of For
        The loops whose iterations are to run in any order, outermost first.
    analyzer : Analyzer
        One that knows `loops` and what is around them.

    Returns
    -------
    (Buffer, str) or None
        A buffer through which iterations depend on one another and the name of the block that uses it; None where
        each iteration is known to use what it makes itself.
    """
    realizes = child_realizes(body)
    regions = [(r, a) for r in realizes for a in (*r.block.reads, *r.block.writes)]
    written = [(r, w.buffer) for r in realizes for w in r.block.writes]
    shared = dict.fromkeys(b for r, b in written if any(a.buffer is b and o is not r for o, a in regions))
    domain = {f.loop_var: ir.Range.from_min_extent(f.min, f.extent) for f in loops}
    for buffer in shared:
        touched = {(q, a): _box(body, q, a, analyzer) for q, a in regions if a.buffer is buffer}
        made, makers = _made_first(touched, analyzer)
        held = made is not None and all(_holds(made, b, analyzer) for b in touched.values())
        if held and all(r in makers and _always(body, r, analyzer) for r, b in written if b is buffer):
            continue
        dims = zip(*([made] if held else touched.values()), strict=True)
        alike = [d[0] for d in dims if d[0] is not None and all(ir.structural_equal(o, d[0]) for o in d[1:])]
        if values_apart(_tiles(alike, analyzer), domain) or (
            len(loops) == 1 and _step_past(loops[0], [*touched.values()], analyzer)
        ):
            continue
        return buffer, [*touched][-1][0].block.name_hint
    return None


def _made_first(
    touched: Mapping[tuple[BlockRealize, BufferRegion], _Box], analyzer: arith.Analyzer
) -> tuple[_Box | None, list[BlockRealize]]:
    """The box of a buffer that the first blocks make, part by part, before anybody uses it; and those blocks."""
    made: _Box | None = None
    makers: list[BlockRealize] = []
    for r in dict.fromkeys(q for q, _ in touched):
        written = [touched[r, w] for w in r.block.writes if (r, w) in touched]
        whole = _joined(made, written[0], analyzer) if written and (not makers or not accumulates(r.block)) else None
        if whole is None:
            break
        made, makers = whole, [*makers, r]
    return made, makers


def _joined(a: _Box | None, b: _Box, analyzer: arith.Analyzer) -> _Box | None:
    """Two boxes that follow one another in one dimension and are alike in the others, as one."""
    if a is None:
        return b
    other = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if not ir.structural_equal(x, y)]
    x, y = (a[other[0]], b[other[0]]) if len(other) == 1 else (None, None)
    if x is None or y is None or not analyzer.can_prove_equal(x.min + x.extent, y.min):
        return None
    return (*a[: other[0]], ir.Range.from_min_extent(x.min, analyzer.simplify(x.extent + y.extent)), *a[other[0] + 1 :])


def _always(body: Stmt, realize: BlockRealize, analyzer: arith.Analyzer) -> bool:
    """Whether a block runs whatever the loops are at, but for values outside of the domains of its variables."""
    if any(isinstance(s, IfThenElse) for s in path_to(body, lambda s: s is realize) or ()):
        return False
    inside = tuple(iv.dom for iv in realize.block.iter_vars if iv.dom is not None)
    values = tuple(v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True) if iv.dom is not None)
    return all(cuts_nothing(c, values, inside, analyzer) for c in conjuncts(realize.predicate))


def _box(body: Stmt, realize: BlockRealize, region: BufferRegion, analyzer: arith.Analyzer) -> _Box:
    """Bound what a block touches while the loops in `body` run; None for a dimension without bounds."""
    above = [s for s in path_to(body, lambda s: s is realize) or () if isinstance(s, For)]
    inner = {f.loop_var: ir.Range.from_min_extent(f.min, f.extent) for f in above}
    for v, r in inner.items():
        analyzer.bind(v, r)
    return relax_region(substitute_ranges(region.region, iter_values_of(realize)), inner, analyzer)


def _holds(whole: _Box, part: _Box, analyzer: arith.Analyzer) -> bool:
    """Whether one box has all of another."""
    return all(
        w is not None
        and p is not None
        and (
            ir.structural_equal(w, p)
            or (analyzer.can_prove(w.min <= p.min) and analyzer.can_prove(p.min + p.extent <= w.min + w.extent))
        )
        for w, p in zip(whole, part, strict=True)
    )


def _step_past(loop: For, boxes: list[_Box], analyzer: arith.Analyzer) -> bool:
    """Whether, in one dimension, each iteration of a loop starts behind all that the one before it touched."""
    step = {loop.loop_var: loop.loop_var + ir.const(1, loop.loop_var.dtype)}
    for dims in zip(*boxes, strict=True):
        known = [d for d in dims if d is not None]
        nexts = ir.substitute(tuple(known), step)
        if len(known) == len(dims) and all(analyzer.can_prove(a.min + a.extent <= b.min) for a in known for b in nexts):
            return True
    return False
