"""TFLite models against TFLite's own runtime: operators one by one, in floats and quantised."""

import time
from typing import Any

import numpy as np
import pytest

from tests.devices.tflite_models import RNG, Subgraph, check, f32, i8, ints, windows, write
from tests.refusals import refuses
from weft.error import ModelImportError, UnsupportedOperator, WeftError
from weft.frontend.tflite import from_tflite

Q = (0.05, 3)
"""Scale and zero point of quantised tensors."""


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
    """Check one operator; inputs numbered in `constants` are part of the model, options have the operator's table."""
    table = table or (f"{name.title().replace('_', '')}Options" if options else "")
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
    one("SOFTMAX", [x], (2, 5), Beta=2.0)
    one("LEAKY_RELU", [x], (2, 5), Alpha=0.3)
    for rounded in (False, True):
        one("GELU", [x], (2, 5), Approximate=rounded)
    one("PRELU", [x, f32(5)], (2, 5), constants=(1,))
    one("CAST", [x * 9], (2, 5), "int32", InDataType=0, OutDataType=2)
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
    x, given = f32(1, 9, 8, 4), {"DilationHFactor": dilation, "DilationWFactor": dilation, "constants": (1, 2)}
    options = windows("Conv2D", stride, padding, FusedActivationFunction=1, **given)
    one("CONV_2D", [x, f32(6, 3, 3, 4), f32(6)], (1, *size, 6), **options)
    options = windows("DepthwiseConv2D", stride, padding, DepthMultiplier=2, **given)
    one("DEPTHWISE_CONV_2D", [x, f32(1, 3, 3, 8), f32(8)], (1, *size, 8), **options)
    deep = windows("Conv3D", stride, padding, StrideD=1, DilationDFactor=1, FusedActivationFunction=3, **given)
    one("CONV_3D", [f32(1, 5, 9, 8, 4), f32(2, 3, 3, 4, 6), f32(6)], (1, 5 - padding, *size, 6), **deep)


@pytest.mark.parametrize(("padding", "size"), [(0, (8, 6)), (1, (9, 7)), (0, (7, 5))])
def test_transposed_convolution(padding: int, size: tuple[int, int]) -> None:
    given = [np.array([1, *size, 3], np.int32), f32(3, 3, 3, 2), f32(1, 4, 3, 2)]
    one("TRANSPOSE_CONV", given, (1, *size, 3), constants=(0, 1), **windows("TransposeConv", 2, padding))


@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"])
def test_pools(name: str) -> None:
    for padding, size in ((0, (4, 3)), (1, (3, 2))):
        options = windows("Pool2D", 2, padding, FilterHeight=3, FilterWidth=3)
        one(name, [f32(2, 7, 6, 3)], (2, *size, 3), **options)


def test_products() -> None:
    one("FULLY_CONNECTED", [f32(2, 3, 8), f32(5, 8), f32(5)], (6, 5), table="FullyConnectedOptions", constants=(1, 2))
    one(
        "FULLY_CONNECTED",
        [f32(2, 3, 8), f32(5, 8)],
        (2, 3, 5),
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
    one("LOCAL_RESPONSE_NORMALIZATION", [f32(1, 2, 3, 8)], (1, 2, 3, 8), Radius=2, Bias=1.0, Alpha=0.1, Beta=0.75)
    one("CUMSUM", [x, np.array(1, np.int32)], (2, 3, 4), constants=(1,), Exclusive=True)
    for name in ("ARG_MAX", "ARG_MIN"):
        table = "ArgMaxOptions" if name == "ARG_MAX" else "ArgMinOptions"
        one(name, [x, np.array(1, np.int32)], (2, 4), "int32", table=table, constants=(1,), OutputType=2)


def test_places_of_elements() -> None:
    x = f32(2, 4, 6)
    one("RESHAPE", [x, ints(4, -1)], (4, 12), constants=(1,))
    one("TRANSPOSE", [x, ints(2, 0, 1)], (6, 2, 4), constants=(1,))
    one("CONCATENATION", [x, x], (2, 8, 6), Axis=1)
    one("PACK", [x, x], (2, 2, 4, 6), Axis=1, ValuesCount=2)
    one("UNPACK", [x], (4, 6), Axis=0, Num=2, outputs=2)
    one("SPLIT", [np.array(1, np.int32), x], (2, 2, 6), constants=(0,), NumSplits=2, outputs=2)
    one("SPLIT_V", [x, ints(3, -1), np.array(2, np.int32)], (2, 4, 3), constants=(1, 2), NumSplits=2, outputs=2)
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
        constants=(1, 2, 3),
        ShrinkAxisMask=1,
        EndMask=2,
    )
    one("PAD", [x, np.array([[0, 0], [1, 2], [3, 0]], np.int32)], (2, 7, 9), constants=(1,))
    one("PADV2", [x, np.array([[0, 0], [1, 2], [3, 0]], np.int32), f32(1)], (2, 7, 9), constants=(1, 2))
    for mode in (0, 1):
        one("MIRROR_PAD", [x, np.array([[0, 0], [1, 2], [3, 0]], np.int32)], (2, 7, 9), constants=(1,), Mode=mode)
    one("TILE", [x, ints(1, 2, 3)], (2, 8, 18), constants=(1,))
    one("REVERSE_V2", [x, ints(1)], (2, 4, 6), constants=(1,))
    one("EXPAND_DIMS", [x, ints(1)], (2, 1, 4, 6), constants=(1,))
    one("BROADCAST_TO", [f32(1, 6), ints(4, 6)], (4, 6), constants=(1,))


