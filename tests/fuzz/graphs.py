"""Random ONNX graphs with symbolic shapes, made so that every node is valid.

A graph is a list of steps; each step appends nodes and one new value. Dropping steps from the end leaves a valid graph,
which is how a failure is made small.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Erf", "HardSwish", "LeakyRelu", "Softplus", "Elu", "Identity", "Sin")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
REDUCE = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum")
MAX_ELEMENTS = 6000
SIZES = ({"n": 2, "m": 5}, {"n": 1, "m": 1}, {"n": 3, "m": 17})


class Value(NamedTuple):
    """A tensor of the graph; a dimension is a number or ``n`` or ``m``."""

    name: str
    shape: tuple[int | str, ...]


class Graph:
    """A graph under construction, from a seed."""

    def __init__(self, seed: int, steps: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        shapes = [("n", "m"), ("n", 6), ("n", 4, "m"), (3, "m", 8), ("n", 3, "m", 4), ("m",)]
        self.inputs = [Value(f"x{i}", shapes[int(self.rng.integers(len(shapes)))]) for i in range(2)]
        self.values = list(self.inputs)
        makers = [getattr(self, name) for name in sorted(dir(Graph)) if name.startswith("make_")]
        while len(self.values) < steps + len(self.inputs):
            result = makers[int(self.rng.integers(len(makers)))](self.pick())
            if result is not None and self.elements(result) <= MAX_ELEMENTS:
                self.values.append(result)

    def elements(self, value: Value) -> int:
        """The number of elements at the largest sizes."""
        return int(np.prod([SIZES[-1][d] if isinstance(d, str) else d for d in value.shape]))

    def pick(self) -> Value:
        """A value, rather a late one."""
        back = min(int(self.rng.exponential(1.5)), len(self.values) - 1)
        return self.values[-1 - back]

    def axis(self, value: Value) -> int:
        return int(self.rng.integers(len(value.shape)))

    def one_of(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def weight(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, inputs: list[str], shape: tuple[int | str, ...], **attributes: Any) -> Value:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"/{op}_{len(self.nodes)}", **attributes))
        return Value(name, tuple(shape))

    def make_unary(self, v: Value) -> Value:
        return self.node(self.one_of(UNARY), [v.name], v.shape)

    def make_binary(self, v: Value) -> Value:
        same = [o for o in self.values if o.shape == v.shape]
        return self.node(self.one_of(BINARY), [v.name, self.one_of(same).name], v.shape)

    def make_binary_constant(self, v: Value) -> Value:
        last = v.shape[-1] if v.shape and isinstance(v.shape[-1], int) and self.rng.random() < 0.7 else 1
        w = self.weight(self.rng.standard_normal(last).astype(np.float32))
        shape = v.shape or (1,)
        return self.node(self.one_of(BINARY), [v.name, w] if self.rng.random() < 0.5 else [w, v.name], shape)

    def make_transpose(self, v: Value) -> Value | None:
        if not v.shape:
            return None
        perm = [int(p) for p in self.rng.permutation(len(v.shape))]
        return self.node("Transpose", [v.name], tuple(v.shape[p] for p in perm), perm=perm)

    def make_reduce(self, v: Value) -> Value | None:
        if not v.shape:
            return None
        axis, keep = self.axis(v), int(self.rng.integers(2))
        shape = tuple(1 if i == axis else d for i, d in enumerate(v.shape) if keep or i != axis)
        op = self.one_of(REDUCE)
        if op == "ReduceSum":  # axes became an input with opset 13 for this one only
            return self.node(op, [v.name, self.weight(np.array([axis], np.int64))], shape, keepdims=keep)
        return self.node(op, [v.name], shape, axes=[axis], keepdims=keep)

    def make_softmax(self, v: Value) -> Value | None:
        return self.node("Softmax", [v.name], v.shape, axis=self.axis(v)) if v.shape else None

    def make_matmul(self, v: Value) -> Value | None:
        if len(v.shape) < 2 or not isinstance(v.shape[-1], int):
            return None
        k, n = v.shape[-1], int(self.rng.integers(1, 9))
        w = self.weight((self.rng.standard_normal((k, n)) / np.sqrt(k)).astype(np.float32))
        return self.node("MatMul", [v.name, w], (*v.shape[:-1], n))

    def make_self_attention(self, v: Value) -> Value | None:
        if len(v.shape) < 2:
            return None
        turned = list(range(len(v.shape)))
        turned[-1], turned[-2] = turned[-2], turned[-1]
        t = self.node("Transpose", [v.name], tuple(v.shape[p] for p in turned), perm=turned)
        scores = self.node("MatMul", [v.name, t.name], (*v.shape[:-1], v.shape[-2]))
        weights = self.node("Softmax", [scores.name], scores.shape, axis=-1)
        return self.node("MatMul", [weights.name, v.name], v.shape)

    def make_concat(self, v: Value) -> Value | None:
        fixed = [i for i, d in enumerate(v.shape) if isinstance(d, int)]
        if not fixed:
            return None
        axis = self.one_of(fixed)
        shape = list(v.shape)
        shape[axis] *= 2
        other = self.one_of([o for o in self.values if o.shape == v.shape])
        return self.node("Concat", [v.name, other.name], tuple(shape), axis=axis)

    def make_slice(self, v: Value) -> Value | None:
        fixed = [i for i, d in enumerate(v.shape) if isinstance(d, int) and d > 1]
        if not fixed:
            return None
        axis = self.one_of(fixed)
        size = v.shape[axis]
        start, step = int(self.rng.integers(size)), int(self.rng.integers(1, 3))
        bounds = [self.weight(np.array([x], np.int64)) for x in (start, size, axis, step)]
        shape = list(v.shape)
        shape[axis] = len(range(start, size, step))
        return self.node("Slice", [v.name, *bounds], tuple(shape))

    def make_gather(self, v: Value) -> Value | None:
        fixed = [i for i, d in enumerate(v.shape) if isinstance(d, int)]
        if not fixed:
            return None
        axis = self.one_of(fixed)
        indices = self.rng.integers(-v.shape[axis], v.shape[axis], 3)
        shape = (*v.shape[:axis], 3, *v.shape[axis + 1 :])
        return self.node("Gather", [v.name, self.weight(indices.astype(np.int64))], shape, axis=axis)

    def make_unsqueeze(self, v: Value) -> Value | None:
        if len(v.shape) >= 5:
            return None
        axis = int(self.rng.integers(len(v.shape) + 1))
        shape = (*v.shape[:axis], 1, *v.shape[axis:])
        return self.node("Unsqueeze", [v.name, self.weight(np.array([axis], np.int64))], shape)

    def make_pad(self, v: Value) -> Value | None:
        fixed = [i for i, d in enumerate(v.shape) if isinstance(d, int)]
        if not fixed:
            return None
        axis, pads, shape = self.one_of(fixed), np.zeros(2 * len(v.shape), np.int64), list(v.shape)
        pads[axis], pads[len(v.shape) + axis] = self.rng.integers(0, 3, 2)
        shape[axis] += int(pads.sum())
        return self.node("Pad", [v.name, self.weight(pads)], tuple(shape))

    def make_reshape_from_shape(self, v: Value) -> Value | None:
        """Split the last dimension in two, by a shape that the graph computes."""
        if not v.shape or not isinstance(v.shape[-1], int) or v.shape[-1] % 2 or len(v.shape) > 4:
            return None
        rank = len(v.shape)
        whole = self.node("Shape", [v.name], (rank,))
        ends = [self.weight(np.array([x], np.int64)) for x in (0, rank - 1)]
        head = self.node("Slice", [whole.name, *ends], (rank - 1,))
        tail = self.weight(np.array([2, -1], np.int64))
        target = self.node("Concat", [head.name, tail], (rank + 1,), axis=0)
        return self.node("Reshape", [v.name, target.name], (*v.shape[:-1], 2, v.shape[-1] // 2))

    def make_layer_norm(self, v: Value) -> Value | None:
        if not v.shape or not isinstance(v.shape[-1], int):
            return None
        scale, bias = (self.weight(self.rng.standard_normal(v.shape[-1]).astype(np.float32)) for _ in range(2))
        return self.node("LayerNormalization", [v.name, scale, bias], v.shape, axis=-1, epsilon=1e-3)

    def make_cumsum(self, v: Value) -> Value | None:
        if not v.shape:
            return None
        return self.node("CumSum", [v.name, self.weight(np.array(self.axis(v), np.int64))], v.shape)

    def make_where(self, v: Value) -> Value:
        """The larger of two values, by comparison; equal up to rounding whichever is taken."""
        other = self.one_of([o for o in self.values if o.shape == v.shape])
        larger = self.node("Greater", [v.name, other.name], v.shape)
        return self.node("Where", [larger.name, v.name, other.name], v.shape)

    def model(self, steps: int | None = None) -> onnx.ModelProto:
        """The graph, or its first `steps` steps; the outputs are its last values."""
        kept = self.values if steps is None else self.values[: len(self.inputs) + steps]
        last = kept[-2:] if len(kept) > len(self.inputs) + 1 else kept[-1:]
        outputs = [v for v in last if v not in self.inputs]
        needed = _needed(self.nodes, {v.name for v in outputs})
        used = {name for node in needed for name in node.input}
        inputs = [
            helper.make_tensor_value_info(v.name, TensorProto.FLOAT, v.shape) for v in self.inputs if v.name in used
        ]
        results = [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, v.shape) for v in outputs]
        graph = helper.make_graph(needed, "fuzz", inputs, results, [w for w in self.weights if w.name in used])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _needed(nodes: list[onnx.NodeProto], names: set[str]) -> list[onnx.NodeProto]:
    names, kept = set(names), []
    for node in reversed(nodes):
        if names & set(node.output):
            names |= set(node.input)
            kept.append(node)
    return kept[::-1]


def feeds(model: onnx.ModelProto, sizes: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    """Random inputs of a model at given sizes of its symbolic dimensions."""
    rng = np.random.default_rng(seed)
    values = {}
    for info in model.graph.input:
        dims = [d.dim_value if d.HasField("dim_value") else sizes[d.dim_param] for d in info.type.tensor_type.shape.dim]
        values[info.name] = rng.standard_normal(dims).astype(np.float32)
    return values
