"""HoistIfThenElse: a test leaves the loops that it does not depend on."""

from typing import Any

from weft.ir import IRModule, Node, all_of, function_pass, rebuild, walk
from weft.tir.analysis.structure import conjuncts, replace_node
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import For, IfThenElse, Stmt


@function_pass(kind=PrimFunc)
def hoist_if_then_else(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Move tests out of loops whose whole body they guard.

    Requires: No blocks.
    Ensures: The same form; a loop's body is not guarded by a test of integers that is the same in each iteration.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), n: T.int32, m: T.int32):
            for i in range(16):
                for j in range(16):
                    if i < n and j < m:
                        B[i, j] = A[i, j]

    After::

        @T.prim_func
        def f(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), n: T.int32, m: T.int32):
            for i in range(16):
                if i < n:
                    for j in range(16):
                        if j < m:
                            B[i, j] = A[i, j]
    Cost: Linear in statements, times the depth of the tests.
    Source: TVM's ``HoistIfThenElse``.
    """
    return func.replace(body=_hoist(func.body))


def _hoist(node: Node) -> Any:
    if not isinstance(node, Stmt):
        return node
    node = rebuild(node, _hoist)
    if isinstance(node, For) and isinstance(node.body, IfThenElse) and node.body.else_case is None:
        return _out_of(node, node.body)
    return node


def _out_of(loop: For, test: IfThenElse) -> Stmt:
    parts = conjuncts(test.condition)
    # what uses the loop variable stays, and what reads memory, which the loop may write
    stays = [any(n is loop.loop_var or isinstance(n, BufferLoad) for n in walk(c)) for c in parts]
    if all(stays):
        return loop
    body = test.then_case
    inner = [c for c, s in zip(parts, stays, strict=True) if s]
    if inner:
        body = IfThenElse(all_of(*inner), body, span=test.span)
    moved = replace_node(loop, body=body)
    return IfThenElse(all_of(*(c for c, s in zip(parts, stays, strict=True) if not s)), moved, span=test.span)
