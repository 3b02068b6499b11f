"""Single operators at ordinary sizes, as ONNX models of one node (or the few that belong together): the table of cases.

A case is a row of `CASES`; models are made from rows. What a row says of shapes, it says of the model's inputs;
`constants` are initializers. With `symbolic` the axes in `free` of the first input have names in place of sizes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
_OPSET = 18


@dataclass(frozen=True)
class Case:
    """One operator: its family, inputs (shapes of float data, or arrays), constant operands and attributes."""

    family: str
    name: str
    op: str
    inputs: Sequence[Shape | np.ndarray]
    constants: Sequence[np.ndarray | None] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    free: Sequence[int] = (0,)
    outputs: int = 1
    dtype: str = "float32"
    opset: int = _OPSET
    domain: str = ""

    def feeds(self) -> dict[str, np.ndarray]:
        """Random inputs by name, the same in each run."""
        rng = np.random.default_rng(0)
        return {
            f"x{i}": x if isinstance(x, np.ndarray) else rng.standard_normal(x, np.float32).astype(self.dtype)
            for i, x in enumerate(self.inputs)
        }

    def model(self, symbolic: bool = False) -> onnx.ModelProto:
        """Make the model, with names for the free axes of the first input where it is `symbolic`."""
        feeds = self.feeds()
        given = [
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(x.dtype),
                [f"d{a}" if symbolic and name == "x0" and a in self.free else n for a, n in enumerate(x.shape)],
            )
            for name, x in feeds.items()
        ]
        names = [*feeds, *("" if c is None else f"c{i}" for i, c in enumerate(self.constants))]
        outs = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.op, names, outs, domain=self.domain, **self.attributes)
        weights = [numpy_helper.from_array(c, f"c{i}") for i, c in enumerate(self.constants) if c is not None]
        results = [helper.make_tensor_value_info(y, TensorProto.UNDEFINED, None) for y in outs]
        graph = helper.make_graph([node], "operator", given, results, weights)
        imports = [helper.make_opsetid(*pair) for pair in (("", self.opset), (self.domain, 1))[: 1 + bool(self.domain)]]
        model = helper.make_model(graph, opset_imports=imports, ir_version=9)
        known = onnx.shape_inference.infer_shapes(model).graph
        types = {v.name: v for v in [*known.value_info, *known.output]}
        for out in graph.output:
            out.CopyFrom(types[out.name])
            if self.domain:  # of which onnx infers nothing
                out.type.tensor_type.elem_type = given[0].type.tensor_type.elem_type
        model.graph.CopyFrom(graph)
        return model

    def multiply_adds(self, outputs: Sequence[np.ndarray]) -> int:
        """How many products the operator sums, where it is one of those that do."""
        operands = [*self.feeds().values(), *(c for c in self.constants if c is not None)]
        if self.op == "Conv":
            return outputs[0].size * math.prod(operands[1].shape[1:])
        if self.op == "ConvTranspose":
            return operands[0].size * math.prod(operands[1].shape[1:])
        if self.op in ("MatMul", "Gemm"):
            return outputs[0].size * operands[0].shape[0 if self.attributes.get("transA") else -1]
        return 0

    def bytes_moved(self, outputs: Sequence[np.ndarray]) -> int:
        """The size of all operands and results."""
        return sum(a.nbytes for a in [*self.feeds().values(), *self.constants, *outputs] if a is not None)


def case(family: str, name: str, op: str, inputs: Any, constants: Any = (), **more: Any) -> Case:
    """A case of `more` attributes, and of what a case has beside them."""
    options = {k: more.pop(k) for k in ("free", "outputs", "dtype", "opset", "domain") if k in more}
    return Case(family, name, op, inputs, constants, more, **options)


def rand(*shape: int) -> np.ndarray:
    scale = 1 / math.sqrt(max(1, math.prod(shape[1:])))
    return np.random.default_rng(1).standard_normal(shape, np.float32) * np.float32(scale)


def number(value: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _convolution(
    family: str,
    name: str,
    x: Shape,
    w: Shape,
    stride: int = 1,
    group: int = 1,
    pad: int | None = None,
    dilation: int = 1,
    op: str = "Conv",
    loaded: bool = False,
    **more: Any,
) -> Case:
    rank = len(x) - 2
    pads = [(k - 1) * dilation // 2 if pad is None else pad for k in w[2:]]
    attributes = {"strides": [stride] * rank, "group": group, "pads": pads * 2, "dilations": [dilation] * rank, **more}
    operands: dict[str, Any] = {"inputs": (x, w)} if loaded else {"inputs": (x,), "constants": (rand(*w),)}
    return Case(family, name, op, attributes=attributes, free=(0, *range(2, len(x))), **operands)


def _transposed(name: str, x: Shape, w: Shape, stride: int = 1, group: int = 1, pad: int = 0, **more: Any) -> Case:
    return _convolution("conv-transpose", name, x, w, stride, group, pad, op="ConvTranspose", **more)


def _convolutions() -> list[Case]:
    rows: list[tuple[Any, ...]] = [
        ("3x3", (1, 64, 56, 56), (64, 64, 3, 3)),
        ("3x3 stride 2", (1, 64, 56, 56), (128, 64, 3, 3), 2),
        ("1x1", (1, 256, 28, 28), (256, 256, 1, 1)),
        ("7x7 stride 2 of 3 channels", (1, 3, 224, 224), (64, 3, 7, 7), 2),
        ("5x5", (1, 32, 28, 28), (64, 32, 5, 5)),
        ("9x9 of one channel", (1, 1, 128, 128), (64, 1, 9, 9)),
        ("3x3 of one channel", (1, 1, 128, 128), (16, 1, 3, 3)),
        ("9x9 to one channel", (1, 32, 128, 128), (1, 32, 9, 9)),
        ("3x3 to 3 channels", (1, 64, 112, 112), (3, 64, 3, 3)),
        ("1x7", (1, 128, 17, 17), (128, 128, 1, 7)),
        ("7x1", (1, 128, 17, 17), (128, 128, 7, 1)),
        ("3x3 dilated by 2", (1, 64, 56, 56), (64, 64, 3, 3), 1, 1, None, 2),
        ("3x3 dilated by 12", (1, 64, 56, 56), (64, 64, 3, 3), 1, 1, None, 12),
        ("3x3 of 37 to 51 channels", (1, 37, 45, 45), (51, 37, 3, 3)),
        ("3x3, batch of 8", (8, 32, 28, 28), (32, 32, 3, 3)),
        ("16x16 stride 16", (1, 3, 224, 224), (192, 3, 16, 16), 16, 1, 0),
        ("depthwise 3x3", (1, 96, 56, 56), (96, 1, 3, 3), 1, 96),
        ("depthwise 3x3 stride 2", (1, 96, 56, 56), (96, 1, 3, 3), 2, 96),
        ("depthwise 7x7", (1, 96, 56, 56), (96, 1, 7, 7), 1, 96),
        ("depthwise 3x3 dilated by 2", (1, 96, 56, 56), (96, 1, 3, 3), 1, 96, None, 2),
        ("depthwise 3x3, multiplier 2", (1, 64, 56, 56), (128, 1, 3, 3), 1, 64),
        ("depthwise 3x3 of 13 channels", (1, 13, 56, 56), (13, 1, 3, 3), 1, 13),
        ("groups of 4", (1, 128, 56, 56), (128, 4, 3, 3), 1, 32),
        ("groups of 12", (1, 96, 28, 28), (96, 12, 3, 3), 1, 8),
        ("groups of 64", (1, 128, 28, 28), (128, 64, 3, 3), 1, 2),
        ("1x1 in 3 groups", (1, 240, 28, 28), (240, 80, 1, 1), 1, 3),
        ("groups of 1 to 4", (1, 32, 56, 56), (128, 1, 3, 3), 1, 32),
    ]
    sequences: list[tuple[Any, ...]] = [
        ("sequence 3", (1, 256, 400), (256, 256, 3)),
        ("sequence 1", (1, 256, 400), (512, 256, 1)),
        ("sequence 7 dilated by 3", (1, 128, 1000), (128, 128, 7), 1, 1, None, 3),
        ("sequence 10 stride 5", (1, 1, 16000), (512, 1, 10), 5, 1, 0),
        ("sequence depthwise 31", (1, 256, 400), (256, 1, 31), 1, 256),
        ("sequence 41 in 16 groups", (1, 256, 1000), (256, 16, 41), 4, 16),
    ]
    volumes: list[tuple[Any, ...]] = [
        ("3x3x3", (1, 16, 16, 32, 32), (32, 16, 3, 3, 3)),
        ("1x3x3", (1, 32, 16, 32, 32), (32, 32, 1, 3, 3)),
        ("3x1x1", (1, 32, 16, 32, 32), (32, 32, 3, 1, 1)),
        ("1x1x1", (1, 64, 8, 28, 28), (128, 64, 1, 1, 1)),
        ("3x3x3 stride 2", (1, 16, 16, 32, 32), (32, 16, 3, 3, 3), 2),
        ("depthwise 3x3x3", (1, 32, 16, 28, 28), (32, 1, 3, 3, 3), 1, 32),
    ]
    loaded: list[tuple[Any, ...]] = [
        ("3x3", (1, 64, 56, 56), (64, 64, 3, 3)),
        ("1x1", (1, 128, 28, 28), (256, 128, 1, 1)),
        ("depthwise 3x3", (1, 96, 56, 56), (96, 1, 3, 3), 1, 96),
        ("groups of 4", (1, 64, 28, 28), (64, 4, 3, 3), 1, 16),
        ("sequence 3", (1, 128, 400), (128, 128, 3)),
    ]
    return [
        *(_convolution("conv", *r) for r in rows),
        *(_convolution("conv-1d", *r) for r in sequences),
        *(_convolution("conv-3d", *r) for r in volumes),
        *(_convolution("conv-loaded", f"weights as input, {r[0]}", *r[1:], loaded=True) for r in loaded),
    ]


def _transposed_convolutions() -> list[Case]:
    return [
        _transposed("transposed 2x2 stride 2", (1, 64, 28, 28), (64, 32, 2, 2), 2),
        _transposed("transposed 3x3 stride 2", (1, 64, 28, 28), (64, 32, 3, 3), 2, 1, 1, output_padding=[1, 1]),
        _transposed("transposed 4x4 stride 2", (1, 128, 16, 16), (128, 64, 4, 4), 2, 1, 1),
        _transposed("transposed 4x4 of a point", (1, 100, 1, 1), (100, 512, 4, 4), 1, 1, 0),
        _transposed("transposed 4x4 stride 2 to 3 channels", (1, 64, 64, 64), (64, 3, 4, 4), 2, 1, 1),
        _transposed("transposed 3x3 stride 1", (1, 64, 28, 28), (64, 64, 3, 3), 1, 1, 1),
        _transposed("transposed 5x5 stride 3", (1, 32, 20, 20), (32, 32, 5, 5), 3, 1, 1),
        _transposed("transposed 16x16 stride 8", (1, 21, 28, 28), (21, 21, 16, 16), 8, 1, 4),
        _transposed("transposed 3x3 dilated", (1, 32, 28, 28), (32, 32, 3, 3), 1, 1, 2, dilation=2),
        _transposed("transposed 4x4 stride 2 in groups", (1, 64, 28, 28), (64, 8, 4, 4), 2, 8, 1),
        _transposed("transposed 4x4 stride 2, depthwise", (1, 64, 28, 28), (64, 1, 4, 4), 2, 64, 1),
        _transposed("transposed sequence 4 stride 2", (1, 128, 400), (128, 64, 4), 2, 1, 1),
        _transposed("transposed sequence 16 stride 8", (1, 128, 400), (128, 64, 16), 8, 1, 4),
        _transposed("transposed volume 2x2x2 stride 2", (1, 32, 8, 14, 14), (32, 16, 2, 2, 2), 2),
        _transposed("transposed volume 4x4x4 stride 2", (1, 16, 8, 8, 8), (16, 16, 4, 4, 4), 2, 1, 1),
        _transposed("transposed, weights as input", (1, 64, 28, 28), (64, 32, 4, 4), 2, 1, 1, loaded=True),
    ]


def _pool(name: str, op: str, x: Shape, k: int, stride: int = 1, pad: int = 0, **more: Any) -> Case:
    rank = len(x) - 2
    attributes = {"kernel_shape": [k] * rank, "strides": [stride] * rank, "pads": [pad] * 2 * rank, **more}
    return Case("pool", name, op, (x,), attributes=attributes, free=(0, *range(2, len(x))))


def _pools() -> list[Case]:
    x = (1, 64, 56, 56)
    pool = partial(case, "pool")
    return [
        _pool("max 2x2", "MaxPool", x, 2, 2),
        _pool("max 3x3 stride 2", "MaxPool", x, 3, 2, 1),
        _pool("max 3x3 stride 1", "MaxPool", x, 3, 1, 1),
        _pool("max 5x5 stride 1", "MaxPool", x, 5, 1, 2),
        _pool("max 13x13 stride 1", "MaxPool", (1, 64, 40, 40), 13, 1, 6),
        _pool("max 31x31 stride 1", "MaxPool", (1, 8, 96, 96), 31, 1, 15),
        _pool("mean 2x2", "AveragePool", x, 2, 2),
        _pool("mean 3x3", "AveragePool", x, 3, 1, 1),
        _pool("mean 3x3 with padding", "AveragePool", x, 3, 1, 1, count_include_pad=1),
        _pool("mean 7x7", "AveragePool", (1, 512, 7, 7), 7),
        _pool("mean 15x15 stride 1", "AveragePool", (1, 32, 64, 64), 15, 1, 7),
        _pool("max of sequences 4", "MaxPool", (1, 64, 4000), 4, 4),
        _pool("mean of sequences 25", "AveragePool", (1, 64, 2000), 25, 1, 12),
        _pool("max of volumes 2", "MaxPool", (1, 32, 16, 28, 28), 2, 2),
        _pool("mean of volumes 3", "AveragePool", (1, 16, 16, 28, 28), 3, 1, 1),
        pool("global mean", "GlobalAveragePool", ((1, 512, 14, 14),), free=(0, 2, 3)),
        pool("global max", "GlobalMaxPool", ((1, 512, 14, 14),), free=(0, 2, 3)),
        pool("L2 3x3", "LpPool", (x,), kernel_shape=[3, 3], free=(0, 2, 3)),
        pool("max 2x2 with indices", "MaxPool", (x,), kernel_shape=[2, 2], strides=[2, 2], outputs=2, free=(0, 2, 3)),
    ]


def _selections() -> list[Case]:
    scores = (1, 100000)

    def topk(name: str, x: Shape, k: int, **more: Any) -> Case:
        return Case("select", name, "TopK", (x,), (ints(k),), more, outputs=2)

    rng = np.random.default_rng(2)
    corners = rng.random((1, 2000, 2), np.float32) * 300
    boxes = np.concatenate([corners, corners + 10 + rng.random((1, 2000, 2), np.float32) * 60], 2).astype(np.float32)
    select = partial(case, "select")
    return [
        topk("5 of 1000", (8, 1000), 5),
        topk("100 of 1000", (8, 1000), 100),
        topk("10 of 100000", scores, 10),
        topk("100 of 100000", scores, 100),
        topk("1000 of 100000", scores, 1000),
        topk("50 of 50257", (1, 50257), 50),
        topk("300 of 8400", (1, 8400), 300),
        topk("2 of 8 experts", (1024, 8), 2),
        topk("all of 1000", (8, 1000), 1000),
        topk("10 least of 10000", (4, 10000), 10, largest=0),
        topk("10 of 1000, inner axis", (1, 1000, 64), 10, axis=1),
        select("argmax of 1000", "ArgMax", ((64, 1000),), axis=1),
        select("argmax of 50257", "ArgMax", ((1, 50257),), axis=1),
        select("argmax over 21 channels", "ArgMax", ((1, 21, 128, 128),), axis=1),
        select("argmin over an inner axis", "ArgMin", ((8, 100, 256),), axis=1),
        select("non-zero", "NonZero", ((rng.random((256, 256)) > 0.9).astype(np.float32),)),
        select(
            "non-maximum suppression of 2000 boxes",
            "NonMaxSuppression",
            (boxes, rng.random((1, 1, 2000), np.float32)),
            (ints(200), np.float32([0.5]), np.float32([0.1])),
            free=(),
        ),
        select("compress", "Compress", ((1000, 64),), (np.arange(1000) % 3 == 0,), axis=0),
    ]


def _reductions() -> list[Case]:
    x = (16, 128, 768)

    def reduce(name: str, op: str, shape: Shape, *axes: int, keepdims: int = 0) -> Case:
        return Case("reduce", name, op, (shape,), (ints(*axes),) if axes else (), {"keepdims": keepdims})

    def norm(name: str, op: str, shape: Shape, *constants: np.ndarray, **more: Any) -> Case:
        return Case("norm", name, op, (shape,), constants, more)

    return [
        reduce("sum over rows", "ReduceSum", x, 2),
        reduce("sum over columns", "ReduceSum", x, 1),
        reduce("sum over the first axis", "ReduceSum", x, 0),
        reduce("sum of everything", "ReduceSum", (1024, 1024)),
        reduce("maximum of everything", "ReduceMax", (1024, 1024)),
        reduce("mean of everything", "ReduceMean", (1024, 1024)),
        reduce("mean over outer axes", "ReduceMean", (32, 64, 28, 28), 0, 2, 3),
        reduce("mean over images", "ReduceMean", (1, 256, 28, 28), 2, 3, keepdims=1),
        reduce("L2 over rows", "ReduceL2", x, 2),
        reduce("log-sum-exp over rows", "ReduceLogSumExp", (1024, 1000), 1),
        reduce("product over rows", "ReduceProd", (1024, 64), 1),
        reduce("minimum over columns", "ReduceMin", (1024, 1000), 0),
        norm("softmax of 1000", "Softmax", (64, 1000), axis=-1),
        norm("softmax of attention", "Softmax", (12, 128, 128), axis=-1),
        norm("softmax over channels", "Softmax", (1, 21, 128, 128), axis=1),
        norm("log-softmax of 1000", "LogSoftmax", (64, 1000), axis=-1),
        norm("log-softmax of 29", "LogSoftmax", (400, 29), axis=-1),
        norm("log-softmax over channels", "LogSoftmax", (1, 21, 128, 128), axis=1),
        norm("layer norm", "LayerNormalization", (128, 768), rand(768), rand(768)),
        norm("instance norm", "InstanceNormalization", (1, 64, 56, 56), rand(64), rand(64)),
        norm("group norm", "GroupNormalization", (1, 64, 56, 56), rand(8), rand(8), num_groups=8),
        norm("batch norm", "BatchNormalization", (1, 64, 56, 56), rand(64), rand(64), rand(64), abs(rand(64))),
        norm("local response norm", "LRN", (1, 64, 28, 28), size=5),
        norm("L2 normalization", "LpNormalization", (128, 768), axis=-1, p=2),
        norm("mean and variance", "MeanVarianceNormalization", (4, 64, 28, 28), axes=[0, 2, 3]),
        Case("scan", "running sum of rows", "CumSum", ((64, 1000),), (np.array(1, np.int64),)),
        Case("scan", "running sum of columns", "CumSum", ((1000, 64),), (np.array(0, np.int64),)),
    ]


def _moves() -> list[Case]:
    x, rng = (1, 64, 56, 56), np.random.default_rng(3)
    rows = rng.integers(0, 30000, (8, 128))
    wide = (1, 256, 28, 28)

    def pad(name: str, mode: str, shape: Shape, *pads: int) -> Case:
        return Case("move", name, "Pad", (shape,), (ints(*pads),), {"mode": mode}, free=(0, 2, 3))

    edge = (0, 0, 3, 3, 0, 0, 3, 3)
    move, gather = partial(case, "move"), partial(case, "gather")
    return [
        pad("pad with a constant", "constant", x, *edge),
        pad("pad by reflection", "reflect", x, *edge),
        pad("pad by the edge", "edge", x, *edge),
        pad("pad one sequence by reflection", "reflect", (1, 1, 48000), 0, 0, 512, 0, 0, 512),
        move("tile rows", "Tile", ((1, 64, 256),), (ints(1, 1, 8),)),
        move("tile outer axes", "Tile", ((1, 64, 256),), (ints(8, 4, 1),)),
        move("tile both", "Tile", ((32, 100),), (ints(8, 8),)),
        move("expand rows", "Expand", ((64, 1, 256),), (ints(64, 56, 256),)),
        move("expand columns", "Expand", ((1024, 1),), (ints(1024, 512),)),
        move("split in 3 by rows", "Split", ((16, 128, 768),), axis=2, num_outputs=3, outputs=3),
        move("split in 4 by channels", "Split", (wide,), axis=1, num_outputs=4, outputs=4),
        move("concatenate channels", "Concat", (wide, wide), axis=1),
        move("concatenate rows", "Concat", ((1024, 256), (1024, 256)), axis=1, free=()),
        move("transpose a matrix", "Transpose", ((1024, 1024),), perm=[1, 0], free=(0, 1)),
        move("channels last", "Transpose", (x,), perm=[0, 2, 3, 1], free=(0, 2, 3)),
        move("transpose heads", "Transpose", ((8, 128, 12, 64),), perm=[0, 2, 1, 3], free=(0, 1)),
        move("slice rows", "Slice", ((1024, 1024),), (ints(0, 128), ints(1024, 896), ints(0, 1)), free=()),
        move("slice every other", "Slice", ((1024, 1024),), (ints(0), ints(1024), ints(1), ints(2)), free=()),
        move("slice backwards", "Slice", ((1024, 1024),), (ints(-1), ints(-2000), ints(1), ints(-1)), free=()),
        move("depth to space", "DepthToSpace", (wide,), blocksize=2, free=(0, 2, 3)),
        move("space to depth", "SpaceToDepth", (x,), blocksize=2, free=(0,)),
        move("lower triangle", "Trilu", ((512, 512),), upper=0),
        move("upper triangle", "Trilu", ((8, 256, 256),), upper=1),
        move(
            "reverse sequences",
            "ReverseSequence",
            ((128, 32, 64),),
            (ints(*[128] * 16, *[70] * 16),),
            time_axis=0,
            batch_axis=1,
            free=(),
        ),
        gather("rows of an input", "Gather", ((30000, 64), rows)),
        gather("columns", "Gather", ((256, 1000), rng.integers(0, 1000, 200)), axis=1),
        gather("elements", "GatherElements", ((256, 1000), rng.integers(0, 1000, (256, 200))), axis=1, free=()),
        gather("points", "GatherND", ((64, 64, 32), rng.integers(0, 64, (5000, 2)))),
        gather(
            "scatter elements",
            "ScatterElements",
            ((256, 1000), rng.integers(0, 1000, (256, 200)), (256, 200)),
            axis=1,
            free=(),
        ),
        gather("scatter points", "ScatterND", ((64, 64, 32), rng.integers(0, 64, (500, 2)), (500, 32))),
        gather("one-hot", "OneHot", (rng.integers(0, 100, (64, 128)),), (ints(100), np.float32([0, 1])), axis=-1),
        gather("where", "Where", (rng.random((512, 512)) > 0.5, (512, 512), (512, 512)), free=()),
    ]


def _images() -> list[Case]:
    x, rng = (1, 32, 56, 56), np.random.default_rng(4)

    def resize(name: str, mode: str, shape: Shape, scale: float, **more: Any) -> Case:
        scales = np.array([1, 1] + [scale] * (len(shape) - 2), np.float32)
        return Case("image", name, "Resize", (shape,), (None, scales), {"mode": mode, **more}, free=(0, 2, 3))

    grid = (rng.random((1, 64, 64, 2), np.float32) * 2 - 1).astype(np.float32)
    ordered = np.stack(np.meshgrid(np.linspace(-1, 1, 64), np.linspace(-1, 1, 64)), -1)[None].astype(np.float32)
    nearest = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    image = partial(case, "image")
    return [
        resize("nearest by 2", "nearest", x, 2.0, **nearest),
        resize("nearest by 1.5", "nearest", x, 1.5),
        resize("nearest by half", "nearest", x, 0.5, **nearest),
        resize("linear by 2", "linear", x, 2.0),
        resize("linear by 2, corners aligned", "linear", x, 2.0, coordinate_transformation_mode="align_corners"),
        resize("linear by half", "linear", x, 0.5),
        resize("linear by 1.7 of 3 channels", "linear", (1, 3, 224, 224), 1.7),
        resize("linear of sequences by 2", "linear", (1, 64, 400), 2.0),
        resize("cubic by 2", "cubic", x, 2.0),
        resize("cubic by half", "cubic", x, 0.5),
        image(
            "linear by scales as input",
            "Resize",
            (x, np.empty(0, np.float32), np.float32([1, 1, 2, 2])),
            mode="linear",
            free=(),
        ),
        image("sample a random grid", "GridSample", (x, grid), mode="bilinear"),
        image("sample an even grid", "GridSample", (x, ordered), mode="bilinear"),
        image("sample the nearest", "GridSample", (x, grid), mode="nearest"),
        image(
            "regions",
            "RoiAlign",
            (x, (rng.random((50, 2)) * 20).astype(np.float32).repeat(2, 0).reshape(50, 4) + np.float32([0, 0, 20, 20])),
            (np.zeros(50, np.int64),),
            output_height=7,
            output_width=7,
            sampling_ratio=2,
        ),
    ]


def _products() -> list[Case]:
    def lstm(op: str, gates: int, batch: int, steps: int = 50, size: int = 256) -> Case:
        weights = (rand(1, gates * size, 128) * 16, rand(1, gates * size, size) * 16)
        return case("recurrent", f"{op}, batch of {batch}", op, ((steps, batch, 128),), weights, hidden_size=size)

    matmul = partial(case, "matmul")
    return [
        matmul("128x768x768", "MatMul", ((128, 768),), (rand(768, 768),)),
        matmul("vector times matrix", "MatMul", ((1, 1024),), (rand(1024, 1024),)),
        matmul("batch of 12", "MatMul", ((12, 128, 64), (12, 64, 128)), free=()),
        matmul("batch of rows", "MatMul", ((12, 1, 64), (12, 64, 128)), free=()),
        matmul("both as input", "MatMul", ((256, 256), (256, 256)), free=()),
        matmul("matrix times vector", "MatMul", ((1024, 1024), (1024,)), free=()),
        matmul("transposed operands", "Gemm", ((256, 128), (300, 256)), transA=1, transB=1, free=()),
        matmul("thin 2000x3x3", "MatMul", ((2000, 3), (3, 3)), free=()),
        matmul("products of pairs", "Einsum", ((8, 64, 96), (8, 96, 64)), equation="bij,bjk->bik", free=()),
        lstm("LSTM", 4, 1),
        lstm("LSTM", 4, 8),
        lstm("GRU", 3, 1),
        lstm("GRU", 3, 8),
        lstm("RNN", 1, 8),
    ]


def _elementwise() -> list[Case]:
    x = (64, 56, 256)
    unary = (
        "Relu Sigmoid Tanh Erf Exp Log Sqrt Sin Softplus HardSwish Elu Floor Round Neg Abs Sign Reciprocal Mish "
        "Atan IsNaN Not"
    ).split()
    flags = np.random.default_rng(5).random(x) > 0.5
    column, row = (64, 56, 1), (256,)
    elementwise, half = partial(case, "elementwise"), partial(case, "half")
    return [
        *(elementwise(op, op, (flags if op == "Not" else x,), free=(0, 1)) for op in unary),
        elementwise("Clip", "Clip", (x,), (number(-1), number(1)), free=(0, 1)),
        elementwise("add", "Add", (x, x), free=()),
        elementwise("add a row", "Add", (x, row), free=()),
        elementwise("multiply by a column", "Mul", (x, column), free=()),
        elementwise("outer product", "Mul", ((1024, 1), (1, 512)), free=()),
        elementwise("power", "Pow", (x,), (number(3),), free=(0, 1)),
        elementwise("power of halves", "Pow", ((64, 256),), (number(2.5),), free=(0, 1)),
        elementwise("divide integers", "Div", (np.arange(1 << 18) * 7, np.arange(1 << 18) % 97 + 1), free=()),
        elementwise("remainder", "Mod", (np.arange(1 << 18), np.arange(1 << 18) % 97 + 1), free=()),
        elementwise("less", "Less", (x, x), free=()),
        elementwise("to integers", "Cast", (x,), to=TensorProto.INT32, free=(0, 1)),
        elementwise("to half", "Cast", (x,), to=TensorProto.FLOAT16, free=(0, 1)),
        elementwise("to bytes and scale", "QuantizeLinear", (x,), (number(0.1), number(128, np.uint8))),
        elementwise("PRelu", "PRelu", ((1, 64, 56, 56),), (rand(64, 1, 1),)),
        half("add of halves", "Add", (x, x), free=(), dtype="float16"),
        half("sigmoid of halves", "Sigmoid", (x,), free=(0, 1), dtype="float16"),
        half("from half", "Cast", (x,), to=TensorProto.FLOAT, free=(0, 1), dtype="float16"),
        half("softmax of halves", "Softmax", ((64, 1000),), dtype="float16"),
        half("product of halves", "MatMul", ((128, 256),), (rand(256, 256).astype(np.float16),), dtype="float16"),
        half(
            "convolution of halves",
            "Conv",
            ((1, 32, 28, 28),),
            (rand(32, 32, 3, 3).astype(np.float16),),
            pads=[1, 1, 1, 1],
            dtype="float16",
        ),
        half("mean of halves", "ReduceMean", ((256, 1024),), (ints(1),), keepdims=0, dtype="float16"),
        half("transpose of halves", "Transpose", ((512, 512),), perm=[1, 0], dtype="float16"),
    ]


CASES: tuple[Case, ...] = (
    *_convolutions(),
    *_transposed_convolutions(),
    *_pools(),
    *_selections(),
    *_reductions(),
    *_moves(),
    *_images(),
    *_products(),
    *_elementwise(),
)
