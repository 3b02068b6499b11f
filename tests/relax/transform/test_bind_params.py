"""Parameters that became constants: the program computes what it did."""

import numpy as np
import pytest

import weft
from weft import error, relax
from weft.script import from_source

SOURCE = """@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, "k"), "float32"), w: R.Tensor(("k", 3), "float32")) -> R.Tensor((2, 3), "float32"):
        return R.matmul(x, w)
"""


@pytest.mark.parametrize("by_name", [False, True])
def test_bound(by_name):
    mod = from_source(SOURCE)
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
    mod = from_source(SOURCE)
    with pytest.raises(error.InvalidArgument, match="no parameter 'y'"):
        relax.transform.BindParams("main", {"y": np.ones((5, 3), np.float32)})(mod)
    with pytest.raises(error.InvalidArgument, match="no Relax function 'other'"):
        relax.transform.BindParams("other", {})(mod)
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
