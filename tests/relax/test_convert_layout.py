"""Channels-last layouts: what is carried through gives what the channels-first program gives."""

import numpy as np
import pytest

import weft
from weft import relax
from weft.ir import Attrs, Call, Op, walk
from weft.relax import transform

RNG = np.random.default_rng(7)


def program(middle, shape=(1, 8, 12, 10)):
    """A convolution, `middle` on its output, another convolution."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    weights = [relax.const(RNG.standard_normal((8, 8, 3, 3)).astype(np.float32) * 0.2) for _ in range(2)]
    with bb.function("main", [x]), bb.dataflow():
        y = middle(bb, bb.emit(relax.op.nn.conv2d(x, weights[0], padding=1)))
        bb.emit_func_output(bb.emit_output(bb.emit(relax.op.nn.conv2d(y, weights[1], padding=1))))
    return bb.get()


def check(mod, shape=(1, 8, 12, 10)):
    """Only entry and exit are transposed, and the result is that of the program without any pass."""
    after = transform.dead_code_elimination()(transform.convert_layout()(transform.normalize()(mod)))
    found = [n for n in walk(after["main"]) if isinstance(n, Call) and n.op is Op.get("relax.permute_dims")]
    assert len(found) == 2
    x = weft.runtime.tensor(RNG.standard_normal(shape).astype(np.float32))
    results = [
        relax.VirtualMachine(relax.build(mod, "llvm", relax_pipeline=relax.get_pipeline(name)), weft.cpu())["main"](x)
        for name in ("default", "zero")
    ]
    np.testing.assert_allclose(*(r.numpy() for r in results), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "attrs",
    [
        {"scales": (1.0, 1.0, 1.5, 2.0), "coordinate_transformation_mode": "asymmetric"},
        {"method": "cubic"},
        {"roi": (0.0, 0.0, 0.1, 0.2, 1.0, 1.0, 0.9, 0.7), "coordinate_transformation_mode": "tf_crop_and_resize"},
        {"method": "nearest", "rounding_method": "floor"},
    ],
)
def test_resize(attrs):
    size = relax.ShapeExpr([1, 8, 18, 20])
    check(program(lambda bb, y: bb.emit(Call(Op.get("relax.image.resize"), (y, size), Attrs.of(**attrs)))))


def test_match_cast():
    height = weft.tir.Var("h", "int64")

    def middle(bb, y):
        return bb.emit(relax.op.add(bb.match_cast(y, relax.TensorType((1, 8, height, 10), "float32")), y))

    check(program(middle))


def test_concatenation_and_reduction():
    def middle(bb, y):
        both = bb.emit(relax.op.concat([y, y], 1))
        mean = bb.emit(relax.op.mean(both, [2, 3], True))
        first = bb.emit(relax.op.nn.conv2d(mean, relax.const(np.ones((8, 16, 1, 1), np.float32))))
        return bb.emit(relax.op.multiply(y, first))

    check(program(middle))
