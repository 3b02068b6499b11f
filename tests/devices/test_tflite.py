"""TFLite models against TFLite's own runtime: operators one by one, and networks, in floats and quantised."""

import time
from typing import Any

import numpy as np
import pytest

from tests.arrays import floats
from weft import environment

if environment.DEVICES.read() == "1":
    import tflite
    from ai_edge_litert import interpreter as litert
else:
    tflite = pytest.importorskip("tflite")
    litert = pytest.importorskip("ai_edge_litert.interpreter")

import weft
from tests.devices.tflite_models import Subgraph, write
from tests.refusals import refuses
from weft.error import ModelImportError, UnsupportedOperator, WeftError
from weft.frontend.tflite import from_tflite
from weft.relax.interpreter import evaluate

RNG = np.random.default_rng(5)
f32 = floats(RNG)
Q = (0.05, 3)
"""Scale and zero point of quantised tensors."""


def i8(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def check(graphs: list[Subgraph] | Subgraph, given: list[np.ndarray], steps: float = 0) -> None:
    """Compare with TFLite's runtime; quantised results may differ by steps."""
    graphs = graphs if isinstance(graphs, list) else [graphs]
    data = write(*graphs)
    runtime = litert.Interpreter(
        model_content=data, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    for detail, x in zip(runtime.get_input_details(), given, strict=True):
        if tuple(detail["shape"]) != x.shape:
            runtime.resize_tensor_input(detail["index"], x.shape, strict=True)
    runtime.allocate_tensors()
    for detail, x in zip(runtime.get_input_details(), given, strict=True):
        runtime.set_tensor(detail["index"], x)
    runtime.invoke()
    want = [runtime.get_tensor(d["index"]) for d in runtime.get_output_details()]
    got = evaluate(from_tflite(data), *given)
    got = got if isinstance(got, list) else [got]
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=2e-5, atol=steps or 2e-5)


def one(
    name: str,
    given: list[Any],
    out: tuple[int, ...],
    dtype: str = "float32",
    table: str = "",
    constants: tuple[int, ...] = (),
    q: Any = None,
    steps: float = 0,
    outputs: int = 1,
    **options: Any,
) -> None:
    """Check one operator; inputs numbered in `constants` are part of the model."""
    g = Subgraph()
    numbers = []
    for i, x in enumerate(given):
        numbered = q if x.dtype == np.int8 else None
        numbers.append(g.constant(x, numbered) if i in constants else g.input(x.shape, str(x.dtype), numbered))
    made = g.op(name, numbers, *[(out, dtype, q if dtype == "int8" else None)] * outputs, table=table, **options)
    g.outputs = made if isinstance(made, list) else [made]
    check(g, [x for i, x in enumerate(given) if i not in constants], steps)


@pytest.mark.parametrize(
    "name",
    "ABS CEIL COS ELU EXP FLOOR HARD_SWISH LOGISTIC LOG_SOFTMAX NEG RELU RELU6 "
    "RELU_N1_TO_1 RELU_0_TO_1 ROUND SIN SQUARE TANH SIGN".split(),
)
def test_of_one_input(name: str) -> None:
    one(name, [f32(2, 5) * 3], (2, 5))


def test_of_one_input_with_options() -> None:
    x = f32(2, 5)
    for name in ("LOG", "SQRT", "RSQRT"):
        one(name, [abs(x) + 0.1], (2, 5))
    one("SOFTMAX", [x], (2, 5), table="SoftmaxOptions", Beta=2.0)
    one("LEAKY_RELU", [x], (2, 5), table="LeakyReluOptions", Alpha=0.3)
    for rounded in (False, True):
        one("GELU", [x], (2, 5), table="GeluOptions", Approximate=rounded)
    one("PRELU", [x, f32(5)], (2, 5), constants=(1,))
    one("CAST", [x * 9], (2, 5), "int32", table="CastOptions", InDataType=0, OutDataType=2)
    one("LOGICAL_NOT", [x > 0], (2, 5), "bool")


@pytest.mark.parametrize(
    "name", ["ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD", "ATAN2"]
)
def test_of_two_inputs(name: str) -> None:
    table = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions"}.get(name, "")
    if table:
        for kind in (0, 1, 2, 3):
            one(name, [f32(2, 3, 4) * 4, f32(4)], (2, 3, 4), table=table, FusedActivationFunction=kind)
    else:
        one(name, [f32(3, 4), f32(3, 4)], (3, 4))


def test_comparisons_and_choices() -> None:
    a, b = RNG.integers(0, 3, (2, 3, 4)).astype(np.float32)
    for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
        one(name, [a, b], (3, 4), "bool")
    for name in ("LOGICAL_AND", "LOGICAL_OR"):
        one(name, [a > 0, b > 0], (3, 4), "bool")
    one("POW", [abs(a) + 0.5, b], (3, 4))
    one("SELECT_V2", [a > 1, a, b], (3, 4))
    one("SELECT", [np.array([True, False, True]), a, b], (3, 4))


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_convolutions(stride: int, dilation: int, padding: int) -> None:
    size = [-(-n // stride) if padding == 0 else -(-(n - 2 * dilation) // stride) for n in (9, 8)]
    options = {
        "StrideH": stride,
        "StrideW": stride,
        "DilationHFactor": dilation,
        "DilationWFactor": dilation,
        "Padding": padding,
    }
    x = f32(1, 9, 8, 4)
    one(
        "CONV_2D",
        [x, f32(6, 3, 3, 4), f32(6)],
        (1, *size, 6),
        table="Conv2DOptions",
        constants=(1, 2),
        FusedActivationFunction=1,
        **options,
    )
    one(
        "DEPTHWISE_CONV_2D",
        [x, f32(1, 3, 3, 8), f32(8)],
        (1, *size, 8),
        table="DepthwiseConv2DOptions",
        constants=(1, 2),
        DepthMultiplier=2,
        **options,
    )


@pytest.mark.parametrize(("padding", "size"), [(0, (8, 6)), (1, (9, 7)), (0, (7, 5))])
def test_transposed_convolution(padding: int, size: tuple[int, int]) -> None:
    given = [np.array([1, *size, 3], np.int32), f32(3, 3, 3, 2), f32(1, 4, 3, 2)]
    one(
        "TRANSPOSE_CONV",
        given,
        (1, *size, 3),
        table="TransposeConvOptions",
        constants=(0, 1),
        StrideH=2,
        StrideW=2,
        Padding=padding,
    )


@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"])
def test_pools(name: str) -> None:
    for padding, size in ((0, (4, 3)), (1, (3, 2))):
        one(
            name,
            [f32(2, 7, 6, 3)],
            (2, *size, 3),
            table="Pool2DOptions",
            Padding=padding,
            StrideH=2,
            StrideW=2,
            FilterHeight=3,
            FilterWidth=3,
        )


def test_products() -> None:
    one("FULLY_CONNECTED", [f32(2, 3, 8), f32(5, 8), f32(5)], (6, 5), table="FullyConnectedOptions", constants=(1, 2))
    one(
        "FULLY_CONNECTED",
        [f32(2, 3, 8), f32(5, 8)],
        (2, 3, 5),
        table="FullyConnectedOptions",
        constants=(1,),
        KeepNumDims=True,
        FusedActivationFunction=3,
    )
    one("BATCH_MATMUL", [f32(2, 3, 4), f32(2, 4, 5)], (2, 3, 5), table="BatchMatMulOptions", AdjX=False, AdjY=False)
    one("BATCH_MATMUL", [f32(2, 3, 4), f32(2, 5, 4)], (2, 3, 5), table="BatchMatMulOptions", AdjX=False, AdjY=True)


def test_reductions_and_norms() -> None:
    x = f32(2, 3, 4)
    for name in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
        one(name, [x, np.array([0, -1], np.int32)], (3,), table="ReducerOptions", constants=(1,), KeepDims=False)
        one(name, [x, np.array([1], np.int32)], (2, 1, 4), table="ReducerOptions", constants=(1,), KeepDims=True)
    one("REDUCE_ANY", [x > 1, np.array([1], np.int32)], (2, 4), "bool", table="ReducerOptions", constants=(1,))
    one("L2_NORMALIZATION", [x], (2, 3, 4), table="L2NormOptions")
    one(
        "LOCAL_RESPONSE_NORMALIZATION",
        [f32(1, 2, 3, 8)],
        (1, 2, 3, 8),
        table="LocalResponseNormalizationOptions",
        Radius=2,
        Bias=1.0,
        Alpha=0.1,
        Beta=0.75,
    )
    one("CUMSUM", [x, np.array(1, np.int32)], (2, 3, 4), table="CumsumOptions", constants=(1,), Exclusive=True)
    for name in ("ARG_MAX", "ARG_MIN"):
        table = "ArgMaxOptions" if name == "ARG_MAX" else "ArgMinOptions"
        one(name, [x, np.array(1, np.int32)], (2, 4), "int32", table=table, constants=(1,), OutputType=2)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_places_of_elements() -> None:
    x = f32(2, 4, 6)
    one("RESHAPE", [x, ints(4, -1)], (4, 12), constants=(1,))
    one("TRANSPOSE", [x, ints(2, 0, 1)], (6, 2, 4), constants=(1,))
    one("CONCATENATION", [x, x], (2, 8, 6), table="ConcatenationOptions", Axis=1)
    one("PACK", [x, x], (2, 2, 4, 6), table="PackOptions", Axis=1, ValuesCount=2)
    one("UNPACK", [x], (4, 6), table="UnpackOptions", Axis=0, Num=2, outputs=2)
    one("SPLIT", [np.array(1, np.int32), x], (2, 2, 6), table="SplitOptions", constants=(0,), NumSplits=2, outputs=2)
    one(
        "SPLIT_V",
        [x, ints(3, -1), np.array(2, np.int32)],
        (2, 4, 3),
        table="SplitVOptions",
        constants=(1, 2),
        NumSplits=2,
        outputs=2,
    )
    one("SLICE", [x, ints(0, 1, 2), ints(-1, 2, 3)], (2, 2, 3), constants=(1, 2))
    one(
        "STRIDED_SLICE",
        [x, ints(0, 3, 1), ints(2, 0, 6), ints(1, -1, 2)],
        (2, 3, 3),
        table="StridedSliceOptions",
        constants=(1, 2, 3),
    )
    one(
        "STRIDED_SLICE",
        [x, ints(1, 0, 0), ints(2, 0, 4), ints(1, 1, 1)],
        (4, 4),
        table="StridedSliceOptions",
        constants=(1, 2, 3),
        ShrinkAxisMask=1,
        EndMask=2,
    )
    one("PAD", [x, np.array([[0, 0], [1, 2], [3, 0]], np.int32)], (2, 7, 9), constants=(1,))
    one("PADV2", [x, np.array([[0, 0], [1, 2], [3, 0]], np.int32), f32(1)], (2, 7, 9), constants=(1, 2))
    for mode in (0, 1):
        one(
            "MIRROR_PAD",
            [x, np.array([[0, 0], [1, 2], [3, 0]], np.int32)],
            (2, 7, 9),
            table="MirrorPadOptions",
            constants=(1,),
            Mode=mode,
        )
    one("TILE", [x, ints(1, 2, 3)], (2, 8, 18), constants=(1,))
    one("REVERSE_V2", [x, ints(1)], (2, 4, 6), constants=(1,))
    one("EXPAND_DIMS", [x, ints(1)], (2, 1, 4, 6), constants=(1,))
    one("BROADCAST_TO", [f32(1, 6), ints(4, 6)], (4, 6), constants=(1,))


def test_blocks_and_lookups() -> None:
    x = f32(2, 4, 6, 4)
    one("SPACE_TO_DEPTH", [x], (2, 2, 3, 16), table="SpaceToDepthOptions", BlockSize=2)
    one("DEPTH_TO_SPACE", [x], (2, 8, 12, 1), table="DepthToSpaceOptions", BlockSize=2)
    one("SPACE_TO_BATCH_ND", [x, ints(2, 3), np.array([[1, 1], [0, 3]], np.int32)], (12, 3, 3, 4), constants=(1, 2))
    one(
        "BATCH_TO_SPACE_ND",
        [f32(12, 3, 3, 4), ints(2, 3), np.array([[1, 1], [0, 3]], np.int32)],
        (2, 4, 6, 4),
        constants=(1, 2),
    )
    one("GATHER", [x, ints(1, 0, 3)], (2, 3, 6, 4), table="GatherOptions", Axis=1)
    one("GATHER_ND", [f32(5, 6), ints(1, 0, 3, 2).reshape(2, 2)], (2,))
    one("EMBEDDING_LOOKUP", [ints(1, 0, 3), f32(5, 6)], (3, 6), constants=(1,))
    one(
        "ONE_HOT",
        [ints(1, 0, 3), np.array(4, np.int32), f32(), f32()],
        (3, 4),
        table="OneHotOptions",
        constants=(1,),
        Axis=-1,
    )
    one("DYNAMIC_UPDATE_SLICE", [f32(1, 6, 4), f32(1, 2, 4), ints(0, 5, 0)], (1, 6, 4))


@pytest.mark.parametrize("attrs", [{}, {"AlignCorners": True}, {"HalfPixelCenters": True}])
def test_resizing(attrs: dict[str, Any]) -> None:
    for size in ((8, 9), (3, 2), (5, 5)):
        given = [f32(1, 5, 4, 3), ints(*size)]
        one("RESIZE_BILINEAR", given, (1, *size, 3), table="ResizeBilinearOptions", constants=(1,), **attrs)
        one(
            "RESIZE_NEAREST_NEIGHBOR",
            given,
            (1, *size, 3),
            table="ResizeNearestNeighborOptions",
            constants=(1,),
            **attrs,
        )


def test_quantised_operators() -> None:
    x = i8(1, 6, 6, 4)
    for name, table in (("ADD", "AddOptions"), ("MUL", "MulOptions"), ("SUB", "SubOptions")):
        one(name, [x, i8(1, 6, 6, 4)], (1, 6, 6, 4), "int8", table=table, q=Q, steps=1)
    for name in ("RELU", "RELU6"):
        one(name, [x], (1, 6, 6, 4), "int8", q=Q, steps=1)
    one(
        "AVERAGE_POOL_2D",
        [x],
        (1, 3, 3, 4),
        "int8",
        table="Pool2DOptions",
        q=Q,
        steps=1,
        Padding=1,
        StrideH=2,
        StrideW=2,
        FilterHeight=2,
        FilterWidth=2,
    )
    one(
        "MAX_POOL_2D",
        [x],
        (1, 3, 3, 4),
        "int8",
        table="Pool2DOptions",
        q=Q,
        Padding=0,
        StrideH=2,
        StrideW=2,
        FilterHeight=2,
        FilterWidth=2,
    )
    one("PAD", [x, np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)], (1, 8, 8, 4), "int8", constants=(1,), q=Q)
    one("MEAN", [x, ints(1, 2)], (1, 4), "int8", table="ReducerOptions", constants=(1,), q=Q, steps=1)
    one("CONCATENATION", [x, x], (1, 6, 6, 8), "int8", table="ConcatenationOptions", q=Q, Axis=3)


def test_network_of_pixels() -> None:
    """MobileNet's parts, quantised per channel: convolution, depthwise, residual, mean, classifier, softmax."""
    g = Subgraph()
    x = g.input((1, 12, 12, 3), "int8", (0.02, -1))
    scales = np.linspace(0.01, 0.02, 8)

    def bias(n: int, scale: Any) -> int:
        return g.constant(RNG.integers(-500, 500, n).astype(np.int32), (scale, np.zeros(np.shape(scale)), 0))

    w = g.constant(i8(8, 3, 3, 3), (scales, np.zeros(8), 0))
    y = g.op(
        "CONV_2D",
        [x, w, bias(8, scales * 0.02)],
        ((1, 6, 6, 8), "int8", (0.03, -10)),
        table="Conv2DOptions",
        Padding=0,
        StrideH=2,
        StrideW=2,
        FusedActivationFunction=3,
        DilationHFactor=1,
        DilationWFactor=1,
    )
    w = g.constant(i8(1, 3, 3, 8), (scales, np.zeros(8), 3))
    z = g.op(
        "DEPTHWISE_CONV_2D",
        [y, w, bias(8, scales * 0.03)],
        ((1, 6, 6, 8), "int8", (0.05, 4)),
        table="DepthwiseConv2DOptions",
        Padding=0,
        StrideH=1,
        StrideW=1,
        DepthMultiplier=1,
        DilationHFactor=1,
        DilationWFactor=1,
    )
    z = g.op("ADD", [y, z], ((1, 6, 6, 8), "int8", (0.06, 0)), table="AddOptions")
    z = g.op("MEAN", [z, g.constant(ints(1, 2))], ((1, 8), "int8", (0.02, 0)), table="ReducerOptions")
    w = g.constant(i8(5, 8), (0.01, 0))
    z = g.op("FULLY_CONNECTED", [z, w, bias(5, 0.0002)], ((1, 5), "int8", (0.1, 0)), table="FullyConnectedOptions")
    g.outputs = [g.op("SOFTMAX", [z], ((1, 5), "int8", (1 / 256, -128)), table="SoftmaxOptions", Beta=1.0)]
    check(g, [i8(1, 12, 12, 3)], steps=4)


def attention(g: Subgraph, x: int, length: int, keys: int, k: int, v: int, width: int) -> int:
    scores = g.op("BATCH_MATMUL", [x, k], ((1, length, keys),), table="BatchMatMulOptions", AdjY=True)
    shares = g.op("SOFTMAX", [scores], ((1, length, keys),), table="SoftmaxOptions", Beta=1.0)
    return g.op("BATCH_MATMUL", [shares, v], ((1, length, width),), table="BatchMatMulOptions")


def linear(g: Subgraph, x: int, shape: tuple[int, ...], inputs: int, kind: int = 0) -> int:
    w = g.constant(f32(shape[-1], inputs))
    return g.op(
        "FULLY_CONNECTED",
        [x, w, g.constant(f32(shape[-1]))],
        (shape,),
        table="FullyConnectedOptions",
        KeepNumDims=True,
        FusedActivationFunction=kind,
    )


def normalised(g: Subgraph, x: int, shape: tuple[int, ...]) -> int:
    inner = (*shape[:-1], 1)
    mean = g.op("MEAN", [x, g.constant(ints(-1))], (inner,), table="ReducerOptions", KeepDims=True)
    apart = g.op("SQUARED_DIFFERENCE", [x, mean], (shape,))
    spread = g.op("MEAN", [apart, g.constant(ints(-1))], (inner,), table="ReducerOptions", KeepDims=True)
    spread = g.op(
        "RSQRT", [g.op("ADD", [spread, g.constant(np.float32(1e-5))], (inner,), table="AddOptions")], (inner,)
    )
    return g.op("MUL", [g.op("SUB", [x, mean], (shape,), table="SubOptions"), spread], (shape,), table="MulOptions")


def test_network_of_words() -> None:
    """An encoder's layer: embedding, attention, norms, GELU."""
    g = Subgraph()
    shape = (1, 6, 8)
    words = g.input((1, 6), "int32")
    x = g.op("GATHER", [g.constant(f32(11, 8)), words], (shape,), table="GatherOptions", Axis=0)
    q, k, v = (linear(g, x, shape, 8) for _ in range(3))
    x = g.op("ADD", [x, attention(g, q, 6, 6, k, v, 8)], (shape,), table="AddOptions")
    y = linear(g, normalised(g, x, shape), (1, 6, 16), 8)
    y = linear(g, g.op("GELU", [y], ((1, 6, 16),), table="GeluOptions"), shape, 16)
    g.outputs = [g.op("ADD", [x, y], (shape,), table="AddOptions")]
    check(g, [RNG.integers(0, 11, (1, 6)).astype(np.int32)])


def test_network_with_a_cache() -> None:
    """A decoder's step: new keys and values go into caches."""
    g = Subgraph()
    x, place = g.input((1, 1, 8)), g.input((3,), "int32")
    caches = [g.input((1, 5, 8)) for _ in range(2)]
    kept = [g.op("DYNAMIC_UPDATE_SLICE", [c, linear(g, x, (1, 1, 8), 8), place], ((1, 5, 8),)) for c in caches]
    g.outputs = [attention(g, x, 1, 5, *kept, 8), *kept]
    check(g, [f32(1, 1, 8), ints(0, 3, 0), f32(1, 5, 8), f32(1, 5, 8)])


def test_network_that_loops() -> None:
    """A recurrence as a loop over subgraphs: h = tanh(h W) while the count is small."""
    main, test, body = Subgraph(), Subgraph(), Subgraph()
    for g in (main, test, body):
        g.input((), "int32"), g.input((1, 4))
    test.outputs = [test.op("LESS", [0, test.constant(np.array(3, np.int32))], ((), "bool"))]
    body.outputs = [
        body.op("ADD", [0, body.constant(np.array(1, np.int32))], ((), "int32"), table="AddOptions"),
        body.op("TANH", [linear(body, 1, (1, 4), 4)], ((1, 4),)),
    ]
    main.outputs = main.op(
        "WHILE", [0, 1], ((), "int32"), ((1, 4),), table="WhileOptions", CondSubgraphIndex=1, BodySubgraphIndex=2
    )
    check([main, test, body], [np.array(0, np.int32), f32(1, 4)])


def test_network_of_shapes() -> None:
    """Shapes that the model computes: a flattening whose target is packed out of the input's shape."""
    g = Subgraph()
    x = g.input((2, 3, 4))
    shape = g.op("SHAPE", [x], ((3,), "int32"), table="ShapeOptions", OutType=2)
    first = g.op(
        "STRIDED_SLICE",
        [shape, *(g.constant(ints(v)) for v in (0, 1, 1))],
        ((), "int32"),
        table="StridedSliceOptions",
        ShrinkAxisMask=1,
    )
    target = g.op(
        "PACK", [first, g.constant(np.array(-1, np.int32))], ((2,), "int32"), table="PackOptions", ValuesCount=2
    )
    flat = g.op("RESHAPE", [x, target], ((2, 12),))
    g.outputs = [linear(g, flat, (2, 5), 12)]
    given = f32(5, 3, 4)
    check(g, [given[:2]])
    found = evaluate(from_tflite(write(g), shape_dict={"t0": [5, 3, 4]}), given)
    assert np.shape(found[0] if isinstance(found, list) else found) == (5, 5)


def sizes_of(g: Subgraph, x: int, rank: int, *axes: int) -> list[int]:
    """Numbers for some of a tensor's dimensions, as converters write them."""
    shape = g.op("SHAPE", [x], ((rank,), "int32"), table="ShapeOptions", OutType=2)
    return [
        g.op(
            "STRIDED_SLICE",
            [shape, *(g.constant(ints(v)) for v in (a, a + 1, 1))],
            ((), "int32"),
            table="StridedSliceOptions",
            ShrinkAxisMask=1,
        )
        for a in axes
    ]


def packed(g: Subgraph, *parts: int) -> int:
    return g.op("PACK", parts, ((len(parts),), "int32"), table="PackOptions", ValuesCount=len(parts))


@pytest.mark.parametrize("batch", [1, 3])
def test_open_batch_of_pixels(batch: int) -> None:
    """A convolution, a pool, a flattening, and a vector that is repeated for each image."""
    g = Subgraph()
    x = g.input((-1, 8, 8, 3))
    y = g.op(
        "CONV_2D",
        [x, g.constant(f32(4, 3, 3, 3)), g.constant(f32(4))],
        ((-1, 4, 4, 4),),
        table="Conv2DOptions",
        Padding=0,
        StrideH=2,
        StrideW=2,
        DilationHFactor=1,
        DilationWFactor=1,
        FusedActivationFunction=1,
    )
    y = g.op(
        "MAX_POOL_2D",
        [y],
        ((-1, 2, 2, 4),),
        table="Pool2DOptions",
        Padding=1,
        StrideH=2,
        StrideW=2,
        FilterWidth=2,
        FilterHeight=2,
    )
    (n,) = sizes_of(g, y, 4, 0)
    flat = g.op("RESHAPE", [y, packed(g, n, g.constant(np.array(16, np.int32)))], ((-1, 16),))
    other = g.op("RESHAPE", [y, g.constant(ints(-1, 16))], ((-1, 16),))
    one = g.constant(np.array(1, np.int32))
    again = g.op("TILE", [g.constant(f32(1, 5)), packed(g, n, one)], ((-1, 5),))
    full = g.op("FILL", [packed(g, n, one), g.constant(np.float32(2.5))], ((-1, 1),))
    row = g.op(
        "STRIDED_SLICE",
        [flat, *(g.constant(ints(*v)) for v in ((-1, 0), (0, 3), (1, 1)))],
        ((-1, 3),),
        table="StridedSliceOptions",
        BeginMask=2,
        EndMask=1,
    )
    parts = [linear(g, flat, (-1, 5), 16), again, full, other]
    g.outputs = [g.op("CONCATENATION", parts, ((-1, 27),), table="ConcatenationOptions", Axis=1), row]
    check(g, [f32(batch, 8, 8, 3)])


@pytest.mark.parametrize(("batch", "length"), [(1, 6), (2, 4)])
def test_open_length_of_words(batch: int, length: int) -> None:
    """Positions counted up to the length, attention, and heads apart, by sizes that the model computes."""
    g = Subgraph()
    shape = (-1, -1, 8)
    words = g.input((-1, -1), "int32")
    x = g.op("GATHER", [g.constant(f32(11, 8)), words], (shape,), table="GatherOptions", Axis=0)
    b, n = sizes_of(g, words, 2, 0, 1)
    zero, one, two, four = (g.constant(np.array(v, np.int32)) for v in (0, 1, 2, 4))
    places = g.op(
        "GATHER",
        [g.constant(f32(9, 8)), g.op("RANGE", [zero, n, one], ((-1,), "int32"))],
        ((-1, 8),),
        table="GatherOptions",
        Axis=0,
    )
    x = g.op("ADD", [x, places], (shape,), table="AddOptions")
    heads = []
    for _ in range(3):
        y = g.op("RESHAPE", [linear(g, x, shape, 8), packed(g, b, n, two, four)], ((-1, -1, 2, 4),))
        heads.append(g.op("TRANSPOSE", [y, g.constant(ints(0, 2, 1, 3))], ((-1, 2, -1, 4),)))
    scores = g.op("BATCH_MATMUL", heads[:2], ((-1, 2, -1, -1),), table="BatchMatMulOptions", AdjY=True)
    shares = g.op("SOFTMAX", [scores], ((-1, 2, -1, -1),), table="SoftmaxOptions", Beta=1.0)
    y = g.op("BATCH_MATMUL", [shares, heads[2]], ((-1, 2, -1, 4),), table="BatchMatMulOptions")
    y = g.op("TRANSPOSE", [y, g.constant(ints(0, 2, 1, 3))], ((-1, -1, 2, 4),))
    rows = g.op("MUL", [b, n], ((), "int32"), table="MulOptions")
    flat = g.op("RESHAPE", [y, packed(g, rows, g.constant(np.array(8, np.int32)))], ((-1, 8),))
    g.outputs = [
        g.op(
            "ADD",
            [
                x,
                g.op("RESHAPE", [flat, g.op("SHAPE", [x], ((3,), "int32"), table="ShapeOptions", OutType=2)], (shape,)),
            ],
            (shape,),
            table="AddOptions",
        )
    ]
    check(g, [RNG.integers(0, 11, (batch, length)).astype(np.int32)])
    compiled = weft.compile(from_tflite(write(g)), "llvm -opt-level=0")
    for given in (RNG.integers(0, 11, (k, 5)).astype(np.int32) for k in (4, 0)):
        found = weft.relax.VirtualMachine(compiled, weft.cpu())["main"](weft.runtime.tensor(given)).numpy()
        np.testing.assert_allclose(found, evaluate(from_tflite(write(g)), given)[0], rtol=1e-4, atol=1e-4)


def test_what_is_not_known_is_refused() -> None:
    g = Subgraph()
    x = g.input((2, 3))
    y = g.op("WHERE", [x], ((2, 2), "int64"))
    g.outputs = [g.op("UNIQUE", [y], ((2,), "int64"), ((2,), "int32"))[0]]
    refuses(UnsupportedOperator, r"UNIQUE \(operator 1 of subgraph 0, 1x\), WHERE \(operator 0", from_tflite, write(g))
    refuses(ModelImportError, "no TFLite model", from_tflite, b"none")
    refuses(ModelImportError, "not in the model", from_tflite, _named(), shape_dict={"other": [1]})


def test_damaged_files_are_refused_or_read() -> None:
    """Tables of a damaged file lead anywhere; whatever comes of that is an error of Weft's, soon."""
    sound, rng = _named(), np.random.default_rng(1)
    refused = 0
    for _ in range(400):
        data = bytearray(sound)
        for at in rng.integers(8, len(data), int(rng.integers(1, 5))):
            data[at] = int(rng.integers(256))
        begin = time.thread_time()
        try:
            from_tflite(bytes(data))
        except WeftError as e:
            refused += bool(str(e))
        assert time.thread_time() - begin < 5
    assert refused > 100


def _named() -> bytes:
    g = Subgraph()
    g.outputs = [g.op("ABS", [g.input((2,))], ((2,),))]
    return write(g)
