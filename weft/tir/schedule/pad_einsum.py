"""pad_einsum: a contraction over extents that are rounded up, with zeros behind the operands' ends."""

from __future__ import annotations

from collections.abc import Sequence

from weft import ir
from weft.tir.analysis.dependence import is_reduction
from weft.tir.analysis.structure import replace_node, replace_stmt
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.schedule.block_buffers import element_nest
from weft.tir.schedule.cache import top_child
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, Stmt, seq


def pad_einsum(state: ScheduleState, name: str, padding: Sequence[int]) -> None:
    """Round the extent of each iteration variable up to a multiple of its number in `padding`.

    Operands are copied to buffers with zeros at the end first, the result is copied from a larger buffer; what needs
    no padding is used as it is. The block has to be a sum of products, addressed by its iteration variables.
    """
    path, scope, realize = state.located(name)
    block = realize.block
    if len(padding) != len(block.iter_vars) or any(p < 1 for p in padding):
        raise refuse(
            f"expected a positive number for each of {len(block.iter_vars)} iteration variables",
            block=name,
            help=f"found {list(padding)}",
        )
    loads = _operands(block, name)
    loops = state.loops_of(name)
    top = top_child(scope, path)
    if not _is_plain(loops, realize, top, state):
        raise refuse(
            "the loops are scheduled already", loops=loops, block=name, help="pad before split, fuse and reorder"
        )
    old = {iv.var: iv.dom.extent for iv in block.iter_vars if iv.dom is not None}
    analyzer = state.analyzer_at(path)
    new = {
        iv.var: analyzer.simplify(ir.ceildiv(old[iv.var], p) * p)
        for iv, p in zip(block.iter_vars, padding, strict=True)
    }
    grown = {v for v in old if not analyzer.can_prove_equal(old[v], new[v])}
    _check_grown(realize, scope, grown, loads)
    before, after, swap = [], [], {}
    own = {w.buffer for w in block.writes}
    for load in loads:
        axes = [i for i in load.indices if isinstance(i, ir.Var)]
        if load.buffer in swap or grown.isdisjoint(axes):
            continue
        shape = tuple(
            new[i] if isinstance(i, ir.Var) else d for i, d in zip(load.indices, load.buffer.shape, strict=True)
        )
        padded = Buffer(
            ir.Var(f"{load.buffer.name}_pad", "handle"),
            load.buffer.dtype,
            shape,
            name=f"{load.buffer.name}_pad",
            scope=load.buffer.scope,
        )
        swap[load.buffer] = padded
        if load.buffer in own:
            after.append(_copy(state, padded, load.buffer, load.buffer.shape, None))
        else:
            before.append(_copy(state, load.buffer, padded, shape, load.buffer.shape))

    def rule(node: object) -> object:
        if isinstance(node, (BufferLoad, BufferStore, BufferRegion)) and node.buffer in swap:
            return replace_node(node, buffer=swap[node.buffer])
        return node

    iters = tuple(
        replace_node(iv, dom=ir.Range.from_min_extent(ir.const(0, iv.dtype), new[iv.var])) for iv in block.iter_vars
    )
    nest: Stmt = replace_stmt(
        top, realize, replace_node(realize, block=replace_node(ir.rewrite(block, rule), iter_vars=iters))
    )
    for loop, iv in zip(loops, block.iter_vars, strict=True):
        found = _loop_of(nest, loop.loop_var)
        nest = replace_stmt(nest, found, replace_node(found, extent=new[iv.var]))
    state.replace(top, seq(*before, nest, *after))
    state.alloc(state.scope_of_block(name), *swap.values())


def _check_grown(realize: BlockRealize, scope: Block, grown: set[ir.Var], loads: list[BufferLoad]) -> None:
    """Refuse where padding would be added to elements: it must be other elements, or products with zeros."""
    block, name = realize.block, realize.block.name_hint
    if not is_reduction(realize, scope):
        raise refuse("the block is no whole reduction with its init", block=name, help="pad before decompose_reduction")
    assert isinstance(block.body, BufferStore)
    stored = {i for i in block.body.indices if isinstance(i, ir.Var)}
    read = {i for x in loads if x.buffer is not block.body.buffer for i in x.indices if isinstance(i, ir.Var)}
    for iv in block.iter_vars:
        if iv.var in grown and iv.var not in (read if iv.iter_type == "reduce" else stored):
            raise refuse(
                f"'{iv.var.name}' is not an index of what is padded", block=name, help="give 1 for its padding"
            )


def _is_plain(loops: list[For], realize: BlockRealize, top: Stmt, state: ScheduleState) -> bool:
    """Whether the block stands in loops only, one for each of its variables over the whole domain."""
    nest = top
    for loop in loops:
        if nest is not loop:
            return False
        nest = loop.body
    domains = [iv.dom for iv in realize.block.iter_vars]
    analyzer = state.analyzer_at(state.path_to_block(realize.block.name_hint))
    return (
        nest is realize
        and len(loops) == len(domains)
        and ir.is_const_int(realize.predicate, 1)
        and all(
            f.loop_var is v
            and d is not None
            and ir.is_const_int(f.min, 0)
            and ir.is_const_int(d.min, 0)
            and analyzer.can_prove_equal(f.extent, d.extent)
            for f, v, d in zip(loops, realize.iter_values, domains, strict=True)
        )
    )


def _loop_of(nest: Stmt, var: ir.Var) -> For:
    """Return the loop of a perfect nest by its variable."""
    while isinstance(nest, For) and nest.loop_var is not var:
        nest = nest.body
    assert isinstance(nest, For)
    return nest


def _operands(block: Block, name: str) -> list[BufferLoad]:
    """List the loads of a block ``C[i...] = C[i...] + a[...] * b[...]``."""
    store = block.body
    if not isinstance(store, BufferStore) or not isinstance(store.value, ir.Add):
        raise refuse("the block is no sum of products", block=name)
    loads: list[BufferLoad] = []
    own = {iv.var for iv in block.iter_vars}

    def collect(e: ir.PrimExpr) -> bool:
        if isinstance(e, BufferLoad):
            loads.append(e)
            return all(i in own if isinstance(i, ir.Var) else ir.is_const_int(i, 0) for i in e.indices)
        if isinstance(e, ir.Mul):
            return collect(e.a) and collect(e.b)
        return isinstance(e, ir.Cast) and collect(e.value)

    total = store.value.a
    good = isinstance(total, BufferLoad) and total.buffer is store.buffer and collect(store.value.a)
    if not good or not collect(store.value.b):
        raise refuse("the block is no sum of products addressed by its iteration variables", block=name)
    return loads


def _copy(
    state: ScheduleState,
    source: Buffer,
    target: Buffer,
    shape: tuple[ir.PrimExpr, ...],
    inside: tuple[ir.PrimExpr, ...] | None,
) -> Stmt:
    """Copy a box at the origin; what lies outside of `inside` becomes zero."""
    name = state.fresh_name(target.name if inside is not None else f"{target.name}_crop")

    def element(*index: ir.Var) -> ir.PrimExpr:
        value: ir.PrimExpr = BufferLoad(source, index)
        if inside is None:
            return value
        within = [v < d for v, d, whole in zip(index, inside, shape, strict=True) if d is not whole]
        return ir.if_then_else(ir.all_of(*within), value, ir.const(0, source.dtype))

    return element_nest(target, name, [ir.Range(d) for d in shape], element)[0]
