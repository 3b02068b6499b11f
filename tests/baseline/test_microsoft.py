"""Baseline operators of ``com.microsoft``, each against ONNX Runtime on random operands."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from tests import onnx_models
from weft.baseline import BaselineProgram
from weft.baseline.operators import OPERATORS

_RNG = np.random.default_rng(11)


def _f(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype("float32")


def _q(*shape: int, dtype: str = "uint8") -> np.ndarray:
    """Bytes; signed ones are small, as sums of two products saturate in ONNX Runtime on some processors."""
    return _RNG.integers(*((0, 256) if dtype == "uint8" else (-64, 64)), shape).astype(dtype)


def _s(value: float) -> np.ndarray:
    return np.array(value, "float32")


_Z, _ZS = np.array(120, "uint8"), np.array(3, "int8")
_X, _W = (_q(5, 24), _s(0.03), _Z), (_q(24, 16, dtype="int8"), _s(0.02), _ZS)
_IMAGE = (_q(2, 6, 7, 7), _s(0.03), _Z)
_OUT = (_s(0.05), np.array(128, "uint8"))
_HEADS = {"num_heads": 2}
_LENGTHS, _MASK = np.array([3, 5], "int32"), np.array([[1, 1, 0, 0, 0], [1] * 5], "int32")
_CASES = {
    "FusedMatMul": [
        ([_f(3, 5, 4), _f(3, 4, 6)], {"alpha": 0.5}),
        ([_f(5, 4), _f(5, 6)], {"transA": 1}),
        ([_f(2, 5, 4), _f(6, 4)], {"transB": 1}),
    ],
    "FusedConv": [
        ([_f(1, 4, 6, 6), _f(8, 4, 3, 3), _f(8)], {"activation": "Relu", "pads": [1, 1, 1, 1]}),
        ([_f(1, 4, 6, 6), _f(8, 4, 1, 1), _f(8), _f(1, 8, 6, 6)], {"activation": "Relu"}),
        ([_f(1, 4, 6, 6), _f(8, 4, 1, 1)], {"activation": "Clip", "activation_params": [0.0, 1.0]}),
        ([_f(1, 4, 6, 6), _f(8, 4, 1, 1)], {"activation": "LeakyRelu", "activation_params": [0.2]}),
    ],
    "FusedGemm": [([_f(3, 5), _f(5, 4), _f(4)], {"activation": "LeakyRelu", "activation_alpha": 0.3})],
    "Gelu": [([_f(3, 40)], {})],
    "BiasGelu": [([_f(3, 40), _f(40)], {})],
    "FastGelu": [([_f(3, 40)], {}), ([_f(3, 40), _f(40)], {})],
    "QuickGelu": [([_f(3, 40)], {"alpha": 1.5})],
    "SkipLayerNormalization": [
        ([_f(2, 5, 8), _f(2, 5, 8), _f(8), _f(8)], {"epsilon": 1e-5}),
        ([_f(2, 5, 8), _f(2, 5, 8), _f(8), _f(8), _f(8)], {}),
    ],
    "SkipSimplifiedLayerNormalization": [([_f(2, 5, 8), _f(2, 5, 8), _f(8)], {"epsilon": 1e-5})],
    "EmbedLayerNormalization": [
        (
            [
                _RNG.integers(0, 9, (2, 5)).astype("int32"),
                _RNG.integers(0, 2, (2, 5)).astype("int32"),
                _f(9, 8),
                _f(6, 8),
                _f(2, 8),
                _f(8),
                _f(8),
                _MASK,
            ],
            {"mask_index_type": 1},
        ),
        ([_RNG.integers(0, 9, (2, 5)).astype("int32"), None, _f(9, 8), _f(6, 8), None, _f(8), _f(8)], {}),
    ],
    "Attention": [
        ([_f(2, 5, 8), _f(8, 24), _f(24), mask], _HEADS | form)
        for mask in (None, _LENGTHS, _MASK)
        for form in ({}, {"unidirectional": 1})
    ],
    "QAttention": [([_q(2, 5, 8), _q(8, 24, dtype="int8"), _f(24), _s(0.02), _s(0.03), _MASK, _Z, _ZS], _HEADS)],
    "MultiHeadAttention": [
        ([_f(2, 5, 8), _f(2, 7, 8), _f(2, 7, 8)], _HEADS),
        ([_f(2, 5, 8), _f(2, 5, 8), _f(2, 5, 8), _f(24), _MASK], _HEADS | {"scale": 0.7}),
        ([_f(2, 5, 8), _f(2, 5, 8), _f(2, 5, 8), None, None, _f(2, 2, 5, 5)], _HEADS),
    ],
    "MatMulIntegerToFloat": [
        ([_X[0], _W[0], _X[1], _W[1], _Z, _ZS, _f(16)], {}),
        ([_X[0], _W[0], _X[1], np.abs(_f(16))], {}),
    ],
    "DynamicQuantizeMatMul": [([_f(5, 24), *_W], {}), ([_f(5, 24), *_W, _f(16)], {})],
    "QLinearAdd": [([*_X, *_X[:1], *_X[1:], *_OUT], {})],
    "QLinearMul": [([*_X, *_X[:1], *_X[1:], *_OUT], {})],
    "QLinearLeakyRelu": [([*_X, *_OUT], {"alpha": 0.1})],
    "QLinearSigmoid": [([*_X, _s(1 / 256), np.array(0, "uint8")], {})],
    "QLinearSoftmax": [([*_X, _s(1 / 256), np.array(0, "uint8")], {"opset": 13, "axis": -1})],
    "QLinearAveragePool": [([*_IMAGE, *_OUT], {"kernel_shape": [2, 2], "strides": [2, 2]})],
    "QLinearGlobalAveragePool": [([*_IMAGE, *_OUT], {"channels_last": 0})],
    "QLinearConcat": [([*_OUT, *_X, _q(5, 3), _s(0.01), _Z], {"axis": 1})],
    "QGemm": [
        ([*_X, *_W, None, *_OUT], {}),
        ([*_X, *_W, _q(16).astype("int32"), _s(0.06), _Z], {"alpha": 1.0}),
        ([*_X, *_W], {}),
    ],
}


def _model(op, inputs, attributes):
    names = ["" if x is None else f"i{n}" for n, x in enumerate(inputs)]
    node = helper.make_node(op, names, ["o0"], domain="com.microsoft", **attributes)
    if op == "EmbedLayerNormalization":
        node.output.append("o1")
    spec = {n: (str(x.dtype), x.shape) for n, x in zip(names, inputs, strict=True) if x is not None}
    kind = "uint8" if op.startswith("QLinear") or (op == "QGemm" and len(inputs) > 6) else "float32"
    made = onnx_models.model([node], spec, {"o0": (kind, ())}, opset=17)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made.SerializeToString()


@pytest.mark.parametrize(("op", "case"), [(op, n) for op, cases in _CASES.items() for n in range(len(cases))])
def test_operators(tmp_path, op, case):
    inputs, attributes = _CASES[op][case]
    path = tmp_path / "m.onnx"
    path.write_bytes(_model(op, inputs, attributes))
    given = [x for x in inputs if x is not None]
    (found,) = BaselineProgram(path).run(given)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {i.name: x for i, x in zip(session.get_inputs(), given, strict=True)})
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    off = 1 if found.dtype == "uint8" else 2e-5
    np.testing.assert_allclose(found.astype("float32"), expected.astype("float32"), rtol=1e-4, atol=off)


def test_each_operator_has_a_case():
    assert {f"com.microsoft.{n}" for n in _CASES} == {n for n in OPERATORS if n.startswith("com.microsoft.")}
