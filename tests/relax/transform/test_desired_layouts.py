"""ConvertLayout as programs ask for it: the layouts that they name, the same results."""

from typing import Any

import numpy as np
import pytest

import weft
from tests.relax_models import model
from weft import error, ir, relax
from weft.relax.interpreter import evaluate
from weft.relax.transform import ConvertLayout
from weft.script import ir as I
from weft.script import relax as R
from weft.script import tir as T

WANTED = {"relax.nn.conv2d": ["NHWC", "OHWI"]}
OP = relax.op
# What may follow a convolution whose result is (2, 4, 5, 7).
FOLLOWERS: dict[str, Any] = {
    "relu": OP.nn.relu,
    "bias": lambda y: OP.add(y, relax.const(np.arange(28, dtype="float32").reshape(4, 1, 7))),
    "row": lambda y: OP.multiply(y, relax.const(np.arange(7, dtype="float32"))),
    "bias of channels": lambda y: OP.add(y, relax.const(np.arange(4, dtype="float32").reshape(1, 4, 1, 1))),
    "scalar": lambda y: OP.subtract(relax.const(1.5), y),
    "where": lambda y: OP.where(OP.greater(y, relax.const(0.0)), y, OP.negative(y)),
    "sum": lambda y: OP.sum(y, axis=[-1, 1]),
    "mean all": OP.mean,
    "max kept": lambda y: OP.max(y, axis=1, keepdims=True),
    "concat split": lambda y: OP.split(OP.concat((y, OP.nn.relu(y), y), axis=1), 2, axis=1),
    "concat with its own": lambda y: OP.concat((relax.const(np.ones((2, 4, 5, 7), "float32")), y), axis=-2),
    "pools": lambda y: OP.nn.avg_pool2d(OP.nn.max_pool2d(y, pool_size=(2, 3)), pool_size=(1, 2)),
    "resize": lambda y: OP.image.resize2d(y, (3, 9)),
    "softmax": lambda y: OP.nn.softmax(y, axis=1),
    "layer norm": lambda y: OP.nn.layer_norm(
        y,
        relax.const(np.linspace(1, 2, 28, dtype="float32").reshape(4, 7)),
        relax.const(np.ones((4, 7), "float32")),
        axes=[1, 3],
    ),
    "layer norm of rows": lambda y: OP.nn.layer_norm(
        y, relax.const(np.linspace(1, 2, 35, dtype="float32").reshape(5, 7)), axes=[-2, -1]
    ),
    "batch norm": lambda y: OP.nn.batch_norm(
        y, *[relax.const(np.linspace(1, k, 4, dtype="float32")) for k in (2, 3, 4, 5)]
    ),
    "permute": lambda y: OP.permute_dims(y, [2, 0, 3, 1]),
    "permute back": OP.permute_dims,
    "expand squeeze": lambda y: OP.squeeze(OP.nn.relu(OP.expand_dims(OP.sum(y, 2, True), [0, -2])), [0, -2]),
    "slice": lambda y: OP.strided_slice(y, [1, -1], [1, 0], [3, 7], [1, 2]),
    "pad": lambda y: OP.nn.pad(y, (0, 0, 1, 2, 0, 1, 3, 0)),
    "tile": lambda y: OP.tile(y, (2, 1, 3)),
    "tile longer": lambda y: OP.nn.relu(OP.tile(y, (2, 1, 3, 1, 2))),
    "repeat": lambda y: OP.repeat(y, 2, axis=-3),
    "repeat flat": lambda y: OP.repeat(y, 3),
    "flip": lambda y: OP.flip(y, axis=1),
    "gather": lambda y: OP.gather_elements(y, relax.const(np.ones((2, 3, 5, 7), "int64")), axis=1),
    "scatter": lambda y: OP.scatter_elements(
        y, relax.const(np.ones((2, 1, 5, 7), "int64")), OP.sum(y, 1, True), axis=1
    ),
    "scatter_nd": lambda y: OP.scatter_nd(y, relax.const(np.array([[[1], [0]]])), OP.expand_dims(OP.nn.relu(y), 0)),
    "again": lambda y: OP.nn.conv2d(y, relax.const(np.linspace(-1, 1, 24, dtype="float32").reshape(6, 4, 1, 1))),
    "matmul": lambda y: OP.matmul(y, relax.const(np.ones((7, 2), "float32"))),
    "reshape": lambda y: OP.reshape(y, (2, -1)),
    "broadcast": lambda y: OP.broadcast_to(OP.max(y, [2, 3], keepdims=True), (3, 2, 4, 5, 7)),
    "dropout": lambda y: OP.nn.dropout(OP.nn.relu(y), 0.5)[0],
}


