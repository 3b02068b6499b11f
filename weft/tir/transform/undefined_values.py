"""Values that no program may use: stores of ``T.undef()``, and what a Select reads though it is not chosen."""

from typing import Any

from weft import ir
from weft.error import LoweringError
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import BufferStore, Evaluate, LetStmt


@ir.function_pass(kind=PrimFunc)
def remove_store_undef(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Remove stores of values that depend on ``T.undef()``.

    Requires: Any form.
    Ensures: The same form without ``T.undef()``. One in an index is an error.
    Before::

        @T.prim_func
        def f(A: T.Buffer((1,), "int32")):
            A[0] = 1 + T.undef(dtype="int32")

    After::

        @T.prim_func
        def f(A: T.Buffer((1,), "int32")):
            T.evaluate(0)
    Cost: Linear.
    Source: TVM's ``RemoveStoreUndef``.
    """
    unknown: set[ir.Var] = set()

    def depends(node: Any) -> bool:
        return any(
            n in unknown or (isinstance(n, ir.CallIntrin) and getattr(n.op, "name", "") == "tir.undef")
            for n in ir.walk(node)
        )

    for n in ir.walk(func.body):
        if isinstance(n, (LetStmt, ir.Let)) and depends(n.value):
            unknown.add(n.var)
    for n in ir.walk(func.body):
        if isinstance(n, (BufferLoad, BufferStore)) and depends(n.indices):
            raise LoweringError(f"an index of buffer '{n.buffer.name}' is undefined", help="index by what has a value")

    def rule(node: ir.Node) -> Any:
        if isinstance(node, BufferStore) and depends(node.value):
            return Evaluate(ir.const(0, "int32"))
        return node.body if isinstance(node, LetStmt) and node.var in unknown else node

    return func.replace(body=ir.rewrite(func.body, rule))


@ir.function_pass(kind=PrimFunc)
def rewrite_unsafe_select(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Let only the chosen side of a Select be evaluated where a side reads memory.

    Requires: Any form.
    Ensures: The same form; the values of each Select can be evaluated whatever its condition says.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((1,), "float32"), i: T.int32):
            B[0] = T.Select(i > 0, A[i - 1], T.float32(0))

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((1,), "float32"), i: T.int32):
            B[0] = T.if_then_else(i > 0, A[i - 1], T.float32(0))
    Cost: Linear.
    Source: TVM's ``RewriteUnsafeSelect``.
    """

    def rule(node: ir.Node) -> Any:
        if isinstance(node, ir.Select) and (_is_unsafe(node.true_value) or _is_unsafe(node.false_value)):
            return ir.if_then_else(node.condition, node.true_value, node.false_value)
        return node

    return func.replace(body=ir.rewrite(func.body, rule))


def _is_unsafe(value: Any) -> bool:
    """Whether evaluating a value reads memory that no condition inside it guards."""
    if isinstance(value, BufferLoad):
        return True
    if isinstance(value, ir.CallIntrin):
        name = getattr(value.op, "name", "")
        if name == "tir.if_then_else":
            return _is_unsafe(value.args[0])
        return name != "tir.address_of" and any(map(_is_unsafe, value.args))
    return any(map(_is_unsafe, ir.children(value)))
