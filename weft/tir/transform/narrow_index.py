"""ForceNarrowIndexToInt32: loops, shapes and indices of 64 bits become those of 32."""

from typing import Any

from weft import ir
from weft.error import LoweringError
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import Buffer
from weft.tir.function import PrimFunc


@ir.function_pass(kind=PrimFunc)
def force_narrow_index_to_int32(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Compute in int32 what is computed in int64; whoever asks for it says that nothing overflows.

    Requires: Any form, without buffers of int64.
    Ensures: The same form without int64. A buffer of int64, or a constant that int32 cannot hold, is an error.
    Before::

        @T.prim_func
        def f(A: T.Buffer((T.int64(16),), "float32"), n: T.int64):
            for i in range(T.int64(8)):
                A[i + n] = T.float32(1)

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), n: T.int32):
            for i in range(8):
                A[i + n] = T.float32(1)
    Cost: Linear.
    Source: TVM's ``ForceNarrowIndexToInt32``.
    """
    for n in ir.walk(func):
        if isinstance(n, Buffer) and n.dtype == "int64":
            raise LoweringError(
                f"the buffer '{n.name}' holds int64, which narrowing would lose",
                help="cast its elements, or leave the pass out",
            )
    memo: dict[ir.Node, Any] = {}

    def narrow(node: Any) -> Any:
        if not isinstance(node, ir.Node):
            return node
        if node not in memo:
            memo[node] = _narrowed(ir.rebuild(node, narrow))
        return memo[node]

    return narrow(func)


def _narrowed(node: ir.Node) -> Any:
    """Narrow a node whose parts are narrow already."""
    if isinstance(node, ir.Cast) and node.dtype == node.value.dtype:
        return node.value
    if not isinstance(node, ir.PrimExpr) or node.dtype != "int64":
        return node
    if isinstance(node, ir.IntImm):
        if not -(1 << 31) <= node.value < 1 << 31:
            raise LoweringError("a constant does not fit int32", found=str(node.value))
        return ir.const(node.value, "int32")
    if isinstance(node, ir.Cast):
        return ir.cast("int32", node.value)
    return replace_node(node, dtype="int32") if "dtype" in node.__struct_fields__ else node
