"""Random typed ONNX graphs with symbolic shapes, made so that every node is valid.

Values are tensors of float32 or int64 whose dimensions are numbers, ``n`` or ``m``. Outputs may be several, may be
views of one value and may be inputs. Weights, branches and shapes that the graph computes all occur.

Most of the time that a compiled graph takes is that of its kernels. Where numbers are from a palette, kernels are
those of other graphs, which the cache has.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Erf", "HardSwish", "LeakyRelu", "Softplus", "Elu", "Identity", "Sin")
INTEGER_UNARY = ("Neg", "Abs", "Identity", "Sign")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
REDUCE = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum")
INTEGER = set(
    """unary binary broadcast transpose concat slice gather unsqueeze pad where roundtrip split expand branch
    merge""".split()
)
"""Makers that take integers; for others a value becomes a float first."""
MAX_ELEMENTS = 6000
SIZES = ({"n": 2, "m": 5}, {"n": 1, "m": 1}, {"n": 3, "m": 17})
FEWEST = 5
"""Operators of a graph that is not made smaller."""
PALETTES = ((1, 2, 4, 8), (1, 3, 6, 12))
SCALARS = (-1.5, -0.25, 0.5, 2.0)
TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}


class Value(NamedTuple):
    """A tensor of the graph; a dimension is a number or ``n`` or ``m``."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str = "float32"


