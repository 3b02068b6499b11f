"""Functions and modules built statement by statement."""

import pytest

from weft import IRModule
from weft.error import InvalidArgument
from weft.ir import assert_structural_equal
from weft.script import ir as I  # noqa: E741, N812
from weft.script import relax as R  # noqa: N812
from weft.script.ir_builder import IRBuilder
from weft.script.ir_builder import ir as build_ir
from weft.script.ir_builder import relax as build


def written():
    with build.function():
        R.func_name("main")
        R.func_attr({"num_input": 1})
        x, w = (R.arg(n, R.Tensor((4, 4), "float32")) for n in "xw")
        with R.dataflow() as frame:
            y = IRBuilder.name("product", R.emit(R.matmul(x, w)))
            R.output(R.emit(R.nn.relu(y)), y)
        R.func_ret_value(frame.output_vars)


@I.ir_module
class Expected:
    @R.function
    def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            product = R.matmul(x, w)
            out = R.nn.relu(product)
            R.output(out, product)
        return (out, product)


def test_a_function_is_what_its_text_is():
    with IRBuilder() as builder:
        written()
    func = builder.get()
    assert_structural_equal(IRModule({"main": func}), Expected)
    assert func.body.blocks[0].bindings[0].var.name_hint == "product"


def test_a_module_has_several_functions():
    with IRBuilder() as builder, build_ir.ir_module():
        written()
        with build.function(is_private=True):
            R.func_name("other")
            R.func_ret_value(R.const(1, "int32"))
    mod = builder.get()
    assert_structural_equal(mod["main"], Expected["main"])
    assert "global_symbol" not in mod["other"].attrs.keys()


def test_what_is_missing_is_said():
    with pytest.raises(ValueError, match="there is no builder"):
        IRBuilder.current()
    with pytest.raises(InvalidArgument, match="nothing was built"):
        IRBuilder().get()
    with pytest.raises(InvalidArgument, match="no function under construction"):
        R.emit(R.const(1))
    with pytest.raises(InvalidArgument, match="has no result"):
        finish()
    with pytest.raises(InvalidArgument, match="another type"):
        finish(R.Tensor((3,), "float32"), R.const(1, "int32"))


def finish(ret_ty=None, value=None):
    with IRBuilder(), build.function():
        R.func_name("main")
        if value is not None:
            R.func_ret_ty(ret_ty)
            R.func_ret_value(value)
