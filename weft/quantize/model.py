"""Float ONNX models become models in QDQ form: weights of 4 or 8 bits, and activations of 8 where data shows ranges."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.error import InvalidArgument, require
from weft.session import Session
from weft.support.ranges import METHODS, Observed, observe

if TYPE_CHECKING:
    import onnx

_OPSET = 21
"""The first with blocks of 4 bits."""

_WEIGHTS = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-127, 127)}
"""The integers of each type; those of an unsigned one have a zero point."""
_FACTORS = (1.0, 0.95, 0.9, 0.85, 0.8)
"""Parts of the ends of the range at which weights of 4 bits are tried to be cut off."""


_PARTS = ("q", "scale", "zero", "real")
"""What a quantised tensor has beside it: its integers, their scale and zero, and the values that they stand for."""


@dataclass
class Layer:
    """What was decided for a layer: its node, and the error that quantisation adds to its result.

    `error` is estimated, relative to the result's size, from the rounding of weights and activations; `found` is
    measured on the calibration data, with the errors of all layers before; `kept` says that the layer stays in float.
    """

    node: str
    op: str
    error: float
    kept: bool
    found: float = float("nan")


@dataclass
class _Weight:
    """A constant operand: values, and the axes of outputs and of what is summed."""

    name: str
    value: np.ndarray
    output: int
    summed: int


@dataclass
class _Quantised:
    q: np.ndarray
    scale: np.ndarray
    zero: np.ndarray | None
    axis: int
    block: int
    error: float


def quantize_model(
    model: onnx.ModelProto,
    weights: str = "int8",
    group: int = 0,
    samples: Sequence[Mapping[str, np.ndarray]] = (),
    method: str = "minmax",
    max_loss: float = 0.1,
) -> tuple[Any, list[Layer]]:
    """Quantise the products and convolutions of a model that have constant weights.

    Parameters
    ----------
    model : onnx.ModelProto
        A float32 model of opset 13 or later; it is not changed.
    weights : str
        ``"int4"`` or ``"int8"``, symmetric; or ``"uint4"``, with zero points, which loses less and takes 4 bits more a
        group.
    group : int
        Weights along the sum that share a scale; 0 gives each output channel one. Convolutions have channels always,
        and 8 bits.
    samples : sequence of mapping
        Feeds. With some, activations are uint8, in ranges that `method` chooses; without, they stay float.
    max_loss : float
        Layers with a larger relative error stay in float.

    Returns
    -------
    model, layers
        The new model, opset 21 at least, and what was decided for each layer.

    Raises
    ------
    InvalidArgument
        For an unknown method, type or group, or a model that is too old or has nothing to quantise.
    """
    onnx = require("onnx", extra="onnx")
    if weights not in _WEIGHTS or method not in METHODS or group < 0 or group % 16:
        raise InvalidArgument(
            "quantize: an unknown setting",
            found=f"{weights}, {method}, groups of {group}",
            expected=f"{' or '.join(_WEIGHTS)}; {', '.join(METHODS)}; groups of a multiple of 16, or 0",
        )
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if opset < 13:
        raise InvalidArgument("quantize: the model's opset is too old", expected="13 or later", found=str(opset))
    made = onnx.version_converter.convert_version(model, _OPSET) if opset < _OPSET else onnx.ModelProto()
    if opset >= _OPSET:
        made.CopyFrom(model)
    made.ir_version = max(made.ir_version, 10)  # the first with types of 4 bits
    work = _Work(onnx, made, weights, group, max_loss)
    if not work.inputs():
        types = sorted({onnx.TensorProto.DataType.Name(t.data_type).lower() for t in made.graph.initializer})
        raise InvalidArgument(
            "quantize: no layer can be quantised",
            found=f"constants of {', '.join(types) or 'none'}",
            expected="MatMul, Gemm or Conv with constant weights of float32",
        )
    work.run(_observed(onnx, made, work.inputs(), samples, method), METHODS[method])
    if samples:
        _compare(onnx, model, made, work.layers, samples)
    return made, [layer for layer, _ in work.layers]


class _Work:
    """One model's quantisation, layer by layer."""

    def __init__(self, onnx: Any, model: Any, kind: str, group: int, max_loss: float) -> None:
        self.onnx, self.model, self.kind, self.group, self.max_loss = onnx, model, kind, group, max_loss
        self.constants = {t.name: t for t in model.graph.initializer}
        self.layers: list[tuple[Layer, str]] = []
        self.made: dict[tuple[str, int], _Quantised | None] = {}
        self.nodes: list[Any] = []
        self.written: set[str] = set()
        names = {*self.constants, *_mentioned(model.graph.node)}
        self.mark = "."
        while any(f"{name}{self.mark}{part}" in names for name in names for part in _PARTS):
            self.mark += "."

    def part(self, name: str, part: str) -> str:
        """Name something that belongs to a tensor of the model, as nothing there is named."""
        assert part in _PARTS
        return f"{name}{self.mark}{part}"

    def weight(self, node: Any) -> _Weight | None:
        """Return the constant operand of a layer, if it has one of float32."""
        t = self.constants.get(node.input[1]) if len(node.input) > 1 else None
        if t is None or node.op_type not in ("MatMul", "Gemm", "Conv") or node.domain not in ("", "ai.onnx"):
            return None
        if t.data_type != self.onnx.TensorProto.FLOAT or 0 in t.dims or node.input[0] in self.constants:
            return None
        attrs = {a.name: a for a in node.attribute}
        turned = node.op_type == "Gemm" and "transB" in attrs and attrs["transB"].i == 1
        if node.op_type != "Conv" and len(t.dims) != 2:
            return None
        output, summed = (0, 1) if node.op_type == "Conv" or turned else (1, 0)
        return _Weight(t.name, self.onnx.numpy_helper.to_array(t), output, summed)

    def inputs(self) -> list[str]:
        """List the activations of layers."""
        return sorted({n.input[0] for n in self.model.graph.node if self.weight(n) is not None})

    def run(self, observed: Mapping[str, Observed], choose: Any) -> None:
        """Decide for each layer, and rewrite the graph."""
        for node in self.model.graph.node:
            weight = self.weight(node)
            if weight is not None:
                self.layer(node, weight, observed.get(node.input[0]), choose)
            self.nodes.append(node)
        graph = self.model.graph
        used = {*_mentioned(self.nodes), *(o.name for o in graph.output)}
        nodes, kept = [_copy(n) for n in self.nodes], [t for t in graph.initializer if t.name in used]
        kept = [_copy(t) for t in kept]
        del graph.node[:], graph.initializer[:]
        graph.node.extend(nodes)
        graph.initializer.extend(kept)

    def layer(self, node: Any, weight: _Weight, seen: Observed | None, choose: Any) -> None:
        """Quantise a layer unless that costs too much."""
        kind, block = (self.kind, self.group) if node.op_type != "Conv" else ("int8", 0)
        if block and weight.value.shape[weight.summed] < block:
            block = 0
        key = (weight.name, weight.output)
        if key not in self.made:
            self.made[key] = _rounded(weight, _WEIGHTS[kind], block)
        made = self.made[key]
        bounds = choose(seen) if seen is not None else None
        error = (
            float("inf") if made is None else float(np.hypot(made.error, 0 if bounds is None else _step(bounds, seen)))
        )
        name = node.name or node.output[0]
        layer = Layer(name, node.op_type, error, error > self.max_loss)
        self.layers.append((layer, node.output[0]))
        if layer.kept or made is None:
            return
        self.write_weight(weight.name, made, kind)
        node.input[1] = self.part(weight.name, "real")
        if bounds is not None:
            self.write_activation(node.input[0], bounds)
            node.input[0] = self.part(node.input[0], "real")

    def add(self, name: str, data: np.ndarray, kind: str = "") -> str:
        """Add a constant; of a type of 4 bits, two in a byte."""
        made = self.onnx.numpy_helper.from_array(data, name)
        if kind.endswith("int4"):
            low = np.append(data.reshape(-1), np.zeros(data.size % 2, np.int8)).view(np.uint8) & 15
            packed = (low[::2] | low[1::2] << 4).tobytes()
            dtype = self.onnx.TensorProto.DataType.Value(kind.upper())
            made = self.onnx.helper.make_tensor(name, dtype, data.shape, packed, raw=True)
        self.model.graph.initializer.append(made)
        return name

    def write_weight(self, name: str, made: _Quantised, kind: str) -> None:
        """Add a weight's integers and their conversion back."""
        if name in self.written:
            return
        self.written.add(name)
        inputs = [self.add(self.part(name, "q"), made.q, kind), self.add(self.part(name, "scale"), made.scale)]
        if made.zero is not None:
            inputs.append(self.add(self.part(name, "zero"), made.zero, kind))
        attrs = {"axis": made.axis} | ({"block_size": made.block} if made.block else {})
        self.nodes.append(self.onnx.helper.make_node("DequantizeLinear", inputs, [self.part(name, "real")], **attrs))

    def write_activation(self, name: str, bounds: tuple[float, float]) -> None:
        """Add the rounding of an activation to bytes."""
        if name in self.written:
            return
        self.written.add(name)
        scale = np.float32((bounds[1] - bounds[0]) / 255 or 1.0)
        zero = np.uint8(np.clip(np.rint(-bounds[0] / scale), 0, 255))
        parameters = [
            self.add(self.part(name, "scale"), np.array(scale)),
            self.add(self.part(name, "zero"), np.array(zero)),
        ]
        node = self.onnx.helper.make_node
        self.nodes.append(node("QuantizeLinear", [name, *parameters], [self.part(name, "q")]))
        self.nodes.append(node("DequantizeLinear", [self.part(name, "q"), *parameters], [self.part(name, "real")]))