class Graph:
    """A graph under construction, from a seed."""

    def __init__(self, seed: int, steps: int, palette: tuple[int, ...] = ()) -> None:
        self.rng = np.random.default_rng(seed)
        self.palette = palette
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.known: dict[str, Value] = {}
        few, some, many = palette[1:] or (3, 4, 8)
        shapes = [
            ("n", "m"),
            ("n", some),
            ("n", few, "m"),
            (few, "m", many),
            ("n", few, "m", some),
            ("m",),
            ("n", 1),
            (1, "m"),
            (),
        ]
        self.flag = Value("flag", (), "bool")
        self.inputs = [Value(f"x{i}", shapes[int(self.rng.integers(5 if i < 2 else len(shapes)))]) for i in range(3)]
        self.inputs.append(Value("k", shapes[int(self.rng.integers(len(shapes)))], "int64"))
        self.values = list(self.inputs)
        makers = [name.removeprefix("make_") for name in sorted(dir(Graph)) if name.startswith("make_")]
        while len(self.values) < steps + len(self.inputs):
            maker, value = self.one_of(makers), self.pick()
            if value.dtype != "float32" and maker not in INTEGER:
                value = self.node("Cast", [value.name], value.shape, to=TensorProto.FLOAT)
            result = getattr(self, "make_" + maker)(value)
            if result is not None and self.fits(result):
                self.values.append(result)

    def allowed(self, d: int | str) -> bool:
        """Whether a dimension may be in the graph."""
        return isinstance(d, str) or not self.palette or d in self.palette

    def fits(self, value: Value) -> bool:
        """Whether later steps may take a value."""
        return self.elements(value) <= MAX_ELEMENTS and all(self.allowed(d) for d in value.shape)

    def elements(self, value: Value) -> int:
        """The number of elements at the largest sizes."""
        return int(np.prod([SIZES[-1][d] if isinstance(d, str) else d for d in value.shape]))

    def pick(self) -> Value:
        """A value, rather a late one."""
        back = min(int(self.rng.exponential(3.0)), len(self.values) - 1)
        return self.values[-1 - back]

    def like(self, v: Value) -> Value:
        """A value of the same type, perhaps the same."""
        return self.one_of([o for o in self.values if o[1:] == v[1:]] or [v])

    def axis(self, value: Value) -> int:
        return int(self.rng.integers(len(value.shape)))

    def one_of(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def weight(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(
        self, op: str, inputs: list[str], shape: Any, dtype: str = "float32", outputs: int = 1, **attributes: Any
    ) -> Value:
        """Append a node; its first output. All outputs have one type."""
        names = [f"t{len(self.nodes)}" + f"_{i}" * (i > 0) for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"/{op}_{len(self.nodes)}", **attributes))
        self.known.update({name: Value(name, tuple(shape), dtype) for name in names})
        return self.known[names[0]]

    def make_unary(self, v: Value) -> Value:
        return self.node(self.one_of(UNARY if v.dtype == "float32" else INTEGER_UNARY), [v.name], v.shape, v.dtype)

    def make_binary(self, v: Value) -> Value:
        return self.node(self.one_of(BINARY), [v.name, self.like(v).name], v.shape, v.dtype)

    def make_broadcast(self, v: Value) -> Value:
        """A binary operation of values whose shapes differ in rank or in ones."""
        fitting = [(o, shape) for o in self.values if o.dtype == v.dtype and (shape := broadcast(v.shape, o.shape))]
        if not fitting:
            return self.make_binary(v)
        other, shape = self.one_of(fitting)
        names = [v.name, other.name] if self.rng.random() < 0.5 else [other.name, v.name]
        return self.node(self.one_of(BINARY), names, shape, v.dtype)

    def make_expand(self, v: Value) -> Value | None:
        """Broadcast to the shape of another value, which the graph computes."""
        fitting = [o for o in self.values if broadcast(v.shape, o.shape) == o.shape]
        if not fitting:
            return None
        other = self.one_of(fitting)
        shape = self.node("Shape", [other.name], (len(other.shape),), "int64")
        return self.node("Expand", [v.name, shape.name], other.shape, v.dtype)

    def make_roundtrip(self, v: Value) -> Value:
        """Flatten, and give the old shape back: views of one tensor."""
        whole = self.node("Shape", [v.name], (len(v.shape),), "int64")
        row = self.node("Reshape", [v.name, self.weight(np.array([-1], np.int64))], ("?",), v.dtype)
        if self.rng.random() < 0.5:
            row = self.node("Neg", [row.name], ("?",), v.dtype)
        return self.node("Reshape", [row.name, whole.name], v.shape, v.dtype)

    def make_merge(self, v: Value) -> Value | None:
        """Make one dimension of two neighbours that are numbers."""
        pairs = [i for i, d in enumerate(v.shape[1:]) if isinstance(d, int) and isinstance(v.shape[i], int)]
        if not pairs or sum(isinstance(d, str) for d in v.shape) > 1:
            return None
        at = self.one_of(pairs)
        shape = (*v.shape[:at], v.shape[at] * v.shape[at + 1], *v.shape[at + 2 :])  # type: ignore[operator]
        target = self.weight(np.array([-1 if isinstance(d, str) else d for d in shape], np.int64))
        return self.node("Reshape", [v.name, target], shape, v.dtype)

    def make_split(self, v: Value) -> Value | None:
        """Halves; the second is a value as well."""
        even = [i for i, d in enumerate(v.shape) if isinstance(d, int) and d % 2 == 0 and d]
        if not even:
            return None
        axis = self.one_of(even)
        shape = tuple(d // 2 if i == axis else d for i, d in enumerate(v.shape))  # type: ignore[operator]
        half = self.weight(np.array([shape[axis], shape[axis]], np.int64))
        first = self.node("Split", [v.name, half], shape, v.dtype, outputs=2, axis=axis)
        self.values.append(self.known[first.name + "_1"])
        return first

    def make_branch(self, v: Value) -> Value:
        """One of two computations, by a flag or by the size of a dimension."""
        condition, other = self.flag.name, self.like(v)
        if v.shape and self.rng.random() < 0.5:
            size = self.node("Size", [v.name], (), "int64")
            condition = self.node("Greater", [size.name, self.weight(np.array(20, np.int64))], (), "bool").name
        mark = f"b{len(self.nodes)}"
        branches = []
        for which, op in enumerate((self.one_of(BINARY), self.one_of(("Identity", "Neg", "Abs")))):
            inputs = [v.name, other.name] if op in BINARY else [v.name]
            ends = [helper.make_node(op, inputs, [f"{mark}_{which}"])]
            if self.rng.random() < 0.3:
                ends.append(helper.make_node("Neg", [f"{mark}_{which}"], [f"{mark}_{which}_neg"]))
            out = helper.make_tensor_value_info(ends[-1].output[0], TYPES[v.dtype], v.shape)
            branches.append(helper.make_graph(ends, f"{mark}_{which}", [], [out]))
        return self.node("If", [condition], v.shape, v.dtype, then_branch=branches[0], else_branch=branches[1])

    def make_cast(self, v: Value) -> Value:
        """Integers of a float: those of its sign, which rounding changes seldom."""
        sign = self.node("Sign", [v.name], v.shape)
        return self.node("Cast", [sign.name], v.shape, "int64", to=TensorProto.INT64)

    def make_binary_constant(self, v: Value) -> Value:
        last = v.shape[-1] if v.shape and isinstance(v.shape[-1], int) and self.rng.random() < 0.7 else 1
        drawn = self.rng.standard_normal(last) if last > 1 or not self.palette else [self.one_of(SCALARS)]
        w = self.weight(np.array(drawn, np.float32))  # of one element it becomes part of a kernel
        shape = v.shape or (1,)
        return self.node(self.one_of(BINARY), [v.name, w] if self.rng.random() < 0.5 else [w, v.name], shape)

    def make_transpose(self, v: Value) -> Value | None:
        if not v.shape:
            return None
        perm = [int(p) for p in self.rng.permutation(len(v.shape))]
        return self.node("Transpose", [v.name], tuple(v.shape[p] for p in perm), v.dtype, perm=perm)

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
        k, n = v.shape[-1], self.one_of([d for d in range(1, 9) if self.allowed(d)])
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
        return self.node("Concat", [v.name, self.like(v).name], tuple(shape), v.dtype, axis=axis)

    def make_slice(self, v: Value) -> Value | None:
        fixed = [i for i, d in enumerate(v.shape) if isinstance(d, int) and d > 1]
        if not fixed:
            return None
        axis = self.one_of(fixed)
        size = v.shape[axis]
        choices = [(a, b) for a in range(size) for b in (1, 2) if self.allowed(len(range(a, size, b)))]
        start, step = self.one_of(choices)
        bounds = [self.weight(np.array([x], np.int64)) for x in (start, size, axis, step)]
        shape = list(v.shape)
        shape[axis] = len(range(start, size, step))
        return self.node("Slice", [v.name, *bounds], tuple(shape), v.dtype)

    def make_gather(self, v: Value) -> Value | None:
        fixed = [i for i, d in enumerate(v.shape) if isinstance(d, int)]
        if not fixed:
            return None
        axis = self.one_of(fixed)
        count = self.one_of([d for d in range(2, 5) if self.allowed(d)])
        indices = self.rng.integers(-v.shape[axis], v.shape[axis], count)
        shape = (*v.shape[:axis], count, *v.shape[axis + 1 :])
        return self.node("Gather", [v.name, self.weight(indices.astype(np.int64))], shape, v.dtype, axis=axis)

    def make_unsqueeze(self, v: Value) -> Value | None:
        if len(v.shape) >= 5:
            return None
        axis = int(self.rng.integers(len(v.shape) + 1))
        shape = (*v.shape[:axis], 1, *v.shape[axis:])
        return self.node("Unsqueeze", [v.name, self.weight(np.array([axis], np.int64))], shape, v.dtype)

    def make_pad(self, v: Value) -> Value | None:
        fixed = [i for i, d in enumerate(v.shape) if isinstance(d, int)]
        if not fixed:
            return None
        axis, pads, shape = self.one_of(fixed), np.zeros(2 * len(v.shape), np.int64), list(v.shape)
        choices = [(a, b) for a in range(3) for b in range(3) if self.allowed(v.shape[axis] + a + b)]
        pads[axis], pads[len(v.shape) + axis] = self.one_of(choices)
        shape[axis] += int(pads.sum())
        return self.node("Pad", [v.name, self.weight(pads)], tuple(shape), v.dtype)

    def make_reshape_from_shape(self, v: Value) -> Value | None:
        """Split the last dimension in two, by a shape that the graph computes."""
        if not v.shape or not isinstance(v.shape[-1], int) or v.shape[-1] % 2 or len(v.shape) > 4:
            return None
        rank = len(v.shape)
        whole = self.node("Shape", [v.name], (rank,), "int64")
        ends = [self.weight(np.array([x], np.int64)) for x in (0, rank - 1)]
        head = self.node("Slice", [whole.name, *ends], (rank - 1,), "int64")
        tail = self.weight(np.array([2, -1], np.int64))
        target = self.node("Concat", [head.name, tail], (rank + 1,), "int64", axis=0)
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
        other = self.like(v)
        larger = self.node("Greater", [v.name, other.name], v.shape, "bool")
        return self.node("Where", [larger.name, v.name, other.name], v.shape, v.dtype)

    def model(self) -> onnx.ModelProto:
        """A model of these steps."""
        return self.ended(self.nodes, self.rng)

    def variant(self, rng: np.random.Generator) -> onnx.ModelProto:
        """Another model of these steps: up to two nodes read other values of the same types. It shares most kernels."""
        changed = set(rng.integers(len(self.nodes), size=int(rng.integers(3))).tolist())
        nodes, before = [], list(self.inputs)
        for at, node in enumerate(self.nodes):
            nodes.append(rewired(node, before, rng) if at in changed else node)
            before += [self.known[o] for o in node.output if self.known[o] in self.values]
        return self.ended(nodes, rng)

    def ended(self, nodes: list[onnx.NodeProto], rng: np.random.Generator) -> onnx.ModelProto:
        """A model with some values as outputs, rather late ones, at times an input or one value twice."""
        late = [self.values[-1 - min(int(rng.exponential(5.0)), len(self.values) - 1)] for _ in range(4)]
        picked = {v.name: v for v in late[int(rng.integers(4)) :]}
        if picked.keys() <= {v.name for v in self.inputs}:
            picked = {self.values[-1].name: self.values[-1]}
        for v in reversed(self.values):
            if len(needed(nodes, picked)[0]) >= FEWEST:
                break
            picked[v.name] = v
        results, ends = [], []
        for at, v in enumerate(
            picked.values()
        ):  # an output of its own name, so that inputs and views may be given back
            if v in self.inputs or rng.random() < 0.3:
                ends.append(helper.make_node("Identity", [v.name], [f"o{at}"], name=f"/Identity_o{at}"))
                v = self.known[f"o{at}"] = Value(f"o{at}", *v[1:])
            results.append(v)
        return model_of([*nodes, *ends], [*self.inputs, self.flag], results, self.weights)


def rewired(node: onnx.NodeProto, before: list[Value], rng: np.random.Generator) -> onnx.NodeProto:
    """A node of which an input is another value. Values that choose between others, and shapes, stay what they are."""
    types = {v.name: v[1:] for v in before}
    places = [i for i, name in enumerate(node.input) if name in types and node.op_type not in ("Greater", "Where")]
    if not places:
        return node
    place = places[int(rng.integers(len(places)))]
    same = [v.name for v in before if v[1:] == types[node.input[place]]]
    copy = onnx.NodeProto.FromString(node.SerializeToString())
    copy.input[place] = same[int(rng.integers(len(same)))]
    return copy


def broadcast(a: Any, b: Any) -> tuple[int | str, ...]:
    """The shape of two shapes together, empty where they do not fit or are equal."""
    if a == b:
        return ()
    width = max(len(a), len(b))
    pairs = list(zip((1,) * (width - len(a)) + a, (1,) * (width - len(b)) + b, strict=True))
    fits = all(x == y or 1 in (x, y) for x, y in pairs)
    return tuple(y if x == 1 else x for x, y in pairs) if fits else ()


def reads(node: onnx.NodeProto) -> set[str]:
    """Names that a node takes, those of its branches included."""
    inner = [reads(n) for a in node.attribute if a.HasField("g") for n in a.g.node]
    return set(node.input).union(*inner)


def needed(nodes: list[onnx.NodeProto], results: Iterable[str]) -> tuple[list[onnx.NodeProto], set[str]]:
    """The nodes that results need, and all values that are read or given back."""
    names, kept = set(results), []
    for node in reversed(nodes):
        if names & set(node.output):
            names |= reads(node)
            kept.append(node)
    return kept[::-1], names


def model_of(nodes: list[onnx.NodeProto], inputs: Any, results: Any, weights: Any) -> onnx.ModelProto:
    """A model of what the results need."""
    kept, names = needed(nodes, [v.name for v in results])
    infos = [
        [helper.make_tensor_value_info(v.name, TYPES[v.dtype], v.shape) for v in values]
        for values in ([v for v in inputs if v.name in names], results)
    ]
    graph = helper.make_graph(kept, "fuzz", *infos, [w for w in weights if w.name in names])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feeds(model: onnx.ModelProto, sizes: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    """Random inputs of a model at given sizes of its symbolic dimensions."""
    rng = np.random.default_rng(seed)
    values = {}
    for info in model.graph.input:
        ty = info.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else sizes[d.dim_param] for d in ty.shape.dim]
        if ty.elem_type == TensorProto.FLOAT:
            values[info.name] = rng.standard_normal(dims).astype(np.float32)
        else:
            low, high, dtype = (-3, 4, np.int64) if ty.elem_type == TensorProto.INT64 else (0, 2, np.bool_)
            values[info.name] = rng.integers(low, high, dims).astype(dtype)
    return values
