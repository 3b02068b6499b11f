"""A third set of cases that nobody wrote a rule for: narrow and wide dtypes, odd sizes, rare attributes and operators.

    python -m benchmarks.operators third

Like the second, it is run on what is there. Operators of the domain ``com.microsoft`` are those that converters write.
"""

from functools import partial
from typing import Any

import numpy as np

from benchmarks.operator_cases import Case, case, ints, number, rand

_RNG = np.random.default_rng(5)
_case = partial(case, "third")
_OURS: dict[str, Any] = {"domain": "com.microsoft"}
_ROWS, _IMAGE = (129, 513), (1, 61, 31, 33)


def _whole(kind: str, *shape: int, low: int = 0, high: int = 100) -> np.ndarray:
    return _RNG.integers(low, high, shape).astype(kind)


def _truth(*shape: int) -> np.ndarray:
    return _RNG.random(shape) > 0.5


def _share(*shape: int) -> np.ndarray:
    return _RNG.random(shape, np.float32) + np.float32(0.1)


def _elementwise() -> list[Case]:
    wide, narrow = _whole("int64", *_ROWS, low=1), _whole("int8", *_ROWS, low=-100)
    unary = [
        ("Sqrt", _share(*_ROWS)),
        ("Log", _share(*_ROWS)),
        ("Exp", _share(*_ROWS)),
        ("Sin", _share(*_ROWS)),
        ("Cos", _share(*_ROWS)),
        ("Atan", _share(*_ROWS)),
        ("Asin", _share(*_ROWS) - 0.1),
        ("Reciprocal", _share(*_ROWS)),
        ("Abs", narrow),
        ("Abs", wide),
        ("Neg", wide),
        ("Sign", wide),
        ("Floor", _share(*_ROWS)),
        ("Not", _truth(*_ROWS)),
        ("IsNaN", _share(*_ROWS)),
        ("Selu", _share(*_ROWS)),
        ("ThresholdedRelu", _share(*_ROWS)),
        ("HardSigmoid", _share(*_ROWS)),
        ("Softsign", _share(*_ROWS)),
        ("Celu", _share(*_ROWS)),
        ("Relu", _share(*_ROWS)),
    ]
    binary = [
        ("Add", wide, wide),
        ("Mul", wide, wide),
        ("Sub", narrow, narrow),
        ("Max", wide, wide),
        ("Min", narrow, narrow),
        ("And", _truth(*_ROWS), _truth(*_ROWS)),
        ("Xor", _truth(*_ROWS), _truth(*_ROWS)),
        ("Equal", wide, wide),
        ("Less", narrow, narrow),
        ("GreaterOrEqual", _share(*_ROWS), _share(513)),
        ("BitwiseAnd", wide, wide),
        ("Div", _share(*_ROWS), _share(129, 1)),
        ("Pow", _share(*_ROWS), np.array([2, 3, 4] * 171, np.float32)),
        ("Mod", _whole("int32", *_ROWS), _whole("int32", 513, low=1)),
        ("Mul", _share(3, 1, 129), _share(1, 511, 1)),
    ]
    rows = [_case(f"{op} of {x.dtype}", op, (x,)) for op, x in unary]
    rows += [_case(f"{op} of {x.dtype}, {y.shape}", op, (x, y)) for op, x, y in binary]
    halves = ("Exp", "Sigmoid", "Sqrt", "Tanh", "Relu", "Erf")
    rows += [_case(f"{op} of halves", op, (_share(*_ROWS).astype(np.float16),), dtype="float16") for op in halves]
    casts = [
        ("int64", 1),
        ("uint8", 1),
        ("bool", 1),
        ("float16", 1),
        ("float64", 1),
        ("int32", 7),
        ("float32", 3),
        ("float32", 9),
        ("float64", 10),
    ]
    return rows + [
        _case(f"cast {kind} to type {to}", "Cast", ((_share(*_ROWS) * 50).astype(kind),), to=to) for kind, to in casts
    ]


