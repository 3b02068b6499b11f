"""The form in which kernels made of te functions are compared: one way to write each comparison, index and condition.

What kernels compute stays the same. Comparisons ascend, indices are int64 throughout, and an operand that is read in
the place that is written is read there, also along dimensions of extent 1.
"""

from __future__ import annotations

from typing import Any

from weft import arith, ir
from weft.tir import Block, BufferLoad, BufferStore
from weft.tir.analysis import loads_of
from weft.tir.analysis.structure import replace_node

_ARITHMETIC = (ir.Add, ir.Sub, ir.Mul, ir.FloorDiv, ir.FloorMod, ir.Min, ir.Max)


def as_compared(body: ir.Node) -> Any:
    """Bring the body of a kernel into this form."""
    return ir.rewrite(body, _rule)


def _rule(node: ir.Node) -> ir.Node:
    if isinstance(node, ir.CmpOp):
        return _comparison(node)
    if isinstance(node, (BufferLoad, BufferStore)):
        indices = tuple(_wide(i) for i in node.indices)
        return (
            node
            if all(a is b for a, b in zip(indices, node.indices, strict=True))
            else replace_node(node, indices=indices)
        )
    if isinstance(node, ir.Range):
        low, extent = _wide(node.min), _wide(node.extent)
        return node if low is node.min and extent is node.extent else ir.Range.from_min_extent(low, extent)
    if isinstance(node, ir.CallIntrin) and node.op.name == "tir.if_then_else":
        condition = arith.Analyzer().simplify(node.args[0])
        return node if condition is node.args[0] else replace_node(node, args=(condition, *node.args[1:]))
    return _in_order(_in_place(node)) if isinstance(node, Block) else node


def _comparison(node: Any) -> ir.Node:
    a, b = node.a, node.b
    if a.dtype == "int32":
        wide = _wide(a), _wide(b)
        a, b = wide if all(w.dtype == "int64" for w in wide) else (a, b)
    kind, a, b = (_FLIPPED[type(node)], b, a) if type(node) in _FLIPPED else (type(node), a, b)
    a, b = _without_offset(a, b) or (a, b)
    return node if kind is type(node) and a is node.a and b is node.b else kind(a, b)


_FLIPPED: dict[type, Any] = {ir.GT: ir.LT, ir.GE: ir.LE}


def _without_offset(a: Any, b: Any) -> tuple[Any, Any] | None:
    """Compare ``x + c`` with a constant by comparing x."""
    if isinstance(a, ir.IntImm):
        swapped = _without_offset(b, a)
        return None if swapped is None else (swapped[1], swapped[0])
    if not isinstance(b, ir.IntImm) or not isinstance(a, (ir.Add, ir.Sub)) or not isinstance(a.b, ir.IntImm):
        return None
    offset = a.b.value if isinstance(a, ir.Add) else -a.b.value
    return a.a, ir.const(b.value - offset, b.dtype)


def _wide(e: Any) -> Any:
    """Return an int32 index made of int64 ones as int64, where that can be said; else as it is."""
    if e.dtype != "int32":
        return e
    if isinstance(e, ir.Cast):
        return e.value if e.value.dtype == "int64" else e
    if isinstance(e, ir.IntImm):
        return ir.int64(e.value)
    if isinstance(e, _ARITHMETIC):
        a, b = _wide(e.a), _wide(e.b)
        return type(e)(a, b) if a.dtype == b.dtype == "int64" else e
    return e


def _in_place(block: Block) -> Block:
    """Read operands of element-wise work where the result is written, along dimensions of extent 1, too."""
    store = block.body
    if not isinstance(store, BufferStore) or block.init is not None:
        return block
    changed: dict[BufferLoad, BufferLoad] = {}
    for load in loads_of(store.value):
        places = _places(load, store)
        if places is not None and any(a is not b for a, b in zip(places, load.indices, strict=True)):
            changed[load] = replace_node(load, indices=places)
    if not changed:
        return block
    value = ir.rewrite(store.value, lambda n: changed.get(n, n) if isinstance(n, BufferLoad) else n)
    points = {old.buffer: new.indices for old, new in changed.items()}
    one = ir.int64(1)
    reads = tuple(
        replace_node(r, region=tuple(ir.Range.from_min_extent(i, one) for i in points[r.buffer]))
        if r.buffer in points
        else r
        for r in block.reads
    )
    return replace_node(block, body=replace_node(store, value=value), reads=reads)


def _places(load: BufferLoad, store: BufferStore) -> tuple[Any, ...] | None:
    """Return the indices of the element that is written, counted from the last; None where another is read."""
    rank = len(load.indices)
    if rank > len(store.indices):
        return None
    written, shape = store.indices[len(store.indices) - rank :], store.buffer.shape[len(store.indices) - rank :]
    out: list[Any] = []
    for i, d, w, e in zip(load.indices, load.buffer.shape, written, shape, strict=True):
        if i is w:
            out.append(i)
        elif ir.as_int(i) == 0 and ir.as_int(d) == 1:
            out.append(w if ir.as_int(e) == 1 and isinstance(w, ir.Var) else i)
        else:
            return None
    return tuple(out)


def _in_order(block: Block) -> Block:
    """List what is read in the order in which the text names it."""
    if len(block.reads) < 2:
        return block
    order = list(dict.fromkeys(n.buffer for n in ir.walk(block.body) if isinstance(n, BufferLoad)))
    reads = tuple(sorted(block.reads, key=lambda r: order.index(r.buffer) if r.buffer in order else len(order)))
    return block if reads == block.reads else replace_node(block, reads=reads)
