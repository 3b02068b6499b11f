"""How blocks fit the instructions that tensor intrinsics describe, and the layouts that suit accesses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import takewhile
from typing import Any, NamedTuple

from weft import ir
from weft.arith import Analyzer, IterSumExpr, detect_iter_map
from weft.tir.analysis.structure import replace_node, used_vars
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.schedule.index_map import IndexMap
from weft.tir.schedule.instruction import BlockRV
from weft.tir.schedule.schedule import Schedule
from weft.tir.schedule.stmt_refs import StmtSRef
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, SeqStmt, Stmt


class TensorizeInfo(NamedTuple):
    """A block's loop for each of a description, and what its variables are padded to (None where all sizes fit)."""

    loop_map: dict[StmtSRef, For]
    block_iter_paddings: list[int] | None


class AutoTensorizeMappingInfo(NamedTuple):
    """Maps of a block's variables to those of a description, and the description's buffer for each of the block."""

    mappings: list[IndexMap]
    lhs_buffer_map: dict[Buffer, Buffer]


def has_block(sch: Schedule, block_name: str) -> bool:
    """Whether the function that the schedule works on has a block of this name."""
    return block_name in sch.state.block_names()


def is_output_block(sch: Schedule, block: BlockRV) -> bool:
    """Whether a block writes a buffer that is a parameter of the function."""
    given = {b for _, b in sch.func.buffer_map}
    return any(w.buffer in given for w in sch.state.realize(block.name).block.writes)


def _block_of(desc: PrimFunc) -> BlockRealize:
    return next(n for n in ir.walk(desc.root.body) if isinstance(n, BlockRealize))


def _loop_of(value: ir.PrimExpr, loops: Sequence[For]) -> tuple[For | None, ir.PrimExpr]:
    """The loop that a value is, but for what none of the loops changes, and this rest."""
    rests = [Analyzer().simplify(value - ir.cast(value.dtype, f.loop_var)) for f in loops]
    still = [used_vars(rest).isdisjoint(f.loop_var for f in loops) for rest in rests]
    return (loops[still.index(True)], rests[still.index(True)]) if any(still) else (None, value)


def get_tensorize_loop_mapping(
    sch: Schedule, block: BlockRV, desc_func: PrimFunc, allow_padding: bool = False
) -> TensorizeInfo | None:
    """Find the loop of a block for each loop of an intrinsic's description: the last of its kind.

    None where the sizes do not divide and may not be padded, a variable is no loop, or there are not enough of a kind.
    """
    realize, inner = sch.state.realize(block.name), _block_of(desc_func)
    wanted = ir.find(desc_func.root.body, For)
    loops = list(takewhile(lambda f: not isinstance(f.body, SeqStmt), reversed(sch.state.loops_of(block.name))))
    kinds = [iv.iter_type for iv in realize.block.iter_vars]
    padding, found, last = [1] * len(kinds), {}, len(kinds)
    for value, iv in reversed(list(zip(inner.iter_values, inner.block.iter_vars, strict=True))):
        theirs, _ = _loop_of(value, wanted)
        last = next((i for i in reversed(range(last)) if kinds[i] == iv.iter_type), -1)
        ours, rest = (None, value) if last < 0 else _loop_of(realize.iter_values[last], loops)
        ref = None if ours is None else sch.get_sref(ours)
        size, step = (None if f is None else ir.as_int(f.extent) for f in (ours, theirs))
        if ref is None or size is None or step is None or any(r.stmt is ours for r in found):
            return None
        if size % step:
            if not (allow_padding and ir.is_const_int(rest, 0)):
                return None
            padding[last] = step
        found[ref] = theirs
    return TensorizeInfo(found, padding if max(padding) > 1 else None)


