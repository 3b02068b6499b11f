"""Cache primitives: stage what a block reads or writes in a buffer of its own; choose where a buffer lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import ir
from weft.arith import Analyzer
from weft.tir.analysis.access import is_pure, loads_of, relax_region, substitute_ranges
from weft.tir.analysis.apart import initialises
from weft.tir.analysis.cover import covers, stores_all
from weft.tir.analysis.dependence import consumers_of, touches
from weft.tir.analysis.structure import (
    child_realizes,
    iter_values_of,
    loops_around,
    replace_node,
    statements,
    used_vars,
)
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.schedule.block_buffers import copy_block, element_nest, region_at, region_of
from weft.tir.schedule.blocks import refresh_accesses
from weft.tir.schedule.compute_at import replace_buffer
from weft.tir.schedule.index_map import IndexMap
from weft.tir.schedule.state import ScheduleState, check_scope, refuse
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, SeqStmt, Stmt, seq


def cache_write(
    state: ScheduleState,
    name: str,
    write_index: int | str | Buffer,
    storage_scope: str,
    consumers: list[str] | None = None,
) -> str:
    """Let a block write a new buffer, which another block then copies to the original, and `consumers` read the new.

    Returns the name of the copy.
    """
    path, scope, realize = _found(state, name, storage_scope)
    block = realize.block
    region = region_of(block, "write", write_index)
    old = region.buffer
    if sum(any(w.buffer is old for w in r.block.writes) for r in child_realizes(scope)) != 1:
        raise refuse(f"several blocks write '{old.name}'", block=name)
    readers = consumers_of(block, scope)
    top = _apart(scope, path, lambda r: r in readers)
    if loads_of(block.body, old) and not initialises(block):
        raise refuse(
            f"the block reads '{old.name}', which it writes",
            block=name,
            help="the new buffer would not hold what is read",
        )
    if block.init is not None or any(r.buffer is old for r in block.reads):
        state.check_loaded(old, block, views=True)
    for consumer in consumers or ():
        state.check_loaded(old, state.realize(consumer).block, views=True)
    order = [r.block.name_hint for r in child_realizes(scope)]
    early = [c for c in consumers or () if c not in order or order.index(c) < order.index(block.name_hint)]
    if early:
        raise refuse(f"'{early[0]}' does not run after the block", block=name)
    cache = _cache_of(old, storage_scope)
    moved = _moved(state, old, cache, block)
    box = _whole_region(state, path, realize, region, top)
    if state.is_argument(old) and not (stores_all(block, region) and _fills(state, path, region, box, top)):
        raise refuse(
            f"the block does not write all of '{old.name}' from its first to its last element",
            block=name,
            help="the copy would write the elements between",
        )
    copy_name = state.fresh_name(f"{old.name}_{storage_scope.replace('.', '_')}")
    copy = _copy_nest(cache, old, box, copy_name, _outside(state, path, top))
    state.replace(top, seq(top, copy))
    current = state.realize(name).block
    state.replace(current, ir.substitute(current, moved))
    state.alloc(state.scope_of_block(name), cache)
    for consumer in consumers or ():
        reader = state.realize(consumer).block
        if not any(r.buffer is old for r in reader.reads):
            raise refuse(f"'{consumer}' does not read '{old.name}'", block=name, help="list its readers")
        state.replace(reader, ir.substitute(reader, {old: cache}))
    return copy_name


def cache_read(
    state: ScheduleState,
    name: str,
    read_index: int | str | Buffer,
    storage_scope: str,
    consumers: list[str] | None = None,
) -> str:
    """Copy what a block reads into a new buffer first, and let it (or the listed blocks) read that.

    Returns the name of the copy.
    """
    path, scope, realize = _found(state, name, storage_scope)
    block = realize.block
    region = region_of(block, "read", read_index)
    old = region.buffer
    if any(w.buffer is old for w in block.writes):
        others = [f"{i} is '{r.buffer.name}'" for i, r in enumerate(block.reads) if r.buffer is not old]
        hint = f"of its reads, {', '.join(others)}"
        raise refuse(f"the block writes '{old.name}'", block=name, help=hint)
    cache = _cache_of(old, storage_scope)
    name = block.name_hint  # handles of decomposed reductions have the old one
    users = [state.realize(user).block.name_hint for user in consumers or [name]]
    near = {r.block.name_hint for r in child_realizes(scope)}
    for user in users:
        if user not in near:
            raise refuse(f"'{user}' is in another scope", block=name, help="list blocks of one scope")
        if not any(r.buffer is old for r in state.realize(user).block.reads):
            raise refuse(f"'{user}' does not read '{old.name}'", block=name, help="list its consumers")
    moved = {k: v for user in users for k, v in _moved(state, old, cache, state.realize(user).block).items()}

    def writes(r: BlockRealize) -> bool:
        return touches(r.block, [old], writes_only=True)

    if users == [name]:
        top = _apart(scope, path, writes)
        box = _whole_region(state, path, realize, region, top)
    else:
        tops = statements_with(scope, users)
        top, box = tops[0], tuple(ir.Range(d) for d in old.shape)
        if any(writes(r) for s in tops for r in child_realizes(s)):
            raise refuse(f"'{old.name}' is written in the loop nests of the blocks or between them", block=name)
    copy_name = state.fresh_name(f"{old.name}_{storage_scope.replace('.', '_')}")
    state.replace(top, seq(_copy_nest(old, cache, box, copy_name, _outside(state, path, top)), top))
    for user in users:
        current = state.realize(user).block
        state.replace(current, ir.substitute(current, moved))
    state.alloc(state.scope_of_block(name), cache)
    return copy_name


def cache_inplace(
    state: ScheduleState, name: str, read_index: int | str | Buffer, storage_scope: str
) -> tuple[str, str]:
    """Let a block work on a copy of a buffer that it reads and writes; returns the names of the copies in and out."""
    path, scope, realize = _found(state, name, storage_scope)
    block = realize.block
    kind = "read" if isinstance(read_index, int) else "write"
    old = region_of(block, kind, read_index).buffer
    if not any(w.buffer is old for w in block.writes):
        raise refuse(f"the block does not write '{old.name}'", block=name, help="use cache_read")
    cache = _cache_of(old, storage_scope)
    moved = _moved(state, old, cache, block)
    top = _apart(scope, path, lambda r: r is not realize and touches(r.block, [old]))
    whole = tuple(ir.Range(d) for d in old.shape)
    copies = [state.fresh_name(f"{old.name}_{storage_scope.replace('.', '_')}")]
    before = _copy_nest(old, cache, whole, copies[0], _outside(state, path, top))
    copies.append(state.fresh_name(f"{copies[0]}_1"))
    after = _copy_nest(cache, old, whole, copies[1], _outside(state, path, top))
    state.replace(top, seq(before, top, after))
    current = state.realize(name).block
    state.replace(current, ir.substitute(current, moved))
    state.alloc(state.scope_of_block(name), cache)
    return copies[0], copies[1]


def put_stage(
    state: ScheduleState,
    name: str,
    stage: str,
    shape: Sequence[ir.PrimExpr],
    element: Callable[..., ir.PrimExpr],
    read: Callable[[object, Buffer], object],
    scope: str = "global",
) -> str:
    """Store the elements of a new buffer, called `stage`, ahead of a block, each node of which becomes what it reads.

    Returns the name of the block that stores them.
    """
    value = element(*(ir.Var(f"v{i}", d.dtype) for i, d in enumerate(shape)))
    new = Buffer(ir.Var(stage, "handle"), value.dtype, tuple(shape), name=stage, scope=scope)
    whole = [ir.Range(d) for d in shape]
    nest, maker = element_nest(new, state.fresh_name(stage), whole, element)
    path, around, _ = state.located(name)
    top = top_child(around, path)
    state.replace(top, seq(nest, top))
    block = state.realize(name).block
    state.replace(block, ir.rewrite(block, lambda n: read(n, new)))
    state.alloc(state.scope_of_block(name), new)
    block = state.realize(name).block
    state.replace(block, refresh_accesses(state, block, name))
    return maker.name_hint


def cache_index(state: ScheduleState, name: str, storage_scope: str, repeats: int = 0) -> list[str]:
    """Compute what indices of a block are made of, where it occurs `repeats` times or more, ahead, and load it there.

    Only what the block's variables alone decide; whole indices before their parts. Returns the names of the blocks
    that compute.
    """
    check_scope(storage_scope)
    block = state.realize(name).block
    places = [i for load in ir.find(block.body, BufferLoad) for i in load.indices]
    parts = [e for i in places for e in ir.find(i, ir.PrimExpr) if _is_computed(e, block)]
    chosen: list[ir.PrimExpr] = []

    def choose(e: object) -> None:
        count = sum(ir.structural_equal(e, p) for p in parts)
        if count >= max(repeats, 1):
            chosen.extend([] if any(ir.structural_equal(e, c) for c in chosen) else [e])  # type: ignore[list-item]
        elif isinstance(e, ir.Node):
            for part in ir.children(e):
                choose(part)

    for i in places:
        choose(i)
    chosen.sort(key=lambda e: -len(ir.find(e, ir.PrimExpr)))  # before a part of one is replaced inside of it
    return [_index_stage(state, name, e, f"index_var_{n}", storage_scope) for n, e in enumerate(chosen)]


def _is_computed(e: ir.PrimExpr, block: Block) -> bool:
    """Whether an index is computed of nothing but the variables of a block, for any values of them."""
    leaf = isinstance(e, (ir.Var, ir.IntImm)) or not ir.is_integer(e.dtype)
    divisors = [d.b for d in ir.find(e, ir.FloorDiv, ir.FloorMod, ir.Div, ir.Mod) if not ir.is_float(d.dtype)]
    safe = is_pure(e) and not ir.find(e, BufferLoad) and all(isinstance(d, ir.IntImm) and d.value for d in divisors)
    used = used_vars(e)
    return not leaf and safe and bool(used) and used <= {iv.var for iv in block.iter_vars if iv.dom is not None}


def _index_stage(state: ScheduleState, name: str, index: ir.PrimExpr, stage: str, scope: str) -> str:
    """Let a block load a part of its indices from a buffer that holds it for all values of its variables."""
    used = used_vars(index)
    domains = {iv.var: iv.dom for iv in state.realize(name).block.iter_vars if iv.var in used and iv.dom is not None}

    def element(*at: ir.PrimExpr) -> ir.PrimExpr:
        values = zip(domains.items(), at, strict=True)
        return ir.substitute(index, {v: ir.cast(v.dtype, dom.min + i) for (v, dom), i in values})

    def read(node: object, new: Buffer) -> object:
        if not isinstance(node, BufferLoad):
            return node
        load = BufferLoad(new, tuple(v - ir.cast(v.dtype, dom.min) for v, dom in domains.items()))
        same = ir.rewrite(node.indices, lambda e: load if ir.structural_equal(e, index) else e)
        return replace_node(node, indices=same)

    return put_stage(state, name, stage, [dom.extent for dom in domains.values()], element, read, scope)


def _found(state: ScheduleState, name: str, storage_scope: str) -> tuple[list[Stmt], Block, BlockRealize]:
    """The way to a block, the block around it and its realization; the scope of the copy is checked."""
    check_scope(storage_scope)
    return state.located(name)


def statements_with(scope: Block, names: list[str]) -> list[Stmt]:
    """List the statements in the body of a block from the first to the last that has one of the named blocks."""
    items = list(scope.body.seq) if isinstance(scope.body, SeqStmt) else [scope.body]
    at = [i for i, s in enumerate(items) if any(r.block.name_hint in names for r in child_realizes(s))]
    return items[at[0] : at[-1] + 1]


def _cache_of(old: Buffer, storage_scope: str) -> Buffer:
    name = f"{old.name}_{storage_scope.replace('.', '_')}"
    return replace_node(
        old, data=ir.Var(name, "handle"), name=name, scope=storage_scope, strides=(), elem_offset=None, offset_factor=0
    )


def _moved(state: ScheduleState, old: Buffer, cache: Buffer, block: Block) -> dict[Buffer | ir.Var, Buffer | ir.Var]:
    """What becomes what in a block that uses a copy; an address is good in both where both are compact."""
    stated = (r.buffer for r in (*block.reads, *block.writes))
    shared = any(b is not old and b.data is old.data for b in stated)
    if shared or old.strides or not (old.elem_offset is None or ir.is_const_int(old.elem_offset, 0)):
        state.check_loaded(old, block, views=True)
    return {old: cache, old.data: cache.data}


def top_child(scope: Block, path: list[Stmt]) -> Stmt:
    """Return the statement directly in the body of `scope` through which `path` runs."""
    at = next(i for i, s in enumerate(path) if s is scope)
    child = path[at + 1]
    return path[at + 2] if isinstance(child, SeqStmt) else child


def _apart(scope: Block, path: list[Stmt], others: Callable[[BlockRealize], bool]) -> Stmt:
    """Return the outermost statement inside `scope`, on the way to a block, that has none of some other blocks."""
    inside = path[_place(path, top_child(scope, path)) :]
    return next(s for s in inside if not isinstance(s, SeqStmt) and not any(map(others, child_realizes(s))))


def _outside(state: ScheduleState, path: list[Stmt], top: Stmt) -> Analyzer:
    """What holds where a copy beside `top` runs: the conditions inside of it need not."""
    around = next((i for i, s in enumerate(path) if s is top), -1)  # consumers may stand beside the block's own way
    return state.analyzer_at(path[: around + 1])


def _place(path: list[Stmt], stmt: Stmt) -> int:
    return next(i for i, s in enumerate(path) if s is stmt)


def _whole_region(
    state: ScheduleState, path: list[Stmt], realize: BlockRealize, region: BufferRegion, top: Stmt
) -> tuple[ir.Range, ...]:
    """Return what all instances of a block in one run of `top` touch, cut to the buffer."""
    at = _place(path, top)
    analyzer = state.analyzer_at(path)
    loops = {s.loop_var: ir.Range.from_min_extent(s.min, s.extent) for s in path[at:] if isinstance(s, For)}
    box = relax_region(substitute_ranges(region.region, iter_values_of(realize)), loops, analyzer)
    result = []
    for r, d in zip(box, region.buffer.shape, strict=True):
        inside = r is not None and analyzer.can_prove(r.min >= 0) and analyzer.can_prove(r.min + r.extent <= d)
        result.append(r if r is not None and inside else ir.Range(d))
    return tuple(result)


def _fills(state: ScheduleState, path: list[Stmt], region: BufferRegion, box: tuple[ir.Range, ...], top: Stmt) -> bool:
    """Whether a block, over all its instances in one run of `top`, writes each element of a box."""
    realize = path[-1]
    assert isinstance(realize, BlockRealize)
    steps = [
        ir.const(0, r.extent.dtype) if ir.is_const_int(r.extent, 1) else ir.Var(f"r{i}", r.extent.dtype)
        for i, r in enumerate(region.region)
    ]
    pairs = list(zip(steps, region.region, strict=True))
    nest = [For(v, ir.const(0, v.dtype), r.extent, ForKind.SERIAL, realize) for v, r in pairs if isinstance(v, ir.Var)]
    places = ir.substitute(tuple(r.min + v for v, r in pairs), iter_values_of(realize))
    return covers([*path[_place(path, top) : -1], *nest, realize], places, box, state.analyzer_at(path))


def _copy_nest(source: Buffer, target: Buffer, box: tuple[ir.Range, ...], name: str, analyzer: Analyzer) -> Stmt:
    """Build the loops and the block that copy what is in the buffers of a box of one to the same place of another."""
    loops = [ir.Var(f"ax{i}", r.extent.dtype) for i, r in enumerate(box)]
    iters = [ir.IterVar(ir.Range(d), ir.Var(f"v{i}", d.dtype), "data_par") for i, d in enumerate(source.shape)]
    index = tuple(iv.var for iv in iters)
    block = copy_block(iters, source, index, target, index, name)
    values = tuple(r.min + v for r, v in zip(box, loops, strict=True))
    for v, r in zip(loops, box, strict=True):
        analyzer.bind(v, ir.Range.from_min_extent(ir.const(0, v.dtype), r.extent))
    tests = (test for i, d in zip(values, source.shape, strict=True) for test in (i >= 0, i < ir.cast(i.dtype, d)))
    predicate = ir.all_of(*(t for t in tests if not analyzer.can_prove(t)))
    return loops_around(BlockRealize(values, predicate, block), loops, [r.extent for r in box])


def set_scope(state: ScheduleState, name: str, buffer_index: int | str | Buffer, storage_scope: str) -> None:
    """Choose where the buffer that a block writes lives."""
    check_scope(storage_scope)
    block = state.realize(name).block
    buffer = region_of(block, "write", buffer_index).buffer
    if state.is_argument(buffer):
        raise refuse(f"'{buffer.name}' is a parameter of the function", block=name, help="use cache_write")
    if buffer.scope != storage_scope:
        replace_buffer(state, buffer, replace_node(buffer, scope=storage_scope))


def set_dtype(state: ScheduleState, name: str, buffer_index: int | str | Buffer, dtype: str) -> None:
    """Keep the buffer that a block writes in another data type; values are converted where it is stored and loaded."""
    block = state.realize(name).block
    old = region_of(block, "write", buffer_index).buffer
    if state.is_argument(old):
        raise refuse(f"'{old.name}' is a parameter of the function", block=name, help="use cache_write")
    new = {old: replace_node(old, data=ir.Var(old.name, "handle"), dtype=str(ir.DataType(dtype)))}
    for view in (m for s in statements(state.body) if isinstance(s, Block) for m in s.match_buffers):
        b = view.buffer
        if view.source.buffer in new:
            if b.dtype != old.dtype:
                raise refuse(f"'{b.name}' is a view of '{old.name}' in another data type", block=name)
            new[b] = replace_node(b, data=ir.Var(b.name, "handle"), dtype=new[old].dtype)
    for b in new:
        state.check_loaded(b, views=True)

    def rule(node: object) -> object:
        if isinstance(node, BufferLoad) and node.buffer in new:
            return ir.cast(old.dtype, replace_node(node, buffer=new[node.buffer]))
        if isinstance(node, BufferStore) and node.buffer in new:
            return replace_node(node, buffer=new[node.buffer], value=ir.cast(new[old].dtype, node.value))
        return node

    state.rewrite_body(lambda body: ir.substitute(ir.rewrite(body, rule), new))


def _regions_of(block: Block, kind: str) -> str:
    """Return the field that holds the regions of a kind."""
    if kind not in ("read", "write"):
        raise refuse(f"unknown kind of buffer '{kind}'", block=block.name_hint, help="'read' or 'write'")
    return f"{kind}s"


def hide_accesses(state: ScheduleState, name: str, kind: str, places: Sequence[int]) -> None:
    """Leave regions out of what a block says it touches."""
    block = state.realize(name).block
    field = _regions_of(block, kind)
    regions = getattr(block, field)
    for place in places:
        region_at(regions, place, name)
    kept = tuple(r for i, r in enumerate(regions) if i not in places)
    state.replace(block, replace_node(block, **{field: kept}))


def state_access(state: ScheduleState, name: str, place: int, kind: str, ranges: IndexMap) -> None:
    """State the region that a block touches: a map of its variables gives the ends of each range."""
    block = state.realize(name).block
    field = _regions_of(block, kind)
    regions = list(getattr(block, field))
    old = region_at(regions, place, name)
    ends = ranges(*[iv.var for iv in block.iter_vars])
    if len(ends) != 2 * len(old.region):
        raise refuse(f"{len(ends) // 2} ranges for the {len(old.region)} dimensions of '{old.buffer.name}'", block=name)
    analyzer = state.analyzer_at(state.path_to_block(name), inside=True)
    box = [ir.Range.from_min_extent(a, analyzer.simplify(b - a)) for a, b in zip(ends[::2], ends[1::2], strict=True)]
    regions[place] = replace_node(old, region=tuple(box))
    key = f"explicit_{kind}_region"
    stated = tuple(block.annotations.get(key, ()))
    notes = {key: stated if place in stated else (*stated, place)}
    annotated = replace_node(block, **{field: tuple(regions)}, annotations=ir.Attrs.of(block.annotations, **notes))
    state.replace(block, annotated)