def _program(follow: Any) -> weft.IRModule:
    return model(lambda x, w: follow(relax.BlockBuilder.current().emit(OP.nn.conv2d(x, w))), (2, 3, 6, 9), (4, 3, 2, 3))


def _flat(value: Any) -> list[np.ndarray]:
    return [a for v in value for a in _flat(v)] if isinstance(value, (list, tuple)) else [np.asarray(value)]


@pytest.mark.parametrize("layouts", [WANTED["relax.nn.conv2d"], ["NCHW3c", "OIHW3i2o", "NCHW2c"]], ids=str)
@pytest.mark.parametrize("name", FOLLOWERS)
def test_what_follows_a_convolution_computes_the_same(name: str, layouts: list[str]) -> None:
    rng = np.random.default_rng(3)
    args = [rng.standard_normal(s).astype("float32") for s in ((2, 3, 6, 9), (4, 3, 2, 3))]
    mod = _program(FOLLOWERS[name])
    made = ConvertLayout({"relax.nn.conv2d": layouts})(mod)
    assert f'data_layout="{layouts[0]}"' in made.script() and made["main"].ret_ty is not None
    found, wanted = (_flat(evaluate(m, *args)) for m in (made, mod))
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["bias of channels", "scalar"])
@pytest.mark.parametrize(("layouts", "moves"), [(["NHWC", "OHWI"], "permute_dims"), (["NCHW4c", "OIHW4o"], "layout_")])
def test_scalars_and_biases_come_into_the_layout(name: str, layouts: list[str], moves: str) -> None:
    mod = model(lambda x, w: FOLLOWERS[name](OP.nn.conv2d(x, w)), (4, 4, 3, 3), (4, 4, 3, 3))
    made = ConvertLayout({"relax.nn.conv2d": layouts})(mod)
    assert made.script().count(f"R.{moves}") == 4 - (name == "scalar")  # data, kernel, bias and result


def test_followers_keep_the_layout_without_transposing_between() -> None:
    text = ConvertLayout(WANTED)(_program(lambda y: OP.nn.max_pool2d(OP.nn.relu(y), pool_size=(2, 2)))).script()
    assert text.count("permute_dims") == 3  # data, kernel, result
    assert 'layout="NHWC"' in text


def test_a_check_of_dimensions_moves_with_them() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor("float32", ndim=4), w: R.Tensor("float32", ndim=4)):
            with R.dataflow():
                y = R.nn.conv2d(x, w)
                n, c, h, v = T.int64(), T.int64(), T.int64(), T.int64()
                z = R.match_cast(y, R.Tensor((n, c, h, v), "float32"))
                out = R.add(z, z)
                R.output(out)
            return out

    made = ConvertLayout(WANTED)(Before)
    assert "R.match_cast(lv2, R.Tensor((n, h, v, c)" in made.script()
    x, w = np.ones((1, 2, 4, 5), "float32"), np.ones((3, 2, 2, 2), "float32")
    np.testing.assert_allclose(evaluate(made, x, w), evaluate(Before, x, w))


def test_what_is_outside_of_dataflow_blocks_stays() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float32"), w: R.Tensor((3, 2, 2, 2), "float32")):
            return R.nn.conv2d(x, w)

    assert ir.structural_equal(ConvertLayout(WANTED)(Before), Before)


def test_a_callback_decides_for_each_call() -> None:
    def chosen(call: Any) -> dict[str, list[str]]:
        return WANTED if call.args[1].ty.shape[0] == 6 else {}

    assert ConvertLayout({}, chosen)(_program(FOLLOWERS["again"])).script().count('data_layout="NHWC"') == 1


def test_a_layout_of_other_dimensions_is_refused() -> None:
    with pytest.raises(error.InvalidArgument, match="'NHW' is no order of NCHW"):
        ConvertLayout({"relax.nn.conv2d": ["NHW", "OHWI"]})(_program(OP.nn.relu))
