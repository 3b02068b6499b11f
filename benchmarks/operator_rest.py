"""Cases of the operators that have no family of their own in `operator_cases`: each operator once, common ones more."""

from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto

from benchmarks.operator_cases import Case, case, ints, number, rand

WIDE = (64, 56, 256)
_RNG = np.random.default_rng(6)


def _unary() -> list[Case]:
    share = _RNG.random(WIDE, np.float32)
    plain = (
        "Ceil Celu Cos Cosh HardSigmoid Hardmax IsInf LeakyRelu Selu Shrink Sinh Softsign Tan ThresholdedRelu "
        "Asinh Identity Flatten"
    ).split()
    unary = partial(case, "unary")
    return [
        *(unary(op, op, (WIDE,), free=(0, 1)) for op in plain),
        *(unary(op, op, (share,), free=(0, 1)) for op in ("Acos", "Asin", "Atanh")),
        unary("Acosh", "Acosh", (share + 1,), free=(0, 1)),
        unary("Gelu", "Gelu", (WIDE,), free=(0, 1), opset=20),
        unary("Gelu by tanh", "Gelu", (WIDE,), approximate="tanh", free=(0, 1), opset=20),
        unary("Relu of 100 elements", "Relu", ((100,),)),
        unary("Relu of 4 M elements", "Relu", ((1 << 22,),)),
        unary("Tanh of 99 elements", "Tanh", ((99,),)),
        unary("Sigmoid of 2 M elements", "Sigmoid", ((1 << 21,),)),
        unary("Reshape", "Reshape", (WIDE,), (ints(-1, 128),), free=()),
        unary("Squeeze", "Squeeze", ((64, 1, 256),), (ints(1),), free=()),
        unary("Unsqueeze", "Unsqueeze", ((64, 256),), (ints(1),), free=()),
    ]


