"""compute_at and reverse_compute_at.

Move a block under a loop of its consumers or producers, over the region needed there.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft import ir
from weft.arith import Analyzer
from weft.tir.analysis import access, dependence, structure
from weft.tir.analysis.cover import covers, covers_domain
from weft.tir.buffer import Buffer, BufferRegion
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BlockRealize, For, ForKind, SeqStmt, Stmt, seq


def compute_at(
    state: ScheduleState, name: str, var: ir.Var, preserve_unit_loops: bool = False, index: int = -1
) -> list[ir.Var]:
    """Compute, in each iteration of a loop, the part of a block that the consumers in it need.

    Returns the new loops.
    """
    scope, realize, loop = _common_scope(state, name, var, may_be_part=True)
    block = realize.block
    if any(state.is_argument(w.buffer) for w in block.writes):
        raise refuse("the block is an output block of the function: all of it must be computed", block=name)
    consumers = dependence.consumers_of(block, scope)
    inside = structure.child_realizes(loop.body)
    outside = [c.block.name_hint for c in consumers if not any(c is r for r in inside)]
    if not consumers or outside:
        raise refuse(
            "it requires all the consumers under the loop" if consumers else "the block has no consumer",
            loops=loop,
            block=outside[0] if outside else name,
        )
    _check_later(realize, inside, scope, loop)
    analyzer = state.analyzer_at(state.path_to_loop(var), inside=True)
    regions: dict[Buffer, tuple[ir.Range | None, ...]] = {}
    for c in consumers:
        for r in c.block.reads:
            if any(w.buffer is r.buffer for w in block.writes):
                together = r.buffer.scope.startswith("shared")
                _add_region(regions, r, c, loop, analyzer, _threads_around(state, var) if together else ())
    domain = _solve_domain(block, block.writes, regions, analyzer)
    first = _places(_items(loop.body), consumers)[0]
    position = first if index == -1 else 0 if index == -2 else min(index, first)
    return _move(state, realize, loop, domain, position, analyzer, preserve_unit_loops, over_compute=True)


def reverse_compute_at(
    state: ScheduleState, name: str, var: ir.Var, preserve_unit_loops: bool = False, index: int = -1
) -> list[ir.Var]:
    """Run, in each iteration of a loop, the part of a block that consumes what its producers made in it.

    Returns the new loops.
    """
    scope, realize, loop = _common_scope(state, name, var)
    block = realize.block
    inside = structure.child_realizes(loop.body)
    producers = [p for p in dependence.producers_of(block, scope)]
    under = [p for p in producers if any(p is r for r in inside)]
    if not under:
        raise refuse("no producer of the block is under the loop", loops=loop, block=name)
    analyzer = state.analyzer_at(state.path_to_loop(var), inside=True)
    regions: dict[Buffer, tuple[ir.Range | None, ...]] = {}
    around = _loops_outside(state, var)
    for p in under:
        sums = (v for iv, v in zip(p.block.iter_vars, p.iter_values, strict=True) if iv.iter_type == "reduce")
        if not structure.used_vars(*sums).isdisjoint(f.loop_var for f in around):
            raise refuse(
                "the producer's result is not complete at this loop: its reduction runs around it",
                loops=loop,
                block=p.block.name_hint,
            )
        for w in p.block.writes:
            if any(w.buffer is r.buffer for r in block.reads):
                _add_region(regions, w, p, loop, analyzer)
    _check_filled(state, under, regions, loop, analyzer)
    domain = _solve_domain(block, block.reads, regions, analyzer)
    _check_partition(state, block, domain, var)
    beside: dict[Buffer, tuple[ir.Range | None, ...]] = {}  # what loops further out make before this one
    for p in producers:
        shared = [s for s in state.path_to_block(p.block.name_hint) if any(s is f for f in around)]
        if shared and not any(p is r for r in under):
            for w in p.block.writes:
                _add_region(beside, w, p, shared[-1], analyzer)  # type: ignore[arg-type]
    _check_made(state, block, domain, {**beside, **regions}, loop, analyzer)
    _check_earlier(realize, [p for p in producers if not any(p is r for r in under)], inside, loop, scope)
    _check_reached(state, block, domain, loop, analyzer)
    items = _items(loop.body)
    last = _places(items, under)[-1] + 1
    position = last if index == -2 else len(items) if index == -1 else max(index, last)
    return _move(state, realize, loop, domain, position, analyzer, preserve_unit_loops, over_compute=False)


def _check_filled(
    state: ScheduleState,
    producers: list[BlockRealize],
    regions: dict[Buffer, tuple[ir.Range | None, ...]],
    loop: For,
    analyzer: Analyzer,
) -> None:
    """Refuse a producer that, in one iteration, makes only some elements of the box that it touches then.

    Others of the box would be read where another iteration makes them, such as beside a diagonal.
    """
    around = {f.loop_var for f in _loops_outside(state, loop.loop_var)}
    for p in producers:
        for w in p.block.writes:
            box = regions.get(w.buffer)
            bounds = [e for r in box or () if r is not None for e in (r.min, r.extent)]
            if structure.used_vars(*bounds).isdisjoint(around) or access.is_box(w):
                continue
            path = state.path_to_block(p.block.name_hint)
            below = path[next(i for i, s in enumerate(path) if s is loop) + 1 :]
            made = access.substitute_ranges(w.region, structure.iter_values_of(p))
            whole = tuple(r for r in box or () if r is not None)
            if len(whole) < len(made) or not covers(below, tuple(r.min for r in made), whole, analyzer):
                raise refuse(
                    f"an iteration makes only some of the elements of '{w.buffer.name}' between the first and the last",
                    loops=loop,
                    block=p.block.name_hint,
                )


def _check_partition(state: ScheduleState, block: Block, domain: dict[ir.Var, ir.Range], var: ir.Var) -> None:
    """Refuse a reduction whose reduction range would be cut by the loops around it."""
    around = {f.loop_var for f in _loops_outside(state, var)}
    for v in dependence.reduce_vars(block):
        if v in domain and not structure.used_vars(domain[v].min, domain[v].extent).isdisjoint(around):
            raise refuse(
                f"each iteration would see only a part of the reduction '{v.name}'",
                block=block.name_hint,
                help="use rfactor, or a loop outside of it",
            )


def _check_made(
    state: ScheduleState,
    block: Block,
    domain: dict[ir.Var, ir.Range],
    regions: dict[Buffer, tuple[ir.Range | None, ...]],
    loop: For,
    analyzer: Analyzer,
) -> None:
    """Refuse a block that would read elements of a producer that another iteration of the loops makes."""
    around = {f.loop_var for f in _loops_outside(state, loop.loop_var)}
    ranges = {iv.var: domain.get(iv.var, iv.dom) for iv in block.iter_vars if iv.dom is not None}
    for touched in block.reads:
        made = regions.get(touched.buffer)
        if made is None:
            continue
        for read, box in zip(access.relax_region(touched.region, ranges, analyzer), made, strict=True):  # type: ignore[arg-type]
            if box is None or structure.used_vars(box.min, box.extent).isdisjoint(around):
                continue
            if read is None or not contains(box, read, analyzer):
                raise refuse(
                    f"the block reads elements of '{touched.buffer.name}' that another iteration of the loop makes",
                    loops=loop,
                    block=block.name_hint,
                    help="use compute_at on the producer, which computes again what several iterations need",
                )


def _check_reached(
    state: ScheduleState, block: Block, domain: dict[ir.Var, ir.Range], loop: For, analyzer: Analyzer
) -> None:
    """Refuse a block that has more to do than what the loops make for it, all iterations together."""
    domains = {iv.var: iv.dom for iv in block.iter_vars}
    cut = [(needed, dom) for v, needed in domain.items() if (dom := domains[v]) and not contains(needed, dom, analyzer)]
    inner = [
        For(ir.Var(f"r{n}", r.extent.dtype), ir.const(0, r.extent.dtype), r.extent, ForKind.SERIAL, loop.body)
        for n, (r, _) in enumerate(cut)
    ]
    path = [*state.path_to_loop(loop.loop_var), *inner]
    values = tuple(r.min + f.loop_var for (r, _), f in zip(cut, inner, strict=True))
    if cut and not covers(path, values, tuple(dom for _, dom in cut), analyzer):
        loops = _loops_outside(state, loop.loop_var)
        walked = [[f for f in loops if f.loop_var in structure.used_vars(r.min, r.extent)] for r, _ in cut]
        apart = sum(map(len, walked)) == len({f.loop_var for fs in walked for f in fs})
        if not (apart and all(_slides_over(r, d, fs, analyzer) for (r, d), fs in zip(cut, walked, strict=True))):
            raise refuse(
                "the loops around do not reach all that the block runs for: they reach "
                f"{', '.join(f'{r.min} to {r.min + r.extent} of {d.extent}' for r, d in cut)}",
                loops=loop,
                block=block.name_hint,
            )


def _slides_over(window: ir.Range, whole: ir.Range, loops: list[For], analyzer: Analyzer) -> bool:
    """Whether a window that loops move, each by its length at most, is at every place of a range."""
    low, length = window.min, window.extent
    steps = [(analyzer.simplify(ir.substitute(low, {f.loop_var: f.loop_var + 1}) - low), f) for f in loops]
    for step, f in sorted(steps, key=lambda s: s[0].value if isinstance(s[0], ir.IntImm) else 0):
        if not (analyzer.can_prove(step >= 0) and analyzer.can_prove(step <= length)):
            return False
        low, length = ir.substitute(low, {f.loop_var: f.min}), length + step * (f.extent - 1)
    return contains(ir.Range.from_min_extent(low, length), whole, analyzer)


def _check_later(realize: BlockRealize, inside: list[BlockRealize], scope: Block, loop: For) -> None:
    """Refuse to run a block in a later loop where its inputs are other values by then."""
    name = realize.block.name_hint
    order = structure.child_realizes(scope)
    if order.index(inside[0]) < order.index(realize):
        raise refuse("the loop runs before the block", loops=loop, block=name)
    inputs = [r.buffer for r in realize.block.reads]
    for other in (*dependence.blocks_from_to(scope, realize, inside[0]), *inside):
        if dependence.touches(other.block, inputs, writes_only=True):
            raise refuse(f"'{other.block.name_hint}' overwrites what the block reads", loops=loop, block=name)


def _check_earlier(
    realize: BlockRealize, others: list[BlockRealize], inside: list[BlockRealize], loop: For, scope: Block
) -> None:
    """Refuse to run a block in an earlier loop before one of its other producers, or before what reads older values."""
    name = realize.block.name_hint
    order = structure.child_realizes(scope)
    first, last = order.index(inside[0]), order.index(inside[-1])
    if order.index(realize) < first:
        raise refuse("the loop runs after the block", loops=loop, block=name)
    made = {w.buffer for r in inside for w in r.block.writes}
    outputs = [w.buffer for w in realize.block.writes]
    for p in others:
        if order.index(p) > last:
            raise refuse(
                f"the block reads what '{p.block.name_hint}' makes, which runs after the loop",
                loops=loop,
                block=name,
                help=f"choose a loop around '{p.block.name_hint}', or move that block under this loop first",
            )
        if any(w.buffer in made for w in p.block.writes):
            raise refuse(
                f"the block also reads what '{p.block.name_hint}' makes outside of the loop", loops=loop, block=name
            )
    for r in (*inside, *order[last + 1 : order.index(realize)]):
        if dependence.touches(r.block, outputs):
            raise refuse(f"'{r.block.name_hint}' reads what the block overwrites", loops=loop, block=name)


def _loops_outside(state: ScheduleState, var: ir.Var) -> list[For]:
    """List the loop and those around it within its scope."""
    loops: list[For] = []
    for s in state.path_to_loop(var):
        loops = [] if isinstance(s, Block) else [*loops, s] if isinstance(s, For) else loops
    return loops


def _threads_around(state: ScheduleState, var: ir.Var) -> list[For]:
    """List the loops around the body of a loop whose iterations are threads that share memory."""
    tags = ((f, f.thread_binding.thread_tag) for f in _loops_outside(state, var) if f.thread_binding is not None)
    return [f for f, tag in tags if tag.startswith(("threadIdx", "vthread"))]


def _runs_a_box(path: list[Stmt], realize: BlockRealize) -> bool:
    """Whether a block runs for a range of each data-parallel variable, and for all values of the others.

    A part of a partitioned nest does. What consumers need of it, it may make beyond that part too: nobody else writes
    the buffer of a complete block.
    """
    loops: dict[ir.PrimExpr, For] = {f.loop_var: f for f in path if isinstance(f, For)}
    every = frozenset(loops)
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        parts = _summands(value)
        walked = [loops[v] for v in parts if v in loops]
        if len(walked) != 1 or sum(v in every for part in parts for v in structure.used_vars(part)) != 1:
            return False
        loop = loops.pop(walked[0].loop_var)
        if iv.iter_type not in ("data_par", "spatial"):
            dom = (iv.dom.min, iv.dom.extent) if iv.dom is not None and isinstance(value, ir.Var) else ()
            if not ir.structural_equal((loop.min, loop.extent), dom):
                return False
    return True


def _summands(value: ir.PrimExpr) -> list[ir.PrimExpr]:
    return [*_summands(value.a), *_summands(value.b)] if isinstance(value, ir.Add) else [value]


def _common_scope(
    state: ScheduleState, name: str, var: ir.Var, may_be_part: bool = False
) -> tuple[Block, BlockRealize, For]:
    path, loop_path = state.path_to_block(name), state.path_to_loop(var)
    scope, realize, loop = state.scope_of(path), path[-1], loop_path[-1]
    assert isinstance(realize, BlockRealize) and isinstance(loop, For)
    if state.scope_of(loop_path) is not scope:
        raise refuse("block and loop are not in the same block scope", loops=loop, block=name)
    if any(s is loop for s in path):
        raise refuse(f"the loop is already an ancestor of block '{name}'", loops=loop, block=name)
    if not dependence.is_complete(realize, scope) and not dependence.is_reduction(realize, scope):
        raise refuse(
            "the block is neither a complete block nor a whole reduction",
            block=name,
            help="move a reduction before decomposing it",
        )
    is_part = may_be_part and _runs_a_box(path, realize)
    if not is_part and not covers_domain(path, state.analyzer_at(path)):
        raise refuse(
            f"the loops do not run the block on its whole domain: ({', '.join(map(str, realize.iter_values))})",
            block=name,
            help="the new loops would run over the whole domain; give the block variables the ranges that are run",
        )
    return scope, realize, loop


def _add_region(
    table: dict[Buffer, tuple[ir.Range | None, ...]],
    region: BufferRegion,
    realize: BlockRealize,
    loop: For,
    analyzer: Analyzer,
    threads: Sequence[For] = (),
) -> None:
    """Add to `table` what a block touches while `threads` and the loops between `loop` and the block run."""
    path = structure.path_to(loop, lambda s: s is realize)
    assert path is not None
    inner = {s.loop_var: ir.Range.from_min_extent(s.min, s.extent) for s in (*threads, *path[1:]) if isinstance(s, For)}
    for v, r in inner.items():
        analyzer.bind(v, r)
    box = access.relax_region(
        access.substitute_ranges(region.region, structure.iter_values_of(realize)), inner, analyzer
    )
    old = table.get(region.buffer)
    table[region.buffer] = box if old is None else access.union_regions(old, box, analyzer)


def _solve_domain(
    block: Block,
    accesses: tuple[BufferRegion, ...],
    regions: dict[Buffer, tuple[ir.Range | None, ...]],
    analyzer: Analyzer,
) -> dict[ir.Var, ir.Range]:
    """Find for block variables the values with which `accesses` cover `regions`.

    A variable without entry runs over its whole domain.
    """
    own = structure.bind_domains(Analyzer(), block)
    variables = {iv.var for iv in block.iter_vars}
    domain: dict[ir.Var, ir.Range] = {}
    whole: set[ir.Var] = set()  # a variable that also appears in an index without solution keeps its whole domain
    for touched in accesses:
        box = regions.get(touched.buffer)
        if box is None:
            continue
        solved: set[ir.Var] = set()
        for r, needed in zip(touched.region, box, strict=True):
            one = needed is not None and ir.is_const_int(r.extent, 1)
            found = _values_for(r.min, needed, variables, own, analyzer) if one else None  # type: ignore[arg-type]
            if found is None and not isinstance(r.min, ir.Var):
                whole |= structure.used_vars(r.min, r.extent)
            for v, values in (found or {}).items():
                old = (domain[v],) if v in domain else ()
                merged = access.union_regions(old, (values,), analyzer)[0] if old else values
                assert merged is not None
                domain[v] = merged
                solved.add(v)
        whole |= structure.used_vars(*(r.min for r in touched.region)) - solved
    return {v: r for v, r in domain.items() if v not in whole}


def _values_for(
    index: ir.PrimExpr, needed: ir.Range, variables: set[ir.Var], own: Analyzer, analyzer: Analyzer
) -> dict[ir.Var, ir.Range] | None:
    """Find the values of variables with which an index, of quotients and remainders of them, lies in a range.

    `own` knows the variables, `analyzer` what the range is made of. An empty dictionary is for a range that has all
    values of the index, None for an index of another form.
    """
    low, end = needed.min, needed.min + needed.extent
    match index:
        case ir.Var():
            return {index: needed} if index in variables else None
        case ir.FloorDiv(a=a, b=ir.IntImm(value=n)) if n > 0:
            wider = ir.Range.from_min_extent(analyzer.simplify(low * n), analyzer.simplify(needed.extent * n))
            return _values_for(a, wider, variables, own, analyzer)
        case ir.FloorMod(b=ir.IntImm(value=n)) if n > 0:
            return {} if analyzer.can_prove(low <= 0) and analyzer.can_prove(end >= n) else None
        case ir.Add(a=a, b=b):
            n = 1
            if isinstance(a, ir.Mul) and isinstance(a.b, ir.IntImm):
                a, n = a.a, a.b.value
            inner = own.can_prove(b >= 0) and own.can_prove(b < n)
            if inner and all(analyzer.can_prove_equal(e % n, 0) for e in (low, end)):
                fewer = ir.Range.from_min_extent(analyzer.simplify(low // n), analyzer.simplify(needed.extent // n))
                return _values_for(a, fewer, variables, own, analyzer)
        case _:
            pass
    return None


def _is_one_of(needed: ir.Range, dom: ir.Range, analyzer: Analyzer) -> bool:
    """Whether one value of a symbolic domain is needed: a loop over the domain would hide that it is one."""
    symbolic = ir.is_const_int(needed.extent, 1) and not isinstance(dom.extent, ir.IntImm)
    return symbolic and analyzer.can_prove(needed.min < dom.min + dom.extent)


def contains(whole: ir.Range, part: ir.Range, analyzer: Analyzer) -> bool:
    """Whether a range has all of another one, whatever the loops around it are at."""
    end = part.min + part.extent
    return whole is part or (
        analyzer.can_prove(whole.min <= part.min) and analyzer.can_prove(whole.min + whole.extent >= end)
    )


def _within(value: ir.PrimExpr, made: ir.Range, dom: ir.Range, analyzer: Analyzer) -> ir.PrimExpr:
    """The condition that a value of a domain is in what an iteration makes: what others made may be gone by then."""
    if contains(made, dom, analyzer):
        return ir.TRUE
    start, end = ir.cast(value.dtype, made.min), ir.cast(value.dtype, made.min + made.extent)
    return ir.logical_and(value >= start, value < end)


def _places(items: list[Stmt], realizes: list[BlockRealize]) -> list[int]:
    return [i for i, s in enumerate(items) if any(r is c for r in structure.child_realizes(s) for c in realizes)]


def _items(body: Stmt) -> list[Stmt]:
    return list(body.seq) if isinstance(body, SeqStmt) else [body]


def _move(
    state: ScheduleState,
    realize: BlockRealize,
    loop: For,
    domain: dict[ir.Var, ir.Range],
    position: int,
    analyzer: Analyzer,
    unit_loops: bool,
    over_compute: bool,
) -> list[ir.Var]:
    """Put a new nest for the block at `position` in the body of `loop` and take the old one away."""
    block = realize.block
    values: list[ir.PrimExpr] = []
    new_loops: list[tuple[ir.Var, ir.PrimExpr]] = []
    predicate: ir.PrimExpr = ir.TRUE
    padded: dict[ir.Var, ir.PrimExpr] = {}
    around = {f.loop_var for f in _loops_outside(state, loop.loop_var)}
    for n, iv in enumerate(block.iter_vars):
        dom = iv.dom
        assert dom is not None
        needed = domain.get(iv.var, dom)
        made = dom if over_compute else needed
        if needed is not dom and not structure.used_vars(needed.extent).isdisjoint(around):
            needed = dom  # the box grows with a loop: cover everything rather than guess
        if (
            needed is not dom
            and not _is_one_of(needed, dom, analyzer)
            and analyzer.can_prove(needed.extent >= dom.extent)
            and (over_compute or contains(needed, dom, analyzer))
        ):
            wider = over_compute and isinstance(dom.extent, ir.IntImm)
            wider = wider and not analyzer.can_prove_equal(needed.extent, dom.extent)
            if not (wider and _roundup(state, block, iv.var, needed, loop, analyzer) is not None):
                needed = dom
        dtype = iv.var.dtype
        start, extent = ir.cast(dtype, needed.min), ir.cast(dtype, needed.extent)
        value = start
        if unit_loops or not ir.is_const_int(extent, 1):
            v = ir.Var(f"ax{n}", dtype)
            new_loops.append((v, extent))
            analyzer.bind(v, ir.Range.from_min_extent(ir.const(0, dtype), extent))
            value = start + v if ir.is_const_int(extent, 1) else analyzer.simplify(start + v)
        values.append(value)
        if needed is dom:
            predicate = ir.logical_and(predicate, _within(value, made, dom, analyzer))
        else:
            if not analyzer.can_prove(value >= dom.min):
                predicate = ir.logical_and(predicate, analyzer.simplify(value >= dom.min))
            end = ir.cast(dtype, dom.min + dom.extent)
            if not analyzer.can_prove(value < end):
                larger = _roundup(state, block, iv.var, needed, loop, analyzer) if over_compute else None
                if larger is None:
                    predicate = ir.logical_and(predicate, analyzer.simplify(value < end))
                else:
                    padded[iv.var] = larger
    predicate = ir.logical_and(
        predicate, _carry_predicate(realize, values, _left_loops(state, realize, loop), analyzer)
    )
    body: Stmt = BlockRealize(tuple(values), predicate, block)
    for v, extent in reversed(new_loops):
        body = For(v, ir.const(0, v.dtype), extent, ForKind.SERIAL, body)
    items = _items(loop.body)
    state.replace(loop, structure.replace_node(loop, body=seq(*items[:position], body, *items[position:])))
    state.remove(realize)
    if padded:
        _grow(state, block.name_hint, padded)
    return [v for v, _ in new_loops]


def _left_loops(state: ScheduleState, realize: BlockRealize, loop: For) -> dict[ir.Var, For]:
    """The loops around a block that are not around it any more under `loop`."""
    kept = {s.loop_var for s in state.path_to_loop(loop.loop_var) if isinstance(s, For)}
    around = state.path_to_block(realize.block.name_hint)
    return {s.loop_var: s for s in around if isinstance(s, For) and s.loop_var not in kept}


def _carry_predicate(
    realize: BlockRealize, values: list[ir.PrimExpr], left: dict[ir.Var, For], analyzer: Analyzer
) -> ir.PrimExpr:
    """Express the old predicate in the new values; conditions that only kept variables in their domain are dropped.

    So are those of loops that no value uses, such as parts of a loop of one iteration: the block runs once without
    them, as in their first iteration.
    """
    plain = {old: new for old, new in zip(realize.iter_values, values, strict=True) if isinstance(old, ir.Var)}
    result: ir.PrimExpr = ir.TRUE
    for c in structure.conjuncts(realize.predicate):
        if _is_domain_guard(c, realize):
            continue
        free = {v for v in structure.used_vars(c) if v not in plain}
        used = free & structure.used_vars(*realize.iter_values)
        first = ir.substitute(c, {v: f.min for v, f in left.items()})
        if not used and free & left.keys() and analyzer.can_prove(first):
            continue
        if used or free & left.keys():
            raise refuse(f"the predicate {c} cannot be expressed in the new loops", block=realize.block.name_hint)
        result = ir.logical_and(result, analyzer.simplify(structure.subst_stmt(c, plain)))
    return result


def _is_domain_guard(condition: ir.PrimExpr, realize: BlockRealize) -> bool:
    """Whether a condition says that the value of a block variable is below the end of its domain."""
    if not isinstance(condition, ir.LT):
        return False
    analyzer = Analyzer()
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if iv.dom is not None and ir.is_const_int(iv.dom.min, 0) and condition.a.dtype == value.dtype:
            if analyzer.can_prove_equal(condition.a, value) and analyzer.can_prove_equal(condition.b, iv.dom.extent):
                return True
    return False


def _roundup(
    state: ScheduleState, block: Block, var: ir.Var, needed: ir.Range, loop: For, analyzer: Analyzer
) -> ir.PrimExpr | None:
    """Return a larger extent for a variable with which no predicate is needed, if the block may run that far.

    It may where each of its loads stays inside its buffer, so that the surplus elements are computed and never read.
    """
    if not isinstance(needed.extent, ir.IntImm) or len(block.writes) != 1:
        return None
    if block.writes[0].buffer.data in access.addressed(state.body):
        return None
    around = {f.loop_var: (f.min, f.min + f.extent - 1) for f in _loops_outside(state, loop.loop_var)}
    box = access.evaluate_interval(needed.min, around)
    if box is None:
        return None
    end = analyzer.simplify(box[1] + needed.extent)
    local = Analyzer()
    for iv in block.iter_vars:
        if iv.dom is not None:
            local.bind(iv.var, iv.dom if iv.var is not var else ir.Range.from_min_extent(iv.dom.min, end))
    stmts = (block.body, *((block.init,) if block.init is not None else ()))
    return end if all(access.loads_inside(s, var, block.writes[0].buffer, local) for s in stmts) else None


def _grow(state: ScheduleState, name: str, larger: dict[ir.Var, ir.PrimExpr]) -> None:
    """Enlarge the domains of block variables and the buffer that they index."""
    block = state.realize(name).block
    iter_vars = tuple(
        structure.replace_node(iv, dom=ir.Range.from_min_extent(iv.dom.min, larger[iv.var]))
        if iv.var in larger and iv.dom is not None
        else iv
        for iv in block.iter_vars
    )
    state.replace(block, structure.replace_node(block, iter_vars=iter_vars))
    write = block.writes[0]
    shape = tuple(
        ir.cast(d.dtype, larger[r.min]) if isinstance(r.min, ir.Var) and r.min in larger else d
        for r, d in zip(write.region, write.buffer.shape, strict=True)
    )
    replace_buffer(state, write.buffer, structure.replace_node(write.buffer, shape=shape))


def replace_buffer(state: ScheduleState, old: Buffer, new: Buffer) -> None:
    """Let every statement use `new` instead of `old`."""
    state.rewrite_body(lambda body: ir.substitute(body, {old: new}))
