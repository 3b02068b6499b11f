"""Operators over the opsets in which their form changed, with static and symbolic shapes, against ONNX Runtime."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import weft
from tests.arrays import floats
from tests.frontend.models import check, compare, model_of
from tests.refusals import refuses
from weft import relax
from weft.error import ModelImportError, UnsupportedOperator
from weft.frontend.onnx import from_onnx
from weft.relax.interpreter import evaluate

RNG = np.random.default_rng(7)
f32 = floats(RNG)


def one(
    op: str,
    inputs: dict[str, np.ndarray],
    opset: int,
    *,
    weights: Any = None,
    outputs: int = 1,
    dynamic: Any = ("x",),
    names: Any = None,
    **attrs: Any,
) -> Any:
    """Check a model of one node; weights come behind the inputs unless `names` says otherwise."""
    order = names if names is not None else [*inputs, *(weights or {})]
    outs = [f"y{i}" for i in range(outputs)]
    model = model_of([helper.make_node(op, order, outs, **attrs)], inputs, outs, opset, weights)
    return check(model, inputs, dynamic)


def changes(op: str) -> list[int]:
    """List the opsets from 7 on in which the operator has a new version, 7 itself included."""
    found = {
        s.since_version
        for s in onnx.defs.get_all_schemas_with_history()
        if s.name == op and s.domain == "" and s.since_version > 7
    }
    first = min(s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == op and s.domain == "")
    return sorted({max(7, first)} | {v for v in found if v <= 23})


UNARY = """
    Abs Ceil Cos Elu Erf Exp Floor HardSigmoid HardSwish Identity LeakyRelu Log Mish Neg Reciprocal Relu Round Selu
    Sigmoid Sign Sin Softplus Sqrt Tanh""".split()
BINARY = "Add Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mul Pow Sub Sum".split()


@pytest.mark.parametrize(("op", "opset"), [(op, v) for op in UNARY for v in changes(op)])
def test_unary(op: str, opset: int) -> None:
    x = np.abs(f32(3, 1, 5)) + 0.1 if op in ("Log", "Sqrt") else f32(3, 1, 5)
    one(op, {"x": x}, opset)


@pytest.mark.parametrize(("op", "opset"), [(op, v) for op in BINARY for v in changes(op)])
def test_binary(op: str, opset: int) -> None:
    dtype = np.int32 if (op, opset) == ("Equal", 7) else np.float32  # floats came with opset 11
    inputs = {"x": (np.abs(f32(2, 3, 4)) + 0.1).astype(dtype), "z": f32(3, 1).astype(dtype)}
    one(op, inputs, opset, dynamic=("x", "z"))


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op: str) -> None:
    one(op, {"x": f32(3, 4) > 0, "z": f32(4) > 0}, 7, dynamic=("x", "z"))
    one("Not", {"x": f32(3, 4) > 0}, 7)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "int32", "int64", "uint32", "uint64", "float16", "float64"]
)
def test_arithmetic_types(dtype: str) -> None:
    x, z = RNG.integers(1, 9, (4, 3)).astype(dtype), RNG.integers(1, 9, 3).astype(dtype)
    for op in ("Add", "Mul", "Div", "Sub"):
        one(op, {"x": x, "z": z}, 14, dynamic=("x",))


@pytest.mark.parametrize(("keepdims", "opset"), [(k, o) for k in (0, 1) for o in (7, 11, 13, 18)])
@pytest.mark.parametrize(
    "op", ["ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceLogSumExp"]
)
def test_reduce(op: str, keepdims: int, opset: int) -> None:
    x = f32(2, 3, 4, 1)
    for axes in ([1], [0, 2], None):
        as_input = opset >= (13 if op == "ReduceSum" else 18)
        weights = {"axes": np.array(axes, np.int64)} if as_input and axes else {}
        attrs = {"axes": axes} if axes and not as_input else {}
        one(op, {"x": x}, opset, weights=weights, keepdims=keepdims, **attrs)
    if opset >= 18:
        one(op, {"x": x}, opset, weights={"axes": np.array([], np.int64)}, keepdims=keepdims, noop_with_empty_axes=1)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_sums_of_powers_of_integers(dtype: str) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max // 2
    rows = [[low, low, low], [low, high, 0], [5, 4, 3], [100, 0, 99], [low, low + 119, low + 121], [20, 20, 20]]
    x = np.array(rows + ([[-7, -7, -7], [-3, -4, -90]] if low else []), dtype)
    node = helper.make_node("ReduceLogSumExp", ["x", "axes"], ["y"], keepdims=0)
    program = from_onnx(model_of([node], {"x": x}, ["y"], 18, {"axes": np.array([1])}))
    vm = relax.VirtualMachine(weft.compile(program, target="llvm"), weft.cpu())
    powers = [np.exp([-float(int(max(r)) - int(v)) for v in r]).sum() for r in x]
    wanted = [int(float(max(r)) + np.log(p)) for r, p in zip(x, powers, strict=True)]
    assert vm["main"](x).numpy().tolist() == wanted


@pytest.mark.parametrize("opset", [7, 12, 13])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_arg_reduce(op: str, opset: int) -> None:
    x = RNG.integers(0, 3, (4, 5)).astype(np.float32)
    one(op, {"x": x}, opset, axis=1, keepdims=0)
    one(op, {"x": x}, opset, axis=0)
    if opset >= 12:
        one(op, {"x": x}, opset, axis=-1, select_last_index=1)


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax(op: str, opset: int) -> None:
    x = f32(2, 3, 4)
    for axis in (0, 1, 2) if opset < 11 else (0, 1, -1):
        one(op, {"x": x}, opset, axis=axis)
    one(op, {"x": x}, opset)


def test_squeeze_and_unsqueeze() -> None:
    x = f32(1, 3, 1, 4)
    one("Squeeze", {"x": x}, 11, axes=[0, -2])
    one("Squeeze", {"x": x}, 13, weights={"axes": np.array([0, -2])})
    one("Squeeze", {"x": x}, 13, dynamic=())
    one("Unsqueeze", {"x": x}, 11, axes=[0, -1])
    one("Unsqueeze", {"x": x}, 13, weights={"axes": np.array([2, 0])})


def test_slice() -> None:
    x = f32(5, 7, 3)
    one("Slice", {"x": x}, 9, starts=[1, -3], ends=[4, 2147483647], axes=[0, 1])
    for starts, ends, axes, steps in (
        ([1, 0], [-1, 100], [0, 2], None),
        ([-1], [-(2**63)], [1], [-1]),
        ([6, 4], [0, 1], [1, 0], [-2, -1]),
        ([3], [3], [0], [1]),
        ([0, 2], [5, 2**63 - 1], [0, -2], [2, 3]),
        ([-9, -4], [-(2**31), -(2**63)], [0, 2], [-1, -2]),
    ):
        weights = {"s": np.array(starts), "e": np.array(ends), "a": np.array(axes)}
        if steps:
            weights["t"] = np.array(steps)
        for opset in (10, 13):
            one("Slice", {"x": x}, opset, weights=weights)


def test_slice_bounds_are_data() -> None:
    x = f32(6, 5)
    for start, end, step in ((1, 5, 2), (-2, -6, -1), (0, 100, 1), (4, 2, 1), (-9, -10, -1)):
        inputs = {"x": x, "s": np.array([start]), "e": np.array([end]), "a": np.array([0]), "t": np.array([step])}
        one("Slice", inputs, 13)


def test_clip() -> None:
    x = f32(3, 4)
    one("Clip", {"x": x}, 7, min=-0.5, max=0.5)
    one("Clip", {"x": x}, 7, max=0.1)
    for opset in (11, 12, 13):
        one("Clip", {"x": x}, opset, weights={"lo": np.float32(-0.5), "hi": np.float32(0.5)})
        one("Clip", {"x": x}, opset, weights={"hi": np.float32(0.5)}, names=["x", "", "hi"])
        one("Clip", {"x": x, "lo": np.array(-0.2, np.float32)}, opset)
    one("Clip", {"x": x}, 13)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad(mode: str) -> None:
    x, pads = f32(4, 5), [1, 2, 0, 3]
    one("Pad", {"x": x}, 7, pads=pads, mode=mode, value=0.5)
    for opset in (11, 13, 18, 19):
        one("Pad", {"x": x}, opset, weights={"p": np.array(pads)}, mode=mode)
    one("Pad", {"x": x}, 18, weights={"p": np.array([2, 1]), "v": np.float32(3), "a": np.array([-1])}, mode=mode)
    one("Pad", {"x": x, "p": np.array(pads)}, 13, mode=mode)


def test_pad_cuts_and_wraps() -> None:
    x = f32(5, 4)
    one("Pad", {"x": x}, 13, weights={"p": np.array([-1, 2, -2, 0]), "v": np.float32(7)})
    one("Pad", {"x": x}, 19, weights={"p": np.array([2, 1, 3, 0])}, mode="wrap")
    inputs = {"x": x, "v": np.array(2.5, np.float32)}
    for widths in ([0, 1, 2, 0], [-1, 1, 2, -2]):
        one("Pad", inputs, 13, weights={"p": np.array(widths)}, names=["x", "p", "v"])
        one("Pad", {"x": x, "p": np.array(widths), "v": inputs["v"]}, 13)


def test_dropout() -> None:
    x = f32(3, 4)
    for opset in (7, 10):
        one("Dropout", {"x": x}, opset, ratio=0.3)
    one("Dropout", {"x": x}, 10, outputs=2)
    for opset in (12, 13):
        one("Dropout", {"x": x}, opset, weights={"r": np.float32(0.3)}, outputs=2)
    for opset in (12, 13):
        for flag in (False, True):
            weights = {"r": np.float32(0.3), "t": np.array(flag)}
            node = helper.make_node("Dropout", ["x", "r", "t"], ["y", "m"], seed=5)
            y, mask = evaluate(from_onnx(model_of([node], {"x": x}, ["y", "m"], opset, weights)), x)
            kept = np.random.RandomState(5).uniform(0, 1, x.shape) >= 0.3 if flag else np.ones(x.shape, bool)
            np.testing.assert_array_equal(mask, kept)
            np.testing.assert_allclose(y, x * kept / np.float32(0.7) if flag else x, rtol=1e-6)


def test_split() -> None:
    x = f32(6, 4)
    one("Split", {"x": x}, 7, outputs=3)
    one("Split", {"x": x}, 11, outputs=2, split=[1, 5], axis=0)
    one("Split", {"x": x}, 13, outputs=2, weights={"s": np.array([3, 1])}, axis=-1)
    one("Split", {"x": f32(7, 2)}, 18, outputs=3, num_outputs=3)


@pytest.mark.parametrize("opset", [7, 10, 11])
def test_topk(opset: int) -> None:
    x = RNG.permutation(24).reshape(4, 6).astype(np.float32)
    if opset < 10:
        one("TopK", {"x": x}, opset, outputs=2, k=3)
        return
    one("TopK", {"x": x}, opset, outputs=2, weights={"k": np.array([2])}, axis=0)
    one("TopK", {"x": x, "k": np.array([3])}, opset, outputs=2)
    if opset == 11:
        one("TopK", {"x": x}, opset, outputs=2, weights={"k": np.array([4])}, largest=0)


def test_batch_normalization() -> None:
    x, c = f32(2, 3, 4, 5), 3
    stats = {"s": f32(c), "b": f32(c), "m": f32(c), "v": np.abs(f32(c)) + 0.5}
    for opset in (7, 9, 14, 15):
        one("BatchNormalization", {"x": x}, opset, weights=stats, epsilon=1e-3)
    node = helper.make_node("BatchNormalization", ["x", *stats], ["y", "rm", "rv"], training_mode=1)
    training = model_of([node], {"x": x}, ["y", "rm", "rv"], 15, stats)
    expected = onnx.reference.ReferenceEvaluator(training).run(None, {"x": x})
    compare(evaluate(from_onnx(training), x), expected)


def test_layer_normalization() -> None:
    x = f32(2, 3, 4)
    for axis, shape in ((-1, (4,)), (1, (3, 4))):
        one("LayerNormalization", {"x": x}, 17, weights={"s": f32(*shape), "b": f32(*shape)}, axis=axis, outputs=1)
        one("LayerNormalization", {"x": x}, 17, weights={"s": f32(*shape)}, axis=axis, outputs=1)
    one("LayerNormalization", {"x": x}, 17, weights={"s": f32(4), "b": f32(4)}, outputs=3)


def test_instance_normalization() -> None:
    for shape in ((2, 3, 4), (2, 3, 4, 5)):
        one("InstanceNormalization", {"x": f32(*shape)}, 7, weights={"s": f32(3), "b": f32(3)})


@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv(auto_pad: str, rank: int) -> None:
    x, w = f32(2, 4, *[6, 7, 5][:rank]), f32(6, 2, *[3, 2, 3][:rank])
    for strides in ([1] * rank, [2] * rank):
        attrs: dict[str, Any] = {"strides": strides, "group": 2, "auto_pad": auto_pad}
        if auto_pad == "NOTSET":
            attrs["pads"] = [1, 0, 2][:rank] + [2, 1, 0][:rank]
        one("Conv", {"x": x}, 11, weights={"w": w, "b": f32(6)}, **attrs)
    one("Conv", {"x": x, "w": w}, 7, group=2, dynamic=("x",), auto_pad="VALID", dilations=[2] + [1] * (rank - 1))


@pytest.mark.parametrize("rank", [1, 2])
def test_conv_transpose(rank: int) -> None:
    x, w = f32(2, 4, *[5, 4][:rank]), f32(4, 3, *[3, 2][:rank])
    for attrs in (
        {},
        {"strides": [2] * rank, "pads": [1] * rank + [0] * rank},
        {"strides": [3] * rank, "output_padding": [1] * rank, "group": 2},
        {"dilations": [2] * rank},
        {"strides": [2] * rank, "auto_pad": "SAME_UPPER"},
        {"strides": [2] * rank, "auto_pad": "SAME_LOWER"},
    ):
        one("ConvTranspose", {"x": x}, 11, weights={"w": w, "b": f32(3 * attrs.get("group", 1))}, **attrs)
    one("ConvTranspose", {"x": x}, 11, weights={"w": w}, strides=[2] * rank, output_shape=[10, 9][:rank], dynamic=())


@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pool(op: str, ceil_mode: int) -> None:
    x = f32(2, 3, 9, 8)
    extra = {"ceil_mode": ceil_mode} if ceil_mode else {}
    for attrs in (
        {},
        {"strides": [2, 3]},
        {"strides": [2, 2], "pads": [1, 0, 1, 1]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [3, 2]},
    ):
        if "auto_pad" in attrs and ceil_mode:
            continue
        one(op, {"x": x}, 12 if op == "MaxPool" else 11, kernel_shape=[3, 3], **attrs, **extra)
        if op == "AveragePool":
            one(op, {"x": x}, 19, kernel_shape=[3, 3], count_include_pad=1, **attrs, **extra)
    one("GlobalAveragePool" if op == "AveragePool" else "GlobalMaxPool", {"x": x}, 7)


def test_max_pool_indices() -> None:
    x = f32(2, 3, 6, 5)
    one("MaxPool", {"x": x}, 12, outputs=2, kernel_shape=[2, 2], strides=[2, 1], pads=[0, 1, 0, 0])
    one("MaxPool", {"x": x}, 12, outputs=2, kernel_shape=[2, 3], dilations=[2, 1], storage_order=0)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
def test_resize(mode: str, coordinates: str) -> None:
    x, attrs = f32(1, 2, 5, 6), {"mode": mode, "coordinate_transformation_mode": coordinates}
    for size in ([1, 2, 8, 9], [1, 2, 3, 12]):
        one("Resize", {"x": x}, 13, weights={"s": np.array(size)}, names=["x", "", "", "s"], **attrs)
    weights = {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 3], np.float32)}
    for opset in (11, 13, 18, 19):
        one("Resize", {"x": x}, opset, weights=weights, **attrs)


def test_upsample_and_old_resize() -> None:
    x, scales = f32(1, 2, 3, 4), np.array([1, 1, 2, 3], np.float32)
    for mode in ("nearest", "linear"):
        one("Upsample", {"x": x}, 7, mode=mode, scales=list(scales))
        one("Upsample", {"x": x}, 9, weights={"s": scales}, mode=mode)
        one("Resize", {"x": x}, 10, weights={"s": scales}, mode=mode)


def test_cast() -> None:
    x, kinds = f32(3, 4) * 10, onnx.TensorProto
    for to in (kinds.INT32, kinds.DOUBLE, kinds.FLOAT16, kinds.BOOL, kinds.INT8):
        for opset in (7, 9, 13):
            one("Cast", {"x": x}, opset, to=to)
    one("Cast", {"x": x > 0}, 13, to=onnx.TensorProto.FLOAT)
    one("Cast", {"x": x}, 13, to=onnx.TensorProto.BFLOAT16)


def test_gather_and_scatter() -> None:
    x, i = f32(4, 5), np.array([[0, -1], [2, 3]])
    one("Gather", {"x": x}, 11, weights={"i": i}, axis=1)
    one("Gather", {"x": x, "i": i}, 13, dynamic=("x", "i"))
    one("GatherElements", {"x": x, "i": np.array([[0, -1, 2, 1, 0]])}, 13, axis=0)
    one("GatherND", {"x": x, "i": np.array([[0, 1], [-1, 2]])}, 13)
    one("GatherND", {"x": f32(2, 3, 4), "i": np.array([[[1]], [[-1]]])}, 12, batch_dims=1)
    for reduction, opset in (("none", 11), ("add", 16), ("mul", 16), ("max", 18), ("min", 18)):
        attrs = {} if reduction == "none" else {"reduction": reduction}
        one("ScatterElements", {"x": x, "i": np.array([[1, -1, 0]]), "u": f32(1, 3)}, opset, axis=1, **attrs)
        one("ScatterND", {"x": x, "i": np.array([[1], [-1]]), "u": f32(2, 5)}, opset, **attrs)


def test_cumsum() -> None:
    for exclusive in (0, 1):
        for reverse in (0, 1):
            one("CumSum", {"x": f32(3, 4)}, 11, weights={"a": np.array(1)}, exclusive=exclusive, reverse=reverse)
            one("CumSum", {"x": f32(3, 4), "a": np.array(-2)}, 14, exclusive=exclusive, reverse=reverse)


def test_matrix_products() -> None:
    one("MatMul", {"x": f32(2, 3, 4), "w": f32(4, 5)}, 7, dynamic=("x",))
    one("MatMul", {"x": f32(3, 4), "w": f32(2, 4, 5)}, 13, dynamic=("x", "w"))
    one("MatMul", {"x": f32(4), "w": f32(4)}, 13, dynamic=())
    for opset in (7, 11, 13):
        one("Gemm", {"x": f32(3, 4)}, opset, weights={"w": f32(5, 4), "c": f32(5)}, transB=1, alpha=0.5, beta=2.0)
    one("Gemm", {"x": f32(4, 3)}, 11, weights={"w": f32(4, 5)}, transA=1)
    for equation, shapes in (
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("ij->ji", [(2, 3)]),
        ("...i,i->...", [(2, 3, 4), (4,)]),
        ("ii->i", [(3, 3)]),
    ):
        inputs = {n: f32(*shape) for n, shape in zip("xz", shapes, strict=False)}
        one("Einsum", inputs, 12, equation=equation, dynamic=())


def test_generators() -> None:
    one("OneHot", {"x": np.array([0, -1, 7, 2])}, 11, weights={"d": np.array(4), "v": f32(2)}, axis=0)
    one("OneHot", {"x": np.array([[0, 1]]), "d": np.array([3])}, 9, weights={"v": np.array([0, 1])})
    one("Range", {"s": np.array(1), "e": np.array(11), "d": np.array(3)}, 11, dynamic=())
    one("Range", {"s": np.array(5), "e": np.array(-4), "d": np.array(-2)}, 11, dynamic=())
    one("Range", {"s": np.float32(0.5), "e": np.float32(3), "d": np.float32(0.75)}, 11, dynamic=())
    seven = numpy_helper.from_array(np.array([7], np.int32))
    one("ConstantOfShape", {"x": np.array([2, 3])}, 9, dynamic=(), value=seven)
    for upper in (0, 1):
        one("Trilu", {"x": f32(4, 5)}, 14, weights={"k": np.array(-1)}, upper=upper)
        one("Trilu", {"x": f32(2, 4, 5), "k": np.array(1)}, 14, upper=upper)


def test_arrangement() -> None:
    x = f32(2, 8, 3, 4)
    one("Transpose", {"x": x}, 7)
    one("Flatten", {"x": x}, 11, axis=-2)
    one("Concat", {"x": x, "z": f32(2, 1, 3, 4)}, 11, axis=1, dynamic=("x", "z"))
    one("Expand", {"x": f32(3, 1)}, 8, weights={"s": np.array([2, 1, 4])})
    one("Tile", {"x": f32(2, 3)}, 7, weights={"r": np.array([2, 3])})
    one("Tile", {"x": f32(2, 3), "r": np.array([2, 2])}, 13)
    for mode in ("DCR", "CRD"):
        one("DepthToSpace", {"x": x}, 11, blocksize=2, mode=mode)
    one("SpaceToDepth", {"x": f32(2, 3, 4, 6)}, 7, blocksize=2)
    one("Where", {"c": f32(3, 1) > 0, "x": f32(3, 4), "z": f32(4)}, 9, dynamic=("c", "x"))
    one("PRelu", {"x": f32(2, 3, 4)}, 9, weights={"a": f32(3, 1)})
    one("Mod", {"x": np.array([-7, 7, 5]), "z": np.array([3, -3, 2])}, 10)
    one("Mod", {"x": f32(6), "z": f32(6)}, 10, fmod=1)
    for dtype in ("int8", "uint8", "int64", "float16"):
        x = np.array([0, 1, 4, 9, 120] + [-1, -2, -9, -100] * (dtype != "uint8"), dtype)
        one("Shrink", {"x": x}, 9, lambd=1.5, bias=3.7)
    for approximate in ("none", "tanh"):
        one("Gelu", {"x": f32(3, 4)}, 20, approximate=approximate)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "GRU, late reset", "RNN"])
def test_recurrent_layers(kind: str, direction: str, layout: int) -> None:
    op, d, hidden, batch, steps = kind.split(",")[0], 2 if direction == "bidirectional" else 1, 4, 2, 5
    gates, outputs, count = {"LSTM": (16, 3, 3), "GRU": (12, 2, 2), "RNN": (4, 2, 1)}[op]
    x = f32(batch, steps, 3) if layout else f32(steps, batch, 3)
    weights = {"w": f32(d, gates, 3), "r": f32(d, gates, 4) / 4, "b": f32(d, 2 * gates), "p": f32(d, 12)}
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "weights": weights, "outputs": outputs}
    if "late" in kind:
        attrs["linear_before_reset"] = 1
    full = ["x", "w", "r", "b"]
    whole = [*full, "", "", "", "p"] if op == "LSTM" else full
    one(op, {"x": x}, 14, names=whole, dynamic=() if layout else ("x",), layout=layout, **attrs)
    if layout:
        return
    one(op, {"x": x}, 14, names=full[:3], **attrs)
    states = {"l": np.array([3, 5], np.int32), "h": f32(d, batch, hidden)}
    forget = {"input_forget": int(direction == "forward")} if op == "LSTM" else {}
    states |= {"c": f32(d, batch, hidden)} if op == "LSTM" else {}
    one(op, {"x": x, **states}, 7, names=[*full, *states], clip=0.6, **forget, **attrs)
    one(op, {"x": x}, 7, names=full, activations=["HardSigmoid", "LeakyRelu", "Relu"][:count] * d, **attrs)
    given = {f"activation_{k}": [0.3 + 0.1 * n for n in range(3 * d)] for k in ("alpha", "beta")}
    for names in (["HardSigmoid", "LeakyRelu", "ScaledTanh"], ["Affine", "Elu", "ThresholdedRelu"]):
        one(op, {"x": x}, 7, names=full, activations=names[:count] * d, **given, **attrs)


def test_old_opset_of_an_unchanged_operator() -> None:
    one("Not", {"x": f32(3) > 0}, 1, dynamic=())


def old(op: str, inputs: dict[str, np.ndarray], opset: int, **attrs: Any) -> np.ndarray:
    """Run a node of an opset that no oracle has."""
    model = model_of([helper.make_node(op, list(inputs), ["y"], **attrs)], inputs, ["y"], opset)
    return evaluate(from_onnx(model), *inputs.values())[0]


def test_broadcasting_of_opsets_before_7() -> None:
    x = f32(2, 3, 4, 5)
    forms = (((5,), None, (5,)), ((4, 5), None, (4, 5)), ((3, 4), 1, (3, 4, 1)), ((2,), 0, (2, 1, 1, 1)))
    for shape, axis, like in forms:
        b = f32(*shape)
        attrs = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
        for op, fn in (("Add", np.add), ("Mul", np.multiply), ("Sub", np.subtract), ("Greater", np.greater)):
            np.testing.assert_allclose(old(op, {"x": x, "b": b}, 6, **attrs), fn(x, b.reshape(like)), rtol=1e-6)
    np.testing.assert_allclose(old("Add", {"x": x, "b": x}, 1, consumed_inputs=[0, 0]), x + x)
    refuses(ModelImportError, "dimensions", old, "Add", {"x": x, "b": f32(5)}, 6)
    refuses(ModelImportError, "does not lie inside", old, "Add", {"x": x, "b": f32(4)}, 6, broadcast=1, axis=4)


def test_attributes_of_opsets_before_7() -> None:
    x = f32(2, 3, 4)
    np.testing.assert_array_equal(old("Reshape", {"x": x}, 1, shape=[4, 0, -1]), x.reshape(4, 3, 2))
    np.testing.assert_array_equal(old("Cast", {"x": x}, 1, to="INT32"), x.astype(np.int32))
    np.testing.assert_array_equal(old("Concat", {"x": x, "z": x}, 1), np.concatenate([x, x], 1))
    np.testing.assert_array_equal(old("Pad", {"x": x[0]}, 1, paddings=[0, 1, 2, 0]), np.pad(x[0], ((0, 2), (1, 0))))
    slope = f32(3)
    np.testing.assert_allclose(old("PRelu", {"x": x, "s": slope}, 6), np.where(x < 0, x * slope[:, None], x), rtol=1e-6)
    tiled = old("Tile", {"x": x, "n": np.array([2], np.float32), "a": np.array([1], np.float32)}, 1)
    np.testing.assert_array_equal(tiled, np.tile(x, (1, 2, 1)))
    refuses(UnsupportedOperator, "training mode", old, "Dropout", {"x": x}, 6)


TRIED = {
    "Affine": {"alpha": 2.0, "beta": -1.0},
    "ParametricSoftplus": {"alpha": 2.0, "beta": 3.0},
    "MemcpyToHost": {},
    "ScaledTanh": {"alpha": 2.0, "beta": 0.3},
    "Scale": {"scale": 2.0},
    "ImageScaler": {"bias": [1.0, -2.0, 3.0]},
    "Crop": {"border": [1, 0, 2, 1]},
    "ThresholdedRelu": {"alpha": 0.3},
    "MeanVarianceNormalization": {"across_channels": 1},
}


@pytest.mark.parametrize("opset", [7, 8])
def test_operators_that_were_tried(opset: int) -> None:
    x = f32(2, 3, 4, 5)
    for op, attrs in (*TRIED.items(), ("Affine", {}), ("MeanVarianceNormalization", {"normalize_variance": 0})):
        one(op, {"x": x}, opset, **attrs)
    one("Crop", {"x": x}, opset, scale=[2, 3], **TRIED["Crop"])
    one("DynamicSlice", {"x": x}, opset, weights={"begin": np.array([0]), "end": np.array([2]), "axis": np.array([1])})
    for op, wrong in (("Crop", {"border": [3, 0, 3, 1]}), ("ImageScaler", {"bias": [1.0]}), ("ScaledTanh", {})):
        refuses(ModelImportError, op, old, op, {"x": x}, opset, **wrong)
    refuses(UnsupportedOperator, "took it back", old, "Affine", {"x": x}, 10)


def test_opset_beyond_the_package() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": f32(3)}, ["y"], 99)
    refuses(ModelImportError, "opset 99", from_onnx, model)
    assert from_onnx(model, opset=17)["main"] is not None
