"""PlanAndUpdateBufferAllocationLocation: buffers of blocks are allocated where they are used."""

from __future__ import annotations

from typing import Any

from weft import arith, ir
from weft.tir.analysis.access import access_regions
from weft.tir.analysis.lca import buffer_access_lca
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import Buffer
from weft.tir.function import PrimFunc
from weft.tir.stmt import Block, BlockRealize, For


@ir.function_pass(kind=PrimFunc)
def plan_and_update_buffer_allocation_location(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Allocate each buffer of a block in the innermost block or loop that has all its uses.

    Requires: Blocks without ``init``.
    Ensures: The same form. A loop that has all uses of a buffer gets a block for it.
    Before::

        @T.prim_func
        def f(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
            B = T.sblock_alloc_buffer((4,), "float32")
            for i in range(4):
                with T.block("B"):
                    B[i] = A[i]
                with T.block("C"):
                    C[i] = B[i]

    After::

        @T.prim_func
        def f(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block(""):
                    T.reads(A[i])
                    T.writes(C[i])
                    B = T.sblock_alloc_buffer((4,), "float32")
                    with T.block("B"):
                        B[i] = A[i]
                    with T.block("C"):
                        C[i] = B[i]
    Cost: Linear, times nesting depth for the regions of new blocks.
    Source: TVM's ``PlanAndUpdateBufferAllocationLocation``.
    """
    managed = [b for n in ir.walk(func.body) if type(n) is Block for b in n.alloc_buffers]
    places: dict[Any, list[Buffer]] = {}
    lca = buffer_access_lca(func)
    for buffer in managed:
        if buffer in lca:
            places.setdefault(lca[buffer], []).append(buffer)
    planner = _Planner(places, {b for _, b in func.buffer_map})
    body = planner.node(func.body)
    return func if ir.structural_equal(body, func.body) else func.replace(body=body)


class _Planner:
    """Moves allocations; ``visible`` are the buffers that exist where it is."""

    def __init__(self, places: dict[Any, list[Buffer]], visible: set[Buffer]) -> None:
        self.places, self.visible = places, visible

    def node(self, node: Any) -> Any:
        """Rewrite a node."""
        here = self.places.get(node, []) if isinstance(node, (Block, For)) else []
        if isinstance(node, Block):
            return self.block(node, here)
        self.visible |= set(here)
        new = ir.rebuild(node, self.node)
        self.visible -= set(here)
        if not here:
            return new
        reads, writes = access_regions([new.body], arith.Analyzer(), here)
        inner = Block((), reads, writes, "", new.body, None, tuple(here))
        return replace_node(new, body=BlockRealize((), ir.TRUE, inner))

    def block(self, node: Block, here: list[Buffer]) -> Block:
        """Rewrite a block: what it allocates, and of its regions those of buffers from outside."""
        inside = {*here, *(m.buffer for m in node.match_buffers)}
        self.visible |= inside
        new: Any = ir.rebuild(node, self.node)
        self.visible -= inside
        return replace_node(
            new,
            alloc_buffers=tuple(here),
            reads=tuple(r for r in new.reads if r.buffer in self.visible),
            writes=tuple(w for w in new.writes if w.buffer in self.visible),
        )
