"""The block builder, as programs written for TVM use it."""

from collections.abc import Callable

import numpy as np
import pytest

import weft as tvm
from tests.refusals import refuses
from weft import error, ir, relax, te, tir, topi
from weft.relax.analysis import well_formed
from weft.script import relax as R


def variables(*shapes, dtype="float32"):
    return [relax.Var(f"x{i}", relax.TensorType(s, dtype)) for i, s in enumerate(shapes)]


def test_names_are_counted_from_one():
    bb = relax.BlockBuilder()
    (x,) = variables((2, 3))
    with bb.function("f", [x]):
        with bb.dataflow():
            names = [bb.emit(relax.op.exp(x)).name, bb.emit(relax.op.exp(x)).name, bb.emit(x, "my.name").name]
            out = bb.emit_output(relax.op.exp(x))
        bb.emit_func_output(out)
    assert names == ["lv", "lv1", "my_name"] and out.name == "gv"
    assert [bb.get_unique_name("lv"), bb.get_unique_name("new"), bb.get_unique_name("new")] == ["lv2", "new", "new1"]


def test_blocks_outside_of_functions():
    bb = relax.BlockBuilder()
    x, y = variables((2, 3), (3,))
    bb._begin_binding_block()
    first = bb.emit(relax.op.add(x, y))
    bb._begin_dataflow_block()
    assert bb.current_block_is_dataflow()
    inner = bb.emit(relax.op.multiply(first, y))
    assert bb.lookup_binding(inner).op.name == "relax.multiply" and bb.lookup_binding(x) is None
    block = bb._end_block()
    assert isinstance(block, relax.DataflowBlock) and block.bindings[0].var is inner
    outer = bb._end_block()
    assert not isinstance(outer, relax.DataflowBlock) and outer.bindings[0].var is first


def test_expressions_are_normalized_outside_of_functions():
    bb = relax.BlockBuilder()
    x, y = variables((2, 3), (3,))
    call = bb.normalize(relax.op.exp(relax.op.add(x, y)))
    ir.assert_structural_equal(call.ty, relax.TensorType((2, 3), "float32"))
    with bb.testing_scope(def_vars=[tir.Var("n", "int64")]):
        assert isinstance(bb.emit(call), relax.DataflowVar)


def test_parameters_come_once():
    bb = relax.BlockBuilder()
    (x,) = variables((2,))
    with bb.function("deferred"):
        gvar = bb.emit_func_output(relax.op.exp(x), params=[x])
    assert gvar.name_hint == "deferred" and bb.get()["deferred"].params == (x,)
    with pytest.raises(error.InvalidArgument, match="has its parameters already"), bb.function("f", [x]):
        bb.emit_func_output(x, [x])
    with pytest.raises(error.InvalidArgument, match="has no parameters"), bb.function("f"):
        bb.emit_func_output(x)
    with bb.function("g", [x]):
        bb.emit_func_output(x)
        refuses(RuntimeError, "has a result already", bb.emit_func_output, x)
    with pytest.raises(TypeError, match="a parameter is a variable"), bb.function("f", [1]):
        pass
    assert relax.BlockBuilder.current() is None


def test_functions_of_one_name_get_others():
    bb = relax.BlockBuilder()
    with bb.function("f", [], private=True):
        inner = bb.emit_func_output(relax.const(0, "int64"))
    with bb.function("f", []):
        public = bb.emit_func_output(bb.emit(relax.Call(inner, [])))
    assert (inner.name_hint, public.name_hint) == ("f", "f1")
    mod = bb.finalize()
    assert set(v.name_hint for v in mod.get_global_vars()) == {"f", "f1"}
    assert mod["f"].attrs["global_symbol"] == "f" and "global_symbol" not in mod["f1"].attrs
    called = mod["f"].body.blocks[0].bindings[0].value.op
    assert called is mod.get_global_var("f1") and well_formed(mod)


def test_a_replaced_function_is_not_found_again():
    bb = relax.BlockBuilder()

    def plus(a):
        return te.compute((4,), lambda i: a[i] + 1.0)

    (x,) = variables((4,))
    with bb.function("main", [x]):
        first = bb.call_te(plus, x).args[0]
        assert bb.call_te(plus, x).args[0] is first
        bb.update_func(first, bb.get()["plus"].with_attr("mine", 1))
        assert bb.call_te(plus, x).args[0].name_hint == "plus1"
        bb.emit_func_output(x)


