"""Recurrent layers."""

from collections.abc import Iterator
from typing import Any

from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Value
from weft.ir import shape_expr
from weft.topi.rnn_activations import ACTIVATIONS

_ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_OWN_FLAG = {"LSTM": ("input_forget",), "GRU": ("linear_before_reset",), "RNN": ()}


@converter("LSTM", "GRU", "RNN")
def _layer(node: Node) -> Any:
    kind = node.op_type
    for i in range(3):
        node.require_rank(i, 3)
    direction = node.attr("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        node.error(
            "attribute 'direction' has an unknown value", expected="forward, reverse or bidirectional", found=direction
        )
    count, batch_first, dtype = 2 if direction == "bidirectional" else 1, bool(node.attr("layout", 0)), node.dtype()
    x = node.permute(node.x(0), (1, 0, 2)) if batch_first else node.x(0)
    steps, batch, _ = node.dims(x)
    hidden, gates = node.shape(2)[2], _GATES[kind]
    if not isinstance(hidden, int) or node.attr("hidden_size", hidden) != hidden:
        node.error(
            "its weights do not fit its attributes",
            expected=f"R of shape ({count}, {gates * node.attr('hidden_size', 0)}, {node.attr('hidden_size', '?')})",
            found=f"R of shape ({', '.join(map(str, node.shape(2)))})",
        )
    bias = node.x(3) if node.has(3) else node.full([count, 2 * gates * hidden], 0, dtype)
    lengths = node.astype(node.x(4), "int32") if node.has(4) else _repeated(node, steps, batch)
    rest = [_state(node, i, [count, batch, hidden], batch_first) for i in ((5, 6) if kind == "LSTM" else (5,))]
    if kind == "LSTM":  # the peepholes
        rest.append(node.x(7) if node.has(7) else node.full([count, 3 * hidden], 0, dtype))
    out = node.op(
        f"nn.{kind.lower()}",
        *(x, node.x(1), node.x(2), bias, lengths, *rest),
        direction=direction,
        activations=_activations(node, kind, count),
        clip=node.attr("clip", 0.0),
        **{flag: bool(node.attr(flag, 0)) for flag in _OWN_FLAG[kind]},
    )
    y, *states = node.graph.fields(out)
    if batch_first:
        return node.permute(y, (2, 0, 1, 3)), *(node.permute(h, (1, 0, 2)) for h in states)
    return node.permute(y, (0, 1, 2, 3)), *states


def _repeated(node: Node, steps: Any, batch: Any) -> Any:
    """Return the length of each sample where they are all the same."""
    if s.is_known(steps):
        return node.full([batch], steps, "int32")
    return node.op("broadcast_to", node.graph.expr(Value.of_elements([steps], "int32")), shape_expr([s.to_expr(batch)]))


def _state(node: Node, i: int, shape: list[Any], batch_first: bool) -> Any:
    if not node.has(i):
        return node.full(shape, 0, node.dtype())
    return node.permute(node.x(i), (1, 0, 2)) if batch_first else node.x(i)


def _activations(node: Node, kind: str, count: int) -> tuple[str, ...]:
    usual = list(_ACTIVATIONS[kind]) * count
    names = node.attr("activations") or usual
    if len(names) != len(usual):
        node.error("a wrong number of activations", expected=str(len(usual)), found=str(names))
    given: dict[str, Iterator[float]] = {k: iter(node.attr(f"activation_{k}") or ()) for k in ("alpha", "beta")}
    return tuple(_with_parameters(node, name.lower(), given) for name in names)


def _with_parameters(node: Node, name: str, given: dict[str, Iterator[float]]) -> str:
    """Write an activation with its parameters, the next of those that are given; its own where there are no more."""
    if name not in ACTIVATIONS:
        node.unsupported("an unknown activation", expected=", ".join(ACTIVATIONS), found=name)
    own = zip(("alpha", "beta"), ACTIVATIONS[name].__defaults__ or (), strict=False)
    return " ".join([name, *(repr(float(next(given[k], default))) for k, default in own)])
