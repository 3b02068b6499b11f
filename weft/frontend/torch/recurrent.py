"""Recurrent layers as one operator each, for sequences of any length; PyTorch takes those with projections apart."""

from collections.abc import Sequence
from typing import Any

from weft import ir
from weft.frontend.torch.linear import affine
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import aten
from weft.frontend.torch.symbols import Dim

_ORDER = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}
"""Where PyTorch has the gates that Weft's layers have first, second, ..."""


def _is_whole(args: Sequence[Any]) -> bool:
    """Whether no direction of a layer has a third weight, which projects its states."""
    params, biases, layers, _, _, both = args[2:8]
    return len(params) == layers * (1 + both) * (4 if biases else 2)


@aten("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input", when=_is_whole)
def _recurrent(node: Node) -> Any:
    """Layers one upon another: (steps, batch, inputs) in, (steps, batch, directions * hidden) out, and last states."""
    kind = node.name.split(".")[1].partition("_")[0]
    ways, count, per = 1 + node["bidirectional"], node["num_layers"], 4 if node["has_biases"] else 2
    if node["train"] and node["dropout"] > 0 and count > 1:
        node.error("dropout in training mode", help="export the module after .eval()")
    x = node.permute(node["input"], [1, 0, 2] if node["batch_first"] else [0, 1, 2])
    initial, last = node["hx"] if kind == "lstm" else [node["hx"]], []
    attrs: dict[str, Any] = {"direction": "bidirectional" if ways == 2 else "forward"}
    if kind == "rnn":
        attrs["activations"] = ("relu" if "relu" in node.name else "tanh",) * ways
    elif kind == "gru":
        attrs["linear_before_reset"] = True
    for layer in range(count):
        first = layer * ways
        given = [node["params"][per * i : per * (i + 1)] for i in range(first, first + ways)]
        x, *ends = _layer(node, kind, x, given, [_cut(node, s, first, ways) for s in initial], attrs)
        last.append(ends)
    x = node.permute(x, [1, 0, 2]) if node["batch_first"] else x
    return [x, *(node.concat(parts, 0) for parts in zip(*last, strict=True))]


@aten("lstm_cell", "gru_cell")
def _cell(node: Node) -> Any:
    """One step of (batch, inputs) by two products, each of all gates: (batch, hidden), an LSTM's both states."""
    h, *c = node["hx"] if "lstm" in node.name else [node["hx"]]
    x, hidden = (affine(node, v, node[f"w_{of}"], node[f"b_{of}"]) for v, of in ((node["input"], "ih"), (h, "hh")))
    if c:
        gates = node.fields(node.op("split", node.op("add", x, hidden), 4, axis=1))
        entered, kept, shown = (node.op("sigmoid", gates[i]) for i in (0, 1, 3))
        made = node.op("multiply", entered, node.op("tanh", gates[2]))
        cell = node.op("add", node.op("multiply", kept, *c), made)
        return [node.op("multiply", shown, node.op("tanh", cell)), cell]
    (*x, new), (*hidden, last) = (node.fields(node.op("split", v, 3, axis=1)) for v in (x, hidden))
    reset, kept = (node.op("sigmoid", node.op("add", *pair)) for pair in zip(x, hidden, strict=True))
    new = node.op("tanh", node.op("add", new, node.op("multiply", reset, last)))
    return node.op("add", node.op("multiply", node.op("subtract", h, new), kept), new)


@aten("mkldnn_rnn_layer", when=lambda args: not args[8] and args[9] == 2)
def _one_way(node: Node) -> Any:
    """One direction of one layer of an LSTM, over sequences of one length, as ``torch.compile`` traces it."""
    node.read.update(("batch_sizes", "mode", "hidden_size", "num_layers", "bidirectional", "batch_first"))
    given = [node[f"weight{i}"] for i in range(4)][: 4 if node["has_biases"] else 2]
    attrs = {"direction": "reverse" if node["reverse"] else "forward"}
    return [*_layer(node, "lstm", node["input"], [given], [node["hx_"], node["cx_"]], attrs), None]


def _layer(node: Node, kind: str, x: Any, given: Any, states: list[Any], attrs: dict[str, Any]) -> list[Any]:
    """One layer, its directions side by side, and its last states."""
    steps, batch, _ = node.dims(x)
    w, r, *biases = (_stacked(node, kind, list(parts)) for parts in zip(*given, strict=True))
    ways, gates, hidden = node.dims(r)
    b = node.op("concat", ir.Tuple(tuple(biases)), axis=1) if biases else node.full([ways, 2 * gates], 0, node.dtype)
    rest = [node.full([ways, 3 * hidden], 0, node.dtype)] if kind == "lstm" else []
    lengths = node.full([batch], steps, "int32")
    y, *ends = node.fields(node.op(f"nn.{kind}", x, w, r, b, lengths, *states, *rest, **attrs))
    return [node.reshape(node.permute(y, [0, 2, 1, 3]), [steps, batch, ways * hidden]), *ends]


def _stacked(node: Node, kind: str, parts: list[Any]) -> Any:
    """A weight or a bias of each direction, its gates in the order of Weft's layers."""
    order, dims = _ORDER[kind], node.dims(parts[0])
    size = dims[0] // len(order)
    gates = [_cut(node, x, g * size, size) for x in parts for g in order]
    return node.reshape(node.op("concat", ir.Tuple(tuple(gates)), axis=0), [len(parts), *dims])


def _cut(node: Node, x: Any, start: Dim, length: Dim) -> Any:
    return node.op("strided_slice", x, axes=(0,), begin=(start,), end=(start + length,), assume_inbound=True)
