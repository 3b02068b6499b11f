"""Whether the loops around a block run it at every point of its domain, as primitives assume that build them anew."""

from __future__ import annotations

import itertools
import math

from weft.arith import Analyzer, IterSumExpr, detect_iter_map
from weft.ir import TRUE, PrimExpr, Range, Var, as_int, is_const_int, logical_not, structural_equal, substitute
from weft.tir.analysis.access import stores_of
from weft.tir.analysis.structure import child_realizes, conjuncts, statements, stmt_children, used_vars
from weft.tir.buffer import Buffer, BufferRegion
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, IfThenElse, Stmt, While


def covers_domain(path: list[Stmt], analyzer: Analyzer) -> bool:
    """Whether a block runs for all values of its iteration variables, and depends on nothing else around it.

    Parameters
    ----------
    path : list of Stmt
        The statements from the root down to the realization of the block.
    analyzer : Analyzer
        One that knows the loops on the path.
    """
    realize = path[-1]
    assert isinstance(realize, BlockRealize)
    around = {f.loop_var for f in path if isinstance(f, For)}
    if not used_vars(realize.block).isdisjoint(around):  # what it does depends on more than its variables
        return False
    domains = [iv.dom for iv in realize.block.iter_vars]
    known = [d for d in domains if d is not None]
    return len(known) == len(domains) and covers(path, realize.iter_values, tuple(known), analyzer)


def covers(path: list[Stmt], values: tuple[PrimExpr, ...], box: tuple[Range, ...], analyzer: Analyzer) -> bool:
    """Whether `values` take, together, each point of `box` where the path ends."""
    loops, conditions = _around(path)
    variables = {f.loop_var for f in loops}
    if any(not used_vars(f.min, f.extent).isdisjoint(variables) for f in loops):
        return False
    ranges = {f.loop_var: Range.from_min_extent(f.min, f.extent) for f in loops}
    if not _trivial(values, box, ranges, analyzer):
        sums = detect_iter_map(values, ranges).indices
        if len(sums) != len(values):
            return False
        if not all(_reaches(s, r, analyzer) for s, r in zip(sums, box, strict=True)):
            return False
    return all(cuts_nothing(c, values, box, analyzer) for c in conditions)


_MOST_STEPS = 1024  # of loops inside of a block, whose stores are counted


def stores_all(block: Block, region: BufferRegion) -> bool:
    """Whether a block, each time it runs, stores all elements of a region that it says it writes.

    What stores by other means than stores is taken at its word.
    """
    inner = [(r.block, w) for r in child_realizes(block.body) for w in r.block.writes if w.buffer is region.buffer]
    if not all(stores_all(*part) for part in inner):
        return False
    stores, places = stores_of(block.body, region.buffer), _sure_places(block.body, region.buffer)
    loops = [s for s in statements(block.body) if isinstance(s, For)]
    sizes = [as_int(r.extent) for r in region.region]
    steps = [as_int(f.extent) for f in loops]
    if not stores or None in sizes or (loops and len(places) < len(stores)):
        return len(places) == len(stores)
    if math.prod(sizes) == 1:  # type: ignore[arg-type]
        return bool(places)
    if loops and (inner or None in steps or math.prod(steps) > _MOST_STEPS):  # type: ignore[arg-type]
        return True
    simplify, offsets = Analyzer().simplify, set[tuple[int | None, ...]]()
    away = [[i - r.min for i, r in zip(p, region.region, strict=True)] for p in places]
    for at in itertools.product(*(range(n or 0) for n in steps)):
        here = {f.loop_var: f.min + i for f, i in zip(loops, at, strict=True)}
        offsets |= {tuple(as_int(simplify(substitute(d, here))) for d in p) for p in away}
    if loops and any(None in o for o in offsets):
        return True
    return sum(None not in o for o in offsets) == math.prod(sizes)  # type: ignore[arg-type]


def _sure_places(stmt: Stmt, buffer: Buffer) -> list[tuple[PrimExpr, ...]]:
    """List the indices at which a statement stores whatever holds; a place of both branches is one."""
    if isinstance(stmt, BufferStore):
        return [stmt.indices] if stmt.buffer is buffer else []
    if isinstance(stmt, While) or (isinstance(stmt, BlockRealize) and stmt.predicate is not TRUE):
        return []
    parts = [_sure_places(s, buffer) for s in stmt_children(stmt)]
    if isinstance(stmt, IfThenElse):
        return [p for p in parts[0] if any(structural_equal(p, q) for q in parts[-1])] if len(parts) == 2 else []
    return [p for part in parts for p in part]


def _around(path: list[Stmt]) -> tuple[list[For], list[PrimExpr]]:
    """List the loops between a block and its scope, and the conditions under which it runs."""
    loops: list[For] = []
    conditions: list[PrimExpr] = []
    for s, below in zip(path, [*path[1:], None], strict=True):
        if isinstance(s, Block):
            loops, conditions = [], []
        elif isinstance(s, For):
            loops.append(s)
        elif isinstance(s, IfThenElse):
            conditions.append(s.condition if below is s.then_case else logical_not(s.condition))
        elif isinstance(s, BlockRealize):
            conditions += conjuncts(s.predicate)
    return loops, conditions


def _trivial(
    values: tuple[PrimExpr, ...], box: tuple[Range, ...], ranges: dict[Var, Range], analyzer: Analyzer
) -> bool:
    """Whether each value is a loop of its own with the range wanted."""
    same, found = analyzer.can_prove_equal, [ranges.get(v) if isinstance(v, Var) else None for v in values]
    return len(set(values)) == len(values) and all(
        f is not None and same(f.min, r.min) and same(f.extent, r.extent) for f, r in zip(found, box, strict=True)
    )


def _reaches(total: IterSumExpr, wanted: Range, analyzer: Analyzer) -> bool:
    """Whether a sum of iterators takes each value of a range; its strides follow one another."""
    if not analyzer.can_prove_equal(total.base, wanted.min):
        return False
    if not total.args:
        return is_const_int(wanted.extent, 1) or analyzer.can_prove(wanted.extent <= 1)
    if not is_const_int(total.args[-1].scale, 1):
        return False
    extent = total.args[0].scale * total.args[0].extent
    return analyzer.can_prove_equal(extent, wanted.extent) or analyzer.can_prove(extent >= wanted.extent)


def cuts_nothing(condition: PrimExpr, values: tuple[PrimExpr, ...], box: tuple[Range, ...], analyzer: Analyzer) -> bool:
    """Whether a condition fails at points outside of the box only."""
    if analyzer.can_prove(condition):
        return True
    with analyzer.constraint_scope(logical_not(condition)):
        return any(
            analyzer.can_prove(v >= r.min + r.extent) or analyzer.can_prove(v < r.min)
            for v, r in zip(values, box, strict=True)
        )
