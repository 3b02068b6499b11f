"""Names that programs written for TVM use on types and functions, and what they mean."""

import numpy as np
import pytest
import tvm_ffi

import weft
from tests.refusals import refuses
from weft import error, ir, relax, script, tir
from weft.relax.transform import EliminateCommonSubexpr, LambdaLift
from weft.script import ir as I
from weft.script import relax as R
from weft.script import tir as T

N = tir.Var("n", "int64")


@pytest.mark.parametrize(
    "make",
    [
        lambda d: relax.TensorType((N, d), "float32"),
        lambda d: relax.ShapeType((N, d)),
        lambda d: relax.TupleType([relax.TensorType((d,), "int32"), relax.AnyType()]),
        lambda d: relax.FuncType([relax.TensorType((d,), "int32")], relax.AnyType()),
    ],
)
def test_types_are_equal_by_structure(make):
    assert make(2) == make(2)
    assert hash(make(2)) == hash(make(2))
    assert make(2) != make(3)
    assert make(2) != relax.AnyType()
    assert make(2) != "R.Tensor"


def test_types_and_what_they_hold():
    wide, narrow = relax.TensorType(None, "float32", 2), relax.TensorType((N, 3), "float32")
    assert wide.is_base_of(narrow)
    assert not narrow.is_base_of(wide)
    assert relax.AnyType().is_base_of(wide)
    opaque = relax.FuncType.opaque_func()
    assert opaque.params is None
    assert isinstance(opaque.ret, relax.AnyType)


def test_a_device_described_by_more_than_its_kind():
    described = ir.VDevice({"kind": "cuda", "arch": "sm_80"}, 1)
    ir.assert_structural_equal(described, I.vdevice({"kind": "cuda", "arch": "sm_80"}, 1))
    assert "sm_80" in described.target
    assert I.vdevice({"kind": "llvm"}).target == "llvm"


def test_one_meta_var():
    assert I.meta_var is T.meta_var

    @R.function
    def func(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        first, second = I.meta_var((y, x))
        return R.subtract(first, second)

    assert str(func.body.blocks[0].bindings[-1].value) == "R.subtract(y, x)"


@I.ir_module
class Nested:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            a = Nested.middle(x)
            b = R.add(a, a)
            R.output(b)
        return b

    @R.function(private=True)
    def middle(y: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
        c = Nested.inner(y)
        return c

    @R.function(private=True)
    def inner(z: R.Tensor(("k", 3), "float32")) -> R.Tensor(("k", 3), "float32"):
        d = R.exp(z)
        return d


def test_functions_inline_functions():
    functions = {"middle": Nested["middle"], Nested.get_global_var("inner"): Nested["inner"]}
    new = Nested["main"].inline_functions(functions)
    assert [b.value.op.name for block in new.body.blocks for b in block.bindings] == ["relax.exp", "relax.add"]
    x = np.random.default_rng(3).standard_normal((2, 3)).astype("float32")
    vm = relax.VirtualMachine(weft.compile(weft.IRModule({"main": new}), "llvm"), weft.cpu())
    np.testing.assert_allclose(vm["main"](weft.nd.array(x)).numpy(), 2 * np.exp(x), rtol=1e-6)


def test_what_inlining_refuses():
    var = Nested.get_global_var("inner")
    with pytest.raises(error.InvalidArgument, match="given twice"):
        Nested["main"].inline_functions({var: Nested["inner"], "inner": Nested["inner"]})
    loop = script.from_source(
        '@R.function(private=True)\ndef loop(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):\n    return x'
    )
    again = relax.Function(
        loop.params, relax.SeqExpr((), relax.Call(relax.GlobalVar("loop"), loop.params)), loop.ret_ty
    )
    refuses(error.InvalidArgument, "no end", Nested["main"].inline_functions, {"loop": again})


def test_attributes_together():
    func = Nested["inner"].with_attrs({"num_input": 1, "tirx.noalias": True})
    assert func.attrs["num_input"] == 1
    assert func.attrs["tir.noalias"]


def test_several_results_are_a_tuple_and_an_array():
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        return (x, (R.exp(x), x))

    vm = relax.VirtualMachine(weft.compile(weft.IRModule({"main": main}), "llvm"), weft.cpu())
    out = vm["main"](weft.nd.array(np.zeros(2, "float32")))
    for results in (out, out[1]):
        assert isinstance(results, tuple)
        assert isinstance(results, tvm_ffi.Array)
    assert not isinstance((1, 2), tvm_ffi.Array)
    np.testing.assert_array_equal(out[1][0].numpy(), [1, 1])


def test_shapes_of_types_are_shapes():
    ty = relax.TensorType((N, 2), "float32")
    ir.assert_structural_equal(relax.ShapeExpr((N, 2)), ty.shape)
    ir.assert_structural_equal(ty.shape, relax.ShapeExpr((N, 2)))
    refuses(ValueError, "differ", ir.assert_structural_equal, ty.shape, relax.ShapeExpr((N, 3)))


def test_what_a_sequence_does_not_use():
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.exp(a)  # noqa: F841 - nothing uses it
            c = R.sin(x)
            R.output(c)
        return c

    left = relax.analysis.remove_all_unused(main.body)
    assert [b.var.name_hint for b in left.blocks[0].bindings] == ["c"]
    assert relax.analysis.remove_all_unused(left) is left


def test_names_of_other_releases_are_the_same_objects():
    assert R.device(4, 2) == R.opencl(2) == weft.opencl(2) and R.cpu() == weft.cpu()
    assert relax.call_tir_with_grad is relax.op.call_tir_with_grad
    assert relax.utils.copy_with_new_vars is relax.copy_with_new_vars
    for name in ("{}_lca", "{}_base_check", "tir_vars_in_{}", "definable_tir_vars_in_{}", "derive_call_ret_{}"):
        assert getattr(relax.analysis, name.format("struct_info")) is getattr(relax.analysis, name.format("type"))


@pytest.mark.parametrize("indices", [[-1], [2], [0, 0], []])
def test_places_of_results(indices):
    x = relax.Var("x", relax.TensorType((2, 3), "int32"))
    with pytest.raises(error.InvalidArgument, match="inplace_indices"):
        relax.op.call_tir_inplace(relax.GlobalVar("f"), (x,), indices, [x.ty] * max(len(indices), 1))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("with R.dataflow():\n  if c:\n   y = x\n  else:\n   y = x\n  R.output(y)\n return y", "dataflow block"),
        ("return x", "size 'm' is not defined"),
    ],
)
def test_texts_that_are_refused(body, message):
    shape = '("m + 1",)' if "size" in message else "(2,)"
    text = f'@R.function\ndef main(x: R.Tensor({shape}, "float32"), c: R.Tensor((), "bool")):\n {body}\n'
    refuses(error.WeftError, message, script.from_source, text)


def test_calls_with_effects_stay_when_functions_are_lifted():
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
            @R.function(pure=False)
            def inner() -> R.Tuple:
                y = R.print(format="seen")
                return y

            _ = inner()
            return x

    lifted = LambdaLift()(Module)
    assert len(lifted.functions) == 2
    (binding,) = lifted["main"].body.blocks[0].bindings
    assert binding.value.op is lifted.get_global_var("main_inner")
    assert EliminateCommonSubexpr()(lifted)["main"] is lifted["main"]


def test_struct_info_is_the_type():
    from weft.relax.struct_info import TensorStructInfo

    assert TensorStructInfo is relax.TensorType and issubclass(TensorStructInfo, relax.StructInfo)
    assert relax.Var("x", TensorStructInfo((2,), "int8")).struct_info.ndim == 1
