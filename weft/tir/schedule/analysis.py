"""How blocks fit the instructions that tensor intrinsics describe, and the layouts that suit accesses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from weft import ir
from weft.arith import Analyzer, IterSplitExpr, IterSumExpr, detect_iter_map
from weft.tir.analysis.structure import used_vars
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.schedule.index_map import IndexMap
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.stmt_refs import StmtSRef
from weft.tir.schedule.tensorize import TensorIntrin
from weft.tir.stmt import Block, BlockRealize, BufferStore, For

if TYPE_CHECKING:
    from weft.tir.schedule.schedule import Schedule

__all__ = [
    "AutoTensorizeMappingInfo", "TensorizeInfo", "get_auto_tensorize_mapping_info", "get_tensorize_loop_mapping",
    "has_block", "is_output_block", "suggest_index_map", "tile_with_tensor_intrin",
]  # fmt: skip


class TensorizeInfo(NamedTuple):
    """Which loops of a block do what the loops of a description do.

    ``block_iter_paddings`` has a factor for each variable of the block that it has to be padded to, None where all fit.
    """

    loop_map: dict[StmtSRef, For]
    desc_loop_indexer: dict[For, int]
    block_iter_paddings: list[int] | None


class AutoTensorizeMappingInfo(NamedTuple):
    """Maps of a block's variables to those of a description, and which buffers of theirs correspond."""

    mappings: list[IndexMap]
    lhs_buffer_map: dict[Buffer, Buffer]
    lhs_iters: tuple[ir.IterVar, ...]
    rhs_iters: tuple[ir.IterVar, ...]


def has_block(sch: Schedule, block_name: str) -> bool:
    """Whether the function that the schedule works on has a block of this name."""
    return block_name in sch.state.block_names()


def is_output_block(sch: Schedule, block: BlockRV) -> bool:
    """Whether a block writes a buffer that is a parameter of the function."""
    given = {b for _, b in sch.func.buffer_map}
    return any(w.buffer in given for w in sch.state.realize(block.name).block.writes)


def _described(desc: PrimFunc) -> tuple[BlockRealize, list[For]]:
    """The block inside a description, with the loops around it."""
    found: list[For] = []
    stmt: Any = desc.root.body
    while isinstance(stmt, For):
        found.append(stmt)
        stmt = stmt.body
    return stmt, found


def _loop_of(value: ir.PrimExpr, loops: Sequence[For]) -> tuple[For | None, ir.PrimExpr]:
    """The loop that a value is, but for what none of the loops changes, and this rest."""
    for loop in loops:
        rest = Analyzer().simplify(value - ir.cast(value.dtype, loop.loop_var))
        if used_vars(rest).isdisjoint(f.loop_var for f in loops):
            return loop, rest
    return None, value


def get_tensorize_loop_mapping(
    sch: Schedule, block: BlockRV, desc_func: PrimFunc, allow_padding: bool = False
) -> TensorizeInfo | None:
    """Find the loop of a block for each loop of an intrinsic's description: the last of its kind whose size fits.

    Returns
    -------
    TensorizeInfo or None
        None where the sizes do not divide and may not be padded, a variable is no loop, or a kind is missing.
    """
    realize, (inner, wanted) = sch.state.realize(block.name), _described(desc_func)
    loops = _innermost_nest(sch.state.loops_of(block.name), realize)
    kinds = [iv.iter_type for iv in realize.block.iter_vars]
    padding, found, last = [1] * len(kinds), {}, len(kinds)
    for value, iv in reversed(list(zip(inner.iter_values, inner.block.iter_vars, strict=True))):
        theirs, _ = _loop_of(value, wanted)
        last = next((i for i in reversed(range(last)) if kinds[i] == iv.iter_type), -1)
        ours, rest = (None, value) if last < 0 else _loop_of(realize.iter_values[last], loops)
        if theirs is None or ours is None or ours in found:
            return None
        size, step = ours.extent, theirs.extent
        if not (isinstance(size, ir.IntImm) and isinstance(step, ir.IntImm) and ir.is_const_int(ours.min, 0)):
            return None
        if size.value % step.value:
            if not (allow_padding and ir.is_const_int(rest, 0)):
                return None
            padding[last] = step.value
        found[ours] = theirs
    loop_map = {}
    for ours, theirs in found.items():
        ref = sch.get_sref(ours)
        assert ref is not None
        loop_map[ref] = theirs
    return TensorizeInfo(loop_map, {f: i for i, f in enumerate(wanted)}, padding if max(padding) > 1 else None)


