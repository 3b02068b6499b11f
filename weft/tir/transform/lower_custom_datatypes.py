"""LowerCustomDatatypes: numbers of registered types become their bits, and operations on them what was registered."""

from typing import Any

from weft.ir import BinaryOp, CallIntrin, Cast, CmpOp, DataType, Div, FloatImm, IRModule, Node, Var, function_pass
from weft.ir import rebuild as rebuild_node
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import Buffer
from weft.tir.custom_datatype import has_lowering, lowering_of, stored_as
from weft.tir.function import PrimFunc
from weft.tir.transform.legalize_dtypes import RewriteOnce

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
    return _Lower(target).run(func)


class _Lower(RewriteOnce):
    def __init__(self, target: str) -> None:
        super().__init__()
        self.target = target

    def rewrite(self, node: Node) -> Any:
        if isinstance(node, (Var, Buffer)):
            if not DataType(node.dtype).is_custom:
                return rebuild_node(node, self.visit) if isinstance(node, Buffer) else node
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
            custom = next(
                (d for d in (node.dtype, *(getattr(a, "dtype", "") for a in node.args)) if d and DataType(d).is_custom),
                None,
            )
            if custom is None:
                return new
            if node.op.name in _SHAPES or node.op.name.startswith("tir.call_"):
                return replace_node(new, dtype=stored_as(node.dtype))
            if node.op.name == "tir.rsqrt" and not has_lowering(node, self.target, custom):
                root = CallIntrin(custom, "tir.sqrt", node.args)
                return self.visit(Div(FloatImm(custom, 1.0), root))
            return self.apply(new, custom, node.op.name)
        return new

    def apply(self, op: Any, src: str, extra: str = "") -> Any:
        """Write an operation as it was registered."""
        return lowering_of(op, self.target, src, extra)(op)
