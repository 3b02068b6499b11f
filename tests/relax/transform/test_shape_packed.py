"""VMShapeLower of pipelines of one's own: what it makes is read by the machine and by programs."""

import numpy as np

import weft
from tests.refusals import refuses
from weft import error, relax
from weft.script import ir as I
from weft.script import relax as R
from weft.script import tir as T


@I.ir_module
class Sizes:
    @R.function
    def main(
        x: R.Tensor(("n", "m"), "float32"), w: R.Tuple(R.Tensor((3,), "float32"), R.Tensor(("m",), "float32"))
    ) -> R.Shape(ndim=3):
        R.func_attr({"num_input": 1, "relax.force_pure": True})
        n = T.int64()
        m = T.int64()
        return R.shape([n + m, m, 7])


def calls(mod):
    bindings = [b for block in mod["main"].body.blocks for b in block.bindings]
    return [b.value.op.global_symbol for b in bindings if isinstance(getattr(b.value, "op", None), relax.ExternFunc)]


def test_checks_in_order():
    low = relax.transform.VMShapeLower(emit_err_ctx=False)(Sizes)
    checks = ["check_tensor_info", "check_tuple_info", "check_tensor_info", "match_shape", "match_shape", "make_shape"]
    assert calls(low) == [f"vm.builtin.{c}" for c in checks]  # a weight of a known size is not checked
    assert "shape_func" in {v.name_hint for v in low.functions}


def test_the_result_runs_and_refuses():
    vm = relax.VirtualMachine(weft.compile(relax.transform.VMShapeLower()(Sizes), target="llvm"), weft.cpu())
    x, a, b = (weft.nd.array(np.zeros(s, "float32")) for s in [(2, 5), (3,), (5,)])
    assert list(vm["main"](x, (a, b))) == [7, 5, 7]
    refuses(error.WeftError, "parameter 1", vm["main"], x, (a, a))


def test_a_cast_stays_beside_its_checks():
    @R.function
    def main(x: R.Tensor(ndim=2, dtype="float32")) -> R.Tensor(ndim=2, dtype="float32"):
        R.func_attr({"relax.force_pure": True})
        k = T.int64()
        y = R.match_cast(x, R.Tensor((k, k * 2), "float32"))
        return y

    low = relax.transform.VMShapeLower(emit_err_ctx=False)(weft.IRModule({"main": main}))
    assert calls(low) == ["vm.builtin.check_tensor_info", *["vm.builtin.match_shape"] * 2]
    assert any(isinstance(b, relax.MatchCast) for block in low["main"].body.blocks for b in block.bindings)
    vm = relax.VirtualMachine(weft.compile(low, target="llvm"), weft.cpu())
    assert vm["main"](weft.nd.array(np.ones((2, 4), "float32"))).shape == (2, 4)
    refuses(error.WeftError, "", vm["main"], weft.nd.array(np.ones((2, 3), "float32")))


def test_the_type_of_a_result_names_only_what_the_caller_knows():
    @R.function
    def main(x: R.Tensor):
        k = T.int64()
        y = R.match_cast(x, R.Tensor((k, 3), "float32"))
        return y

    assert main.ret_ty.shape is None
    assert (main.ret_ty.ndim, main.ret_ty.dtype) == (2, "float32")