def test_blocks_and_lookups() -> None:
    x = f32(2, 4, 6, 4)
    one("SPACE_TO_DEPTH", [x], (2, 2, 3, 16), BlockSize=2)
    one("DEPTH_TO_SPACE", [x], (2, 8, 12, 1), BlockSize=2)
    one("SPACE_TO_BATCH_ND", [x, ints(2, 3), np.array([[1, 1], [0, 3]], np.int32)], (12, 3, 3, 4), constants=(1, 2))
    one(
        "BATCH_TO_SPACE_ND",
        [f32(12, 3, 3, 4), ints(2, 3), np.array([[1, 1], [0, 3]], np.int32)],
        (2, 4, 6, 4),
        constants=(1, 2),
    )
    one("GATHER", [x, ints(1, 0, 3)], (2, 3, 6, 4), Axis=1)
    one("GATHER_ND", [f32(5, 6), ints(1, 0, 3, 2).reshape(2, 2)], (2,))
    one("EMBEDDING_LOOKUP", [ints(1, 0, 3), f32(5, 6)], (3, 6), constants=(1,))
    one("ONE_HOT", [ints(1, 0, 3), np.array(4, np.int32), f32(), f32()], (3, 4), constants=(1,), Axis=-1)
    one("DYNAMIC_UPDATE_SLICE", [f32(1, 6, 4), f32(1, 2, 4), ints(0, 5, 0)], (1, 6, 4))


@pytest.mark.parametrize("attrs", [{}, {"AlignCorners": True}, {"HalfPixelCenters": True}])
def test_resizing(attrs: dict[str, Any]) -> None:
    for size in ((8, 9), (3, 2), (5, 5)):
        given = [f32(1, 5, 4, 3), ints(*size)]
        for name in ("Bilinear", "Nearest_Neighbor"):
            table = f"Resize{name.replace('_', '')}Options"
            one(f"RESIZE_{name.upper()}", given, (1, *size, 3), table=table, constants=(1,), **attrs)


def test_quantised_operators() -> None:
    x = i8(1, 6, 6, 4)
    for name, table in (("ADD", "AddOptions"), ("MUL", "MulOptions"), ("SUB", "SubOptions")):
        one(name, [x, i8(1, 6, 6, 4)], (1, 6, 6, 4), "int8", table=table, q=Q, steps=1)
    for name in ("RELU", "RELU6"):
        one(name, [x], (1, 6, 6, 4), "int8", q=Q, steps=1)
    halves = {"FilterHeight": 2, "FilterWidth": 2}
    one("AVERAGE_POOL_2D", [x], (1, 3, 3, 4), "int8", q=Q, steps=1, **windows("Pool2D", 2, 1, **halves))
    one("MAX_POOL_2D", [x], (1, 3, 3, 4), "int8", q=Q, **windows("Pool2D", 2, **halves))
    one("PAD", [x, np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)], (1, 8, 8, 4), "int8", constants=(1,), q=Q)
    one("MEAN", [x, ints(1, 2)], (1, 4), "int8", table="ReducerOptions", constants=(1,), q=Q, steps=1)
    one("CONCATENATION", [x, x], (1, 6, 6, 8), "int8", q=Q, Axis=3)