def _mentioned(nodes: Iterable[Any]) -> Iterator[str]:
    """Yield the names of tensors that nodes, and the bodies of their branches and loops, read or make."""
    for node in nodes:
        yield from (*node.input, *node.output)
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _mentioned(graph.node)
                yield from (o.name for o in graph.output)


def _copy(message: Any) -> Any:
    made = type(message)()
    made.CopyFrom(message)
    return made


def _rounded(weight: _Weight, ends: tuple[int, int], block: int) -> _Quantised | None:
    """Round weights with a scale for each block along the sum, or each output; None where they are not finite."""
    w = weight.value
    if not np.isfinite(w).all():
        return None
    axis = weight.summed if block else weight.output
    size = w.shape[axis]
    if block:
        parts = -(-size // block)
        filled = np.zeros([parts * block if i == axis else d for i, d in enumerate(w.shape)], np.float32)
        filled[tuple(slice(0, d) for d in w.shape)] = w
        grouped = np.moveaxis(filled, axis, 0).reshape(parts, block, -1)
    else:
        grouped = np.moveaxis(w, axis, 0).reshape(size, -1)[:, :, None]
    best: tuple[Any, ...] | None = None
    for step, zero in _steps(grouped, *ends):
        scale = np.where(np.abs(step) > 1e-30, step, 1e-30).astype(np.float32)
        q = np.clip(np.rint(grouped / scale) + zero, *ends)
        tried = q, scale, zero, (((q - zero) * scale - grouped) ** 2).sum(1, keepdims=True)
        if best is not None:
            better = tried[-1] < best[-1]
            tried = tuple(np.where(better, new, old) for new, old in zip(tried, best, strict=True))
        best = tried
    assert best is not None
    q, scale, zero, lost = best
    moved = [d for i, d in enumerate(w.shape) if i != axis]
    error = float(np.sqrt(lost.sum() / max(float((w.astype(np.float64) ** 2).sum()), 1e-30)))

    def placed(x: np.ndarray, each: bool) -> np.ndarray:
        """Give groups, or each of their elements, the axes of the weight; outputs without groups have one axis."""
        if not block and not each:
            return x.reshape(-1)
        return np.moveaxis(x.reshape(-1, *moved), 0, axis)[tuple(slice(0, d) for d in w.shape)].copy()

    zeros = placed(np.asarray(zero).astype(np.int8), False) if ends[0] == 0 else None
    return _Quantised(placed(q.astype(np.int8), True), placed(scale, False), zeros, axis, block, error)


def _steps(grouped: np.ndarray, low: int, high: int) -> Iterator[tuple[np.ndarray, Any]]:
    """Yield what is tried for groups of weights along axis 1: the size of a step, and which integer is zero."""
    if low == 0:
        ends = np.minimum(grouped.min(1, keepdims=True), 0), np.maximum(grouped.max(1, keepdims=True), 0)
        for least, most in itertools.product(*([end * factor for factor in _FACTORS] for end in ends)):
            step = np.maximum((most - least) / high, 1e-30)
            yield step, np.clip(np.rint(-least / step), low, high)
        return
    most = np.take_along_axis(grouped, np.abs(grouped).argmax(1, keepdims=True), 1)
    for factor in _FACTORS if low < -high else (1.0,):
        yield np.abs(most) / high * factor, 0
        if low < -high:  # the largest may be the lowest integer, whatever its sign: steps are finer then
            yield most / low * factor, 0


def _step(bounds: tuple[float, float], seen: Observed | None) -> float:
    """Estimate the relative error of rounding an activation to bytes within bounds, from its histogram."""
    assert seen is not None and seen.counts is not None
    middle = (np.arange(len(seen.counts)) + 0.5) * seen.top / len(seen.counts)
    step, limit = (bounds[1] - bounds[0]) / 255, max(-bounds[0], bounds[1])
    lost = np.where(middle <= limit, step * step / 12, (middle - limit) ** 2)
    return float(np.sqrt((lost * seen.counts).sum() / max((middle**2 * seen.counts).sum(), 1e-30)))


# --- running ----------------------------------------------------------------------------------------------------------


def _with_outputs(onnx: Any, model: Any, names: Iterable[str]) -> Any:
    """Return the model with some of its tensors as further outputs; what is an output or input stays."""
    made = _copy(model)
    known = {v.name for v in (*model.graph.output, *model.graph.input)}
    made.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in known)
    inferred = onnx.shape_inference.infer_shapes(made)
    types = {v.name: v for v in (*inferred.graph.value_info, *inferred.graph.output)}
    for value in made.graph.output:
        if not value.HasField("type") and types.get(value.name) is not None:
            value.CopyFrom(types[value.name])
    return made


