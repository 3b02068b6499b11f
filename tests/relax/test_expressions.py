"""Relax expressions made by hand: operators, indices, calls, constants, types, functions."""

import numpy as np
import pytest

import weft as tvm
from tests.refusals import refuses
from weft import error, ir, relax, tir
from weft.script import relax as R

X = relax.Var("x", relax.TensorType((2, 3), "float32"))


def run(expr, *args, params=(X,)):
    bb = relax.BlockBuilder()
    with bb.function("main", list(params)):
        bb.emit_func_output(expr)
    return relax.VirtualMachine(relax.build(bb.get(), "llvm"), tvm.cpu())["main"](*args)


def test_python_operators():
    x = np.random.default_rng(0).random((2, 3), "float32") + 1
    two = relax.const(2.0, "float32")
    cases = {
        "add": (X + 1.0, x + 1),
        "radd": (1 + X, 1 + x),
        "subtract": (X - two, x - 2),
        "rsub": (3.0 - X, 3 - x),
        "multiply": (X * X, x * x),
        "divide": (X / two, x / 2),
        "power": (X**two, x**2),
        "negative": (-X, -x),
        "less": (X < two, x < 2),
        "greater_equal": (X >= two, x >= 2),
        "astype": (X.astype("int32"), x.astype("int32")),
    }
    found = run(relax.Tuple([made for made, _ in cases.values()]), x)
    for name, out, (_, expected) in zip(cases, found, cases.values(), strict=True):
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6, err_msg=name)
    refuses(TypeError, "", lambda: X + "text")


def test_elements_of_tuples():
    pair = relax.Var("pair", relax.TupleType([X.ty, relax.AnyType()]))
    first, second = pair
    ir.assert_structural_equal(first.ty, X.ty)
    assert isinstance(second.ty, relax.AnyType) and pair[-1].index == 1
    made = relax.Tuple([X, pair])
    assert made[0] is X and made[-1] is pair and len(made) == 2 and made
    ir.assert_structural_equal(made.ty, relax.TupleType([X.ty, pair.ty]))
    for wrong in (lambda: pair[2], lambda: made[-3], lambda: relax.ShapeExpr([1])[1]):
        refuses(error.IndexOutOfRange, "", wrong)
    for wrong in (lambda: X[0], lambda: list(X), lambda: list(second), lambda: relax.op.sum(X, axis=X)):
        refuses(TypeError, "", wrong)
    with pytest.raises(ValueError, match="not enough values"):
        _, _, _ = pair


def test_types_of_scalars_and_of_tuples_on_a_device():
    bb, n, f = relax.BlockBuilder(), *(relax.Var(t, ir.PrimType(t)) for t in ("int64", "float32"))
    assert bb.normalize(n + n).ty.dtype == "int64" and bb.normalize(f < f).ty.dtype == "bool"
    for wrong in (lambda: n + f, lambda: relax.op.bitwise_and(f, f)):
        refuses(error.DTypeMismatch, "", bb.normalize, wrong())
    assert bb.normalize(relax.op.grad.no_grad(relax.ShapeExpr([2]))).ty.ndim == 1
    here = relax.Var("x", relax.TensorType((2, 3), "float32", vdevice=ir.VDevice("llvm")))
    assert bb.normalize(relax.op.concat([here, X])).ty.vdevice is here.ty.vdevice


def test_calls_of_values():
    f = relax.Var("f", relax.FuncType([X.ty], X.ty))
    call = f(X)
    assert call.op is f and call.args == (X,)
    assert relax.ExternFunc("my.func")(X, 1).args[1].value.value == 1
    refuses(ValueError, "a defined operator", relax.Call, None, [])
    assert not relax.Call(f, [X], attrs=None, ty_args=None).attrs


def test_constants_follow_tvm():
    assert relax.const(2).ty.dtype == "int32" and relax.const(2.5).ty.dtype == "float32"
    assert relax.const([1, 2]).ty.dtype == "int32" and relax.const(np.zeros(2)).ty.dtype == "float32"
    assert relax.const(True).ty.dtype == "bool" and relax.const(2, "int8").ty.dtype == "int8"
    assert relax.const(1 << 40).ty.dtype == "int64"  # what int32 does not hold


def test_tensor_types_in_tvms_order():
    where = tvm.ir.VDevice("llvm")
    assert relax.TensorType((2, 3)).dtype == "float32"
    assert relax.TensorType([2], None).dtype == ""
    assert relax.TensorType((2, 3), "int8", where).vdevice is where and relax.TensorType((2,), "int8", where).ndim == 1
    shape = relax.Var("s", relax.ShapeType(ndim=2))
    ir.assert_structural_equal(relax.TensorType(shape, "float32"), relax.TensorType(ndim=2))
    ir.assert_structural_equal(relax.TensorType(relax.ShapeExpr([2, 3]), "int8"), relax.TensorType((2, 3), "int8"))


def test_scalar_values():
    assert relax.prim_value(np.int32(2)).value.dtype == "int64" and relax.prim_value(1, "int8").value.dtype == "int8"
    refuses(TypeError, "Cannot convert", relax.prim_value, X)
    assert len(relax.expr.make_shape([1, 2])) == 2
    refuses(TypeError, "", relax.expr.make_shape, 3)


def test_a_shape_as_te_tensor():
    n, m = tir.Var("n", "int64"), tir.Var("m", ty="int64")
    placeholder = relax.expr.te_tensor(relax.Var("x", relax.TensorType((n, 2), "int8")), {n: m}, "A")
    assert placeholder.shape[0] is m and (placeholder.dtype, placeholder.name) == ("int8", "A")


@R.function
def scaled(x: R.Tensor(("n", 3), "float32"), w: R.Tensor(("n",), "float32")):
    return R.multiply(x, R.const(2.0, "float32"))


def test_functions_bind_parameters_and_sizes():
    bound = scaled.bind_params({"w": np.ones(4, "float32")})
    assert len(bound.params) == 1 and bound.params[0].ty.shape[0].value == 4
    assert scaled.bind_symbolic_vars({"n": 5}).ret_ty.shape[0].value == 5
    other = relax.Var("other", bound.params[0].ty)
    assert scaled.bind_params({scaled.params[0]: other}).body.blocks[0].bindings[0].value.args[0] is other
    refuses(error.InvalidArgument, "no symbolic variable", scaled.bind_symbolic_vars, {"k": 5})
    ir.assert_structural_equal(relax.Function.create_empty([X], X.ty).ty, relax.FuncType([X.ty], X.ty))


def test_sizes_correspond_to_plain_variables():
    x = relax.Var("x", relax.TensorType((tir.Var("n", "int64"), 3), "float32"))
    bb = relax.BlockBuilder()
    with bb.function("f", [x], private=True):
        bb.emit_func_output(x)

    @R.function(private=True)
    def f(x: R.Tensor(("n", 3), "float32")):
        return x

    ir.assert_structural_equal(bb.get()["f"], f)
    assert not ir.structural_equal(bb.get()["f"], f)  # passes may use that sizes are not negative


def test_masks_fill_and_print_what_they_consist_of():
    @R.function
    def main(x: R.Tensor(("n", 3), "float32")):
        return R.masked_fill(x, R.greater(x, R.const(0.5)), R.const(-1.0))

    x = np.linspace(0, 1, 6, dtype="float32").reshape(2, 3)
    vm = relax.VirtualMachine(relax.build(ir.IRModule({"main": main}), "llvm"))
    np.testing.assert_array_equal(vm["main"](x).numpy(), np.where(x > 0.5, -1, x))
