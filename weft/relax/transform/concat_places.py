"""Kernels whose result is a part of a larger tensor: which ones lay tensors one after another, and writing a part."""

from __future__ import annotations

from typing import Any

from weft import ir, te
from weft.tir import BlockRealize, BufferLoad, BufferRegion, BufferStore, PrimFunc, seq
from weft.tir.analysis import child_realizes, is_plain_store, plain_indices, replace_node, writes_buffer


def concatenated(func: PrimFunc, n_inputs: int) -> tuple[int, list[int]] | None:
    """Find the axis along which a function lays its inputs one after another, and where each begins.

    Returns
    -------
    tuple of int and list of int, or None
        None when it does something else, or places are not constant.
    """
    realizes = child_realizes(func.body.block) if isinstance(func.body, BlockRealize) else []
    store = is_plain_store(realizes[0].block) if len(realizes) == 1 else None
    *inputs, out = [func.buffer_of(p) for p in func.params[: n_inputs + 1]]
    if store is None or out is None or store.buffer is not out or None in inputs:
        return None
    conditions: list[Any] = []
    loads: list[Any] = []
    value: Any = store.value
    while isinstance(value, ir.CallIntrin) and value.op.name == "tir.if_then_else":
        conditions.append(value.args[0])
        loads.append(value.args[1])
        value = value.args[2]
    loads.append(value)
    if not conditions or not all(isinstance(c, ir.LT) and isinstance(c.b, ir.IntImm) for c in conditions):
        return None
    axis = next((d for d, i in enumerate(store.indices) if all(c.a is i for c in conditions)), -1)
    if axis < 0 or not plain_indices(store.indices, realizes[0].block) or len(loads) != n_inputs:
        return None
    begins = [0, *[c.b.value for c in conditions]]
    ends = [*begins[1:], ir.as_int(out.shape[axis])]
    for load, buffer, begin, end in zip(loads, inputs, begins, ends, strict=True):
        if not isinstance(load, BufferLoad) or buffer is None or load.buffer is not buffer or end is None:
            return None
        if ir.as_int(buffer.shape[axis]) != end - begin or not _earlier(load.indices, store.indices, axis, begin):
            return None
    return axis, begins


def _earlier(indices: tuple[ir.PrimExpr, ...], of: tuple[ir.PrimExpr, ...], axis: int, begin: int) -> bool:
    """Whether indices are those `of` the result, `begin` less along the axis."""
    for d, (a, b) in enumerate(zip(indices, of, strict=True)):
        moved = isinstance(a, ir.Sub) and a.a is b and ir.as_int(a.b) == begin
        same = a is b or (ir.as_int(a) == 0 and ir.as_int(b) == 0)
        if not (moved if d == axis and begin else same):
            return False
    return True


def writes_once(func: PrimFunc, n_inputs: int) -> bool:
    """Whether a function that is not scheduled has one output, the parameter after its inputs, written by one block."""
    if not isinstance(func.body, BlockRealize) or func.attrs.get("tir.is_scheduled") or len(func.params) <= n_inputs:
        return False
    out = func.buffer_of(func.params[n_inputs])
    if out is None or out.strides or out.elem_offset is not None or out.scope != "global":
        return False
    return sum(writes_buffer(r.block, out) for r in child_realizes(func.body.block)) == 1


def written_at(func: PrimFunc, n_inputs: int, axis: int, begin: ir.PrimExpr, total: ir.PrimExpr) -> PrimFunc:
    """Let a function write its output into a part of a tensor.

    Parameters
    ----------
    func : PrimFunc
        One that :func:`writes_once`.
    n_inputs : int
        The place of the output among its parameters.
    axis : int
        The axis along which the parts lie.
    begin : PrimExpr
        Where the part begins, of a type as wide as any index.
    total : PrimExpr
        The size of the whole tensor along the axis.

    Returns
    -------
    PrimFunc
        Its output is the whole tensor, of which it leaves the rest as it is.
    """
    param = func.params[n_inputs]
    part = func.buffer_of(param)
    assert part is not None and isinstance(func.body, BlockRealize)
    body, root = func.body, func.body.block
    writer = next(r.block for r in child_realizes(root) if writes_buffer(r.block, part))
    if is_plain_store(writer) is None or any(r.buffer is part for r in writer.reads):
        source = te.placeholder(
            part.shape, part.dtype, name=part.name
        )  # a sum stays where it is, and is copied at its end
        copy = te.kernel_of_stages([source, te.compute(part.shape, lambda *i: source(*i), name=f"{part.name}_placed")])
        from_, to = [b for _, b in copy.buffer_map]
        assert isinstance(copy.body, BlockRealize)
        nest = ir.substitute(copy.body.block.body, {from_: part})
        root = replace_node(root, body=seq(root.body, nest), alloc_buffers=(*root.alloc_buffers, part))
        part = to
    shape = tuple(total if d == axis else e for d, e in enumerate(part.shape))
    whole = replace_node(part, shape=shape)

    def move(node: ir.Node) -> Any:
        if isinstance(node, (BufferStore, BufferLoad)) and node.buffer is part:
            at = tuple(i + ir.cast(i.dtype, begin) if d == axis else i for d, i in enumerate(node.indices))
            return replace_node(node, buffer=whole, indices=at)
        if isinstance(node, BufferRegion) and node.buffer is part:
            ranges = list(node.region)
            r = ranges[axis]
            ranges[axis] = ir.Range.from_min_extent(r.min + ir.cast(r.min.dtype, begin), r.extent)
            return BufferRegion(whole, tuple(ranges))
        return node

    body = replace_node(body, block=ir.rewrite(root, move))
    moved = func.replace(
        body=body, buffer_map=tuple((p, whole if p is param else b) for p, b in func.buffer_map)
    ).without_attr("inplace_inputs")
    return moved.with_attr("tir.noalias", True)
