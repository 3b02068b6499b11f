"""CompactBuffer: an intermediate buffer shrinks to the part that is used where it lives.

A tile that is computed inside loops touches a small box of the intermediate tensor; the box is found by bounding every
index over the loops inside the allocation, and the buffer is declared with the box's extents.
"""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.arith import Analyzer
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, BufferStore, For, LetStmt, Stmt
from weft.tir.transform.dim_align import DIM_ALIGN, aligned
from weft.tir.transform.extent import Interval, bound_over

_ADDRESS = ir.Op.get("tir.address_of")


@ir.function_pass(kind=PrimFunc)
def compact_buffer(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Shrink each allocated buffer to the bounding box of its uses.

    Requires: No blocks; buffers with their dimensions.
    Ensures: The same form; strides that ``storage_align`` asked for. What the threads of a block share holds
        what all of them use; dynamic shared memory of a constant size stays as it is.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                t = T.alloc_buffer((16,), "float32", scope="local")
                t[i] = A[i] * T.float32(2)
                B[i] = t[i] + T.float32(1)

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                t = T.alloc_buffer((1,), "float32", scope="local")
                t[0] = A[i] * 2.0
                B[i] = t[0] + 1.0
    Cost: Linear in uses times loop depth.
    Source: TVM's ``CompactBufferAllocation``.
    """
    analyzer = Analyzer()
    return func.replace(body=_walk(func.body, analyzer, ()))


def _walk(node: ir.Node, analyzer: Analyzer, threads: tuple[For, ...]) -> Any:
    """Rewrite a statement inside loops over the threads of a block."""
    inside = threads
    if isinstance(node, For):
        analyzer.bind(node.loop_var, ir.Range.from_min_extent(node.min, node.extent), allow_override=True)
        if node.thread_binding is not None and node.thread_binding.thread_tag.startswith("threadIdx"):
            inside = (*threads, node)
    if isinstance(node, Stmt):
        node = ir.rebuild(node, lambda n: _walk(n, analyzer, inside) if isinstance(n, Stmt) else n)
    if isinstance(node, AllocBuffer):
        node = _compact(node, analyzer, threads if node.buffer.scope.startswith("shared") else ())
    return aligned(node) if isinstance(node, AllocBuffer) and DIM_ALIGN in node.annotations else node


def boxes_of(alloc: AllocBuffer, analyzer: Analyzer, sharing: tuple[For, ...] = ()) -> list[Interval | None]:
    """The first element and the number of those that are used along each dimension, wherever conditions let it be.

    Parameters
    ----------
    alloc : AllocBuffer
    analyzer : Analyzer
        What is known around it.
    sharing : tuple of For
        Loops around over threads that use the buffer together.

    Returns
    -------
    list of pair or None
        One for each dimension, None where the declared extent is what there is: of unknown bounds, and of a buffer
        that is reached by its address, has strides, or is not used.
    """
    buffer = alloc.buffer
    unknown: list[Interval | None] = [None] * len(buffer.shape)
    is_given = buffer.scope == "shared.dyn" and all(ir.as_int(d) is not None for d in buffer.shape)
    if buffer.strides or is_given:
        return unknown
    loops = [*sharing, *ir.find(alloc.body, For)]
    domains: dict[ir.Var, tuple[ir.PrimExpr, ir.PrimExpr] | None] = {
        f.loop_var: (f.min, f.min + f.extent - 1) for f in loops
    }
    domains |= {n.var: None for n in ir.find(alloc.body, LetStmt)}
    uses = []
    for n in ir.find(alloc.body, BufferLoad, BufferStore, Buffer, ir.CallIntrin):
        if isinstance(n, (BufferLoad, BufferStore)) and n.buffer is buffer:
            uses.append(n.indices)
        elif _by_address(n, buffer):
            return unknown  # whoever has the address decides which elements it reaches
    if not uses:
        return unknown
    return [
        _bounds([u[d] for u in uses], extent, domains, analyzer, buffer.scope == "local")
        for d, extent in enumerate(buffer.shape)
    ]


def _compact(alloc: AllocBuffer, analyzer: Analyzer, sharing: tuple[For, ...]) -> AllocBuffer:
    """Shrink a buffer that the threads of some loops around use together."""
    buffer = alloc.buffer
    box = [
        b or (ir.const(0, d.dtype), d) for b, d in zip(boxes_of(alloc, analyzer, sharing), buffer.shape, strict=True)
    ]
    if all(
        ir.as_int(low) == 0 and (n is e or analyzer.can_prove_equal(n, e))
        for (low, n), e in zip(box, buffer.shape, strict=True)
    ):
        return alloc
    shape = tuple(n for _, n in box)
    new = replace_node(buffer, shape=shape, strides=(), elem_offset=None, axis_separators=())
    lows = [low for low, _ in box]

    def shift(indices: tuple[ir.PrimExpr, ...]) -> tuple[ir.PrimExpr, ...]:
        return tuple(
            i if ir.as_int(low) == 0 else analyzer.simplify(i - low) for i, low in zip(indices, lows, strict=True)
        )

    def rule(node: ir.Node) -> Any:
        if isinstance(node, BufferLoad) and node.buffer is buffer:
            return BufferLoad(new, shift(node.indices), node.predicate, span=node.span)
        if isinstance(node, BufferStore) and node.buffer is buffer:
            return BufferStore(new, node.value, shift(node.indices), node.predicate, span=node.span)
        return node

    return AllocBuffer(new, ir.rewrite(alloc.body, rule), alloc.annotations, span=alloc.span)


def _by_address(node: ir.Node, buffer: Buffer) -> bool:
    """Whether a node takes the address of a buffer, or is another buffer on its memory."""
    if isinstance(node, Buffer):
        return node is not buffer and node.data is buffer.data
    if not isinstance(node, ir.CallIntrin):
        return False
    return any(
        a is buffer.data or (isinstance(a, BufferLoad) and a.buffer is buffer and _ADDRESS is node.op)
        for a in node.args
    )


def _bounds(
    indices: list[ir.PrimExpr], extent: ir.PrimExpr, domains: Any, analyzer: Analyzer, may_grow: bool
) -> Interval | None:
    """The start and extent of one dimension of the box; None where bounds are not simple.

    A local buffer may grow past its declared extent, for tiles that end behind the tensor.
    """
    low: ir.PrimExpr | None = None
    high: ir.PrimExpr | None = None
    for index in indices:
        bounds = bound_over(index, domains)
        if bounds is None:
            return None
        lo, hi = analyzer.simplify(bounds[0]), analyzer.simplify(bounds[1])
        low = lo if low is None else _choose(low, lo, analyzer, smaller=True)
        high = hi if high is None else _choose(high, hi, analyzer, smaller=False)
        if low is None or high is None:
            return None
    assert low is not None and high is not None
    size = analyzer.simplify(high - low + 1)
    if not isinstance(size, ir.IntImm) or size.value < 0:
        return None
    if isinstance(extent, ir.IntImm) and size.value >= extent.value and not may_grow:
        return None
    return low, ir.const(max(size.value, 1), extent.dtype)


def _choose(a: ir.PrimExpr, b: ir.PrimExpr, analyzer: Analyzer, *, smaller: bool) -> ir.PrimExpr | None:
    if a is b:
        return a
    if analyzer.can_prove(a <= b):
        return a if smaller else b
    if analyzer.can_prove(b <= a):
        return b if smaller else a
    return None
