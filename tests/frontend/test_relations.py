"""Models of one node with a name for every dimension: inputs that contradict one another, or ONNX, are refused.

Each case has inputs that fit, whose answer is ONNX Runtime's, and changes to them with the error that they get.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import helper

import weft
from tests.frontend.models import compare, model_of, oracle
from tests.op.test_relations import INDEX, SHAPE, VALUE, checked, f, i
from tests.refusals import refuses
from weft import relax
from weft.frontend.onnx import from_onnx
from weft.relax.interpreter import evaluate


def u(*shape: int) -> np.ndarray:
    """Quantized numbers of a shape."""
    return f(*shape, dtype="uint8")


def n(value: Any, dtype: str = "int64") -> np.ndarray:
    """A scalar."""
    return np.array(value, dtype)


class Case(NamedTuple):
    """A node, inputs that fit, and changes to them: an input's number and another array, with the error's class."""

    op: str
    inputs: tuple[Any, ...]
    wrong: tuple[tuple[Any, ...], ...]
    attrs: dict[str, Any] = {}
    weights: tuple[int, ...] = ()
    named: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()
    outputs: int = 1
    opset: int = 18
    domain: str = ""
    exact: bool = True


MEMORY = (weft.error.OutOfMemory, VALUE)  # which is found first is not promised
FAR, LEAST = 2**62, -(2**63)

CASES: tuple[Case, ...] = (
    # --- element-wise ---
    Case("BitShift", (u(3), u(1)), ((1, u(2), SHAPE),), {"direction": "LEFT"}),
    Case("Pow", (f(3, dtype="int32"), f(1)), ((1, f(2), SHAPE),)),
    Case("Where", (f(2, 1) > 1, f(2, 3), f(3)), ((2, f(2), SHAPE), (0, f(3, 1) > 1, SHAPE))),
    Case("PRelu", (f(2, 3), f(3)), ((1, f(2), SHAPE),)),
    Case("Clip", (f(3), f(), f()), ()),
    Case("Max", (f(2, 3), f(3), f(1, 1)), ((1, f(2), SHAPE), (2, f(3, 1), SHAPE))),
    # --- reductions ---
    *(
        Case(op, (f(2, 3), i(1)), ((1, i(2), VALUE), (1, i(-3), VALUE), (1, i(2**31), VALUE)))
        for op in ("ReduceSum", "ReduceMax", "ReduceLogSumExp")
    ),
    Case("ReduceSum", (f(2, 3), i(1, 0)), ((1, i(1, 1), VALUE), (1, i(-1, 1), VALUE)), {"keepdims": 0}),
    Case("ArgMax", (f(2, 3),), ((0, f(2, 0), SHAPE),), {"axis": 1}),
    # --- shapes ---
    Case("Squeeze", (f(2, 1), i(1)), ((1, i(0), SHAPE), (1, i(2), VALUE), (1, i(-3), VALUE))),
    Case("Unsqueeze", (f(2, 3), i(1)), ((1, i(3), VALUE), (1, i(-4), VALUE))),
    Case("Unsqueeze", (f(2, 3), i(1, 0)), ((1, i(1, 1), VALUE), (1, i(-3, 1), VALUE))),
    Case(
        "Reshape",
        (f(2, 3), i(3, -1)),
        (
            (1, i(-1, -1), VALUE),
            (1, i(4, -1), SHAPE),
            (1, i(-2, 3), VALUE),
            (1, i(2, 2), SHAPE),
            (1, i(FAR, 4), VALUE),
            (1, i(LEAST, -1), VALUE),
        ),
    ),
    Case("Reshape", (f(0, 3), i(0, 3)), ((1, i(-1, 0), VALUE),), {"allowzero": 1}),
    Case("Expand", (f(2, 1), i(2, 3)), ((1, i(3, 3), SHAPE), (1, i(-1, 3), VALUE))),
    Case("Tile", (f(2, 3), i(2, 1)), ((1, i(-1, 1), VALUE), (1, i(1, LEAST), VALUE))),
    Case("ConstantOfShape", (i(2, 3),), ((0, i(-2, 3), VALUE), (0, i(LEAST, 3), VALUE))),
    Case(
        "Split", (f(5, 2), i(2, 3)), ((1, i(2, 2), SHAPE), (1, i(-1, 6), VALUE), (1, i(FAR, 5 - FAR), VALUE)), outputs=2
    ),
    Case("Split", (f(4, 2),), ((0, f(5, 2), SHAPE),), outputs=2, opset=13),
    Case("Split", (f(6, 2), i(2, 4)), ((0, f(0, 2), SHAPE), (0, f(5, 2), SHAPE)), weights=(1,), outputs=2),
    Case("Slice", (f(5, 4), i(1), i(3), i(0)), ((3, i(2), VALUE), (3, i(-3), VALUE))),
    Case("Slice", (f(5, 4), i(1, 0), i(3, 4), i(0, 1)), ((3, i(1, -1), VALUE),)),
    Case("Slice", (f(5, 4), i(4), i(0), i(0), i(-2)), ((4, i(0), VALUE),)),
    Case(
        "Pad",
        (f(2, 3), i(1, 0, -1, 2)),
        ((1, i(-3, 0, 0, 0), SHAPE), (1, i(0, -2, 0, -2), SHAPE), (1, i(FAR, FAR, FAR, FAR), VALUE)),
    ),
    Case("Pad", (f(2, 3), i(1, 1), f(), i(1)), ((3, i(2), VALUE), (3, i(-3), VALUE))),
    Case("Pad", (f(2, 3), i(1, 0, 1, 0)), ((0, f(0, 3), SHAPE),), {"mode": "edge"}),
    Case(
        "Pad", (f(2, 3), i(1, 0, 1, 0)), ((0, f(0, 3), SHAPE), (1, i(FAR, 0, 0, 0), MEMORY)), {"mode": "wrap"}, opset=19
    ),
    Case("Concat", (f(2, 3), f(1, 3)), ((1, f(1, 2), SHAPE),), {"axis": 0}),
    Case("DepthToSpace", (f(1, 4, 2, 2),), ((0, f(1, 3, 2, 2), SHAPE),), {"blocksize": 2}),
    Case("SpaceToDepth", (f(1, 1, 2, 4),), ((0, f(1, 1, 3, 4), SHAPE),), {"blocksize": 2}),
    # --- made and counted ---
    Case(
        "Range", (n(1), n(7), n(2)), ((2, n(0), VALUE), (0, n(LEAST), VALUE), (2, n(LEAST), VALUE), (1, n(FAR), MEMORY))
    ),
    Case(
        "Range",
        (f(), n(7.0, "float32"), n(2.0, "float32")),
        tuple((2, n(v, "float32"), VALUE) for v in (0, np.nan, 1e-30)),
    ),
    Case("OneHot", (i(0, 2), n(3), f(2)), ((1, n(0), VALUE), (1, n(-2), VALUE), (2, f(3), SHAPE)), named=(2,)),
    Case("Compress", (f(3, 2), i(1, 0, 1) > 0), (), {"axis": 0}),
    Case("Compress", (f(3, 2), i(1, 0, 0, 1) > 0), (), {"axis": 0}),
    Case("TopK", (f(5), i(2)), ((1, i(6), VALUE), (1, i(-1), VALUE), (1, i(LEAST), VALUE)), outputs=2),
    Case("CumSum", (f(2, 3), n(1, "int32")), ((1, n(2, "int32"), VALUE), (1, n(-3, "int32"), VALUE))),
    Case("Trilu", (f(3, 4), n(1)), ()),
    # --- indices ---
    Case("Gather", (f(3, 2), i(0, -3)), ((1, i(3, 0), INDEX), (1, i(-4, 0), INDEX), (0, f(0, 2), INDEX))),
    Case(
        "GatherElements",
        (f(3, 2), i([0, -1])),
        ((1, i([0, 3]), INDEX), (1, i([0, -4]), INDEX), (1, i([0, 0, 0]), SHAPE)),
    ),
    Case("GatherND", (f(3, 2), i(0, -1)), ((1, i(3, 0), INDEX), (1, i(0, -3), INDEX))),
    Case(
        "GatherND",
        (f(2, 3), i([0], [-3])),
        ((1, i([3], [0]), INDEX), (0, f(3, 3), SHAPE)),
        {"batch_dims": 1},
        fixed=(1,),
    ),
    Case(
        "ScatterElements",
        (f(3, 2), i([0, -3]), f(1, 2)),
        ((1, i([0, 3]), INDEX), (2, f(1, 1), SHAPE), (0, f(3, 1), SHAPE), (1, i([0, -4]), INDEX)),
    ),
    Case(
        "ScatterND",
        (f(3, 2), i([0], [-3]), f(2, 2)),
        ((1, i([3], [0]), INDEX), (1, i([-4], [0]), INDEX), (2, f(2, 1), SHAPE)),
        fixed=(1,),
    ),
    Case(
        "ReverseSequence", (f(3, 2), i(3, 1)), ((1, i(4, 1), INDEX), (1, i(1), SHAPE), (1, i(-1, 1), INDEX)), named=(1,)
    ),
    # --- products ---
    Case("MatMul", (f(2, 3), f(3, 2)), ((1, f(2, 2), SHAPE),)),
    Case("Gemm", (f(2, 3), f(3, 4), f(4)), ((1, f(2, 4), SHAPE), (2, f(3), SHAPE))),
    Case("Gemm", (f(2, 3), f(3, 4), f(2, 1)), ((0, f(1, 3), SHAPE), (2, f(3, 1), SHAPE), (2, f(2, 3), SHAPE))),
    Case("Einsum", (f(2, 3), f(3, 4)), ((1, f(2, 4), SHAPE),), {"equation": "ij,jk->ik"}),
    Case(
        "Conv",
        (f(1, 2, 4, 4), f(3, 2, 3, 3), f(3)),
        ((0, f(1, 3, 4, 4), SHAPE), (2, f(2), SHAPE), (2, f(1), SHAPE)),
        weights=(1,),
    ),
    Case(
        "Conv",
        (f(1, 2, 4), f(4, 1, 2), f(4)),
        ((0, f(1, 4, 4), SHAPE), (1, f(3, 1, 2), SHAPE), (1, f(4, 1, 3), SHAPE)),
        {"group": 2, "kernel_shape": [2]},
    ),
    Case(
        "ConvTranspose",
        (f(1, 2, 4), f(2, 3, 3), f(3)),
        ((0, f(1, 1, 4), SHAPE), (2, f(2), SHAPE)),
        {"auto_pad": "SAME_UPPER", "strides": [2]},
        weights=(1,),
    ),
    Case(
        "ConvTranspose", (f(1, 2, 4), f(2, 3, 3)), ((0, f(1, 2, 0), VALUE),), {"auto_pad": "SAME_UPPER"}, weights=(1,)
    ),
    Case(
        "ConvTranspose",
        (f(1, 2, 4), f(2, 3, 3)),
        ((0, f(1, 1, 4), SHAPE), (0, f(1, 2, 3), VALUE)),
        {"output_shape": [9], "strides": [2]},
        weights=(1,),
    ),
    # --- normalization ---
    Case("BatchNormalization", (f(2, 3, 2), f(3), f(3), f(3), f(3)), ((1, f(2), SHAPE), (4, f(1), SHAPE))),
    Case(
        "BatchNormalization",
        (f(2, 3, 2), f(3), f(3), f(3), f(3)),
        tuple((k, f(1), SHAPE) for k in (1, 2, 3, 4)),
        {"training_mode": 1},
        outputs=3,
    ),
    Case(
        "BatchNormalization",
        (f(2, 3, 2), f(3, 2), f(3, 2), f(3, 2), f(3, 2)),
        ((1, f(3, 1), SHAPE),),
        {"spatial": 0},
        opset=7,
        exact=False,
    ),
    Case("LayerNormalization", (f(2, 3), f(3), f(3)), ((1, f(2), SHAPE), (2, f(2), SHAPE))),
    Case("LayerNormalization", (f(2, 3, 4), f(3, 4), f(1, 4)), ((1, f(2, 4), SHAPE), (2, f(3, 3), SHAPE)), {"axis": 1}),
    Case("InstanceNormalization", (f(2, 3, 4), f(3), f(3)), ((1, f(2), SHAPE), (2, f(1), SHAPE))),
    Case(
        "GroupNormalization",
        (f(2, 4, 3), f(4), f(4)),
        ((1, f(2), SHAPE), (0, f(2, 3, 3), SHAPE)),
        {"num_groups": 2},
        opset=21,
    ),
    # --- pools ---
    Case("GlobalMaxPool", (f(1, 2, 3),), ((0, f(1, 2, 0), VALUE),)),
    Case("GlobalAveragePool", (f(1, 2, 3),), ((0, f(1, 2, 0), VALUE),)),
    Case("MaxPool", (f(1, 1, 4),), ((0, f(1, 1, 0), SHAPE),), {"kernel_shape": [2]}),
    Case("AveragePool", (f(1, 1, 4),), ((0, f(1, 1, 1), SHAPE),), {"kernel_shape": [3], "ceil_mode": 1}),
    # --- losses ---
    *(
        Case(
            f"{loss}Loss",
            (f(2, 3), i(0, 2), f(3)),
            ((1, i(0, 3), INDEX), (1, i(0), SHAPE), (2, f(2), SHAPE), (1, i(-1, 0), INDEX)),
            {"reduction": "mean"},
            named=(1,),
        )
        for loss in ("NegativeLogLikelihood", "SoftmaxCrossEntropy")
    ),
    Case("NegativeLogLikelihoodLoss", (f(2, 3), i(0, -1)), ((1, i(0, -2), INDEX),), {"ignore_index": -1}, named=(1,)),
    # --- quantization ---
    Case("QuantizeLinear", (f(2, 3), f(3), u(3)), ((1, f(2), SHAPE), (2, u(2), SHAPE))),
    Case("DequantizeLinear", (u(2, 3), f(3), u(3)), ((1, f(2), SHAPE), (2, u(2), SHAPE))),
    Case("DequantizeLinear", (f(2, 3, dtype="int32"), f(), n(0, "int32")), ()),
    Case(
        "QuantizeLinear",
        (f(2, 4), f(2, 2), u(2, 2)),
        ((1, f(2, 1), SHAPE), (2, u(2, 1), SHAPE), (0, f(1, 4), SHAPE), (0, f(2, 6), SHAPE)),
        {"block_size": 2},
        opset=21,
    ),
    Case("MatMulInteger", (u(2, 3), u(3, 2), u(1), u(2)), ((2, u(3), SHAPE), (3, u(3), SHAPE))),
    Case(
        "QLinearMatMul",
        (u(2, 3), f(), n(0, "uint8"), u(3, 2), f(2), u(2), f(), n(1, "uint8")),
        ((4, f(1), SHAPE), (5, u(3), SHAPE), (3, u(2, 2), SHAPE)),
    ),
    Case(
        "QLinearConv",
        (u(1, 2, 3), f(), n(1, "uint8"), u(2, 2, 2), f(2), u(2), f(), n(0, "uint8"), f(2, dtype="int32")),
        ((4, f(1), SHAPE), (5, u(1), SHAPE), (8, f(1, dtype="int32"), SHAPE)),
        {"kernel_shape": [2]},
        named=(8,),
    ),
    Case(
        "LinearAttention",
        (f(2, 3, 8), f(2, 3, 4), f(2, 3, 6)),
        ((0, f(2, 3, 6), SHAPE), (1, f(2, 3, 6), SHAPE), (2, f(2, 3, 5), SHAPE), (2, f(1, 3, 6), SHAPE)),
        {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "linear"},
        outputs=2,
        opset=27,
    ),
    # --- recurrent ---
    Case(
        "LSTM",
        (f(3, 2, 2), f(1, 12, 2), f(1, 12, 3), f(1, 24), i(3, 2, dtype="int32"), f(1, 2, 3), f(1, 2, 3), f(1, 9)),
        (
            (4, i(4, 2, dtype="int32"), INDEX),
            (4, i(2, dtype="int32"), SHAPE),
            (5, f(1, 1, 3), SHAPE),
            (6, f(1, 2, 2), SHAPE),
        ),
        {"hidden_size": 3},
        weights=(2,),
        named=(4,),
        fixed=(1, 3, 7),
        outputs=3,
    ),
    Case(
        "GRU",
        (f(3, 2, 2), f(1, 9, 2), f(1, 9, 3), f(1, 18)),
        ((0, f(3, 2, 3), SHAPE),),
        {"hidden_size": 3},
        weights=(2,),
        fixed=(1, 3),
        outputs=2,
    ),
    # --- images ---
    Case(
        "GridSample",
        (f(1, 1, 3, 3), f(1, 2, 2, 2) / 7),
        ((1, f(2, 2, 2, 2), SHAPE), (1, f(1, 2, 2, 3), SHAPE)),
        {"mode": "bilinear"},
        opset=16,
    ),
    Case("Resize", (f(1, 1, 2, 2), None, None, i(1, 1, 4, 3)), ((3, i(1, 1, 0, 3), VALUE), (3, i(1, 1, -1, 3), VALUE))),
    Case(
        "Resize",
        (f(1, 1, 2, 2), None, np.float32([1, 1, 2, 2])),
        tuple((2, np.float32([1, 1, v, 2]), VALUE) for v in (0, -1, np.nan, np.inf, 1e30)),
        fixed=(2,),
    ),
    Case(
        "NonMaxSuppression",
        (f(1, 2, 4), f(1, 1, 2), i(1), f(1), f(1)),
        ((1, f(1, 1, 3), SHAPE), (1, f(2, 1, 2), SHAPE), (0, f(1, 2, 3), SHAPE), (2, i(1, 1), SHAPE), (3, f(2), SHAPE)),
        named=(2,),
    ),
)


def fed(case: Case) -> dict[str, np.ndarray]:
    """What the case's model is given."""
    return {f"x{k}": x for k, x in enumerate(case.inputs) if x is not None and k not in case.weights}


