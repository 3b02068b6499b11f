"""merge: loop nests that stand one after another become one, iteration by iteration."""

from __future__ import annotations

from collections.abc import Sequence

from weft import arith, ir
from weft.tir.analysis.access import access_regions
from weft.tir.analysis.dependence import is_complete, is_reduction
from weft.tir.analysis.structure import around, child_realizes, subst_stmt, used_vars
from weft.tir.buffer import BufferRegion
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import For, ForKind, SeqStmt, Stmt, seq


def merge(state: ScheduleState, loops: Sequence[ir.Var]) -> ir.Var:
    """Run the nests down to the loops given as one nest: each iteration runs what all of them did in it.

    The nests stand in one sequence, have the same extents, and each iteration of a later one uses of the earlier ones
    just what they made in the same iteration. Returns the innermost merged loop.
    """
    if len(loops) < 2:
        raise refuse("two loops or more are needed", loops=list(loops) or None)
    nests, parent, places = _nests(state, loops)
    analyzer = state.analyzer_at([*state.path_to_loop(nests[0][0].loop_var)])
    for nest in nests[1:]:
        same = len(nest) == len(nests[0]) and all(
            analyzer.can_prove_equal(a.extent, b.extent) for a, b in zip(nests[0], nest, strict=True)
        )
        if not same:
            raise refuse("the nests differ in depth or extents", loops=[nests[0][-1], nest[-1]])
    first = nests[0]
    bodies = [first[-1].body]
    for nest in nests[1:]:
        bodies.append(subst_stmt(nest[-1].body, {b.loop_var: a.loop_var for a, b in zip(first, nest, strict=True)}))
    for n in range(1, len(bodies)):
        for earlier in range(n):
            _check(state, first, bodies[earlier], bodies[n], nests[n][-1])
    body = around(first, seq(*bodies))
    gone = {parent.seq[p] for p in places[1:]}
    items = [body if i == places[0] else s for i, s in enumerate(parent.seq) if s not in gone]
    state.replace(parent, seq(*items))
    return first[-1].loop_var


def _nests(state: ScheduleState, loops: Sequence[ir.Var]) -> tuple[list[list[For]], SeqStmt, list[int]]:
    """Return each nest from the sequence that all stand in down to the loop given, the sequence, and the places."""
    paths = [state.path_to_loop(v) for v in loops]
    depth = 0
    while all(len(p) > depth and p[depth] is paths[0][depth] for p in paths):
        depth += 1
    parent = paths[0][depth - 1]
    if not isinstance(parent, SeqStmt) or any(len(p) <= depth for p in paths):
        raise refuse("the loops do not stand in nests one after another", loops=list(loops))
    nests: list[list[For]] = []
    for path in paths:
        nest = [s for s in path[depth:] if isinstance(s, For)]
        if len(nest) != len(path) - depth:
            raise refuse("other statements stand around the loop in its nest", loops=[path[-1]])
        for f in nest:
            if f.kind is not ForKind.SERIAL or len(f.annotations) or not ir.is_const_int(f.min, 0):
                raise refuse("a loop is annotated, not serial, or does not start at 0", loops=f)
        nests.append(nest)
    places = [next(i for i, s in enumerate(parent.seq) if s is p[depth]) for p in paths]
    if places != list(range(places[0], places[0] + len(places))):
        raise refuse("the nests do not stand next to each other in this order", loops=list(loops))
    return nests, parent, places


def _check(state: ScheduleState, around: list[For], earlier: Stmt, later: Stmt, loop: For) -> None:
    """Refuse where an iteration of `later` uses what another iteration of `earlier` makes, or changes its inputs."""
    analyzer = state.analyzer_at(state.path_to_loop(around[-1].loop_var), inside=True)
    before, after = access_regions([earlier], analyzer), access_regions([later], analyzer)
    touched = {r.buffer for r in (*before[0], *before[1])}
    for w in after[1]:
        if w.buffer in touched:
            raise refuse(f"both nests use '{w.buffer.name}', which the later one writes", loops=loop)
    made = {w.buffer: w for w in before[1]}
    for r in after[0]:
        if r.buffer in made:
            _check_made(state, around, made[r.buffer], r, earlier, loop, analyzer)


def _check_made(
    state: ScheduleState,
    around: list[For],
    made: BufferRegion,
    read: BufferRegion,
    earlier: Stmt,
    loop: For,
    analyzer: arith.Analyzer,
) -> None:
    """Refuse unless what is read is made in the same iteration of the merged loops, and never again."""
    inside = all(
        analyzer.can_prove(r.min >= m.min) and analyzer.can_prove(r.min + r.extent <= m.min + m.extent)
        for r, m in zip(read.region, made.region, strict=True)
    )
    if not inside:
        raise refuse(f"an iteration reads elements of '{read.buffer.name}' that another one makes", loops=loop)
    scope = state.scope_of(state.path_to_loop(around[-1].loop_var))
    variables = {f.loop_var for f in around}
    for r in child_realizes(earlier):
        if not any(w.buffer is made.buffer for w in r.block.writes):
            continue
        if not is_complete(r, scope) and not is_reduction(r, scope):
            raise refuse(f"the block changes '{made.buffer.name}' several times", block=r.block.name_hint)
        for iv, value in zip(r.block.iter_vars, r.iter_values, strict=True):
            if iv.iter_type != "data_par" and not used_vars(value).isdisjoint(variables):
                raise refuse(f"'{made.buffer.name}' is not complete after one iteration", loops=loop)