def _reduced() -> list[Case]:
    wide, narrow = _whole("int64", 65, 33, 67), _whole("uint8", 65, 33, 67)
    rows = [
        _case(f"{op} of {x.dtype}, axes {axes}", op, (x,), (ints(*axes),), opset=20)
        for op, x, axes in (
            ("ReduceSum", wide, (2,)),
            ("ReduceSum", wide, (0,)),
            ("ReduceMax", narrow, (2,)),
            ("ReduceMin", narrow, (1,)),
            ("ReduceProd", wide % 2 + 1, (1,)),
            ("ReduceSumSquare", _share(65, 33, 67), (0, 2)),
            ("ReduceL1", _share(65, 33, 67), (0,)),
            ("ReduceL2", _share(65, 33, 67), (1,)),
            ("ReduceLogSum", _share(65, 33, 67), (2,)),
            ("ReduceMean", _share(65, 33, 67), (0, 1)),
            ("ReduceMax", _share(1, 61, 31 * 33), (2,)),
            ("ReduceMean", _share(9999, 3), (0,)),
            ("ReduceMean", _share(9999, 3), (1,)),
        )
    ]
    rows += [
        _case(f"{op} of {x.dtype} along {axis}", op, (x,), axis=axis)
        for op, x, axis in (
            ("ArgMax", wide.astype(np.int32), 2),
            ("ArgMax", _share(65, 33, 67), 0),
            ("ArgMin", narrow, 1),
            ("Softmax", _share(65, 33, 67), 0),
            ("LogSoftmax", _share(65, 33, 67), 1),
            ("Softmax", _share(9999, 3), 1),
            ("Hardmax", _share(129, 513), 1),
            ("LpNormalization", _share(65, 33, 67), 1),
        )
    ]
    return [
        *rows,
        _case("sum of halves", "ReduceSum", ((129, 513),), (ints(1),), dtype="float16"),
        _case("softmax of halves", "Softmax", ((129, 513),), dtype="float16"),
        _case(
            "layer norm of halves",
            "LayerNormalization",
            ((129, 513),),
            (rand(513).astype(np.float16),) * 2,
            dtype="float16",
        ),
        _case("top 5 of int64", "TopK", (_whole("int64", 64, 999),), (ints(5),), outputs=2),
        _case("all of 999 sorted", "TopK", ((64, 999),), (ints(999),), outputs=2),
        _case("top 10 along the first", "TopK", ((999, 33),), (ints(10),), axis=0, largest=0, outputs=2),
        _case("cumsum of int32", "CumSum", (_whole("int32", 65, 999),), (np.array(1),)),
        _case("cumsum exclusive of the first", "CumSum", ((999, 65),), (np.array(0),), exclusive=1),
        _case("instance norm of 13", "InstanceNormalization", ((2, 13, 45, 47),), (rand(13), rand(13))),
        _case(
            "group norm of 6", "GroupNormalization", ((1, 60, 31, 33),), (rand(60), rand(60)), num_groups=6, opset=21
        ),
        _case("LRN of 7", "LRN", (_IMAGE,), size=7),
    ]


