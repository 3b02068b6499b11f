"""Choices: ``If`` with a known condition takes its branch; otherwise both branches become Relax expressions."""

from collections.abc import Callable
from typing import Any

from weft.error import ModelImportError
from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.graph import Scope
from weft.frontend.onnx.importer import RanksDiffer, convert_subgraph
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.sequence import merged
from weft.frontend.onnx.value import Value, as_dim
from weft.ir import If, TensorType, Tuple, tensor_type


@converter("If")
def _if(node: Node) -> Any:
    then_graph, else_graph = node.attr("then_branch"), node.attr("else_branch")
    for name, branch in (("then_branch", then_graph), ("else_branch", else_graph)):
        if len(branch.output) != len(node.proto.output):
            node.require_equal(f"outputs of its {name}", len(branch.output), len(node.proto.output))
    condition = node.const(0)
    graph = node.graph
    if condition is not None:
        if condition.size != 1:
            node.error("its condition is not one value", found=f"{condition.size} elements")
        chosen = then_graph if bool(condition.reshape(())) else else_graph
        with graph.inside(Scope(graph.scope, graph.scope.opsets)):
            return convert_subgraph(graph, chosen, node.where)
    test = node.reshape(node.x(0), ())
    made = [_branch(node, lambda b=b: convert_subgraph(graph, b, node.where)) for b in (then_graph, else_graph)]
    for i, refused in enumerate(made):
        if isinstance(refused, ModelImportError):
            made[i] = _branch(node, lambda i=i, e=refused: _never(node, test, i, e, made[1 - i]))
    branches, results = zip(*made, strict=True)
    for a, b in zip(*results, strict=True):
        _require_one_rank(node, a, b)
    chosen = graph.bb.emit(If(test, branches[0], branches[1]))
    fields = [chosen] if len(results[0]) == 1 else graph.fields(chosen)
    return [_unified(node, f, a, b) for f, a, b in zip(fields, *results, strict=True)]


def _branch(node: Node, convert: Callable[[], list[Value]]) -> Any:
    """Return a branch and its results; where it holds the nodes behind the If, too, also why it cannot be converted."""
    graph, span = node.graph, node.graph.bb.span
    try:
        with graph.branch(Scope(graph.scope, graph.scope.opsets)) as inner:
            found = convert()
            values = [graph.expr(v) for v in found]
            graph.bb.span = span
            result = values[0] if len(values) == 1 else graph.bb.atom(Tuple(tuple(values)))
            whole = graph.bb.finish(inner, result)
    except ModelImportError as e:
        if isinstance(e, RanksDiffer) or list(node.proto.output) not in graph.continued:
            raise
        graph.bb.span = span
        return e
    return whole, [Value.of_expr(e, v.kind) for e, v in zip(values, found, strict=True)]


def _never(node: Node, test: Any, expected: int, refused: ModelImportError, other: Any) -> list[Value]:
    """Refuse at run time a branch that gives a tensor of a rank which the nodes behind it cannot take."""
    if isinstance(other, ModelImportError) or not all(v.is_tensor for v in other[1]):
        raise refused
    taken = node.graph.ints(Value.of_expr(node.reshape(node.astype(test, "int64"), [1])))[0]
    what = f"what uses a result of this branch cannot take it ({refused.what})"
    node.require_equal(what, taken, expected, "InvalidArgument")
    return [Value.of_expr(node.full([0] * len(v.shape), 0, v.dtype), v.kind) for v in other[1]]


def _require_one_rank(node: Node, a: Value, b: Value) -> None:
    if not a.is_tensor and not b.is_tensor:
        return
    if a.logical != b.logical or len(a.shape) != len(b.shape):
        raise (RanksDiffer if a.logical == b.logical else ModelImportError)(
            "If: its branches give tensors of different type or rank",
            where=node.where,
            expected=f"{a.logical or 'an object'} of {len(a.shape)} dimensions, as the first branch gives",
            found=f"{b.logical or 'an object'} of {len(b.shape)}",
            help="a fixed input shape (shape_dict) often makes the condition known",
        )


def _unified(node: Node, result: Any, a: Value, b: Value) -> Value:
    """Give a result the dimensions that both branches have, and fresh symbolic ones where they differ."""
    if not a.is_tensor and not b.is_tensor:
        return Value.of_expr(result, merged(node, [a.full_kind, b.full_kind]))
    if isinstance(result.ty, TensorType) and result.ty.shape is not None:
        return Value.of_expr(result, a.kind)
    dims = [
        x if s.provably_equal(as_dim(x), as_dim(y)) else node.graph.size_var("d")
        for x, y in zip(a.shape, b.shape, strict=True)
    ]
    return Value.of_expr(node.graph.bb.match_cast(result, tensor_type(dims, a.dtype)), a.kind)
