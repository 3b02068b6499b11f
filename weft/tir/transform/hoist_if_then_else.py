"""HoistIfThenElse: a test leaves the loops that it does not depend on."""

from typing import Any

from weft.ir import CallIntrin, IRModule, Let, Node, Var, all_of, as_int, find, function_pass, rebuild, walk
from weft.tir.analysis.structure import conjuncts, replace_node
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import BufferStore, For, IfThenElse, LetStmt, Stmt


@function_pass(kind=PrimFunc)
def hoist_if_then_else(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Move tests out of loops whose whole body they guard.

    Requires: No blocks.
    Ensures: The same form; a loop's body is not guarded by a test that is the same in each iteration, and reads no
        memory that may change.
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
    steady = _never_written(func)

    def hoist(node: Node) -> Any:
        if not isinstance(node, Stmt):
            return node
        node = rebuild(node, hoist)
        if isinstance(node, For) and isinstance(node.body, IfThenElse) and node.body.else_case is None:
            return _out_of(node, node.body, steady)
        return node

    return func.replace(body=hoist(func.body))


def _never_written(func: PrimFunc) -> set[Var]:
    """List the memory of parameters that a function neither writes nor hands on, and that no other name has."""
    if not func.attrs.get("tir.noalias"):
        return set()
    given = [a for c in find(func.body, CallIntrin) for a in c.args] + [x.value for x in find(func.body, Let, LetStmt)]
    accesses = [*find(func.body, BufferStore), *(a for a in given if isinstance(a, BufferLoad))]
    return {b.data for _, b in func.buffer_map} - {a.buffer.data for a in accesses} - set(given)


def _out_of(loop: For, test: IfThenElse, steady: set[Var]) -> Stmt:
    parts = conjuncts(test.condition)
    known, stays = (as_int(loop.extent) or 0) > 0, list[bool]()
    for c in parts:  # what uses the loop variable stays, and what reads memory that may change or need not be there
        read = find(c, BufferLoad)
        safe = known and not any(stays) and all(x.buffer.data in steady for x in read)
        stays.append(any(n is loop.loop_var for n in walk(c)) or (bool(read) and not safe))
    if all(stays):
        return loop
    body = test.then_case
    inner = [c for c, s in zip(parts, stays, strict=True) if s]
    if inner:
        body = IfThenElse(all_of(*inner), body, span=test.span)
    moved = replace_node(loop, body=body)
    return IfThenElse(all_of(*(c for c, s in zip(parts, stays, strict=True) if not s)), moved, span=test.span)