def _accesses(block: Block) -> dict[Buffer, set[ir.Var]]:
    """The variables that the indices of each buffer depend on, by first use."""
    an, found = Analyzer(), dict[Buffer, set[ir.Var]]()
    for iv in block.iter_vars:
        if iv.dom is not None and not ir.is_const_int(iv.dom.extent, 1):  # those of one value stand where they do
            an.bind(iv.var, iv.dom)
    for n in ir.find(block.body, BufferLoad, BufferStore):
        found.setdefault(n.buffer, set()).update(used_vars(*map(an.simplify, n.indices)))
    return found


def _skeleton(stmt: Stmt, buffers: Sequence[Buffer]) -> PrimFunc:
    """What a statement computes, wherever it finds its operands and results."""
    bare = {b: Buffer(ir.Var("b", "handle"), b.dtype, (), name="b") for b in buffers}

    def rule(node: ir.Node) -> Any:
        if not isinstance(node, (BufferLoad, BufferStore)):
            return node
        return replace_node(node, buffer=bare[node.buffer], indices=())

    params = tuple(b.data for b in bare.values())
    return PrimFunc(params, ir.rewrite(stmt, rule), buffer_map=tuple(zip(params, bare.values(), strict=True)))


def get_auto_tensorize_mapping_info(
    sch: Schedule, block: BlockRV, desc_func: PrimFunc
) -> AutoTensorizeMappingInfo | None:
    """Map the variables of a block, fused in their order, to those of a description that index the same buffers.

    Those that do not stay in front. None where the block computes something else or the map is not unique; that there
    is one does not yet mean that the block can be tensorized.
    """
    ours, theirs = sch.state.realize(block.name).block, _block_of(desc_func).block
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
    index_map = IndexMap(tuple(variables), (*first, *map(Analyzer().simplify, fused.values())))
    return AutoTensorizeMappingInfo([index_map], dict(zip(left, right, strict=True)))


def _flat(shape: Sequence[ir.PrimExpr], indices: Sequence[ir.PrimExpr]) -> ir.PrimExpr:
    pairs = zip(shape[1:], indices[1:], strict=True)
    return reduce(lambda flat, pair: flat * ir.cast(flat.dtype, pair[0]) + pair[1], pairs, indices[0])


def _splits(found: IterSumExpr) -> Iterator[tuple[Any, ir.PrimExpr, ir.PrimExpr]]:
    """The parts of loops that a sum consists of: variable, lower factor, extent."""
    for part in found.args:
        source = part.source.source
        yield from _splits(source) if isinstance(source, IterSumExpr) else [(source, part.lower_factor, part.extent)]


def suggest_index_map(
    buffer: Buffer, indices: Sequence[ir.PrimExpr], loops: Sequence[For], predicate: ir.PrimExpr | bool
) -> IndexMap | None:
    """Suggest a layout in which loops (outermost first) walk through a buffer in the order of its memory.

    None where `indices`, under `predicate`, are no map of parts of the loops with constant sizes.
    """
    order = {f.loop_var: i for i, f in enumerate(loops)}
    domains = {f.loop_var: ir.Range.from_min_extent(f.min, f.extent) for f in loops}
    parts = [p for found in detect_iter_map([_flat(buffer.shape, indices)], domains, predicate) for p in _splits(found)]
    if not parts or any(v not in order or None in (ir.as_int(low), ir.as_int(e)) for v, low, e in parts):
        return None
    an, variables = Analyzer(), [ir.Var(f"i{n}", indices[0].dtype) for n in range(len(buffer.shape))]
    for v, size in zip(variables, buffer.shape, strict=True):
        an.bind(v, ir.Range(0, size))
    rest, image = _flat(buffer.shape, variables), {}
    for v, lower, extent in reversed(parts):
        image[order[v], -(ir.as_int(lower) or 0)] = an.simplify(ir.floormod(rest, extent))
        rest = an.simplify(ir.floordiv(rest, extent))
    if not ir.is_const_int(rest, 0):  # a part of the buffer alone
        return None
    return IndexMap(tuple(variables), tuple(image[key] for key in sorted(image)))
