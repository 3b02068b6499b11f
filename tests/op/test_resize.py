"""Resizing with sizes that are known only at run time."""

import numpy as np
import pytest

import weft
from tests.relax_models import model
from weft import ir, op, runtime


@pytest.mark.parametrize("mode", ["tf_half_pixel_for_nn", "half_pixel", "asymmetric"])
def test_an_axis_that_keeps_its_size_is_left_alone(mode: str) -> None:
    given, asked = ([ir.SizeVar(f"{name}{i}", "int64") for i in range(2)] for name in "nm")
    params = [ir.ExprVar("x", ir.tensor_type(given, "float32")), ir.ExprVar("size", ir.ShapeType(tuple(asked), 2))]
    call = op.make_call("image.resize")(params[0], ir.shape_expr(asked), coordinate_transformation_mode=mode)
    resize = runtime.VirtualMachine(weft.compile(model(lambda *_: call, *params), "llvm"), weft.cpu())["main"]
    x = np.arange(12, dtype=np.float32).reshape(4, 3) ** 2
    np.testing.assert_allclose(resize(x, runtime.ShapeTuple([4, 3])).numpy(), x)
    reference = op.get_op_def("image.resize").reference
    kinds = {name: kind.default for name, kind in op.get_op_def("image.resize").attrs.items()}
    expected = reference(x, (4, 6), **{**kinds, "coordinate_transformation_mode": mode})
    np.testing.assert_allclose(resize(x, runtime.ShapeTuple([4, 6])).numpy(), expected, rtol=1e-4, atol=1e-4)
