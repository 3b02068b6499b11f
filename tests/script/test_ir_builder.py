"""Functions and modules built statement by statement."""

import pytest

from tests.refusals import refuses
from weft import IRModule, error, ir
from weft.script import ir as I  # noqa: E741, N812
from weft.script import relax as R  # noqa: N812
from weft.script import tir as T  # noqa: N812
from weft.script.ir_builder import IRBuilder
from weft.script.ir_builder import ir as build_ir
from weft.script.ir_builder import relax as build
from weft.script.ir_builder import tir as build_tir


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
    ir.assert_structural_equal(IRModule({"main": func}), Expected)
    assert func.body.blocks[0].bindings[0].var.name_hint == "product"


def test_a_module_has_several_functions():
    with IRBuilder() as builder, build_ir.ir_module():
        written()
        with build.function(is_private=True):
            R.func_name("other")
            R.func_ret_value(R.const(1, "int32"))
    mod = builder.get()
    ir.assert_structural_equal(mod["main"], Expected["main"])
    assert "global_symbol" not in mod["other"].attrs.keys()


def test_what_is_missing_is_said():
    refuses(ValueError, "there is no builder", IRBuilder.current)
    refuses(error.InvalidArgument, "nothing was built", IRBuilder().get)
    refuses(error.InvalidArgument, "no function under construction", R.emit, R.const(1))
    refuses(error.InvalidArgument, "has no result", finish)
    refuses(error.InvalidArgument, "another type", finish, R.Tensor((3,), "float32"), R.const(1, "int32"))


def finish(ret_ty=None, value=None):
    with IRBuilder(), build.function():
        R.func_name("main")
        if value is not None:
            R.func_ret_ty(ret_ty)
            R.func_ret_value(value)


def test_tir_is_what_its_text_is():
    @T.prim_func
    def written(A: T.Buffer((16, 8), "float32"), n: T.int32):
        T.func_attr({"key": "value"})
        B = T.alloc_buffer((8,), "float32")
        for i, j in T.grid(16, 8):
            with T.block("copy"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(i < n)
                with T.init():
                    B[vj] = T.float32(0)
                B[vj] = A[vi, vj]
        if n > 3:
            A[0, 0] = B[1]
        else:
            T.evaluate(0)

    t = build_tir
    with IRBuilder() as builder, t.prim_func():
        t.func_name("written")
        a, n = t.arg("A", t.Buffer((16, 8), "float32")), t.arg("n", t.int32())
        t.func_attr({"key": "value"})
        b = IRBuilder.name("B", t.sblock_alloc_buffer((8,), "float32"))
        with t.grid(16, 8) as loops:
            i, j = IRBuilder.name_many(["i", "j"], loops)
            with t.block("copy"):
                vi, vj = t.axis.remap("SS", [i, j])
                t.where(i < n)
                with t.init():
                    t.buffer_store(b, 0.0, [vj])
                t.buffer_store(b, a[vi, vj], [vj])
        with t.If(n > 3):
            with t.Then():
                t.buffer_store(a, b[1], [0, 0])
            with t.Else():
                t.evaluate(0)
    built = builder.get()
    ir.assert_structural_equal(built, written)
    assert "for i, j in T.grid(16, 8):" in built.script()


def test_tir_statements_without_a_function():
    with IRBuilder() as builder, build_tir.serial(4) as i, build_tir.While(i < 3):
        build_tir.evaluate(i)
    assert str(builder.get()).splitlines() == ["for v in range(4):", "    while v < 3:", "        T.evaluate(v)"]
    with IRBuilder(), pytest.raises(error.InvalidArgument, match="no function"):
        build_tir.func_name("f")
