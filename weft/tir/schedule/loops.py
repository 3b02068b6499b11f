"""Loop primitives: split, fuse, reorder, loop_partition, specialize.

Each function takes the state and loop variables, checks, rewrites, and returns the new loop variables.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft import ir
from weft.arith import Analyzer
from weft.tir.analysis import structure
from weft.tir.analysis.apart import accumulates, initialises, instances_apart, tied_iterations, writes_apart
from weft.tir.analysis.dependence import reduce_vars
from weft.tir.schedule.annotate import check_data_parallel
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BlockRealize, For, ForKind, IfThenElse, LetStmt, Stmt, seq


def split(
    state: ScheduleState,
    var: ir.Var,
    factors: Sequence[ir.PrimExpr | int | None],
    preserve_unit_iters: bool = True,
    disable_predication: bool = False,
) -> list[ir.Var]:
    """Split a loop into nested loops.

    A product of factors larger than the extent gets a predicate on the blocks inside.
    """
    path, loop = state.path_to_loop(var), state.loop(var)
    if loop.kind is ForKind.THREAD_BINDING:
        raise refuse("the loop is bound to a thread", loops=loop, help="split before binding")
    if not ir.is_const_int(loop.min, 0):
        raise refuse("the loop does not start at 0", loops=loop, help="normalise it first")
    _check_known(state, path, factors)
    analyzer = state.analyzer_at(path)
    dtype = loop.loop_var.dtype
    sizes = _infer_factors(loop, factors, analyzer)
    sizes = [ir.cast(dtype, s) for s in sizes]
    new_vars = [ir.Var(f"{var.name}_{i}", dtype) for i in range(len(sizes))]
    strides: list[ir.PrimExpr] = [ir.const(1, dtype)]
    for s in reversed(sizes):
        strides.insert(0, s * strides[0])
    product, index = strides[0], new_vars[0] * strides[1]
    for v, s in zip(new_vars[1:], strides[2:], strict=True):
        index = index + v * s
    unit = {v: ir.const(0, dtype) for v, s in zip(new_vars, sizes, strict=True) if ir.is_const_int(s, 1)}
    if not preserve_unit_iters:
        index = structure.subst_stmt(index, unit)
    for v, s in zip(new_vars, sizes, strict=True):
        analyzer.bind(v, ir.Range.from_min_extent(ir.const(0, dtype), s))
    exact = analyzer.can_prove(index < loop.extent) or analyzer.can_prove_equal(product, loop.extent)
    body = structure.subst_stmt(loop.body, {var: index})
    if not exact and not disable_predication:
        condition = index < loop.extent
        body = _guard(body, condition) if structure.child_realizes(body) else IfThenElse(condition, body)
    kept = [(v, s) for v, s in zip(new_vars, sizes, strict=True) if preserve_unit_iters or v not in unit]
    kept = kept or [(new_vars[-1], sizes[-1])]
    for n, (v, s) in reversed(list(enumerate(kept))):
        annotations = loop.annotations if n == 0 else ir.NO_ATTRS
        body = For(v, ir.const(0, dtype), s, _kind_of_part(loop.kind, n, len(kept)), body, annotations=annotations)
    state.replace(loop, body)
    return [v for v, _ in kept]


def _kind_of_part(kind: ForKind, n: int, count: int) -> ForKind:
    """Return how part `n` of a split loop runs: threads take the outermost one, vectors the innermost one."""
    if kind is ForKind.PARALLEL:
        return kind if n == 0 else ForKind.SERIAL
    if kind is ForKind.VECTORIZED:
        return kind if n == count - 1 else ForKind.SERIAL
    return kind


def _infer_factors(loop: For, factors: Sequence[ir.PrimExpr | int | None], analyzer: Analyzer) -> list[ir.PrimExpr]:
    """Fill in the factor given as None (or -1) so that the product covers the extent."""
    if not factors:
        raise refuse("no factors were given", loops=loop)
    open_at = _open_places("factor", loop, factors)
    dtype = loop.loop_var.dtype
    sizes = [ir.const(0, dtype) if i in open_at else ir.as_expr(f, dtype) for i, f in enumerate(factors)]
    for i, s in enumerate(sizes):
        if i not in open_at and isinstance(s, ir.IntImm) and s.value <= 0:
            raise refuse(f"factor {s.value} is not positive", loops=loop)
    product: ir.PrimExpr = ir.const(1, dtype)
    for i, s in enumerate(sizes):
        product = product if i in open_at else product * s
    if open_at:
        sizes[open_at[0]] = analyzer.simplify(ir.ceildiv(ir.cast(dtype, loop.extent), product))
    elif not analyzer.can_prove(product >= loop.extent):
        raise refuse(
            f"the factors cover {analyzer.simplify(product)} iterations of {loop.extent}",
            loops=loop,
            help="leave one factor None",
        )
    return sizes


def _open_places(word: str, loop: For, numbers: Sequence[ir.PrimExpr | int | None]) -> list[int]:
    """Check that the numbers are integers or None, and return where the one is that is left open."""
    for f in numbers:
        whole = ir.DataType(f.dtype).is_integer if isinstance(f, ir.PrimExpr) else f is None or hasattr(f, "__index__")
        if not whole:
            raise refuse(f"the {word} {f} is not an integer", loops=loop, help="give integers or one None")
    open_at = [i for i, f in enumerate(numbers) if f is None or (not isinstance(f, ir.PrimExpr) and int(f) == -1)]
    if len(open_at) > 1:
        raise refuse(f"at most one {word} may be left open", loops=loop, help="give the others as numbers")
    return open_at


def _check_known(state: ScheduleState, path: list[Stmt], expressions: Sequence[object]) -> None:
    """Refuse expressions with variables that have no value where the loop at the end of `path` starts."""
    known = {v for _, b in state.func.buffer_map for v in structure.used_vars(b.shape)} | set(state.func.params)
    for s in path[:-1]:
        known |= {s.loop_var} if isinstance(s, For) else {s.var} if isinstance(s, LetStmt) else set()
        known |= {iv.var for iv in s.iter_vars} if isinstance(s, Block) else set()
    unknown = structure.used_vars(*[e for e in expressions if isinstance(e, ir.PrimExpr)]) - known
    if unknown:
        names = ", ".join(sorted(v.name for v in unknown))
        raise refuse(
            f"variables that are not known at the loop: {names}",
            loops=path[-1],
            help="use numbers, dimensions of the parameters and variables of outer loops",
        )


def _guard(body: Stmt, condition: ir.PrimExpr) -> Stmt:
    """Add a condition to the outermost blocks in `body`."""
    if isinstance(body, BlockRealize):
        return structure.replace_node(body, predicate=ir.logical_and(body.predicate, condition))
    return structure.map_children(body, lambda s: _guard(s, condition))


def fuse(state: ScheduleState, loops: Sequence[ir.Var], preserve_unit_iters: bool = True) -> ir.Var:
    """Fuse perfectly nested loops, outermost first, into one."""
    if not loops:
        raise refuse("no loops were given")
    path = state.path_to_loop(loops[0])
    outer = path[-1]
    assert isinstance(outer, For)
    chain = [outer]
    for v in loops[1:]:
        inner = chain[-1].body
        if not isinstance(inner, For) or inner.loop_var is not v:
            what = "the loops are not directly nested in this order"
            raise refuse(what, loops=list(loops), help="reorder them next to each other first")
        chain.append(inner)
    _check_fusible(chain, loops)
    if len(chain) == 1 and not ir.is_const_int(outer.extent, 1):
        return outer.loop_var
    dtype = outer.loop_var.dtype
    fused = ir.Var("_".join(f.loop_var.name for f in chain) + "_fused", dtype)
    analyzer = state.analyzer_at(path)
    extent: ir.PrimExpr = ir.const(1, dtype)
    for f in chain:
        extent = extent * ir.cast(dtype, f.extent)
    mapping: dict[ir.Var, ir.PrimExpr] = {}
    rest: ir.PrimExpr = fused
    for i in range(len(chain) - 1, 0, -1):
        size = ir.cast(dtype, chain[i].extent)
        if ir.is_const_int(size, 0):
            size = ir.const(1, dtype)  # the loop never runs; what it would compute does not matter
        mapping[chain[i].loop_var] = ir.cast(
            chain[i].loop_var.dtype, rest % size if not ir.is_const_int(size, 1) else ir.const(0, dtype)
        )
        rest = rest // size
    mapping[outer.loop_var] = rest
    analyzer.bind(fused, ir.Range.from_min_extent(ir.const(0, dtype), extent))
    mapping = {v: analyzer.simplify(e) for v, e in mapping.items()}
    body = structure.subst_stmt(chain[-1].body, mapping)
    if any(isinstance(e, ir.IntImm) for e in mapping.values()):  # `0 * 16` and `i + 0` say nothing
        for r in structure.child_realizes(body):
            values = tuple(analyzer.simplify(v) for v in r.iter_values)
            body = structure.replace_stmt(body, r, BlockRealize(values, r.predicate, r.block))
    new = For(fused, ir.const(0, dtype), analyzer.simplify(extent), outer.kind, body, annotations=outer.annotations)
    if outer.kind in (ForKind.PARALLEL, ForKind.VECTORIZED):
        check_data_parallel(new, analyzer)
    state.replace(outer, new)
    return fused


def _check_fusible(chain: list[For], loops: Sequence[ir.Var]) -> None:
    for f in chain:
        if not ir.is_const_int(f.min, 0):
            raise refuse("a loop does not start at 0", loops=f)
        if f.kind is ForKind.THREAD_BINDING:
            raise refuse("a loop is bound to a thread", loops=f)
        if f.annotations and f is not chain[0]:
            raise refuse(
                f"the notes {', '.join(f.annotations.keys())} of an inner loop would be lost",
                loops=f,
                help="unannotate it first, and annotate the fused loop",
            )
        if not structure.used_vars(f.extent).isdisjoint(loops):
            raise refuse("an inner extent depends on an outer loop", loops=list(loops))


def reorder(state: ScheduleState, loops: Sequence[ir.Var]) -> None:
    """Give loops on one chain the order listed; loops in between that are not listed keep their place."""
    if len(set(loops)) != len(loops):
        raise refuse("a loop is listed twice", loops=list(loops))
    if len(loops) < 2:
        return
    wanted = set(loops)
    paths = [state.path_to_loop(v) for v in loops]
    deepest = max(paths, key=len)
    first = next(i for i, s in enumerate(deepest) if isinstance(s, For) and s.loop_var in wanted)
    chain = [s for s in deepest[first:]]
    missing = wanted - {s.loop_var for s in chain if isinstance(s, For)}
    if missing:
        raise refuse("the loops are not nested in one another", loops=list(missing))
    for s in chain:
        if not isinstance(s, For):
            raise refuse(
                f"a {type(s).__name__} stands between the loops",
                loops=list(loops),
                help="a loop with several children cannot move past them",
            )
    inner_body = chain[-1].body  # type: ignore[union-attr]
    for r in structure.child_realizes(inner_body):
        if any(iv.iter_type not in ("data_par", "reduce") for iv in r.block.iter_vars):
            raise refuse("the block has ordered or opaque iterations", block=r.block.name_hint, loops=list(loops))
    queue = list(loops)
    order = [state.loop(queue.pop(0)) if s.loop_var in wanted else s for s in chain]  # type: ignore[union-attr]
    for i, f in enumerate(order):
        later = {g.loop_var for g in order[i + 1 :]}  # type: ignore[union-attr]
        if not structure.used_vars(f.min, f.extent).isdisjoint(later):  # type: ignore[union-attr]
            raise refuse("the extent of a loop depends on a loop that would come inside it", loops=f)
    _check_order(state, deepest, chain, order, loops)  # type: ignore[arg-type]
    state.replace(chain[0], structure.around(order, inner_body))


def _check_order(
    state: ScheduleState, path: list[Stmt], chain: list[For], order: list[For], loops: Sequence[ir.Var]
) -> None:
    """Refuse an order that changes what blocks make, or what they find where they feed one another."""
    moved = [f for f, g in zip(order, chain, strict=True) if f is not g]
    if not moved:
        return
    inner = chain[chain.index(next(g for f, g in zip(order, chain, strict=True) if f is not g)) :]
    realizes = structure.child_realizes(chain[-1].body)
    for r in realizes:
        below = [f for f in structure.path_to(chain[-1].body, lambda s, r=r: s is r) or () if isinstance(f, For)]
        _check_free_order(r, inner, below, loops)
        if len(realizes) > 1 and reduce_vars(r.block):
            raise refuse("one of several blocks below is a reduction", block=r.block.name_hint, loops=list(loops))
    tied = tied_iterations(chain[-1].body, inner, state.analyzer_at(path, inside=True))
    if tied is not None:
        raise refuse(
            f"'{tied[1]}' uses elements of '{tied[0].name}' that other iterations may write",
            block=tied[1],
            loops=list(loops),
        )


def _check_free_order(realize: BlockRealize, nest: list[For], below: list[For], loops: Sequence[ir.Var]) -> None:
    """Refuse a block whose result depends on the order of the iterations of a nest."""
    block = realize.block
    if not block.writes or sum(not ir.is_const_int(f.extent, 1) for f in nest) < 2:
        return
    used = structure.used_vars(realize.iter_values)
    again = [f for f in nest if f.loop_var not in used and not ir.is_const_int(f.extent, 1)]
    reducing = set(reduce_vars(block))
    fixed = all(structure.used_vars(r.min, r.extent).isdisjoint(reducing) for w in block.writes for r in w.region)
    free = True
    if accumulates(block):
        free = instances_apart([*nest, *below], realize, ("data_par", "reduce")) and not (again and reducing)
        free = free and (block.init is None or initialises(block))
    if not (free and fixed and writes_apart(block)):
        raise refuse(
            "the iterations are not known to write elements of their own, so their order matters",
            block=block.name_hint,
            loops=list(loops),
            help="the block's variables have to decide what it writes, each loop a part of them",
        )


def loop_partition(
    state: ScheduleState, var: ir.Var, factors: Sequence[ir.PrimExpr | int | None], preserve_unit_iters: bool = True
) -> list[ir.Var]:
    """Cut a loop into consecutive loops of the given lengths; blocks in the later ones are copies with new names."""
    path, loop = state.path_to_loop(var), state.loop(var)
    if any(
        r.block.init is not None
        and any(
            var in structure.used_vars(v)
            for iv, v in zip(r.block.iter_vars, r.iter_values, strict=True)
            if iv.iter_type == "reduce"
        )
        for r in structure.child_realizes(loop.body)
    ):
        raise refuse("a reduction inside still holds its init", loops=loop, help="decompose_reduction first")
    if loop.kind is ForKind.THREAD_BINDING:
        raise refuse("the loop is bound to a thread", loops=loop, help="partition before binding")
    dtype = var.dtype
    _check_known(state, path, factors)
    analyzer = state.analyzer_at(path)
    lengths = _partition_lengths(loop, factors, analyzer)
    start: ir.PrimExpr = loop.min
    parts: list[Stmt] = []
    new_vars: list[ir.Var] = []
    for n, length in enumerate(lengths):
        piece: Stmt = loop if n == 0 else structure.clone_fresh(loop, _namer(state, n))[0]
        assert isinstance(piece, For)
        new = ir.Var(f"{var.name}_p{n}", dtype)
        if ir.is_const_int(length, 0):
            continue
        inner_analyzer = state.analyzer_at(path[:-1])
        inner_analyzer.bind(new, ir.Range.from_min_extent(ir.const(0, dtype), length))
        body = structure.subst_stmt(piece.body, {piece.loop_var: inner_analyzer.simplify(start + new)})
        body = _drop_proven(body, inner_analyzer)
        if ir.is_const_int(length, 1) and not preserve_unit_iters:
            body = structure.subst_stmt(body, {new: ir.const(0, dtype)})
            parts.append(body)
        else:
            parts.append(For(new, ir.const(0, dtype), length, loop.kind, body, annotations=loop.annotations))
            new_vars.append(new)
        start = analyzer.simplify(start + length)
    state.replace(loop, seq(*parts))
    return new_vars


def _namer(state: ScheduleState, n: int):  # noqa: ANN202
    taken = set(state.block_names())

    def rename(name: str) -> str:
        new = f"{name}_p{n}"
        while new in taken:
            new += "_"
        taken.add(new)
        return new

    return rename


def _partition_lengths(loop: For, factors: Sequence[ir.PrimExpr | int | None], analyzer: Analyzer) -> list[ir.PrimExpr]:
    dtype = loop.loop_var.dtype
    known: ir.PrimExpr = ir.const(0, dtype)
    open_at = _open_places("length", loop, factors)
    lengths = [
        ir.const(0, dtype) if i in open_at else ir.cast(dtype, ir.as_expr(f, dtype)) for i, f in enumerate(factors)
    ]
    for s in lengths:
        if isinstance(s, ir.IntImm) and s.value < 0:
            raise refuse(f"length {s.value} is negative", loops=loop, help="give lengths from 0")
        known = known + s
    rest = analyzer.simplify(loop.extent - known)
    if open_at:
        lengths[open_at[0]] = rest
    elif not analyzer.can_prove_equal(rest, ir.const(0, dtype)):
        lengths.append(rest)
    if not analyzer.can_prove(known <= loop.extent):
        raise refuse(f"the lengths add up to {known}, past the extent {loop.extent}", loops=loop)
    return lengths


def _drop_proven(body: Stmt, analyzer: Analyzer) -> Stmt:
    """Remove from block predicates the conditions that hold for all iterations below."""

    def go(s: Stmt) -> Stmt:
        if isinstance(s, For):
            analyzer.bind(s.loop_var, ir.Range.from_min_extent(s.min, s.extent))
        if isinstance(s, BlockRealize):
            if isinstance(s.predicate, ir.IntImm):
                return s
            kept = ir.all_of(*(c for c in structure.conjuncts(s.predicate) if not analyzer.can_prove(c)))
            return s if kept is s.predicate else structure.replace_node(s, predicate=kept)
        return structure.map_children(s, go)

    return go(body)


def specialize(
    state: ScheduleState, var: ir.Var, condition: ir.PrimExpr
) -> tuple[list[str], dict[ir.Var, ir.Var], dict[str, str]]:
    """Copy a loop nest under both outcomes of `condition`: ``if condition: nest else: copy``.

    The original stays where the condition holds, so that each can be scheduled with what its side knows.

    Returns
    -------
    (list of str, dict, dict)
        Blocks of the copy; the copy's variable of each loop; the copy's name of each block.
    """
    path, loop = state.path_to_loop(var), state.loop(var)
    _check_known(state, path, [condition])
    copy, variables, names = structure.clone_fresh(loop, _namer(state, 1))
    state.replace(loop, IfThenElse(condition, loop, copy))
    return [s.block.name_hint for s in structure.child_realizes(copy)], variables, names


def add_unit_loop(state: ScheduleState, target: ir.Var | str) -> ir.Var:
    """Put a loop of one iteration around a loop (its variable) or a block (its name)."""
    stmt = state.realize(target) if isinstance(target, str) else state.loop(target)
    var = ir.Var("u", "int32" if isinstance(target, str) else target.dtype)
    state.replace(stmt, For(var, ir.const(0, var.dtype), ir.const(1, var.dtype), ForKind.SERIAL, stmt))
    return var
