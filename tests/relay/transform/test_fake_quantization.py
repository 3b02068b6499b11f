"""FakeQuantizationToInteger: integers between dequantize and quantize compute the same but for rounding."""

from typing import Any

import numpy as np
import pytest

from tests.refusals import refuses
from weft import IRModule, error, ir, relay
from weft.relay.interpreter import Interpreter
from weft.relay.testing.temp_op_attr import TempOpAttr
from weft.relay.transform import FakeQuantizationToInteger

NN = relay.nn
QNN = relay.qnn.op


def _data(shape: tuple[int, ...], scale: Any, zero: Any = 0, dtype: str = "int8", axis: int = -1) -> Any:
    x = relay.var(f"x{len(shape)}_{shape[0]}", shape=shape, dtype=dtype)
    return QNN.dequantize(x, relay.const(np.float32(scale)), relay.const(np.int32(zero)), axis=axis)


def _image(zero: int = 3) -> Any:
    return _data((2, 4, 5, 7), 0.5, zero)


CHANNELS = np.linspace(0.1, 0.6, 6, dtype="float32")
WEIGHT = _data((6, 4, 2, 3), CHANNELS, [0] * 6, axis=0)
REGIONS: dict[str, Any] = {
    "moved": lambda: relay.reshape(relay.transpose(_image(), [0, 2, 3, 1]), [10, -1]),
    "split": lambda: relay.split(_image(), 2, axis=1)[1],
    "pools": lambda: NN.avg_pool2d(NN.max_pool2d(_image(), [2, 2]), [2, 3], padding=[1, 1]),
    "mean": lambda: relay.mean(_image(), axis=[2]),
    "conv of channels": lambda: NN.conv2d(_image(), WEIGHT, kernel_size=[2, 3], channels=6),
    "conv, bias, relu": lambda: NN.relu(
        NN.bias_add(NN.conv2d(_image(), WEIGHT, kernel_size=[2, 3], channels=6), _data((6,), 0.25, dtype="int32"))
    ),
    "dense": lambda: NN.dense(_data((3, 8), 0.5, -4), _data((5, 8), 0.25, 2), units=5),
    "batch_matmul": lambda: NN.batch_matmul(_data((1, 3, 8), 0.5), _data((1, 5, 8), 0.25)),
    "pair": lambda: relay.multiply(relay.add(_data((3, 8), 0.5, 1), _data((1, 8), 0.25, -2)), _data((3, 8), 0.5)),
    "number": lambda: relay.subtract(_data((3, 8), 0.5, 10), relay.const(1.25)),
    "least": lambda: relay.minimum(_data((3, 8), 0.5), relay.const(np.linspace(-9, 9, 8, dtype="float32"))),
    "concat": lambda: relay.concatenate([_data((3, 8), 0.5, 1), _data((2, 8), 0.75)], axis=0),
    "clip of channels": lambda: relay.clip(_data((2, 3, 4), [0.5, 1.0, 2.0], [3, 0, -5], axis=1), -2.0, 6.0),
    "twice": lambda: NN.relu(
        QNN.dequantize(QNN.quantize(_image(), relay.const(0.75), relay.const(1)), relay.const(0.75), relay.const(1))
    ),
    "pad": lambda: NN.pad(_data((3, 8), 0.5, 5), [[1, 0], [0, 2]], 0.0),
    "sigmoid": lambda: relay.sigmoid(_data((3, 8), 0.05, 5)),
}


def _quantized(value: Any) -> tuple[IRModule, list[Any]]:
    made = relay.Function(relay.analysis.free_vars(value), QNN.quantize(value, relay.const(0.5), relay.const(2)))
    mod = relay.transform.InferType()(IRModule.from_expr(made))
    rng = np.random.default_rng(5)
    return mod, [rng.integers(-100, 100, [int(d) for d in p.ty.shape]).astype(p.ty.dtype) for p in mod["main"].params]


@pytest.mark.parametrize("name", REGIONS)
def test_a_region_is_computed_with_integers(name: str) -> None:
    mod, args = _quantized(REGIONS[name]())
    made = FakeQuantizationToInteger(hard_fail=True)(mod)
    assert "qnn.dequantize" not in str(made["main"])
    found, wanted = (Interpreter(m).function("main")(*args).numpy().astype(int) for m in (made, mod))
    assert np.abs(found - wanted).max() <= (2 if name in ("pools", "pair") else 1)  # each quantity on the way rounds


def test_a_region_with_another_operator_stays_or_is_refused() -> None:
    mod, _ = _quantized(relay.cumsum(_data((3, 8), 0.5), axis=0))
    assert ir.structural_equal(FakeQuantizationToInteger()(mod), mod)
    refuses(error.UnsupportedOperator, "no rule for cumsum", FakeQuantizationToInteger(hard_fail=True), mod)


def _is(e: Any, name: str) -> bool:
    return isinstance(e, relay.Call) and getattr(e.op, "name", "") == name


def test_with_use_qat_operators_that_nothing_quantizes_compute_with_integers_too() -> None:
    a, b = _data((3, 4, 5), 0.5, 2), _data((3, 2, 5), 0.25, -1)
    product = NN.batch_matmul(NN.relu(a), b)
    mod = IRModule.from_expr(relay.exp(relay.multiply(product, relay.const(np.float32(0.01)))))
    made = FakeQuantizationToInteger(False, True)(mod)
    assert ir.structural_equal(FakeQuantizationToInteger()(mod), relay.transform.InferType()(mod))
    outer = made["main"].body.args[0].args[0]
    assert _is(outer, "qnn.dequantize") and _is(outer.args[0], "qnn.batch_matmul")
    assert _is(outer.args[0].args[0], "maximum")  # the relu
    rng = np.random.default_rng(3)
    args = [rng.integers(-128, 128, [int(d) for d in p.ty.shape]).astype("int8") for p in made["main"].params]
    got, wanted = (Interpreter(m).function("main")(*args).numpy() for m in (made, relay.transform.InferType()(mod)))
    np.testing.assert_allclose(got, wanted, rtol=1e-4)


def test_a_rule_of_a_program_that_is_not_implemented_leaves_the_region() -> None:
    def rule(expr: Any, types: Any) -> Any:
        raise NotImplementedError("no such thing")

    out = QNN.quantize(NN.softmax(_image()), relay.const(np.float32(1)), relay.const(np.int32(0)))
    mod = relay.transform.InferType()(IRModule.from_expr(out))
    with TempOpAttr("nn.softmax", "FTVMFakeQuantizationToInteger", rule):
        assert ir.structural_equal(FakeQuantizationToInteger()(mod), mod)
        refuses(error.UnsupportedOperator, "no such thing", FakeQuantizationToInteger(hard_fail=True), mod)
