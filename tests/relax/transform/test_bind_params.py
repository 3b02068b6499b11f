"""Parameters that became constants: the program computes what it did."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from tests.relax_models import written
from weft import error, relax, script

MODULE = written("x: (2, k), w: (k, 3)", "out = R.matmul(x, w)")


@pytest.mark.parametrize("by_name", [False, True])
def test_bound(by_name):
    mod = MODULE
    x, w = np.random.default_rng(0).standard_normal((2, 5), np.float32), np.ones((5, 3), np.float32)
    key = "w" if by_name else mod["main"].params[1]
    out = relax.transform.BindParams("main", {key: w})(mod)
    assert [p.name_hint for p in out["main"].params] == ["x"]
    assert [int(d) for d in out["main"].params[0].ty.shape] == [2, 5]
    relax.analysis.well_formed(out)
    vm = relax.VirtualMachine(weft.compile(out, target="llvm"), weft.cpu())
    np.testing.assert_allclose(vm["main"](weft.runtime.tensor(x)).numpy(), x @ w, rtol=1e-5, atol=1e-6)
    assert len(mod["main"].params) == 2


def test_refused():
    mod = MODULE
    with pytest.raises(error.InvalidArgument, match="no parameter 'y'"):
        relax.transform.BindParams("main", {"y": np.ones((5, 3), np.float32)})(mod)
    refuses(error.InvalidArgument, "no Relax function 'other'", relax.transform.BindParams("other", {}), mod)
    with pytest.raises(error.ShapeMismatch, match=r"(?s)parameter 'w' of 'main' has another shape.*found \(5, 4\)"):
        relax.transform.BindParams("main", {"w": np.ones((5, 4), np.float32)})(mod)
    with pytest.raises(error.ShapeMismatch, match=r"(?s)parameter 'w' of 'main'.*found \(6, 3\).*other parameters say"):
        relax.transform.BindParams("main", {"x": np.ones((2, 5), np.float32), "w": np.ones((6, 3), np.float32)})(mod)
    with pytest.raises(error.InvalidArgument, match=r"(?s)no parameter 'W'.*one of x, w"):
        relax.transform.BindParams("main", {"W": np.ones((5, 3), np.float32)})(mod)
    with pytest.raises(error.InvalidArgument, match=r"(?s)no parameter 'ww'.*did you mean 'w'"):
        relax.transform.BindParams("main", {"ww": np.ones((5, 3), np.float32)})(mod)
    with pytest.raises(error.DTypeMismatch, match="data type"):
        relax.transform.BindParams("main", {"w": np.ones((5, 3), np.float64)})(mod)


CALLS = """@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "k")), w: R.Tensor(("k", 3)), s: R.Shape(["m"])) -> R.Any:
        y = w
        with R.dataflow():
            z = R.matmul(x, Module.helper(y))
            r = R.reshape(z, R.shape([3 * n]))
            o = (r, s)
            R.output(o)
        return o

    @R.function
    def helper(w: R.Tensor(("k", 3))) -> R.Tensor(("k", 3)):
        k = T.int64()
        return R.add(w, w)
"""


@pytest.mark.parametrize("x", [(4, 5), (1, 5), (0, 5)])
def test_types_that_follow_are_inferred_again(x):
    mod = script.from_source(CALLS)
    values = {"x": np.ones(x, "float32"), "w": np.ones((5, 3), "float32"), "s": relax.ShapeExpr([7])}
    out = relax.transform.BindParams("main", values)(mod)["main"]
    assert not out.params
    relax.analysis.well_formed(weft.IRModule({**mod.functions, "main": out}))
    assert str(out.ret_ty) == f"R.Tuple(R.Tensor(({3 * x[0]},)), R.Shape([7]))"  # what `helper` says has no dtype
    assert str(out.body.blocks[0].bindings[0].var.ty) == str(relax.TensorType((5, 3), "float32"))


def test_sizes_are_bound_and_written_simpler():
    func = script.from_source("""@R.function(private=True)
def main(A: R.Tensor(["M", "N"])):
    return R.call_dps_packed("f", [A], out_ty=R.Tensor([2 * M * N]))
""")
    assert str(func.bind_symbolic_vars({"N": 16}).ret_ty.shape[0]) == "M * 32"
    n, other = func.params[0].ty.shape[1], weft.tir.Var("other", "int64")
    refuses(error.InvalidArgument, "told two values of 'N'", func.bind_symbolic_vars, {n: 16, "N": 16})
    with pytest.raises(error.InvalidArgument, match=r"(?s)variables that no parameter defines.*found other"):
        func.bind_symbolic_vars({"N": other * 2})
    assert str(func.bind_symbolic_vars({"N": other, "M": other * 2}).ret_ty.shape[0]) == "other * 4 * other"
