"""What a kernel does with its elements: how it may be fused, and whether it only gives memory another shape."""

from __future__ import annotations

from typing import Any

from weft import arith, ir, op, tir
from weft.tir.analysis import blocks_in, loads_of, stores_of


def _leaves(func: tir.PrimFunc) -> list[tir.Block]:
    """List the blocks of a kernel that have no blocks inside."""
    return [b for b in blocks_in(func.body) if not any(x is not b for x in blocks_in(b.body))]


def tir_op_pattern(func: tir.PrimFunc) -> op.Fusion:
    """Classify a kernel of blocks, such as TE makes: how it may take part in fusion.

    Element-wise work reads with the indices it writes; a broadcast with some of them, in order; an injective function
    with any expressions of them. Reductions over plain indices may take element-wise work before them, products,
    pooling and reductions with work behind them only after them.
    """
    blocks = _leaves(func)
    if not blocks:
        return op.Fusion.OPAQUE
    kinds = [_block_pattern(b) for b in blocks]
    worst = max(kinds)
    return op.Fusion.ANCHOR if worst == op.Fusion.REDUCTION and len(blocks) > 1 else worst


def _block_pattern(block: tir.Block) -> op.Fusion:
    stores: list[tir.BufferStore] = stores_of(block.body)
    reduced = {iv.var for iv in block.iter_vars if iv.iter_type == "reduce"}
    if not stores:
        return op.Fusion.OPAQUE  # something else computes, such as a packed function
    if block.init is not None or reduced:
        return _reduction_pattern(block, stores, reduced)
    spatial = {iv.var for iv in block.iter_vars}
    if len(stores) != 1 or not _distinct_vars(stores[0].indices, spatial):
        return op.Fusion.OPAQUE
    written: list[Any] = list(stores[0].indices)
    kinds = [_load_pattern(load, written, spatial) for load in loads_of(stores[0].value)]
    if kinds and max(kinds) == op.Fusion.BROADCAST and op.Fusion.ELEMENTWISE in kinds:
        return op.Fusion.ELEMENTWISE
    return max(kinds, default=op.Fusion.ELEMENTWISE)


def _distinct_vars(indices: Any, allowed: set[ir.Var]) -> bool:
    names = [i for i in indices if isinstance(i, ir.Var)]
    fixed = [i for i in indices if not isinstance(i, ir.Var)]
    return len(set(names)) == len(names) and set(names) <= allowed and all(_is_zero(i) for i in fixed)


def _is_zero(e: ir.PrimExpr) -> bool:
    return getattr(e, "value", None) == 0


def _load_pattern(load: tir.BufferLoad, written: list[Any], spatial: set[ir.Var]) -> op.Fusion:
    read: list[Any] = list(load.indices)
    same = [a is b or (_is_zero(a) and _is_zero(b)) for a, b in zip(read, written, strict=False)]
    if len(read) == len(written) and all(same):
        return op.Fusion.ELEMENTWISE
    places = [next((k for k, w in enumerate(written) if w is i), -1) for i in read if not _is_zero(i)]
    if -1 not in places and places == sorted(set(places)):
        return op.Fusion.BROADCAST
    parts = [n for i in read for n in ir.walk(i)]
    if any(isinstance(n, tir.BufferLoad) for n in parts):
        return op.Fusion.OPAQUE
    return op.Fusion.INJECTIVE


def _reduction_pattern(block: tir.Block, stores: list[tir.BufferStore], reduced: set[ir.Var]) -> op.Fusion:
    """Classify a reduction: plain if each load has its own indices as they are, over accumulators of one place."""
    if any(not ir.structural_equal(s.indices, stores[0].indices) for s in stores):
        return op.Fusion.ANCHOR
    own = {s.buffer for s in stores}
    loads = [load for load in loads_of(block.body) if load.buffer not in own]
    buffers = {load.buffer for load in loads}
    plain = all(isinstance(i, ir.Var) or _is_zero(i) for load in loads for i in load.indices)
    over = [load for load in loads if any(i in reduced for i in load.indices)]
    return op.Fusion.REDUCTION if len(buffers) == 1 and len(over) == len(loads) and plain else op.Fusion.ANCHOR


def has_reshape_pattern(func: tir.PrimFunc) -> bool:
    """Whether a kernel copies one buffer to another in the order of memory; the other may be shorter."""
    return _copied(func) is not None


def reshaped_parameter(func: tir.PrimFunc) -> int | None:
    """Return the place of the parameter of which a kernel's last is the same elements in another shape; else None."""
    found = _copied(func)
    buffers = dict(func.buffer_map)
    if found is None or buffers.get(func.params[-1]) is not found[1]:
        return None
    if not arith.Analyzer().can_prove_equal(_product(found[0].shape), _product(found[1].shape)):
        return None
    return next((i for i, p in enumerate(func.params) if buffers.get(p) is found[0]), None)


def _copied(func: tir.PrimFunc) -> tuple[tir.Buffer, tir.Buffer] | None:
    """Return the buffers between which a kernel copies in the order of memory."""
    blocks = _leaves(func)
    if len(blocks) != 1 or blocks[0].init is not None:
        return None
    block = blocks[0]
    stores = stores_of(block.body)
    if len(stores) != 1 or not isinstance(stores[0].value, tir.BufferLoad):
        return None
    target, source = stores[0], stores[0].value
    if source.buffer.dtype != target.buffer.dtype or source.buffer is target.buffer:
        return None
    analyzer = arith.Analyzer()
    for iv in block.iter_vars:
        analyzer.bind(iv.var, iv.dom if isinstance(iv.dom, ir.Range) else ir.Range(ir.const(0, iv.var.dtype), iv.dom))
    same = analyzer.can_prove_equal(analyzer.simplify(_offset(source)), analyzer.simplify(_offset(target)))
    return (source.buffer, target.buffer) if same else None


def _product(shape: Any) -> ir.PrimExpr:
    size: Any = ir.const(1, "int64")
    for d in shape:
        size = size * _wide(d)
    return size


def _offset(access: tir.BufferLoad | tir.BufferStore) -> ir.PrimExpr:
    """Return the place of an element, counted in the order of memory."""
    place: Any = ir.const(0, "int64")
    for i, d in zip(access.indices, access.buffer.shape, strict=True):
        place = place * _wide(d) + _wide(i)
    return place


def _wide(e: Any) -> Any:
    return ir.const(e.value, "int64") if hasattr(e, "value") and not hasattr(e, "args") else e