def _innermost_nest(loops: Sequence[For], realize: BlockRealize) -> list[For]:
    """The loops directly around a block, up to one that has more inside."""
    nest: list[For] = []
    inside: Any = realize
    for loop in reversed(loops):
        if loop.body is not inside:
            break
        nest.insert(0, loop)
        inside = loop
    return nest


def tile_with_tensor_intrin(
    sch: Schedule, block: BlockRV, intrin_name: str, allow_padding: bool = False
) -> LoopRV | None:
    """Split a block's loops by the sizes that an intrinsic has, with the intrinsic's loops inside of all others.

    Returns
    -------
    LoopRV or None
        The outermost of the intrinsic's loops; None where the block has no loops for it.
    """
    intrin = TensorIntrin.get(intrin_name)
    assert intrin is not None
    info = get_tensorize_loop_mapping(sch, block, intrin.desc, allow_padding)
    if info is None:
        return None
    places = {id(ref.stmt): info.desc_loop_indexer[loop] for ref, loop in info.loop_map.items()}
    before = [places.get(id(sch.get(rv))) for rv in sch.get_loops(block)]
    steps = [loop.extent for loop in info.desc_loop_indexer]
    if info.block_iter_paddings is not None:
        _pad(sch, block, info.block_iter_paddings)
    inner: dict[int, LoopRV] = {}
    for rv, place in zip(sch.get_loops(block), before, strict=True):
        if place is not None:
            _, inner[place] = sch.split(rv, [None, int(steps[place])])
    order = [inner[place] for place in sorted(inner)]
    moved = {rv.var for rv in order}
    sch.reorder(*(rv for rv in sch.get_loops(block) if rv.var not in moved), *order)
    return order[0]


def _pad(sch: Schedule, block: BlockRV, factors: Sequence[int]) -> None:
    """Pad a block; what only moves between the padded buffers and blocks that made or took the old ones is inlined."""
    made, taken = sch.get_producers(block), sch.get_consumers(block)
    sch.pad_einsum(block, factors)
    for padder in sch.get_producers(block):
        for producer in sch.get_producers(padder) if padder not in made else ():
            sch.compute_inline(producer)
    for cutter in sch.get_consumers(block):
        if cutter not in taken and sch.get_consumers(cutter):
            sch.compute_inline(cutter)


def _accesses(block: Block) -> dict[Buffer, set[ir.Var]]:
    """The variables that the indices of each buffer depend on, by first use."""
    an, found = Analyzer(), dict[Buffer, set[ir.Var]]()
    for iv in block.iter_vars:
        if iv.dom is not None and not ir.is_const_int(iv.dom.extent, 1):  # those of one value stand where they do
            an.bind(iv.var, iv.dom)
    for n in ir.walk(block.body):
        if isinstance(n, (BufferLoad, BufferStore)):
            found.setdefault(n.buffer, set()).update(used_vars(*map(an.simplify, n.indices)))
    return found


def _skeleton(stmt: Any, buffers: Sequence[Buffer]) -> PrimFunc:
    """What a statement computes, wherever it finds its operands and results."""
    bare = {b: Buffer(ir.Var("b", "handle"), b.dtype, (), name="b") for b in buffers}

    def rule(node: Any) -> Any:
        if isinstance(node, BufferLoad):
            return BufferLoad(bare[node.buffer], ())
        return BufferStore(bare[node.buffer], node.value, ()) if isinstance(node, BufferStore) else node

    params = [ir.Var("b", "handle") for _ in buffers]
    return PrimFunc(params, ir.rewrite(stmt, rule), buffer_map=tuple(zip(params, bare.values(), strict=True)))


