"""A second set of cases, which nobody wrote a rule for: other sizes, dtypes and attributes of what real networks have.

    python -m benchmarks.operators second

They are run on what is there, to find what `operator_cases` does not meet.
"""

from typing import Any

import numpy as np
from onnx import TensorProto

from benchmarks.operator_cases import Case, Shape, ints, number, rand

_RNG = np.random.default_rng(3)


def _conv(name: str, x: Shape, w: Shape, op: str = "Conv", **more: Any) -> Case:
    attributes = {"kernel_shape": list(w[2:]), "pads": [k // 2 for k in w[2:]] * 2, **more}
    return Case("second", name, op, (x,), (rand(*w),), attributes)


def _one(name: str, op: str, inputs: Any, constants: Any = (), attributes: Any = None, **more: Any) -> Case:
    more.setdefault("free", ())
    return Case("second", name, op, inputs, constants, attributes or {}, **more)


def _share(*shape: int) -> np.ndarray:
    return _RNG.random(shape, np.float32)


def _below(high: int, *shape: int, dtype: Any = np.int64) -> np.ndarray:
    return _RNG.integers(0, high, shape).astype(dtype)


SECOND: tuple[Case, ...] = (
    _conv("3x3 of 3 to 32, 299", (1, 3, 299, 299), (32, 3, 3, 3), strides=[2, 2]),
    _conv("5x5 stride 2 of 24", (1, 24, 64, 64), (48, 24, 5, 5), strides=[2, 2]),
    _conv("1x1 of 13 to 29, 37x41", (1, 13, 37, 41), (29, 13, 1, 1)),
    _conv("3x3 of 8", (2, 8, 100, 100), (8, 8, 3, 3)),
    _conv("3x1 of 20", (1, 20, 50, 70), (20, 20, 3, 1)),
    _conv("11x11 stride 4", (1, 3, 227, 227), (64, 3, 11, 11), strides=[4, 4], pads=[2] * 4),
    _conv("1-d 5 of 80 to 512 (whisper)", (1, 80, 1500), (512, 80, 3)),
    _conv("1-d 3 stride 2 of 512", (1, 512, 750), (512, 512, 3), strides=[2]),
    _conv("1-d depthwise 31 (conformer)", (1, 256, 200), (256, 1, 31), group=256),
    _conv("1-d dilated 27 (wavenet)", (1, 64, 2000), (128, 64, 2), dilations=[27], pads=[27, 0]),
    _conv("1-d causal depthwise 4 (mamba)", (1, 768, 256), (768, 1, 4), group=768, pads=[3, 0]),
    _conv("1-d 7 to 1 channel (hifi-gan)", (1, 32, 8192), (1, 32, 7)),
    _conv("depthwise 5x5 stride 2 of 72", (1, 72, 40, 40), (72, 1, 5, 5), group=72, strides=[2, 2]),
    _conv("depthwise 3x3 of 960, 7x7", (1, 960, 7, 7), (960, 1, 3, 3), group=960),
    _conv("depthwise 3x3, batch 4", (4, 32, 112, 112), (32, 1, 3, 3), group=32),
    _conv("groups of 16 (resnext 32x8d)", (1, 256, 28, 28), (256, 8, 3, 3), group=32),
    _conv("3-d 3x3x3 of 16", (1, 16, 24, 32, 32), (16, 16, 3, 3, 3)),
    _conv("3-d 1x3x3 of 64", (1, 64, 8, 28, 28), (64, 64, 1, 3, 3)),
    _conv("3-d 3x1x1 of 64", (1, 64, 8, 28, 28), (64, 64, 3, 1, 1)),
    _conv("transposed 2x2 stride 2", (1, 128, 28, 28), (128, 64, 2, 2), "ConvTranspose", strides=[2, 2], pads=[0] * 4),
    _conv(
        "transposed 3x3 stride 2 out 1",
        (1, 64, 32, 32),
        (64, 32, 3, 3),
        "ConvTranspose",
        strides=[2, 2],
        pads=[1] * 4,
        output_padding=[1, 1],
    ),
    _conv("transposed 1-d 16 stride 8", (1, 256, 100), (256, 128, 16), "ConvTranspose", strides=[8], pads=[4, 4]),
    _conv(
        "transposed 3-d 2 stride 2",
        (1, 32, 8, 16, 16),
        (32, 16, 2, 2, 2),
        "ConvTranspose",
        strides=[2] * 3,
        pads=[0] * 6,
    ),
    _one("max 2x2 of odd", "MaxPool", ((1, 37, 63, 65),), (), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    _one(
        "max 3x3 s2 ceil",
        "MaxPool",
        ((1, 64, 55, 55),),
        (),
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    ),
    _one(
        "average 3x3 s1 no pad",
        "AveragePool",
        ((1, 192, 28, 28),),
        (),
        {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 0},
    ),
    _one("average 7x7 all", "AveragePool", ((1, 512, 7, 7),), (), {"kernel_shape": [7, 7]}),
    _one("1-d max 2 stride 2", "MaxPool", ((1, 64, 4000),), (), {"kernel_shape": [2], "strides": [2]}),
    _one("1-d average 4 stride 4", "AveragePool", ((1, 128, 4000),), (), {"kernel_shape": [4], "strides": [4]}),
    _one("1-d max 5 stride 1", "MaxPool", ((4, 64, 1000),), (), {"kernel_shape": [5], "pads": [2, 2]}),
    _one("max 5x5 pad 2 (sppf)", "MaxPool", ((1, 256, 20, 20),), (), {"kernel_shape": [5, 5], "pads": [2] * 4}),
    _one("max with places", "MaxPool", ((1, 32, 56, 56),), (), {"kernel_shape": [2, 2], "strides": [2, 2]}, outputs=2),
    _one("global max", "GlobalMaxPool", ((1, 1280, 7, 7),)),
    _one("global average batch 8", "GlobalAveragePool", ((8, 256, 14, 14),)),
    _one("197x64x197 x12", "MatMul", ((12, 197, 64), (12, 64, 197))),
    _one("197x197x64 x12", "MatMul", ((12, 197, 197), (12, 197, 64))),
    _one("1x64x513 x32", "MatMul", ((32, 1, 64), (32, 64, 513))),
    _one("1x513x64 x32", "MatMul", ((32, 1, 513), (32, 513, 64))),
    _one("49x32x49 x192 (swin)", "MatMul", ((192, 49, 32), (192, 32, 49))),
    _one("17x31x19", "MatMul", ((17, 31), (31, 19))),
    _one("5x768x3072", "MatMul", ((5, 768),), (rand(768, 3072),)),
    _one("300x300x300", "MatMul", ((300, 300), (300, 300))),
    _one("float64 100", "MatMul", ((100, 100), (100, 100)), dtype="float64"),
    _one("int32 100", "MatMul", (_below(9, 100, 100).astype(np.int32), _below(9, 100, 100).astype(np.int32))),
    _one("Gemm transA", "Gemm", ((256, 100), (256, 120), (120,)), (), {"transA": 1}),
    _one("Gemm transB inputs", "Gemm", ((100, 256), (120, 256), (120,)), (), {"transB": 1}),
    _one("Gemm alpha beta", "Gemm", ((64, 512),), (rand(512, 1000), rand(1000)), {"alpha": 0.5, "beta": 2.0}),
    _one("einsum outer", "Einsum", ((64, 128), (64, 96)), (), {"equation": "bi,bj->bij"}),
    _one("einsum bilinear", "Einsum", ((32, 64), (64, 48, 64), (32, 64)), (), {"equation": "bi,ikj,bj->bk"}),
    _one("einsum ssm", "Einsum", ((1, 128, 64, 16), (1, 128, 16)), (), {"equation": "bldn,bln->bld"}),
    _one("softmax 12x197x197", "Softmax", ((12, 197, 197),)),
    _one("softmax 32x1x513", "Softmax", ((32, 1, 513),)),
    _one("softmax of axis 1 of 4", "Softmax", ((1, 21, 64, 64),), attributes={"axis": 1}),
    _one("layer norm 196x192", "LayerNormalization", ((196, 192),), (rand(192), rand(192))),
    _one("layer norm two axes", "LayerNormalization", ((64, 14, 48),), (rand(14, 48), rand(14, 48)), {"axis": 1}),
    _one("instance norm 1-d", "InstanceNormalization", ((1, 512, 1600),), (rand(512), rand(512))),
    _one("batch norm", "BatchNormalization", ((1, 64, 56, 56),), (rand(64), rand(64), rand(64), _share(64) + 0.5)),
    _one("LpNormalization", "LpNormalization", ((1000, 128),), (), {"axis": 1}),
    _one("mean variance", "MeanVarianceNormalization", ((2, 16, 40, 40),)),
    _one("mean of space", "ReduceMean", ((1, 256, 28, 28),), (ints(2, 3),)),
    _one("sum of channels", "ReduceSum", ((1, 256, 28, 28),), (ints(1),)),
    _one("log-sum-exp", "ReduceLogSumExp", ((256, 512),), (ints(1),)),
    _one("max of first", "ReduceMax", ((100, 64, 30),), (ints(0),)),
    _one("any", "ReduceMax", (_RNG.random((256, 1000)) > 0.5,), (ints(1),), opset=20),
    _one("cumsum of 3-d", "CumSum", ((8, 200, 64),), (np.array(1),)),
    _one("cumsum reverse", "CumSum", ((64, 1000),), (np.array(1),), {"reverse": 1}),
    _one("argmax of classes", "ArgMax", ((1, 21, 128, 128),), (), {"axis": 1, "keepdims": 0}),
    _one("argmin of rows", "ArgMin", ((1000, 80),), (), {"axis": 1}),
    _one("fmod", "Mod", ((64, 1000), _share(64, 1000) + 0.5), (), {"fmod": 1}),
    _one(
        "int32 division", "Div", (_below(10000, 64, 1000).astype(np.int32), (_below(99, 64, 1000) + 1).astype(np.int32))
    ),
    _one("int64 division", "Div", (_below(10000, 64, 1000), _below(99, 64, 1000) + 1)),
    _one("int64 modulo", "Mod", (_below(10000, 64, 1000), _below(99, 64, 1000) + 1)),
    _one("int64 by 7", "Div", (_below(10000, 64, 1000),), (np.array(7),)),
    _one("pow 2.4", "Pow", (_share(64, 1000),), (number(2.4),)),
    _one("pow of inputs", "Pow", (_share(64, 1000), (64, 1000))),
    _one("where broadcast", "Where", (_RNG.random((1, 1, 128, 128)) > 0.5, (8, 12, 128, 128), (1,))),
    _one("PRelu", "PRelu", ((1, 64, 56, 56),), (rand(64, 1, 1),)),
    _one("HardSwish", "HardSwish", ((1, 64, 56, 56),)),
    _one("Mish", "Mish", ((1, 64, 56, 56),)),
    _one("Softplus", "Softplus", ((64, 1000),)),
    _one("Elu", "Elu", ((64, 1000),)),
    _one("Erf odd", "Erf", ((999, 77),)),
    _one("Round", "Round", ((64, 1000),)),
    _one("float to int64", "Cast", ((64, 1000),), (), {"to": TensorProto.INT64}),
    _one("float to half", "Cast", ((64, 1000),), (), {"to": TensorProto.FLOAT16}),
    _one("float to bfloat16", "Cast", ((64, 1000),), (), {"to": TensorProto.BFLOAT16}),
    _one("half add", "Add", ((64, 1000), (64, 1000)), dtype="float16"),
    _one("half Gelu", "Gelu", ((64, 1000),), dtype="float16", opset=20),
    _one(
        "Clip of int8", "Clip", (_below(100, 64, 1000).astype(np.int8),), (np.array(3, np.int8), np.array(90, np.int8))
    ),
    _one("float64 exp", "Exp", ((64, 1000),), dtype="float64"),
    _one("float64 sigmoid", "Sigmoid", ((64, 1000),), dtype="float64"),
    _one("concat last", "Concat", ((64, 100, 3), (64, 100, 5)), (), {"axis": 2}),
    _one("concat channels", "Concat", ((1, 64, 56, 56), (1, 32, 56, 56)), (), {"axis": 1}),
    _one("split uneven", "Split", ((64, 300),), (ints(100, 150, 50),), {"axis": 1}, outputs=3),
    _one("slice steps 2", "Slice", ((1, 64, 56, 56),), (ints(0, 0), ints(56, 56), ints(2, 3), ints(2, 2))),
    _one("transpose 0213", "Transpose", ((1, 197, 12, 64),), (), {"perm": [0, 2, 1, 3]}),
    _one("transpose 021", "Transpose", ((8, 197, 64),), (), {"perm": [0, 2, 1]}),
    _one("transpose of swin windows", "Transpose", ((1, 8, 7, 8, 7, 96),), (), {"perm": [0, 1, 3, 2, 4, 5]}),
    _one("transpose bytes", "Transpose", (_below(255, 224, 224, 3).astype(np.uint8),), (), {"perm": [2, 0, 1]}),
    _one("depth to space 2", "DepthToSpace", ((1, 64, 56, 56),), (), {"blocksize": 2}),
    _one("space to depth 2", "SpaceToDepth", ((1, 16, 56, 56),), (), {"blocksize": 2}),
    _one("pixel shuffle crd", "DepthToSpace", ((1, 48, 56, 56),), (), {"blocksize": 4, "mode": "CRD"}),
    _one("expand", "Expand", ((8, 1, 64),), (ints(8, 200, 64),)),
    _one("tile 3-d", "Tile", ((4, 30, 40),), (ints(2, 1, 3),)),
    _one("gather rows", "Gather", ((30000, 256), _below(30000, 128)), ()),
    _one("gather columns", "Gather", ((128, 1000), _below(1000, 200)), (), {"axis": 1}),
    _one("gather elements", "GatherElements", ((128, 1000), _below(1000, 128, 50)), (), {"axis": 1}),
    _one(
        "scatter elements add",
        "ScatterElements",
        ((1000, 64), _below(1000, 500, 64), (500, 64)),
        (),
        {"reduction": "add"},
    ),
    _one("scatter rows", "ScatterND", ((1000, 64), _below(1000, 300, 1), (300, 64)), ()),
    _one(
        "scatter rows add (graph)",
        "ScatterND",
        ((1000, 64), _below(1000, 4000, 1), (4000, 64)),
        (),
        {"reduction": "add"},
    ),
    _one("one-hot", "OneHot", (_below(50, 1000),), (np.array(50), np.array([0, 1], np.float32))),
    _one("compress", "Compress", ((1000, 64), _RNG.random(1000) > 0.5), (), {"axis": 0}),
    _one("non-zero sparse", "NonZero", (_RNG.random((200, 300)) > 0.95,)),
    _one("trilu lower", "Trilu", ((8, 128, 128),), (np.array(0),), {"upper": 0}),
    _one("pad 1-d reflect", "Pad", ((1, 1, 16000),), (ints(0, 0, 200, 0, 0, 200),), {"mode": "reflect"}),
    _one("pad constant odd", "Pad", ((1, 13, 57, 57),), (ints(0, 0, 1, 1, 0, 0, 2, 2),)),
    _one("range", "Range", (np.array(0), np.array(1000), np.array(1))),
    _one(
        "resize linear 2x", "Resize", ((1, 64, 28, 28),), (None, np.array([1, 1, 2, 2], np.float32)), {"mode": "linear"}
    ),
    _one("resize linear to odd", "Resize", ((1, 3, 224, 224),), (None, None, ints(1, 3, 300, 451)), {"mode": "linear"}),
    _one(
        "resize align corners",
        "Resize",
        ((1, 21, 33, 33),),
        (None, None, ints(1, 21, 129, 129)),
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    _one(
        "resize nearest 2x",
        "Resize",
        ((1, 128, 20, 20),),
        (None, np.array([1, 1, 2, 2], np.float32)),
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    _one("resize cubic", "Resize", ((1, 16, 14, 14),), (None, np.array([1, 1, 4, 4], np.float32)), {"mode": "cubic"}),
    _one(
        "resize by half",
        "Resize",
        ((1, 32, 56, 56),),
        (None, np.array([1, 1, 0.5, 0.5], np.float32)),
        {"mode": "linear"},
    ),
    _one("grid sample bilinear", "GridSample", ((1, 32, 40, 40), _RNG.random((1, 40, 40, 2), np.float32) * 2 - 1)),
    _one(
        "grid sample nearest",
        "GridSample",
        ((1, 32, 40, 40), _RNG.random((1, 40, 40, 2), np.float32) * 2 - 1),
        (),
        {"mode": "nearest"},
    ),
    _one(
        "roi align",
        "RoiAlign",
        ((1, 256, 50, 50), np.sort(_share(100, 4) * 40, axis=1), np.zeros(100, np.int64)),
        (),
        {"output_height": 7, "output_width": 7, "sampling_ratio": 2},
    ),
    _one(
        "roi align adaptive",
        "RoiAlign",
        ((1, 64, 50, 50), np.sort(_share(50, 4) * 40, axis=1), np.zeros(50, np.int64)),
        (),
        {"output_height": 7, "output_width": 7},
    ),
    _one(
        "max roi pool 256",
        "MaxRoiPool",
        ((1, 256, 38, 50), np.concatenate([np.zeros((50, 1), np.float32), np.sort(_share(50, 4) * 35, axis=1)], 1)),
        (),
        {"pooled_shape": [7, 7]},
    ),
    _one("top 100 of 5000", "TopK", ((1, 5000),), (ints(100),), outputs=2),
    _one("top 1 of 1000 x 64", "TopK", ((64, 1000),), (ints(1),), outputs=2),
    _one("top 300 of 25200", "TopK", ((25200,),), (ints(300),), {"axis": 0}, outputs=2),
    _one("sort rows", "TopK", ((64, 256),), (ints(256),), outputs=2),
    _one(
        "nms 300 of 80 classes",
        "NonMaxSuppression",
        (np.sort(_share(1, 300, 4) * 100, axis=2), _share(1, 80, 300)),
        (np.array(20), number(0.5), number(0.3)),
    ),
    _one(
        "nms 8400",
        "NonMaxSuppression",
        (np.sort(_share(1, 8400, 4) * 640, axis=2), _share(1, 1, 8400)),
        (np.array(300), number(0.45), number(0.25)),
    ),
    _one("unique 2000", "Unique", (_below(300, 2000),), outputs=4),
    _one(
        "LSTM batch 8", "LSTM", ((50, 8, 64),), (rand(1, 512, 64), rand(1, 512, 128)), {"hidden_size": 128}, outputs=2
    ),
    _one(
        "LSTM batch 1, both ways",
        "LSTM",
        ((60, 1, 80),),
        (rand(2, 512, 80), rand(2, 512, 128)),
        {"hidden_size": 128, "direction": "bidirectional"},
        outputs=2,
    ),
    _one(
        "GRU batch 4", "GRU", ((40, 4, 100),), (rand(1, 384, 100), rand(1, 384, 128)), {"hidden_size": 128}, outputs=2
    ),
    _one("dynamic quantise 128x768", "DynamicQuantizeLinear", ((128, 768),), outputs=3),
    _one(
        "MatMulInteger 128x768x768",
        "MatMulInteger",
        (_below(255, 128, 768).astype(np.uint8),),
        (_RNG.integers(-127, 127, (768, 768)).astype(np.int8), np.array(120, np.uint8)),
    ),
    _one(
        "MatMulInteger 1x768x3072",
        "MatMulInteger",
        (_below(255, 1, 768).astype(np.uint8),),
        (_RNG.integers(-127, 127, (768, 3072)).astype(np.int8), np.array(120, np.uint8)),
    ),
    _one(
        "QLinearConv 1x1",
        "QLinearConv",
        (_below(255, 1, 128, 28, 28).astype(np.uint8),),
        (
            number(0.02),
            np.array(120, np.uint8),
            _RNG.integers(-127, 127, (128, 128, 1, 1)).astype(np.int8),
            number(0.01),
            np.array(0, np.int8),
            number(1),
            np.array(110, np.uint8),
        ),
    ),
    _one(
        "QLinearConv depthwise",
        "QLinearConv",
        (_below(255, 1, 96, 56, 56).astype(np.uint8),),
        (
            number(0.02),
            np.array(120, np.uint8),
            _RNG.integers(-127, 127, (96, 1, 3, 3)).astype(np.int8),
            number(0.01),
            np.array(0, np.int8),
            number(1),
            np.array(110, np.uint8),
        ),
        {"group": 96, "pads": [1] * 4},
    ),
    _one(
        "dequantise per channel",
        "DequantizeLinear",
        (_RNG.integers(-127, 127, (768, 768)).astype(np.int8),),
        (_share(768), np.zeros(768, np.int8)),
        {"axis": 0},
    ),
    _one(
        "quantise per channel",
        "QuantizeLinear",
        ((256, 768),),
        (_share(768) + 0.1, np.zeros(768, np.int8)),
        {"axis": 1},
    ),
    _one("det 4x4", "Det", ((500, 4, 4),)),
    _one("DFT 512", "DFT", ((16, 512, 1),), (), {"axis": 1}, opset=17),
    _one("attention 23 gqa", "Attention", ((1, 32, 1, 64), (1, 8, 512, 64), (1, 8, 512, 64)), opset=23),
    _one("attention 197", "Attention", ((1, 12, 197, 64),) * 3, opset=23),
    _one("RMS norm token", "RMSNormalization", ((1, 1, 2048),), (rand(2048),), opset=23),
    _one(
        "rotary 3-d positions",
        "RotaryEmbedding",
        ((1, 128, 512),),
        (rand(200, 32), rand(200, 32), _below(200, 1, 128)),
        {"num_heads": 8},
        opset=23,
    ),
    _one(
        "rotary interleaved",
        "RotaryEmbedding",
        ((1, 8, 128, 64),),
        (rand(1, 128, 32), rand(1, 128, 32)),
        {"interleaved": 1},
        opset=23,
    ),
)
