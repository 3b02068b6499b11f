"""TFLite networks against TFLite's own runtime, of known and of open sizes, in floats and quantised."""

from typing import Any

import numpy as np
import pytest

import weft
from tests.devices.tflite_models import RNG, Subgraph, check, f32, i8, ints, windows, write
from weft.frontend.tflite import from_tflite
from weft.relax.interpreter import evaluate


def test_network_of_pixels() -> None:
    """MobileNet's parts, quantised per channel: convolution, depthwise, residual, mean, classifier, softmax."""
    g = Subgraph()
    x = g.input((1, 12, 12, 3), "int8", (0.02, -1))
    scales = np.linspace(0.01, 0.02, 8)

    def bias(n: int, scale: Any) -> int:
        return g.constant(RNG.integers(-500, 500, n).astype(np.int32), (scale, np.zeros(np.shape(scale)), 0))

    w = g.constant(i8(8, 3, 3, 3), (scales, np.zeros(8), 0))
    out, options = ((1, 6, 6, 8), "int8", (0.03, -10)), windows("Conv2D", 2, FusedActivationFunction=3)
    y = g.op("CONV_2D", [x, w, bias(8, scales * 0.02)], out, **options)
    w = g.constant(i8(1, 3, 3, 8), (scales, np.zeros(8), 3))
    out, options = ((1, 6, 6, 8), "int8", (0.05, 4)), windows("DepthwiseConv2D", DepthMultiplier=1)
    z = g.op("DEPTHWISE_CONV_2D", [y, w, bias(8, scales * 0.03)], out, **options)
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


@pytest.mark.parametrize("start", [0, 16384])
def test_network_with_a_cache(start: int) -> None:
    """A decoder's step: its norm is a composite, new keys and values go into caches, weights lie inside or behind."""
    g, norm = Subgraph(), Subgraph()
    norm.outputs = [normalised(norm, norm.input((1, 1, 8)), (1, 1, 8))]
    x, place = g.input((1, 1, 8)), g.input((3,), "int32")
    options = {"Name": "norm", "DecompositionSubgraphIndex": 1, "CompositeAttributes": b"\0\0\1\0\0\x24\1"}
    x = g.op("STABLEHLO_COMPOSITE", [x], ((1, 1, 8),), table="StableHLOCompositeOptions", **options)
    caches = [g.input((1, 5, 8)) for _ in range(2)]
    kept = [g.op("DYNAMIC_UPDATE_SLICE", [c, linear(g, x, (1, 1, 8), 8), place], ((1, 5, 8),)) for c in caches]
    g.outputs = [attention(g, x, 1, 5, *kept, 8), *kept]
    check([g, norm], [f32(1, 1, 8), ints(0, 3, 0), f32(1, 5, 8), f32(1, 5, 8)], start=start)


def test_list_that_a_loop_fills() -> None:
    """Rows are read and written at the loop's own count, as of `tf.map_fn`: the list is cut there and joined."""
    main, test, body = Subgraph(), Subgraph(), Subgraph()
    for g in (main, test, body):
        g.input((), "int32"), g.input((-1, 4)), g.input((-1, 4))
    (n,) = sizes_of(test, 2, 2, 0)
    test.outputs = [test.op("LESS", [0, n], ((), "bool"))]
    one, row, rest = (body.constant(ints(*v)) for v in ((1,), (1, 4), (-1, -1)))
    here = body.op("RESHAPE", [0, one], ((1,), "int32"))
    after = body.op("ADD", [here, one], ((1,), "int32"), table="AddOptions")
    zero, all_ = body.constant(ints(0)), body.constant(ints(-1))
    joined = {"table": "ConcatenationOptions", "Axis": 0}
    size, start = (body.op("CONCATENATION", v, ((2,), "int32"), **joined) for v in ([here, all_], [after, zero]))
    x = body.op("STRIDED_SLICE", [2, here, after, one], ((4,),), table="StridedSliceOptions", ShrinkAxisMask=1)
    parts = [
        body.op("SLICE", [1, body.constant(ints(0, 0)), size], ((-1, 4),)),
        body.op("RESHAPE", [body.op("TANH", [x], ((4,),)), row], ((1, 4),)),
        body.op("SLICE", [1, start, rest], ((-1, 4),)),
    ]
    count = body.op("ADD", [0, body.constant(np.array(1, np.int32))], ((), "int32"), table="AddOptions")
    body.outputs = [count, body.op("CONCATENATION", parts, ((-1, 4),), **joined), 2]
    kinds = [((), "int32"), ((-1, 4),), ((-1, 4),)]
    main.outputs = main.op("WHILE", [0, 1, 2], *kinds, table="WhileOptions", CondSubgraphIndex=1, BodySubgraphIndex=2)
    check([main, test, body], [np.array(0, np.int32), f32(3, 4), f32(3, 4)])


def test_network_of_shapes() -> None:
    """Shapes that the model computes: a flattening whose target is packed out of the input's shape."""
    g = Subgraph()
    x = g.input((2, 3, 4))
    target = packed(g, *sizes_of(g, x, 3, 0), g.constant(np.array(-1, np.int32)))
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
    weights = [g.constant(f32(4, 3, 3, 3)), g.constant(f32(4))]
    y = g.op("CONV_2D", [x, *weights], ((-1, 4, 4, 4),), **windows("Conv2D", 2, FusedActivationFunction=1))
    y = g.op("MAX_POOL_2D", [y], ((-1, 2, 2, 4),), **windows("Pool2D", 2, 1, FilterWidth=2, FilterHeight=2))
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
