"""Graphs inside of graphs: choices and loops of ``torch.ops.higher_order``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft import ir
from weft.relax import Var, VarBinding
from weft.relax import op as relax_op

if TYPE_CHECKING:
    from weft.frontend.torch.graph import Graph

__all__ = ["HIGHER_ORDER"]


def _cond(graph: Graph, node: Any) -> list[Any]:
    """Both branches become sequences, unless it is known which one is taken."""
    test, *branches, operands = (graph.value(v) for v in node.args)
    if isinstance(test, bool):
        return graph.inlined(branches[0 if test else 1], operands)
    test = graph.bb.emit(relax_op.reshape(graph.as_tensor(test), ir.shape_expr([])))
    sequences = []
    for branch in branches:
        with graph.bb.scope() as inner:
            results = tuple(graph.as_tensor(v) for v in graph.inlined(branch, operands))
            sequences.append(graph.bb.finish(inner, graph.bb.atom(ir.Tuple(results))))
    merged = graph.bb.emit(ir.If(test, *sequences))
    fields = [graph.bb.emit(ir.TupleGetItem(merged, i)) for i in range(len(node.meta["val"]))]
    return [graph.settled(x, v) for x, v in zip(fields, node.meta["val"], strict=True)]


def _while_loop(graph: Graph, node: Any) -> list[Any]:
    """A function of what the loop carries, which calls itself as its last act."""
    test_of, body_of, carried, around = (graph.value(v) for v in node.args)
    start = [graph.as_tensor(v) for v in carried]
    types = tuple(x.ty for x in start)
    outside = ir.TupleType(types)
    itself = Var(graph.bb.fresh_name("loop"), ir.FuncType(types, outside, True))
    params = [Var(graph.bb.fresh_name("state"), ty) for ty in types]
    with graph.bb.scope() as body:
        (test,) = graph.inlined(test_of, [*params, *around])
        test = graph.bb.emit(relax_op.reshape(graph.as_tensor(test), ir.shape_expr([])))
        with graph.bb.scope() as inner:
            after = [graph.as_tensor(v) for v in graph.inlined(body_of, [*params, *around])]
            taken = graph.bb.finish(inner, graph.bb.emit(ir.Call(itself, tuple(after))))
        with graph.bb.scope() as inner:
            left = graph.bb.finish(inner, graph.bb.atom(ir.Tuple(tuple(params))))
        sequence = graph.bb.finish(body, graph.bb.emit(ir.If(test, taken, left)))
    func = ir.Function(tuple(params), sequence, outside, ty=itself.ty)
    graph.bb.emit_normalized(VarBinding(itself, func))
    found = graph.bb.emit(ir.Call(itself, tuple(start)))
    fields = [graph.bb.emit(ir.TupleGetItem(found, i)) for i in range(len(start))]
    return [graph.settled(x, v) for x, v in zip(fields, node.meta["val"], strict=True)]


HIGHER_ORDER: dict[str, Callable[[Any, Any], list[Any]]] = {"cond": _cond, "while_loop": _while_loop}
"""Converters of operators that take graphs, by name."""