def test_te_functions_take_nested_arguments():
    bb = relax.BlockBuilder()
    n = tir.Var("n", "int64")
    x, y, z = variables((n, 2), (n, 2), (n, 2))

    def total(pair, named, factor):
        return topi.add(topi.multiply(topi.add(*pair), factor), named["z"])

    with bb.function("main", [x, y, z]):
        out = bb.emit_te(total, [x, y], {"z": z}, 2.0, primfunc_attrs={"mine": 1}, name_hint="sum")
        assert out.name == "sum"
        bb.emit_func_output(out)
    mod = bb.get()
    assert mod["total"].attrs["mine"] == 1 and "global_symbol" not in mod["total"].attrs
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    a, b, c = np.random.default_rng(0).random((3, 5, 2), "float32")
    np.testing.assert_allclose(vm["main"](a, b, c).numpy(), (a + b) * 2 + c, rtol=1e-6)


def test_sequences_are_emitted_where_they_may_stand():
    def sequence():
        bb = relax.BlockBuilder()
        with bb.function("f", []):
            bb.emit_func_output(
                bb.emit(relax.op.add(bb.emit(relax.const(1, "int64"), "a"), relax.const(2, "int64")), "c")
            )
        return bb.get()["f"].body

    bb = relax.BlockBuilder()
    with bb.function("f", [], private=True):
        with bb.dataflow():
            bb.emit(relax.const(3, "int64"), "d")
            out = bb.emit_output(bb.emit(sequence(), "e"), "f")
        bb.emit_func_output(out)

    @R.function(private=True)
    def expected():
        with R.dataflow():
            d = R.const(3, "int64")  # noqa: F841
            R.output()
        a = R.const(1, "int64")
        c = R.add(a, R.const(2, "int64"))
        with R.dataflow():
            e = c
            f = e
            R.output(f)
        return f

    ir.assert_structural_equal(bb.finalize()["f"], expected)


def test_nothing_and_tuples_may_be_bound():
    bb = relax.BlockBuilder()
    (x,) = variables((2,))
    with bb.function("f", [x]):
        nothing = bb.emit(None)
        pair = bb.emit((x, (x, x)))
        bb.emit_func_output([pair[1], nothing])
    assert isinstance(nothing.ty, relax.AnyType) and len(pair.ty.fields) == 2


@pytest.mark.parametrize("bound", [lambda n: n, lambda n: 2 * n - 4, lambda n: relax.PrimValue(4)])
def test_scalars_are_operands_wherever_values_are(bound: Callable[[ir.Var], ir.PrimExpr | ir.Expr]):
    n = ir.Var("n", "int64")
    builder, x = relax.BlockBuilder(), variables((n,))
    with builder.function("main", x):
        pair = builder.emit(relax.Tuple([*x, bound(n)]))
        builder.emit_func_output(builder.normalize(relax.TupleGetItem(pair, 1)))
    vm = relax.VirtualMachine(tvm.compile(builder.get(), "llvm"), tvm.cpu())
    assert vm["main"](tvm.runtime.tensor(np.zeros(4, "float32"))) == 4
    refuses(error.InvalidArgument, "relax.Var.*n\n.*MatchCast", relax.VarBinding, n, x[0])


@pytest.mark.parametrize("use", [relax.PrimValue, lambda e: relax.ShapeExpr([4, e])])
def test_a_symbol_without_a_value_is_not_compiled(use: Callable[[ir.PrimExpr], ir.Expr]):
    for value in (n := ir.Var("n", "int64"), n * 2):
        builder = relax.BlockBuilder()
        with builder.function("main", variables((4,))):
            builder.emit_func_output(builder.emit(use(value)))
        with tvm.transform.PassContext(verify=False):  # as outside of tests
            refuses(error.InvalidArgument, "'n' has no value where it is used", tvm.compile, builder.get(), "llvm")


@pytest.mark.parametrize("depth", [4, 60])
def test_a_shared_operand_is_bound_once(depth: int):
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = x
            for _ in range(depth):
                y = relax.op.add(y, y)
            again = bb.emit_output(relax.op.add(y, bb.emit(relax.op.multiply(y, x))))
        left = relax.op.negative(again)
        bb.emit_func_output(bb.emit(relax.op.add(left, left)))
    assert sum(len(block.bindings) for block in bb.get()["main"].body.blocks) == depth + 4
    if depth == 4:
        x = np.array([0, 1, -3], "float32")
        got = relax.VirtualMachine(tvm.compile(bb.get(), "llvm"), tvm.cpu())["main"](tvm.runtime.tensor(x))
        np.testing.assert_allclose(got.numpy(), -32 * x.astype("float64") * (1 + x), rtol=1e-6)