def _binary() -> list[Case]:
    whole, flags = (_RNG.integers(0, 1000, WIDE).astype(np.int32) for _ in "ab"), [_RNG.random(WIDE) > 0.5] * 2
    a, b = whole
    shift = (a.astype(np.uint32), (b % 31).astype(np.uint32))
    binary = partial(case, "binary")
    return [
        *(binary(op, op, (WIDE, WIDE), free=()) for op in ("Sub", "Max", "Min", "Mean")),
        *(binary(op, op, (WIDE, WIDE), free=()) for op in ("Greater", "GreaterOrEqual", "LessOrEqual")),
        *(binary(op, op, flags, free=()) for op in ("And", "Or", "Xor")),
        *(binary(op, op, (a, b), free=()) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal")),
        binary("BitwiseNot", "BitwiseNot", (a,), free=()),
        binary("BitShift", "BitShift", shift, direction="LEFT", free=()),
        binary("sum of three", "Sum", (WIDE, WIDE, WIDE), free=()),
        binary("integers added", "Add", (a, b), free=()),
        binary("maximum of integers", "Max", (a, b), free=()),
        binary("add of 1000 elements", "Add", ((1000,), (1000,)), free=()),
        binary("add of 4 M elements", "Add", ((1 << 22,), (1 << 22,)), free=()),
        binary("add of odd shapes", "Add", ((7, 1, 33, 65), (1, 13, 1, 65)), free=()),
        binary("CastLike", "CastLike", (a, (1,)), free=(), opset=19),
    ]


def _narrow() -> list[Case]:
    scale, middle = number(0.02), number(128, np.uint8)
    data = _RNG.integers(0, 255, (128, 256)).astype(np.uint8)
    weight = _RNG.integers(-127, 127, (256, 256)).astype(np.int8)
    image = _RNG.integers(0, 255, (1, 64, 28, 28)).astype(np.uint8)
    taps = _RNG.integers(-127, 127, (64, 64, 3, 3)).astype(np.int8)
    pads: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    whole = np.zeros(1, np.int8)
    narrow = partial(case, "narrow")
    return [
        narrow("DequantizeLinear", "DequantizeLinear", (image,), (scale, middle)),
        narrow("DynamicQuantizeLinear", "DynamicQuantizeLinear", (WIDE,), outputs=3),
        narrow("MatMulInteger", "MatMulInteger", (data,), (weight, middle, whole)),
        narrow(
            "QLinearMatMul",
            "QLinearMatMul",
            (data,),
            (scale, middle, weight, number(0.01), whole[0], number(1), middle),
        ),
        narrow("ConvInteger", "ConvInteger", (image,), (taps.astype(np.uint8), middle), **pads),
        narrow(
            "QLinearConv",
            "QLinearConv",
            (image,),
            (scale, middle, taps, number(0.01), whole[0], number(1), middle),
            **pads,
        ),
    ]


def _sums() -> list[Case]:
    def reduce(name: str, op: str, shape: tuple[int, ...], axis: int) -> Case:
        return Case("reduce more", name, op, (np.abs(_RNG.standard_normal(shape, np.float32)),), (ints(axis),))

    labels = _RNG.integers(0, 100, 512)
    reduced = partial(case, "reduce more")
    return [
        reduce("L1 over rows", "ReduceL1", (1024, 768), 1),
        reduce("logarithm of sums", "ReduceLogSum", (1024, 768), 1),
        reduce("sum of squares", "ReduceSumSquare", (1024, 768), 1),
        reduce("sum over 3 of 3", "ReduceSum", (64, 64, 3), 2),
        reduce("sum over an odd axis", "ReduceSum", (33, 77, 129), 1),
        reduced("global L2", "GlobalLpPool", ((1, 256, 14, 14),), free=(0, 2, 3)),
        reduced("CumProd", "CumProd", ((64, 1000),), (np.array(1, np.int64),), opset=26),
        reduced("negative log-likelihood", "NegativeLogLikelihoodLoss", ((512, 100), labels)),
        reduced("cross entropy", "SoftmaxCrossEntropyLoss", ((512, 100), labels)),
        reduced("softmax of 7", "Softmax", ((5000, 7),)),
        reduced("softmax of 4096", "Softmax", ((256, 4096),)),
        reduced("softmax of an odd axis", "Softmax", ((33, 129, 17),), axis=1),
        reduced("layer norm of 100", "LayerNormalization", ((1000, 100),), (rand(100), rand(100))),
        reduced("layer norm of 4096", "LayerNormalization", ((128, 4096),), (rand(4096), rand(4096))),
        reduced("determinants", "Det", ((256, 8, 8),)),
    ]


def _products_more() -> list[Case]:
    def product(name: str, m: int, k: int, n: int) -> Case:
        return Case("matmul more", name, "MatMul", ((m, k),), (rand(k, n),))

    sizes = (
        (64, 64, 64),
        (512, 512, 512),
        (1, 4096, 1024),
        (7, 333, 555),
        (1024, 64, 64),
        (16, 2048, 16),
        (200, 5, 300),
    )
    return [product("x".join(map(str, s)), *s) for s in sizes]


def _images_more() -> list[Case]:
    x = (1, 32, 28, 28)
    rows = np.array([[0, 0, 0, 13, 13], [0, 5, 5, 27, 20]] * 8, np.float32)
    spots = _RNG.permutation(32 * 28 * 28)[: 32 * 14 * 14].astype(np.int64).reshape(1, 32, 14, 14)
    wave, frame = (1, 4096, 1), np.hanning(256).astype(np.float32)

    def folded(name: str, columns: tuple[int, int], image: int, kernel: int, **more: Any) -> Case:
        sizes = (ints(image, image), ints(kernel, kernel))
        return Case("image more", name, "Col2Im", ((1, *columns),), sizes, more, free=())

    image_case = partial(case, "image more")
    return [
        folded("Col2Im 5x5", (25 * 16, 28 * 28), 28, 5, pads=[2] * 4),
        folded("Col2Im 4x4 stride 2", (16 * 16, 14 * 14), 28, 4, strides=[2, 2], pads=[1] * 4),
        folded("Col2Im of patches", (16 * 48, 14 * 14), 56, 4, strides=[4, 4]),
        *(
            Case("move", f"channels last of {n}", "Transpose", ((1, n, 112, 112),), (), {"perm": [0, 2, 3, 1]})
            for n in (2, 3, 4, 6)
        ),
        image_case("Col2Im", "Col2Im", ((1, 9 * 16, 26 * 26),), (ints(28, 28), ints(3, 3)), free=()),
        image_case("MaxRoiPool", "MaxRoiPool", (x, rows), pooled_shape=[7, 7], free=()),
        image_case("MaxUnpool", "MaxUnpool", ((1, 32, 14, 14), spots), kernel_shape=[2, 2], strides=[2, 2], free=()),
        image_case("AffineGrid", "AffineGrid", ((4, 2, 3),), (ints(4, 3, 64, 64),), opset=20),
        image_case("Upsample", "Upsample", (x,), (np.float32([1, 1, 2, 2]),), mode="linear", free=(), opset=9),
        image_case("Fourier transform", "DFT", (wave,), axis=1, free=(), opset=17),
        image_case("short Fourier transforms", "STFT", (wave,), (np.array(128, np.int64), frame), free=()),
        Case("image more", "identity matrix", "EyeLike", ((512, 512),), (), {"dtype": TensorProto.FLOAT}, free=()),
        image_case("unique elements", "Unique", (_RNG.integers(0, 500, 10000),), free=()),
    ]


def _decoders() -> list[Case]:
    heads: dict[str, Any] = {"opset": 23, "free": ()}
    qkv = ((1, 8, 128, 64),) * 3
    decoder = partial(case, "decoder")
    return [
        decoder("attention", "Attention", qkv, **heads),
        decoder("causal attention", "Attention", qkv, is_causal=1, **heads),
        decoder(
            "rotary embedding", "RotaryEmbedding", ((1, 8, 128, 64),), (rand(1, 128, 32), rand(1, 128, 32)), **heads
        ),
        decoder("RMS norm", "RMSNormalization", ((128, 768),), (rand(768),), **heads),
        decoder(
            "group norm of channels",
            "GroupNormalization",
            ((1, 64, 56, 56),),
            (rand(64), rand(64)),
            num_groups=8,
            opset=21,
        ),
    ]


def _unusual() -> list[Case]:
    """What nobody thinks of first: odd axes, other dtypes, outer axes, operands that come at run time."""
    x, flags = (65, 33, 127), _RNG.random((64, 1000)) > 0.5
    wide, bytes_ = _RNG.integers(-1000, 1000, (256, 1000)), _RNG.integers(0, 255, (512, 1000)).astype(np.uint8)
    twice: dict[str, Any] = {"dtype": "float64", "free": ()}

    def both(*shapes: tuple[int, ...]) -> Case:
        return Case("unusual", "inputs " + " ".join("x".join(map(str, s)) for s in shapes), "MatMul", shapes, free=())

    unusual = partial(case, "unusual")
    return [
        both((512, 512), (512, 512)),
        both((64, 256), (256, 256)),
        both((128, 768), (768, 768)),
        both((8, 1, 64, 65), (4, 65, 64)),
        both((1, 512), (512, 512)),
        both((33, 77), (77, 129)),
        unusual("sums of an inner axis", "CumSum", ((256, 1000),), (np.array(1, np.int64),), free=()),
        unusual("sums of an outer axis", "CumSum", ((256, 1000),), (np.array(0, np.int64),), free=()),
        unusual("place of the greatest, inner", "ArgMax", ((256, 1001),), axis=1),
        unusual("place of the greatest, outer", "ArgMax", ((256, 1001),), axis=0, free=(1,)),
        unusual("the 5 first of an outer axis", "TopK", ((100, 333),), (ints(5),), axis=0, free=(1,), outputs=2),
        unusual("softmax of 77", "Softmax", ((300, 77),)),
        unusual("softmax of 1001 over an outer axis", "Softmax", ((1001, 63),), axis=0, free=(1,)),
        unusual("log-softmax of 1001", "LogSoftmax", ((64, 1001),)),
        unusual("softmax in two precisions", "Softmax", ((64, 1000),), **twice),
        unusual("add, float64", "Add", (x, x), **twice),
        unusual("tanh, float64", "Tanh", (x,), **twice),
        unusual("sum of rows, float64", "ReduceSum", ((256, 1001),), (ints(1),), **twice),
        unusual("sum of rows, int64", "ReduceSum", (wide,), (ints(1),), free=()),
        unusual("greatest of rows, int64", "ReduceMax", (wide,), (ints(1),), free=()),
        unusual("greatest of rows, bytes", "ReduceMax", (bytes_,), (ints(1),), free=()),
        unusual("least of columns, bytes", "ReduceMin", (bytes_,), (ints(0),), free=()),
        unusual("sum of everything", "ReduceSum", ((1000, 1000),), (ints(0, 1),), free=()),
        unusual("mean of outer and inner axes", "ReduceMean", (x,), (ints(0, 2),), free=()),
        unusual("product of columns", "ReduceProd", ((256, 1000),), (ints(0),), free=()),
        unusual("bytes to floats", "Cast", (bytes_,), to=TensorProto.FLOAT, free=()),
        unusual("floats to int64", "Cast", (x,), to=TensorProto.INT64, free=()),
        unusual("int64 to floats", "Cast", (wide,), to=TensorProto.FLOAT, free=()),
        unusual("flags to floats", "Cast", (flags,), to=TensorProto.FLOAT, free=()),
    ]


def _unusual_images() -> list[Case]:
    """Images, volumes and heads that nobody thinks of first."""
    image = (1, 32, 57, 57)
    unusual = partial(case, "unusual")
    return [
        unusual("padded by its edge", "Pad", (image,), (ints(0, 0, 2, 3, 0, 0, 2, 3),), mode="edge"),
        unusual("padded by its mirror", "Pad", (image,), (ints(0, 0, 2, 3, 0, 0, 2, 3),), mode="reflect"),
        unusual("instance norm of odd images", "InstanceNormalization", (image,), (rand(32), rand(32))),
        unusual("layer norm of 333", "LayerNormalization", ((300, 333),), (rand(333), rand(333))),
        unusual("response norm", "LRN", (image,), size=5),
        unusual("norm of windows", "LpPool", (image,), kernel_shape=[3, 3], strides=[2, 2], p=2),
        unusual(
            "mean of windows 3x3 stride 2",
            "AveragePool",
            (image,),
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1, 1, 1, 1],
        ),
        unusual("greatest of windows 5x5", "MaxPool", (image,), kernel_shape=[5, 5], pads=[2, 2, 2, 2]),
        unusual(
            "depthwise volume dilated",
            "Conv",
            ((1, 16, 12, 30, 30),),
            (rand(16, 1, 3, 3, 3),),
            group=16,
            dilations=[1, 2, 2],
            pads=[1, 2, 2, 1, 2, 2],
        ),
        unusual("sum over two indices", "Einsum", ((16, 32, 24), (32, 24, 40)), equation="aij,ijb->ab", free=()),
        unusual("products of heads", "Einsum", ((2, 50, 4, 32), (2, 60, 4, 32)), equation="bqhd,bkhd->bhqk", free=()),
        unusual(
            "transpose of heads, int64",
            "Transpose",
            (_RNG.integers(0, 9, (8, 128, 16, 8)),),
            perm=[0, 2, 1, 3],
            free=(),
        ),
        unusual(
            "cubic with antialiasing",
            "Resize",
            (image,),
            (None, np.float32([1, 1, 0.4, 0.4])),
            mode="cubic",
            antialias=1,
        ),
    ]


REST: tuple[Case, ...] = (
    *_unary(),
    *_binary(),
    *_narrow(),
    *_sums(),
    *_products_more(),
    *_images_more(),
    *_decoders(),
    *_unusual(),
    *_unusual_images(),
)