def test_fake_quantisation_and_sums_at_places() -> None:
    for low, high, bits in ((-1.0, 2.0, 8), (0.3, 5.0, 4), (-2.7, 0.1, 16)):
        one("FAKE_QUANT", [f32(9, 50) * 3], (9, 50), Min=low, Max=high, NumBits=bits)
    for updates in (f32(4, 3), RNG.integers(-9, 9, (4, 3)).astype(np.int32)):
        given = [ints(1, 3, 1, 0).reshape(4, 1), updates, ints(5, 3)]
        one("SCATTER_ND", given, (5, 3), str(updates.dtype), constants=(2,))
    one("BROADCAST_ARGS", [ints(3, 1), ints(2, 1, 4)], (3,), "int32", constants=(0, 1))


def test_what_data_choose() -> None:
    """Results that are as long as the data say."""
    for x in (f32(3, 4) > 0, RNG.integers(0, 2, (2, 2, 2)).astype(np.int32)):
        one("WHERE", [x], (-1, x.ndim), "int64")
    for name, kind in (("SUM", np.float32), ("PROD", np.float32), ("MAX", np.int32), ("MIN", np.float32)):
        given = [(f32(4, 3) * 3).astype(kind), ints(2, 0, -1, 2), np.array(4, np.int32)]
        one(f"UNSORTED_SEGMENT_{name}", given, (4, 3), np.dtype(kind).name, constants=(2,))
    corners, limits = abs(f32(9, 2)), [np.array(n, np.float32) for n in (0.4, 0.1, 0)]
    for most in (2, 9):
        g, name, chosen, count = Subgraph(), "NON_MAX_SUPPRESSION_V", ((most,), "int32"), ((), "int32")
        given = [g.input((9, 4)), g.input((9,)), *map(g.constant, [np.array(most, np.int32), *limits])]
        g.outputs = [*g.op(f"{name}4", given[:5], chosen, count), *g.op(f"{name}5", given, chosen, ((most,),), count)]
        check(g, [np.concatenate([corners, corners + 0.5], 1), f32(9)])


def test_spectra() -> None:
    for sizes in ((1, 8), (4, 16), (2, 4)):
        g, half = Subgraph(), (2, sizes[0], sizes[1] // 2 + 1)
        y = g.op("RFFT2D", [g.input((2, 3, 8)), g.constant(ints(*sizes))], (half, "complex64"))
        g.outputs = [g.op(name, [y], (half,)) for name in ("COMPLEX_ABS", "REAL", "IMAG")]
        check(g, [f32(2, 3, 8)])


@pytest.mark.parametrize(
    ("own_input", "peepholes", "time_major", "clip", "activation"),
    [(1, 0, False, 10.0, 4), (1, 1, True, 0.2, 4), (0, 0, True, 0.0, 4), (0, 1, False, 0.3, 4), (1, 0, True, 0.0, 1)],
)
def test_lstm(own_input: int, peepholes: int, time_major: bool, clip: float, activation: int) -> None:
    batch, steps, width, hidden = 2, 5, 3, 4
    x = f32(*((steps, batch) if time_major else (batch, steps)), width)
    g = Subgraph()

    def given(*shape: int) -> list[int]:
        return [g.constant(f32(*shape)) if i or own_input else -1 for i in range(4)]

    numbers = [g.input(x.shape), *given(hidden, width), *given(hidden, hidden)]
    numbers += given(hidden)[:3] if peepholes else [-1] * 3
    numbers += [*given(hidden), -1, -1, g.variable(batch, hidden), g.variable(batch, hidden)]
    options = {"TimeMajor": time_major, "CellClip": clip, "FusedActivationFunction": activation}
    table = "UnidirectionalSequenceLSTMOptions"
    g.outputs = [g.op("UNIDIRECTIONAL_SEQUENCE_LSTM", numbers, ((*x.shape[:2], hidden),), table=table, **options)]
    check(g, [x])


def test_what_is_not_known_is_refused() -> None:
    g = Subgraph()
    x = g.input((2, 3))
    y = g.op("SVDF", [x], ((2, 2), "int64"))
    g.outputs = [g.op("UNIQUE", [y], ((2,), "int64"), ((2,), "int32"))[0]]
    refuses(UnsupportedOperator, r"SVDF \(operator 0 of subgraph 0, 1x\), UNIQUE \(operator 1", from_tflite, write(g))
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
