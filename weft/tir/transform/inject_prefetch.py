"""InjectPrefetch: prefetches of regions become prefetches of cache lines."""

from typing import Any

from weft import arith, machine
from weft.ir import DataType, IRModule, PrimExpr, Var, ceildiv, const, function_pass, rewrite
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.intrin import call_intrin
from weft.tir.stmt import Evaluate, For, ForKind, Prefetch, SeqStmt, Stmt, seq


@function_pass(kind=PrimFunc)
def inject_prefetch(func: PrimFunc, mod: IRModule, *, line_bytes: int = machine.UNKNOWN.cache_line_bytes) -> PrimFunc:
    """Ask for each cache line of a region that a :class:`~weft.tir.Prefetch` names.

    Requires: No blocks.
    Ensures: The same form, without Prefetch.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                T.prefetch(A[i:i + 1, 0:32])
                B[i] = A[i, 0]

    After::

        @T.prim_func
        def f(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                for p1 in range(2):
                    T.call_intrin("void", "tir.prefetch", T.address_of(A[i, p1 * 16]), 0, 3, 1)
                B[i] = A[i, 0]

    Options:
        ``line_bytes``: the size of a cache line; 0 for devices that have no prefetches, where they go.
    Cost: Linear in statements.
    Source: TVM's ``InjectPrefetch``.
    """

    def rule(node: Any) -> Any:
        if isinstance(node, Prefetch):
            return _lines(node, line_bytes)
        return seq(*node.seq) if any(isinstance(s, SeqStmt) for s in node.seq) else node

    return func.replace(body=rewrite(func.body, rule, only=(SeqStmt, Prefetch)))


def _lines(node: Prefetch, line_bytes: int) -> Stmt:
    if line_bytes == 0:
        return seq()
    analyzer = arith.Analyzer()
    step = max(1, line_bytes // DataType(node.buffer.dtype).itemsize)
    indices: list[PrimExpr] = []
    loops: list[tuple[Any, PrimExpr]] = []
    for axis, r in enumerate(node.bounds):
        width = step if axis == len(node.bounds) - 1 else 1
        count = analyzer.simplify(ceildiv(r.extent, width))
        if getattr(count, "value", None) == 1:
            indices.append(r.min)
            continue
        var = Var(f"p{axis}", r.extent.dtype)
        loops.append((var, count))
        indices.append(analyzer.simplify(r.min + var * width))
    address = call_intrin("handle", "tir.address_of", BufferLoad(node.buffer, tuple(indices)))
    body: Stmt = Evaluate(call_intrin("void", "tir.prefetch", address, 0, 3, 1))
    for var, count in reversed(loops):
        body = For(var, const(0, var.dtype), count, ForKind.SERIAL, body)
    return body