def get_auto_tensorize_mapping_info(
    sch: Schedule, block: BlockRV, desc_func: PrimFunc
) -> AutoTensorizeMappingInfo | None:
    """Map the variables of a block to those of an intrinsic's description that index the same buffers.

    Several variables of the block may be one of the description, fused in their order; those that are none stay first.

    Returns
    -------
    AutoTensorizeMappingInfo or None
        None where the block computes something else or the map is not unique; that there is one does not yet mean that
        the block can be tensorized.
    """
    ours: Block = sch.state.realize(block.name).block
    theirs: Block = _described(desc_func)[0].block
    left, right = _accesses(ours), _accesses(theirs)
    if not ir.structural_equal(_skeleton(ours.body, list(left)), _skeleton(theirs.body, list(right))):
        return None

    def used(iv: ir.IterVar, accesses: dict[Buffer, set[ir.Var]]) -> tuple[Any, ...]:
        return (iv.iter_type, *(iv.var in variables for variables in accesses.values()))

    fused: dict[ir.IterVar, Any] = dict.fromkeys(theirs.iter_vars)
    variables = [ir.Var(iv.var.name, iv.var.dtype) for iv in ours.iter_vars]
    first: list[ir.PrimExpr] = []
    for v, iv in zip(variables, ours.iter_vars, strict=True):
        fitting = [other for other in fused if used(other, right) == used(iv, left)]
        if len(fitting) > 1:
            return None
        if not fitting or iv.dom is None:
            first.append(v)
            continue
        outer = fused[fitting[0]]
        fused[fitting[0]] = v if outer is None else outer * iv.dom.extent + v
    if None in fused.values():
        return None
    last = [Analyzer().simplify(e) for e in fused.values()]
    index_map = IndexMap(tuple(variables), (*first, *last))
    pairs = dict(zip(left, right, strict=True))
    return AutoTensorizeMappingInfo([index_map], pairs, ours.iter_vars, theirs.iter_vars)


def _flat(shape: Sequence[ir.PrimExpr], indices: Sequence[ir.PrimExpr]) -> ir.PrimExpr:
    flat: ir.PrimExpr = indices[0]
    for size, index in zip(shape[1:], indices[1:], strict=True):
        flat = flat * ir.cast(index.dtype, size) + index
    return flat


def _splits(found: Any) -> Iterator[tuple[Any, int, int]]:
    """The parts of loops that a sum consists of: variable, lower factor, extent."""
    if isinstance(found, IterSumExpr):
        for part in found.args:
            yield from _splits(part)
    elif isinstance(found, IterSplitExpr):
        if isinstance(found.source.source, IterSumExpr):
            yield from _splits(found.source.source)
        else:
            yield found.source.source, found.lower_factor, found.extent


def suggest_index_map(
    buffer: Buffer, indices: Sequence[ir.PrimExpr], loops: Sequence[For], predicate: ir.PrimExpr | bool
) -> IndexMap | None:
    """Suggest a layout in which loops walk through a buffer in the order of its memory.

    Parameters
    ----------
    buffer : Buffer
    indices : sequence of PrimExpr
        Where the loops access it.
    loops : sequence of For
        Outermost first.
    predicate : PrimExpr
        When they do.

    Returns
    -------
    IndexMap or None
        None where the access is no map of the loops' parts with constant sizes.
    """
    order = {f.loop_var: i for i, f in enumerate(loops)}
    domains = {f.loop_var: ir.Range.from_min_extent(f.min, f.extent) for f in loops}
    found = detect_iter_map([_flat(buffer.shape, indices)], domains, ir.as_expr(predicate), check_level="surjective")
    parts = list(_splits(found[0])) if len(found) else []
    if not parts or any(v not in order or not isinstance(e, ir.IntImm) for v, _, e in parts):
        return None
    an, variables = Analyzer(), [ir.Var(f"i{n}", indices[0].dtype) for n in range(len(buffer.shape))]
    for v, size in zip(variables, buffer.shape, strict=True):
        an.bind(v, ir.Range(0, size))
    rest, image = _flat(buffer.shape, variables), []
    for v, lower, extent in reversed(parts):
        image.append(((order[v], -int(lower)), an.simplify(ir.floormod(rest, extent))))
        rest = an.simplify(ir.floordiv(rest, extent))
    return IndexMap(tuple(variables), tuple(e for _, e in sorted(image, key=lambda pair: pair[0])))
