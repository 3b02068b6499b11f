"""Gradient, of the preview of training: the graph between some values and a result, differentiated in reverse."""

from typing import Any

from weft import ir, relax
from weft.frontend.onnx.function_body import type_proto
from weft.frontend.onnx.importer import from_onnx
from weft.frontend.onnx.model import onnx
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.relax import Var as RelaxVar
from weft.relax.transform import Gradient


@converter("Gradient", domain="ai.onnx.preview.training")
def _gradient(node: Node) -> Any:
    xs, zs, y = node.attr("xs"), node.attr("zs", []), node.attr("y")
    names = [*xs, *zs]
    if len(names) != len(node.inputs):
        node.error("as many inputs as names in 'xs' and 'zs'", expected=str(len(names)), found=str(len(node.inputs)))
    graph = node.graph
    inner = from_onnx(_between(node, names, y))
    func: Any = Gradient("main", require_grads=list(inner["main"].params[: len(xs)]))(inner)["main_adjoint"]  # type: ignore[attr-defined]
    func = func.replace(attrs=type(func.attrs)())
    var = RelaxVar(graph.bb.fresh_name("adjoint"), func.ty)
    graph.bb.emit_normalized(relax.VarBinding(var, func))
    found = graph.fields(graph.emit(ir.Call(var, tuple(node.xs()))))
    return graph.fields(found[1])


def _between(node: Node, names: list[str], y: str) -> Any:
    """Make a model of the nodes that lead from values to the sum of a result."""
    proto = node.graph.proto
    maker = {name: n for n in proto.node for name in n.output}
    weights = {t.name: t for t in proto.initializer}
    waiting, needed, used = [y], set[int](), dict[str, Any]()
    while waiting:
        name = waiting.pop()
        if not name or name in names:
            continue
        if name in weights:
            used[name] = weights[name]
        elif name not in maker:
            node.error("the result needs a value that is not in 'xs' or 'zs'", found=f"'{name}'")
        elif id(maker[name]) not in needed:
            needed.add(id(maker[name]))
            waiting += maker[name].input
    helper = onnx.helper
    nodes = [n for n in proto.node if id(n) in needed]
    nodes.append(helper.make_node("ReduceSum", [y], ["the sum"], keepdims=0))
    inputs = [helper.make_value_info(n, type_proto(v)) for n, v in zip(names, node.inputs, strict=True)]
    outputs = [helper.make_empty_tensor_value_info("the sum")]
    made = helper.make_graph(nodes, "between", inputs, outputs, list(used.values()))
    opsets = [helper.make_opsetid(d, v) for d, v in node.graph.scope.opsets.items()]
    return helper.make_model(made, opset_imports=opsets)
