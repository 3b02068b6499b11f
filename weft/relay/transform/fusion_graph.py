"""The graph that fusion looks at: a function's expressions with how each uses its parts, and the groups they form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from weft import ir
from weft.relay.adt import Match
from weft.relay.expr import Call, Constant, Function, If, Let, RefCreate, RefRead, RefWrite, Tuple, TupleGetItem, Var
from weft.relay.op.pattern import OpPattern, pattern_of
from weft.relay.op.registry import get, has
from weft.relay.types import Any as AnyDim
from weft.relay.walk import parts

_OPAQUE, _TUPLE = OpPattern.OPAQUE, OpPattern.TUPLE
_FUSED_SCALARS = ("int32", "int64", "float32", "float64", "bool")


@dataclass(eq=False)
class FusionNode:
    """An expression: what kind of work it is and who uses it, each use with the kind that it has along that edge."""

    expr: Any
    index: int = -1
    external: bool = False
    pattern: int = _OPAQUE
    outputs: list[tuple[FusionNode, int]] = field(default_factory=list)


class FusionGraph:
    """The expressions below one expression, in the order in which they are computed.

    Parameters
    ----------
    body : Expr
        With inferred types.
    with_constants : bool
        Whether constants of any size may be inside of groups.
    """

    def __init__(self, body: Any, with_constants: bool = False) -> None:
        self.nodes: dict[Any, FusionNode] = {}
        self.order: list[FusionNode] = []
        self.with_constants = with_constants
        self._visited: set[Any] = set()
        self._use(body, None, _OPAQUE)
        self._visit(body)

    def _use(self, expr: Any, user: FusionNode | None, pattern: int) -> None:
        """Record a use of an expression; by nobody in particular, it must exist by itself."""
        node = self.nodes.get(expr)
        if node is None:
            node = self.nodes[expr] = FusionNode(expr)
        if user is None:
            node.external = True
        else:
            node.outputs.append((user, pattern))

    def _visit(self, expr: Any) -> None:
        while expr not in self._visited:
            self._visited.add(expr)
            rule = _VISIT.get(type(expr))
            if rule is None:
                return
            if type(expr) is not Let:
                rule(self, expr)
                break
            for part in (expr.var, expr.value, expr.body):
                self._use(part, None, _OPAQUE)
            self._visit(expr.var)
            self._visit(expr.value)
            self._add(expr)  # before its body, which no group of operators can have as a member
            expr = expr.body

    def _add(self, expr: ir.Expr) -> None:
        node = self.nodes.get(expr)
        if node is None:
            node = self.nodes[expr] = FusionNode(expr)
        node.index = len(self.order)
        self.order.append(node)

    def _parts(self, expr: ir.Expr) -> None:
        """Visit an expression that computes nothing by operators: its parts exist by themselves."""
        for part in parts(expr):
            self._use(part, None, _OPAQUE)
        for part in parts(expr):
            self._visit(part)
        self._add(expr)

    def _function(self, func: Function) -> None:
        if func.attrs.get("Compiler") or func.attrs.get("Primitive"):
            return
        for part in (*func.params, func.body):
            self._use(part, None, _OPAQUE)
        for part in (*func.params, func.body):
            self._visit(part)

    def _constant(self, expr: Any) -> None:
        self._add(expr)
        scalar = not expr.data.shape and str(expr.data.dtype) in _FUSED_SCALARS
        self.nodes[expr].pattern = OpPattern.ELEMWISE if scalar or self.with_constants else _OPAQUE

    def _call(self, call: Call) -> None:
        node, pattern = self.nodes[call], _OPAQUE
        if isinstance(call.op, ir.Op):
            pattern = _OPAQUE if _is_dynamic(call.ty) and _reads_elements(call) else pattern_of(call.op)
        else:
            self._use(call.op, node, _OPAQUE)
        node.pattern = pattern
        self._use(call.op, None, _OPAQUE)
        for arg in call.args:
            same = pattern == OpPattern.BROADCAST and _same_shape(arg.ty, call.ty)
            self._use(arg, node, OpPattern.ELEMWISE if same else pattern)
        for part in (call.op, *call.args):
            self._visit(part)
        self._add(call)

    def _tuple(self, expr: Tuple) -> None:
        node = self.nodes[expr]
        node.pattern = _TUPLE
        for f in expr.fields:
            tensor = isinstance(f.ty, ir.TensorType)
            self._use(f, node if tensor else None, OpPattern.INJECTIVE if tensor else _OPAQUE)
        for f in expr.fields:
            self._visit(f)
        self._add(expr)

    def _item(self, expr: TupleGetItem) -> None:
        ty = expr.tuple_value.ty
        node = self.nodes[expr]
        if isinstance(ty, ir.TupleType) and all(isinstance(f, ir.TensorType) for f in ty.fields):
            node.pattern = OpPattern.INJECTIVE
            self._use(expr.tuple_value, node, OpPattern.INJECTIVE)
        else:
            self._use(expr.tuple_value, None, _OPAQUE)
        self._visit(expr.tuple_value)
        self._add(expr)


_VISIT: dict[type, Callable[[FusionGraph, Any], None]] = {
    Call: FusionGraph._call,
    Constant: FusionGraph._constant,
    Function: FusionGraph._function,
    Tuple: FusionGraph._tuple,
    TupleGetItem: FusionGraph._item,
    Var: FusionGraph._add,
    **dict.fromkeys((If, Let, Match, RefCreate, RefRead, RefWrite), FusionGraph._parts),
}


def _is_dynamic(ty: ir.Type | None) -> bool:
    if isinstance(ty, ir.TupleType):
        return any(map(_is_dynamic, ty.fields))
    return isinstance(ty, ir.TensorType) and any(isinstance(d, AnyDim) for d in ty.shape or ())


def _reads_elements(call: Any) -> bool:
    """Whether the shape of a result depends on the elements of an argument that only run time knows."""
    if not has(call.op.name):
        return False
    kinds = [spec.kind for spec in get(call.op).inputs]
    return any(k == "values" and not isinstance(a, ir.Constant) for k, a in zip(kinds, call.args, strict=False))


def _same_shape(a: ir.Type, b: ir.Type | None) -> bool:
    if not isinstance(a, ir.TensorType) or not isinstance(b, ir.TensorType):
        return False
    return len(a.shape or ()) == len(b.shape or ()) and all(map(ir.structural_equal, a.shape or (), b.shape or ()))