def _products() -> list[Case]:
    kinds = ("float16", "float64", "int32", "uint8")
    rows = [
        _case(f"77x65x41 of {k}", "MatMul", (_whole(k, 77, 65, high=9), _whole(k, 65, 41, high=9)), dtype="float64")
        for k in kinds[:3]
    ]
    byte = np.array(120, np.uint8)
    spread = [
        ("bytes 61x96x45", (61, 96), (96, 45)),
        ("bytes 1x1000x999", (1, 1000), (1000, 999)),
        ("bytes 513x48x512", (513, 48), (48, 512)),
        ("bytes 7x513x65", (7, 513), (513, 65)),
    ]
    rows += [
        _case(n, "MatMulInteger", (_whole("uint8", *a),), (_whole("int8", *b, low=-90), byte)) for n, a, b in spread
    ]
    rows += [_case("bytes of two inputs", "MatMulInteger", (_whole("uint8", 130, 130), _whole("uint8", 130, 130)))]
    convolutions: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
        ("3x3 of 5 to 7", (1, 5, 65, 63), (7, 5, 3, 3), {"pads": [1] * 4}),
        ("4x4 stride 3 of 20", (2, 20, 50, 50), (30, 20, 4, 4), {"strides": [3, 3]}),
        ("2x5 uneven pads of 24", (1, 24, 40, 44), (24, 24, 2, 5), {"pads": [1, 0, 0, 4]}),
        ("3x3 in groups of 7", (1, 35, 41, 41), (35, 7, 3, 3), {"group": 5}),
        ("depthwise 3x3 dilated by 3", (1, 48, 41, 41), (48, 1, 3, 3), {"group": 48, "dilations": [3, 3]}),
        ("depthwise 2x2 stride 2", (1, 96, 56, 56), (96, 1, 2, 2), {"group": 96, "strides": [2, 2]}),
        ("1-d 9 of 100 to 60", (1, 100, 333), (60, 100, 9), {"pads": [4, 4]}),
        ("1-d 1 of 300", (1, 300, 77), (200, 300, 1), {}),
        ("1-d 3 of one channel", (4, 1, 4000), (8, 1, 3), {}),
        ("3-d 3x1x1 depthwise", (1, 64, 8, 20, 20), (64, 1, 3, 1, 1), {"group": 64, "pads": [1, 0, 0, 1, 0, 0]}),
        ("3-d 5x5x5 of 4", (1, 4, 16, 20, 20), (8, 4, 5, 5, 5), {}),
        ("1x1 stride 2 of 256", (1, 256, 28, 28), (512, 256, 1, 1), {"strides": [2, 2]}),
        ("14x14 stride 14 of 3", (1, 3, 224, 224), (384, 3, 14, 14), {"strides": [14, 14]}),
    ]
    rows += [
        _case(f"convolution {n}", "Conv", (x,), (rand(*w),), kernel_shape=list(w[2:]), **a)
        for n, x, w, a in convolutions
    ]
    transposed = [
        ("5x5 stride 2 of 32", (1, 32, 16, 16), (32, 16, 5, 5), {"strides": [2, 2], "pads": [2] * 4}),
        ("depthwise 4x4 stride 2", (1, 32, 28, 28), (32, 1, 4, 4), {"strides": [2, 2], "group": 32}),
        ("2x2 stride 2 of 24 to 1", (1, 24, 80, 80), (24, 1, 2, 2), {"strides": [2, 2]}),
        ("1-d 4 stride 2", (1, 64, 500), (64, 32, 4), {"strides": [2], "pads": [1, 1]}),
    ]
    rows += [
        _case(f"transposed {n}", "ConvTranspose", (x,), (rand(*w),), kernel_shape=list(w[2:]), **a)
        for n, x, w, a in transposed
    ]
    gates = {"hidden_size": 65}
    recurrent = (
        (rand(1, 65, 33), rand(1, 65, 65)),
        (rand(1, 260, 33), rand(1, 260, 65)),
        (rand(1, 195, 33), rand(1, 195, 65)),
    )
    rows += [
        _case(f"{op} of 65", op, ((37, 3, 33),), w, **gates, outputs=2, free=())
        for op, w in zip(("RNN", "LSTM", "GRU"), recurrent, strict=True)
    ]
    for equation, *shapes in (
        ("bhqd,bhkd->bhqk", (2, 6, 49, 33), (2, 6, 51, 33)),
        ("ij,jk,kl->il", (50, 60), (60, 70), (70, 40)),
        ("bij->bji", (7, 129, 65)),
        ("bii->bi", (9, 100, 100)),
        ("abc,cd->abd", (5, 33, 64), (64, 48)),
    ):
        rows.append(_case(f"einsum {equation}", "Einsum", tuple(shapes), equation=equation))
    return rows


