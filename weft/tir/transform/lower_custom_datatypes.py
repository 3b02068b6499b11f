"""LowerCustomDatatypes: numbers of registered types become their bits, and operations on them what was registered."""

from typing import Any

from weft.ir import BinaryOp, CallIntrin, Cast, CmpOp, DataType, Div, FloatImm, IRModule, Node, Var, function_pass
from weft.ir import rebuild as rebuild_node
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import Buffer
from weft.tir.custom_datatype import has_lowering, lowering_of, stored_as
from weft.tir.function import PrimFunc

_SHAPES = frozenset(("tir.if_then_else", "tir.reinterpret", "tir.likely"))


@function_pass(kind=PrimFunc)
def lower_custom_datatypes(func: PrimFunc, mod: IRModule, *, target: str = "llvm") -> PrimFunc:
    """Replace values of ``custom[...]`` types by unsigned integers of as many bits.

    Requires: No blocks.
    Ensures: The same form, without custom types; a parameter of such a type takes the bits. An operation without a
        registered meaning is an error.
    Before::

        @T.prim_func
        def f(A: T.Buffer((4,), "custom[half]16"), B: T.Buffer((4,), "custom[half]16")):
            for i in range(4):
                B[i] = A[i]

    After::

        @T.prim_func
        def f(A: T.Buffer((4,), "uint16"), B: T.Buffer((4,), "uint16")):
            for i in range(4):
                B[i] = A[i]

    Options:
        ``target``: the kind of target whose operations are meant.
    Cost: Linear.
    Source: TVM's ``LowerCustomDatatypes``.
    """
    lower = _Lower(target)
    body = lower.visit(func.body)
    if not lower.found:
        return func
    params = tuple(lower.visit(p) for p in func.params)
    buffers = tuple((lower.visit(p), lower.visit(b)) for p, b in func.buffer_map)
    return func.replace(body=body, params=params, buffer_map=buffers)


class _Lower:
    def __init__(self, target: str) -> None:
        self.target = target
        self.memo: dict[Node, Any] = {}
        self.found = False

    def visit(self, node: Any) -> Any:
        """Rewrite a node; one that is met again becomes the same."""
        if not isinstance(node, Node):
            return node
        known = self.memo.get(node)
        if known is None:
            known = self.memo[node] = self.rewrite(node)
        return known

    def rewrite(self, node: Node) -> Any:
        if isinstance(node, (Var, Buffer)):
            if not DataType(node.dtype).is_custom:
                return rebuild_node(node, self.visit) if isinstance(node, Buffer) else node
            self.found = True
            new = rebuild_node(node, self.visit) if isinstance(node, Buffer) else node
            return replace_node(new, dtype=stored_as(node.dtype))
        new = rebuild_node(node, self.visit)
        if isinstance(node, Cast):
            pair = (DataType(node.value.dtype), DataType(node.dtype))
            return self.apply(new, pair[0], pair[1]) if any(d.is_custom for d in pair) else new
        if isinstance(node, (BinaryOp, CmpOp)):
            return self.apply(new, node.a.dtype) if DataType(node.a.dtype).is_custom else new
        if isinstance(node, FloatImm):
            return self.apply(new, node.dtype) if DataType(node.dtype).is_custom else new
        if isinstance(node, CallIntrin):
            custom = next((d for d in (node.dtype, *(getattr(a, "dtype", "") for a in node.args))
                           if d and DataType(d).is_custom), None)  # fmt: skip
            if custom is None:
                return new
            if node.op.name in _SHAPES or node.op.name.startswith("tir.call_"):
                self.found = True
                return replace_node(new, dtype=stored_as(node.dtype))
            if node.op.name == "tir.rsqrt" and not has_lowering(node, self.target, custom):
                root = CallIntrin(custom, "tir.sqrt", node.args)
                return self.visit(Div(FloatImm(custom, 1.0), root))
            return self.apply(new, custom, node.op.name)
        return new

    def apply(self, op: Any, src: str, extra: str = "") -> Any:
        """Write an operation as it was registered."""
        self.found = True
        return lowering_of(op, self.target, src, extra)(op)
