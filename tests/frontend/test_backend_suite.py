"""ONNX's backend suite, node cases, through the operators' references; one of sixteen is compiled, too."""

import re
from collections import defaultdict
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks.node_cases import node_cases
from benchmarks.onnx_suite import run_case
from tests.pairs import share
from tools.onnx_conformance import REASONS, ROUNDING, page, reason
from weft.error import MissingDependency, ModelImportError
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

STATIC = """
    Adagrad Adam AffineGrid ArrayFeatureExtractor Bernoulli Binarizer BitCast Col2Im DFT DeformConv Det Hardmax
    ImageDecoder LabelEncoder LpPool Loop MaxUnpool MelWeightMatrix Momentum OptionalGetElement OptionalHasElement
    RegexFullMatch RoiAlign STFT Scan SequenceInsert SequenceMap SplitToSequence StringConcat StringNormalizer
    StringSplit TensorScatter TfIdfVectorizer TreeEnsemble Unique
""".split()
"""Operators whose inputs here stay as they are."""
NO_REFERENCE = ("test_einsum_batch_matmul_bfloat16", "test_einsum_sum_bfloat16")


@lru_cache(maxsize=1)
def cases() -> dict[str, list]:
    by_op = defaultdict(list)
    for case in node_cases():
        if case.model is not None and case.model.graph.node and not case.name.endswith("_expanded"):
            by_op[case.model.graph.node[0].op_type].append(case)
    return by_op


def arrays(values: list) -> list:
    return [array(v) for v in values]


def array(value: object) -> object:
    if value is None or isinstance(value, list):
        return value and arrays(value)
    return np.asarray(numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value)


def run(case: object, model: onnx.ModelProto) -> None:
    mod = from_onnx(model)
    for inputs, outputs in case.data_sets:
        agree(case, evaluate(mod, *arrays(inputs)), arrays(outputs))


def agree(case: object, results: list, wanted: list) -> None:
    """Compare results, those of sequences one by one."""
    for got, expected in zip(results, wanted, strict=True):
        if isinstance(expected, list):
            agree(case, got, expected)
        elif expected is None or expected.dtype.kind in "OU":
            assert (got if expected is None else got.tolist()) == (None if expected is None else expected.tolist())
        else:
            assert got.dtype == expected.dtype
            assert got.shape == expected.shape
            if expected.dtype.kind == "V" or "float" in expected.dtype.name:
                got, expected = got.astype(np.float64), expected.astype(np.float64)
            np.testing.assert_allclose(got, expected, rtol=max(case.rtol, 1e-3), atol=max(case.atol, 1e-5))


def test_what_fails_is_what_the_page_says() -> None:
    assert (Path(__file__).parents[2] / "docs" / "onnx-conformance.md").read_text(encoding="utf-8") == page()
    names = {case.name for found in cases().values() for case in found}
    for pattern in REASONS | ROUNDING:
        assert any(re.fullmatch(pattern.removesuffix("_expanded"), n) for n in names), pattern


@pytest.mark.parametrize("op_type", OPERATORS + STATIC)
def test_operator(op_type: str) -> None:
    found = cases()[op_type]
    assert found or op_type in ("Constant", "If")
    for case in found:
        if case.name in NO_REFERENCE:
            continue
        known = reason(case.name)
        if known is not None:
            if "image_decoder" in case.name and find_spec("PIL") is not None:
                continue
            by_chance = suppress(AssertionError)  # another draw may be the same
            with by_chance if "draw" in known else pytest.raises((AssertionError, ModelImportError, MissingDependency)):
                run(case, case.model)
            continue
        try:
            run(case, case.model)
            if share({case.name: ()}, 16):
                run_case(case, "weft")
        except Exception as e:
            raise AssertionError(f"{case.name}: {e}") from e


def is_symbolic(case: object) -> bool:
    """Whether a case draws nothing, and its first input is a tensor of numbers."""
    values = case.data_sets[0][0]
    first = array(values[0]) if values else None
    return isinstance(first, np.ndarray) and first.dtype.kind not in "OU" and "training_dropout" not in case.name


@pytest.mark.parametrize("op_type", sorted({*OPERATORS} - {"ConstantOfShape"}))
def test_operator_with_symbolic_input(op_type: str) -> None:
    for case in cases()[op_type]:
        if reason(case.name) is not None or case.name in NO_REFERENCE or not is_symbolic(case):
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