def _moved() -> list[Case]:
    rows = [
        _case(f"transpose {perm} of {x.dtype}", "Transpose", (x,), perm=perm)
        for x, perm in (
            (_share(33, 65, 67), [2, 1, 0]),
            (_whole("int64", 129, 513), [1, 0]),
            (_whole("uint8", 129, 513), [1, 0]),
            (_share(129, 513).astype(np.float16), [1, 0]),
            (_share(9, 17, 5, 33), [0, 2, 1, 3]),
            (_truth(33, 65, 67), [1, 0, 2]),
            (_share(2, 3, 5, 7, 11, 13), [5, 3, 1, 0, 2, 4]),
        )
    ]
    places = _whole("int64", 40, 31, high=129)
    return [
        *rows,
        _case("gather of bytes", "Gather", (_whole("uint8", 129, 513), _whole("int64", 300, high=129))),
        _case("gather of columns", "Gather", ((129, 513), _whole("int32", 77, high=513)), axis=1),
        _case("gather of single int64", "Gather", (_whole("int64", 5000), _whole("int64", 99, 99, high=5000))),
        _case(
            "gather elements along the first",
            "GatherElements",
            ((129, 513), _whole("int64", 100, 513, high=129)),
            axis=0,
        ),
        _case(
            "scatter elements by addition", "ScatterElements", ((129, 31), places, (40, 31)), axis=0, reduction="add"
        ),
        _case("scatter of rows", "ScatterND", ((129, 513), _RNG.permutation(129)[:50, None], (50, 513))),
        _case("concat of 9 bools", "Concat", (_truth(33, 65),) * 9, axis=1),
        _case("concat of odd", "Concat", ((129, 1, 33), (129, 7, 33), (129, 2, 33)), axis=1),
        _case("split in 7", "Split", ((65, 77),), axis=1, num_outputs=7, outputs=7),
        _case(
            "slice by steps 3 and -2", "Slice", ((129, 513),), (ints(0, -1), ints(129, -513), ints(0, 1), ints(3, -2))
        ),
        _case("slice of int64", "Slice", (_whole("int64", 129, 513),), (ints(7), ints(300), ints(1))),
        _case("pad by edges", "Pad", (_IMAGE,), (ints(0, 0, 3, 5, 0, 0, 2, 1),), mode="edge"),
        _case("pad of bytes", "Pad", (_whole("uint8", *_IMAGE),), (ints(0, 0, 3, 5, 0, 0, 2, 1),)),
        _case("pad by wrapping", "Pad", (_IMAGE,), (ints(0, 0, 3, 5, 0, 0, 2, 1),), mode="wrap", opset=19),
        _case("tile of odd", "Tile", ((13, 7, 5),), (ints(3, 4, 5),)),
        _case("expand the middle", "Expand", ((65, 1, 67),), (ints(65, 33, 67),)),
        _case("expand of bools", "Expand", (_truth(1, 513),), (ints(129, 513),)),
        _case("depth to space by 3", "DepthToSpace", ((1, 63, 33, 31),), blocksize=3),
        _case("space to depth by 2", "SpaceToDepth", ((1, 13, 64, 66),), blocksize=2),
        _case("one-hot of 1000", "OneHot", (_whole("int64", 64, high=1000),), (np.array(1000), np.float32([0, 1]))),
        _case("eye like", "EyeLike", ((513, 511),)),
        _case("lower triangle of int64", "Trilu", (_whole("int64", 257, 255),), upper=0),
        _case("where of int64", "Where", (_truth(129, 513), _whole("int64", 129, 513), _whole("int64", 513))),
        _case("compress columns", "Compress", ((129, 513), _truth(513)), axis=1),
        _case("non-zero bools", "NonZero", (_truth(129, 513),)),
        _case("unique of rows", "Unique", (_whole("int64", 99, 3, high=4),), axis=0),
        _case("range of halves' sizes", "Shape", ((129, 513),)),
        _case("scatter of halves", "TensorScatter", ((2, 4, 64, 33), (2, 4, 5, 33)), (ints(3, 9),), opset=24),
    ]


