"""Graphs inside of graphs: choices and loops of ``torch.ops.higher_order``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft import ir
from weft.frontend.building import Step, choice, loop
from weft.relax import core_ops
from weft.relax import op as relax_op

if TYPE_CHECKING:
    from weft.frontend.torch.graph import Graph


def _cond(graph: Graph, node: Any) -> list[Any]:
    """Both branches become sequences, unless it is known which one is taken."""
    test, *branches, operands = (graph.value(v) for v in node.args)
    if isinstance(test, bool):
        return graph.inlined(branches[0 if test else 1], operands)
    ways = [lambda b=branch: [graph.as_tensor(v) for v in graph.inlined(b, operands)] for branch in branches]
    fields = choice(graph.bb, graph.as_tensor(test), ways)
    return [graph.settled(graph.opened(x, v), v) for x, v in zip(fields, node.meta["val"], strict=True)]


def _while_loop(graph: Graph, node: Any) -> list[Any]:
    test_of, body_of, carried, around = (graph.value(v) for v in node.args)
    metas = [getattr(v, "meta", {}).get("val") for v in node.args[2]]

    def opened(params: Sequence[Any]) -> list[Any]:
        return [graph.opened(p, v) for p, v in zip(params, metas, strict=True)]

    found = _loop(
        graph,
        [graph.as_tensor(v) for v in carried],
        lambda params: graph.inlined(test_of, [*opened(params), *around])[0],
        lambda params: graph.inlined(body_of, [*opened(params), *around]),
    )
    return [graph.settled(graph.opened(x, v), v) for x, v in zip(found, node.meta["val"], strict=True)]


def _loop(
    graph: Graph, start: list[Any], test_of: Step, body_of: Step, types: Sequence[Any] | None = None
) -> list[Any]:
    """A loop that carries tensors: what its graphs give may be numbers."""
    return loop(
        graph.bb,
        start,
        lambda state: graph.as_tensor(test_of(state)),
        lambda state: [graph.as_tensor(v) for v in body_of(state)],
        types,
    )


def _scanned(graph: Graph, node: Any, body: Any, carried: Any, rows: Any, around: Any) -> list[Any]:
    """A loop over the first dimension of `rows`; what each step yields is appended to buffers that grow."""
    step, around = graph.value(body), graph.value(around)
    sources = [graph.as_tensor(v) for v in graph.value(rows)]
    start = [graph.as_tensor(v) for v in graph.value(carried)]
    metas = _values(carried)
    output = next(n for n in step.graph.nodes if n.op == "output")
    yields = _values(output.args[0][len(start) :])
    limit = graph.as_tensor(graph.symbols.dim(rows[0].meta["val"].shape[0]))
    kinds = [graph.type_of(v) for v in yields]
    empty = [graph.bb.emit(relax_op.zeros((0, *(t.shape or ())), t.dtype)) for t in kinds]
    types = [ir.tensor_type((), "int64"), *(x.ty for x in start)]
    types += [ir.TensorType(None, t.dtype, len(t.shape or ()) + 1) for t in kinds]

    def body_of(params: Sequence[Any]) -> list[Any]:
        number, state, grown = params[0], params[1 : 1 + len(start)], params[1 + len(start) :]
        taken = [graph.bb.emit(relax_op.take(x, number, axis=0, mode="clip")) for x in sources]
        given = [graph.opened(x, v) for x, v in zip([*state, *taken], [*metas, *_values(rows)], strict=True)]
        found = [graph.as_tensor(v) for v in graph.inlined(step, [*given, *around])]
        joined = [
            graph.bb.emit(core_ops.call_pure_packed("vm.builtin.append", r, v, limit, ty_args=r.ty))
            for r, v in zip(grown, found[len(start) :], strict=True)
        ]
        following = graph.bb.emit(relax_op.add(number, graph.as_tensor(1)))
        return [following, *found[: len(start)], *joined]

    def test_of(params: Sequence[Any]) -> Any:
        return graph.bb.emit(relax_op.less(params[0], limit))

    _, *found = _loop(graph, [graph.as_tensor(0), *start, *empty], test_of, body_of, types)
    values = _results(node, len(found))
    return [graph.settled(graph.opened(x, v), v) for x, v in zip(found, values, strict=True)]


def _values(nodes: Sequence[Any]) -> list[Any]:
    return [n.meta["val"] for n in nodes]


def _results(node: Any, count: int) -> list[Any]:
    """What PyTorch knows of a call's results: it notes them at the call or at those who take one out."""
    known = dict.fromkeys(range(count)) | {n.args[1]: n.meta.get("val") for n in node.users}
    return list(node.meta["val"]) if "val" in node.meta else [known[i] for i in range(count)]


def _flex_attention(graph: Graph, node: Any) -> list[Any]:
    """PyTorch's own formula for all scores at once, traced for the types of the call's operands."""
    from torch._guards import detect_fake_mode
    from torch._higher_order_ops.flex_attention import math_attention
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.node import map_arg

    tensors = [n for n in node.all_input_nodes if hasattr(n.meta.get("val"), "dtype")]

    def formula(*given: Any) -> Any:
        return math_attention(*map_arg(node.args, (fixed | dict(zip(tensors, given, strict=True))).__getitem__))

    fixed = {n: n.meta["val"] if "val" in n.meta else graph.value(n) for n in node.all_input_nodes}
    values = _values(tensors)
    mode: Any = detect_fake_mode(values)
    with mode:
        traced = make_fx(formula)(*values)
    graph.refuse_unsupported(traced.graph.nodes)
    return graph.inlined(traced, [graph.value(n) for n in tensors])


HIGHER_ORDER: dict[str, Callable[[Any, Any], list[Any]]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": lambda graph, node: _scanned(graph, node, *node.args[:4]),
    "map_impl": lambda graph, node: _scanned(graph, node, node.args[0], [], *node.args[1:3]),
    "flex_attention": _flex_attention,
}
"""Converters of operators that take graphs, by name."""