def _values(session: Session, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    outputs = dict(zip((o.name for o in session.outputs), session.run(dict(feeds)), strict=True))
    return {**feeds, **{name: np.asarray(v.numpy()) for name, v in outputs.items()}}


def _observed(
    onnx: Any, model: Any, names: list[str], samples: Sequence[Mapping[str, np.ndarray]], method: str
) -> dict[str, Observed]:
    if not samples or not names:
        return {}
    session = Session(_with_outputs(onnx, model, names))
    return observe(names, lambda: (_values(session, s) for s in samples), histograms=True)


def _compare(
    onnx: Any, before: Any, after: Any, layers: list[tuple[Layer, str]], samples: Sequence[Mapping[str, np.ndarray]]
) -> None:
    """Measure each layer's error on the data."""
    names = [output for _, output in layers]
    old, new = (Session(_with_outputs(onnx, m, names)) for m in (before, after))
    lost, whole = np.zeros(len(names)), np.zeros(len(names))
    for feeds in samples:
        a, b = _values(old, feeds), _values(new, feeds)
        for i, name in enumerate(names):
            lost[i] += float(((a[name].astype(np.float64) - b[name]) ** 2).sum())
            whole[i] += float((a[name].astype(np.float64) ** 2).sum())
    for (layer, _), error in zip(layers, np.sqrt(lost / np.maximum(whole, 1e-30)), strict=True):
        layer.found = float(error)