def _images() -> list[Case]:
    return [
        _case("resize cubic 1.7", "Resize", (_IMAGE,), (None, np.float32([1, 1, 1.7, 1.7])), mode="cubic", free=()),
        _case(
            "resize linear down, antialias",
            "Resize",
            ((1, 3, 129, 131),),
            (None, np.float32([1, 1, 0.4, 0.4])),
            mode="linear",
            antialias=1,
            free=(),
        ),
        _case(
            "resize bytes",
            "Resize",
            (_whole("uint8", 1, 3, 120, 120),),
            (None, np.float32([1, 1, 2, 2])),
            mode="nearest",
            free=(),
        ),
        _case("max 3x2 uneven", "MaxPool", (_IMAGE,), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 0, 1]),
        _case("max of bytes", "MaxPool", (_whole("uint8", 1, 64, 56, 56),), kernel_shape=[2, 2], strides=[2, 2]),
        _case("max dilated", "MaxPool", (_IMAGE,), kernel_shape=[3, 3], dilations=[2, 2]),
        _case(
            "average 4x4 stride 3 of volumes",
            "AveragePool",
            ((1, 16, 20, 20, 20),),
            kernel_shape=[4] * 3,
            strides=[3] * 3,
        ),
        _case("LpPool", "LpPool", (_IMAGE,), kernel_shape=[2, 2], strides=[2, 2]),
        _case("grid sample cubic", "GridSample", ((1, 8, 33, 35), (1, 40, 41, 2)), mode="bicubic", opset=16),
    ]


def _contributed() -> list[Case]:
    byte, scale = np.array(120, np.uint8), number(0.02)
    x, y = _whole("uint8", 129, 513), _whole("uint8", 129, 513)
    gamma = rand(768)
    return [
        _case("QLinearAdd", "QLinearAdd", (x,), (scale, byte, y, scale, byte, number(0.04), byte), **_OURS),
        _case("QLinearMul", "QLinearMul", (x,), (scale, byte, y, scale, byte, number(0.04), byte), **_OURS),
        _case("QLinearSigmoid", "QLinearSigmoid", (x,), (scale, byte, number(1 / 256), np.array(0, np.uint8)), **_OURS),
        _case("QLinearLeakyRelu", "QLinearLeakyRelu", (x,), (scale, byte, scale, byte), alpha=0.1, **_OURS),
        _case(
            "QLinearGlobalAveragePool",
            "QLinearGlobalAveragePool",
            (_whole("uint8", 1, 256, 14, 14),),
            (scale, byte, scale, byte),
            channels_last=0,
            **_OURS,
        ),
        _case(
            "DynamicQuantizeMatMul",
            "DynamicQuantizeMatMul",
            ((128, 768),),
            (_whole("int8", 768, 512, low=-90), number(0.01)),
            **_OURS,
        ),
        _case("FastGelu", "FastGelu", ((128, 3072),), (rand(3072),), **_OURS),
        _case("BiasGelu", "BiasGelu", ((128, 3072),), (rand(3072),), **_OURS),
        _case("QuickGelu", "QuickGelu", ((128, 3072),), **_OURS),
        _case(
            "SkipLayerNormalization", "SkipLayerNormalization", ((1, 128, 768), (1, 128, 768)), (gamma, gamma), **_OURS
        ),
        _case(
            "SkipSimplifiedLayerNormalization",
            "SkipSimplifiedLayerNormalization",
            ((1, 128, 768), (1, 128, 768)),
            (gamma,),
            **_OURS,
        ),
        _case("FusedMatMul", "FusedMatMul", ((12, 65, 64), (12, 67, 64)), transB=1, alpha=0.125, **_OURS),
        _case("MultiHeadAttention", "MultiHeadAttention", ((1, 99, 512),) * 3, num_heads=8, **_OURS),
        _case("FusedConv", "FusedConv", ((1, 61, 31, 33),), (rand(40, 61, 3, 3), rand(40)), activation="Relu", **_OURS),
        _case("CDist", "CDist", ((300, 64), (200, 64)), metric="euclidean", **_OURS),
        _case("Inverse", "Inverse", ((20, 8, 8),), **_OURS),
    ]


THIRD: tuple[Case, ...] = (*_elementwise(), *_reduced(), *_products(), *_moved(), *_images(), *_contributed())
