"""ONNX's backend suite, node cases, through the operators' references: what the importer means, without compiling."""

from __future__ import annotations

import warnings
from collections import defaultdict
from functools import lru_cache

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from weft.error import ModelImportError
from weft.frontend.onnx import from_onnx
from weft.relax.interpreter import evaluate

OPERATORS = """
    Abs Add And ArgMax ArgMin AveragePool BatchNormalization Cast Ceil Clip Concat Constant ConstantOfShape Conv
    ConvInteger ConvTranspose Cos CumSum DepthToSpace DequantizeLinear Div Dropout DynamicQuantizeLinear Einsum Elu
    Equal Erf Exp Expand Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool
    Greater GreaterOrEqual HardSigmoid HardSwish Identity If InstanceNormalization LSTM LayerNormalization LeakyRelu
    Less LessOrEqual Log LogSoftmax MatMul MatMulInteger Max MaxPool Mean Min Mish Mod Mul Neg Not OneHot Or PRelu
    Pad Pow QLinearConv QLinearMatMul QuantizeLinear RNN Range Reciprocal ReduceL1 ReduceL2 ReduceMax ReduceMean
    ReduceMin ReduceProd ReduceSum Relu Reshape Resize Round ScatterElements ScatterND Selu Shape Sigmoid Sign Sin
    Size Slice Softmax Softplus SpaceToDepth Split Sqrt Squeeze Sub Sum Tanh Tile TopK Transpose Trilu Unsqueeze
    Where Xor
""".split()

# Element types, sequences and random numbers that Weft does not have.
REFUSED = (
    "FLOAT8E8M0",
    "INT4",
    "INT2",
    "FLOAT4",
    "int4",
    "int2",
    "float4",
    "string",
    "_sequence",
    "_opt",
    "test_if_seq",
    "training_dropout",
)
# Where the suite's expected values are not what Weft means, and why: each must differ still, or leave the list.
DIFFERENT = dict.fromkeys(
    ("test_resize_downsample_scales_linear_align_corners", "test_resize_downsample_scales_cubic_align_corners"),
    "the text and ONNX Runtime divide by the resized length, an integer; the suite by the length before it is rounded",
)
NO_REFERENCE = ("test_einsum_batch_matmul_bfloat16", "test_einsum_sum_bfloat16")


@lru_cache(maxsize=1)
def cases() -> dict[str, list]:
    from onnx.backend.test.case.node import collect_testcases

    by_op = defaultdict(list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            if case.model is not None and case.model.graph.node and not case.name.endswith("_expanded"):
                by_op[case.model.graph.node[0].op_type].append(case)
    return by_op


def arrays(values: list) -> list[np.ndarray]:
    return [np.asarray(numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v) for v in values]


def run(case: object, model: onnx.ModelProto) -> None:
    mod = from_onnx(model)
    for inputs, outputs in case.data_sets:
        for got, expected in zip(evaluate(mod, *arrays(inputs)), arrays(outputs), strict=True):
            assert got.dtype == expected.dtype
            assert got.shape == expected.shape
            if expected.dtype.kind == "V" or "float" in expected.dtype.name:
                got, expected = got.astype(np.float64), expected.astype(np.float64)
            np.testing.assert_allclose(got, expected, rtol=max(case.rtol, 1e-3), atol=max(case.atol, 1e-5))


@pytest.mark.parametrize("op_type", OPERATORS)
def test_operator(op_type: str) -> None:
    found = cases()[op_type]
    assert found or op_type in ("Constant", "If")
    for case in found:
        if case.name in NO_REFERENCE:
            continue
        if case.name in DIFFERENT:
            with pytest.raises(AssertionError, match="Not equal to tolerance"):
                run(case, case.model)
            continue
        if any(r in case.name for r in REFUSED):
            with pytest.raises(ModelImportError):
                from_onnx(case.model)
            continue
        try:
            run(case, case.model)
        except Exception as e:
            raise AssertionError(f"{case.name}: {e}") from e


@pytest.mark.parametrize("op_type", sorted({*OPERATORS} - {"ConstantOfShape"}))
def test_operator_with_symbolic_input(op_type: str) -> None:
    for case in cases()[op_type]:
        if case.name in DIFFERENT or case.name in NO_REFERENCE or any(r in case.name for r in REFUSED):
            continue
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        for info in model.graph.input[:1]:
            for i, d in enumerate(info.type.tensor_type.shape.dim):
                d.dim_param = f"s{i}"
        try:
            run(case, model)
        except Exception as e:
            raise AssertionError(f"{case.name}: {e}") from e