def build(case: Case) -> onnx.ModelProto:
    """The case's model."""
    names = [f"x{k}" if x is not None else "" for k, x in enumerate(case.inputs)]
    node = helper.make_node(case.op, names, [f"y{k}" for k in range(case.outputs)], domain=case.domain, **case.attrs)
    data = fed(case)
    dims = {
        name: [f"{name}_{a}" for a in range(x.ndim)]
        for name, x in data.items()
        if int(name[1:]) not in case.fixed
        and (x.dtype.kind in "fb" or x.ndim > 1 or x.dtype == np.uint8 or int(name[1:]) in case.named)
    }
    return model_of(
        [node],
        data,
        [f"y{k}" for k in range(case.outputs)],
        case.opset,
        {names[k]: case.inputs[k] for k in case.weights},
        dims,
    )


def runner(model: onnx.ModelProto, compiled: bool) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
    """What answers feeds: a session, or the interpreter of a program whose relations are checked."""
    if compiled:
        session = weft.Session(model)
        return lambda feeds: [y.numpy() for y in session.run(feeds)]
    mod = checked(relax.transform.normalize()(from_onnx(model)))
    return lambda feeds: evaluate(mod, *feeds.values())


def hostile(feeds: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """Feeds in which one of few integers is another: sizes, axes, indices, counts."""
    for name, x in feeds.items():
        if x.dtype.kind == "i" and x.size < 9:
            for at, number in itertools.product(range(x.size), (-1, 0, 7, 2**40, FAR, LEAST)):
                wrong = x.copy()
                wrong.flat[at] = np.int64(number).astype(x.dtype)
                yield {**feeds, name: wrong}


@pytest.mark.share(32, "case")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda v: v.op)
def test_relations(case: Case, compiled: bool) -> None:
    model = build(case)
    feeds = fed(case)
    run, interpret = runner(model, compiled), runner(model, False)
    compare(run(feeds), oracle(model, feeds), 1e-3, 1e-4)
    for k, x, kind in case.wrong:
        e = refuses(kind, "ONNX node 0", run, {**feeds, f"x{k}": x})
        assert case.op in str(e), e
    for wrong in hostile(feeds) if compiled else ():
        try:
            found = run(wrong)
        except weft.error.WeftError:
            refuses(weft.error.WeftError, "ONNX node 0", interpret, wrong)
        else:
            compare(found, interpret(wrong), 1e-3, 1e-4)
